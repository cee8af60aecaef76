"""Second readers count the same files by other programs: cuobjdump, pefile, and a search for bytes.

The search shares no code with our reader. Each second reader returns, for a library, the count that both
readers agree on and the differences. A reason for a difference is found by a rule that looks at the bytes or
at the other program's message, never at a file's name; a difference without such a rule is unexplained.
"""

from __future__ import annotations

import mmap
import re
import struct
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pefile

from builder.binary.coverage import LibraryCoverage
from builder.binary.fatbin_format import LINK_INPUT, LOADED, SECTIONS, Kind
from builder.binary.file_kinds import FileKind
from builder.binary.library import Inspected
from builder.contents.cuobjdump import CuobjdumpError, ImageCounts, Listing, disagreements, parse_listings
from builder.facts.gpu.architectures import Arch
from builder.inspect.report.wheel_record import SecondReading

_MAGIC = re.compile(re.escape(bytes.fromhex("50ed55ba01001000")))

_IMAGE = struct.Struct("<HHIQ12xI8xQ")
"""Layout of an image's header: kind, version, header size, payload size, architecture, flags."""

_NAMES = {1: "ptx", 2: "sass", 8: "ltoir"}

_JOINED, _VERSION = 0x100, 0x101


@dataclass(frozen=True)
class Seen:
    """The readings of one library by our reader and another one, compared."""

    images: int
    """Number of images, or of imports of a DLL, that both readers count."""
    explained: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cuobjdump:
    """The newest cuobjdump, and an older one for files that the newest refuses."""

    newest: Path
    older: Path

    def read(self, item: Inspected, file: Path) -> Seen | None:
        """Compare the images by architecture.

        Returns ``None`` for DLLs and bare PTX, which cuobjdump does not open.
        """
        coverage = item.coverage
        if coverage is None or item.kind in {FileKind.DLL, FileKind.PTX}:
            return None
        native = _listed(coverage)
        counted = sum(native.sass.values()) + sum(native.ptx.values())
        try:
            lines = disagreements(native, _list(self.newest, file))
        except CuobjdumpError as error:
            said = f"{item.name}: {_SAID.sub('', str(error)).strip()}"
            return self._refused(native, counted, file, said)
        return Seen(counted, unexplained=tuple(f"{item.name}: {line}" for line in lines))

    def _refused(self, native: ImageCounts, counted: int, file: Path, said: str) -> Seen:
        """Compare a file that the newest cuobjdump refuses with the older cuobjdump's listing.

        A file with an architecture below ``_OLDEST`` is explained, since cuobjdump does not list it from CUDA
        12 on. If the older cuobjdump fails or lists other images, the refusal is unexplained.
        """
        gone = sorted(arch for arch in {*native.sass, *native.ptx} if arch < _OLDEST)
        if gone:
            return Seen(0, (f"{said}; no cuobjdump from 12 on lists sm_{gone[0]}, which it holds",))
        try:
            alike = not disagreements(native, _list(self.older, file))
        except CuobjdumpError:
            alike = False
        if not alike:
            return Seen(0, (), (said,))
        return Seen(counted, (f"{said}; cuobjdump 12.4.131 lists the same {counted:,} images as ours",))


_SAID = re.compile(r"exit code \d+: cuobjdump fatal\s*:| in '[^']*'")

_OLDEST = Arch(5, 0)
"""The oldest architecture of CUDA 12, which dropped Kepler."""


def _list(program: Path, file: Path) -> ImageCounts:
    return parse_listings(*(_ask(program, kind, file) for kind in ("elf", "ptx")))


def _listed(coverage: LibraryCoverage) -> ImageCounts:
    """Return the images that our reader found in the sections where cuobjdump looks."""
    kinds = coverage.images.get(LOADED, coverage.images.get(LINK_INPUT, {}))
    if not coverage.images.keys() & {*SECTIONS}:
        kinds = coverage.images.get("", {})  # a bare fatbin or cubin
    return ImageCounts(sass=kinds.get(Kind.SASS, {}), ptx=kinds.get(Kind.PTX, {}))


def _ask(program: Path, kind: str, file: Path) -> Listing:
    done = subprocess.run([program, f"--list-{kind}", file], capture_output=True, text=True, check=False)
    lines = (line for line in done.stdout.splitlines() if not line.startswith("member "))
    return Listing(done.returncode, "\n".join(lines), done.stderr)


def pe_file(item: Inspected, file: Path) -> Seen | None:
    """Compare the imports and the name of a DLL with ``pefile``'s; return ``None`` for other files."""
    if item.kind is not FileKind.DLL:
        return None
    with pefile.PE(str(file), fast_load=True) as dll:
        wanted = (
            "IMAGE_DIRECTORY_ENTRY_EXPORT",
            "IMAGE_DIRECTORY_ENTRY_IMPORT",
            "IMAGE_DIRECTORY_ENTRY_DELAY_IMPORT",
        )
        dll.parse_data_directories([pefile.DIRECTORY_ENTRY[name] for name in wanted])
        entries = [
            *getattr(dll, "DIRECTORY_ENTRY_IMPORT", ()),
            *getattr(dll, "DIRECTORY_ENTRY_DELAY_IMPORT", ()),
        ]
        theirs = {entry.dll.decode() for entry in entries}
        exports = getattr(dll, "DIRECTORY_ENTRY_EXPORT", None)
        own = exports.name.decode() if exports and exports.name else None
    lines = [f"{item.name}: imports {sorted(theirs ^ set(item.needed))}"] if theirs ^ set(item.needed) else []
    lines += [f"{item.name}: is called {own}, {item.soname} read natively"] if own != item.soname else []
    return Seen(len(theirs), unexplained=tuple(lines))


def search(item: Inspected, file: Path) -> Seen | None:
    """Compare the images with those in every container that a search for a container's header finds.

    The search looks for the first eight bytes of a container. Returns ``None`` for cubins, for bare PTX and
    for files without device code.
    """
    coverage = item.coverage
    if coverage is None or item.kind in {FileKind.CUBIN, FileKind.PTX}:
        return None
    ours: Counter[str] = Counter()
    for kinds in coverage.images.values():
        for kind, arches in kinds.items():
            ours.update({f"{kind.value} {arch}": count for arch, count in arches.items()})
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = [_images_at(data, hit.start()) for hit in _MAGIC.finditer(data)]
    theirs = Counter(name for images in found for name in images or ())
    lines = [
        f"{item.name}: {name}: {ours[name]} read natively, {theirs[name]} found by search"
        for name in sorted({*ours, *theirs})
        if ours[name] != theirs[name]
    ]
    return Seen(sum((ours & theirs).values()), unexplained=tuple(lines))


def _images_at(data: mmap.mmap, at: int) -> list[str] | None:
    """Return the names of the images in the container at ``at``; ``None`` if no whole container is there."""
    (size,) = struct.unpack_from("<Q", data, at + 8)
    place, end, found = at + 16, at + 16 + size, []
    if not size or end > len(data):
        return None
    while place < end:
        if place + 64 > end:
            return None
        kind, version, header, payload, number, flags = _IMAGE.unpack_from(data, place)
        if version != _VERSION or not payload:
            return None
        if kind == _JOINED:
            count, table = struct.unpack_from("<II", data, place + 64)
            step = (table - 8) // count
            for part in range(place + 72, place + 64 + table, step):
                inner, _version, _header, _payload, number, flags = _IMAGE.unpack_from(data, part)
                found.append(_name(inner, number, flags))
        else:
            found.append(_name(kind, number, flags))
        place += header + payload
    return found if place == end else None


def _name(kind: int, number: int, flags: int) -> str:
    suffix = "a" if flags & 0x100000 else "f" if flags & 0x200000 else ""
    known = _NAMES.get(kind, "other") if flags & 0x51 in {0x11, 0x41} else "other"
    return f"{known} {number}{suffix}"


def summed(reader: str, seen: Iterable[Seen | None]) -> SecondReading:
    """Return the sum of another reader's readings of all libraries of a wheel."""
    known = [one for one in seen if one]
    explained = tuple(line for one in known for line in one.explained)
    unexplained = tuple(line for one in known for line in one.unexplained)
    return SecondReading(reader, len(known), sum(one.images for one in known), explained, unexplained)
