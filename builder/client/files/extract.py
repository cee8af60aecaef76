"""Unpacks a verified package into a fresh folder: only what its manifest lists, each file proved on the way.

Own checks instead of ``tarfile``'s filters, which Python 3.9 may not have: names, kinds, counts and sizes are
compared with ``manifest.json``, the archive's first member, so nothing else can come out.

A stream as the file that ``tarfile`` wants: read once, forwards.

``tarfile`` has a mode for streams, which copies all it reads twice: a third of the time of unpacking.
"""

from __future__ import annotations

import io
import re
import tarfile
from itertools import islice
from pathlib import Path
from typing import IO, Dict, Iterator, Tuple, Union, cast

from builder.client.files.digest import CHUNK, Sync, syncing, write_file
from builder.client.files.folder import INFO
from builder.errors import DiskError, IntegrityError
from builder.formats.manifest import FOLDER_MODE, FileEntry, Manifest, file_mode, loads

MANIFEST = "manifest.json"

MANIFEST_LIMIT = 16 * 2**20
"""Bytes; a real manifest has some ten thousand."""

COUNT_LIMIT = 10_000

HEADER_LIMIT = 64 * 2**10
"""Bytes; long names are spelled in a few hundred."""

_NO_TAR = (tarfile.TarError, ValueError, RecursionError, OverflowError)
"""What ``tarfile`` raises of headers that somebody made up."""

_SURROGATE = re.compile("[\ud800-\udfff]")

_SHA256 = re.compile(r"[0-9a-f]{64}")


def extract(stream: IO[bytes], top: str, folder: Path, limit: int) -> Manifest:
    """Unpack the tar ``stream``, whose members all lie under ``top``, into the empty ``folder``.

    Modes are ``file_mode``'s, not the archive's or the umask's. ``limit`` is the index's ``unpacked_size`` in
    bytes. Raises ``IntegrityError`` for anything the manifest does not list or lists otherwise, ``DiskError``
    when a file cannot be written.
    """
    try:
        with _opened(stream) as archive, syncing() as sync:
            members = islice(archive, COUNT_LIMIT * 2)  # folders count too
            folder.chmod(FOLDER_MODE)
            content = _first(archive, members, top)
            write_file(io.BytesIO(content), folder / MANIFEST, file_mode(MANIFEST))
            manifest = _parse(content, top)
            wanted = _wanted(manifest, top, limit)
            for member in members:
                _take(archive, member, top, folder, wanted, sync)
    except _NO_TAR as error:
        raise IntegrityError(f"{top}: not a whole tar archive: {error}") from error
    except OSError as error:
        raise DiskError(f"{folder}: cannot be written: {error.strerror or error}") from error
    if wanted:
        raise IntegrityError(f"{top}: the archive lacks {_some(wanted)}, which its manifest lists")
    return manifest


def read_manifest(stream: IO[bytes], top: str) -> Manifest:
    """The manifest, from the head of the tar ``stream``. Raises ``IntegrityError`` or ``ConfigError``."""
    try:
        with _opened(stream) as archive:
            return _parse(_first(archive, iter(archive), top), top)
    except _NO_TAR as error:
        raise IntegrityError(f"{top}: not a whole tar archive: {error}") from error


def inside(name: str, top: str) -> Tuple[str, ...]:
    """The parts of a member's path below ``top``; ``IntegrityError`` for a name that could lead elsewhere."""
    parts = tuple(name.split("/"))
    plain = all(part not in {"", ".", ".."} for part in parts) and not set(name) & set("\\:\0")
    if not plain or _SURROGATE.search(name) or parts[0] != top:
        raise IntegrityError(f"{top}: the archive holds {name!r}, which does not lie in its folder")
    return parts[1:]


class _Header(tarfile.TarInfo):
    """Refuses what ``tarfile`` would read into memory however large it says it is."""

    @classmethod
    def frombuf(cls, buf: Union[bytes, bytearray], encoding: str, errors: str) -> _Header:
        """As ``TarInfo`` has it. Raises ``ReadError``."""
        header = super().frombuf(buf, encoding, errors)
        if not _plain_file(header) and header.size > HEADER_LIMIT:
            raise tarfile.ReadError(f"a header of {header.size} bytes")
        return header

    def _proc_gnusparse_10(self, *_: object) -> None:
        raise tarfile.ReadError("a sparse file")


def _opened(stream: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=cast("IO[bytes]", Forward(stream)), mode="r:", tarinfo=_Header)


def _first(archive: tarfile.TarFile, members: Iterator[tarfile.TarInfo], top: str) -> bytes:
    """The manifest's bytes: it must be the first member but the top-level folder itself."""
    member = next((item for item in members if not (item.isdir() and inside(item.name, top) == ())), None)
    if member is None or inside(member.name, top) != (MANIFEST,) or not _plain_file(member):
        raise IntegrityError(f"{top}: the archive does not begin with {MANIFEST}")
    if member.size > MANIFEST_LIMIT:
        raise IntegrityError(f"{top}: {MANIFEST} has {member.size} bytes; at most {MANIFEST_LIMIT} are read")
    source = archive.extractfile(member)
    return source.read() if source else b""


def _parse(content: bytes, top: str) -> Manifest:
    """The manifest. Its hashes become file names and words for pip, so they must be hashes."""
    try:
        manifest = loads(content.decode(), top)
    except UnicodeDecodeError as error:
        raise IntegrityError(f"{top}: {MANIFEST} is not UTF-8 text") from error
    hashes = [entry.sha256 for entry in manifest.files] + [wheel.sha256 for wheel in manifest.wheels]
    for sha256 in hashes:
        if _SHA256.fullmatch(sha256) is None:
            raise IntegrityError(f"{top}: its manifest has {sha256!r} for a sha256")
    return manifest


def _wanted(manifest: Manifest, top: str, limit: int) -> Dict[Tuple[str, ...], FileEntry]:
    """What must come out of the archive, by place. What comes from elsewhere is held to the same rules."""
    entries = {inside(f"{top}/{entry.path}", top): entry for entry in manifest.files}
    if len(manifest.files) > COUNT_LIMIT or len(entries) != len(manifest.files):
        raise IntegrityError(f"{top}: its manifest lists {len(manifest.files)} files, some twice or too many")
    if {(MANIFEST,), (INFO,)} & set(entries) or any(entry.size < 0 for entry in manifest.files):
        raise IntegrityError(f"{top}: its manifest lists itself, {INFO} or a negative size")
    if manifest.unpacked_size > limit:
        raise IntegrityError(
            f"{top}: unpacked size differs.\n    wanted: at most {limit} bytes (index)\n"
            f"    got:    {manifest.unpacked_size} bytes (manifest)"
        )
    return {parts: entry for parts, entry in entries.items() if entry.packed}


def _take(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    top: str,
    folder: Path,
    wanted: Dict[Tuple[str, ...], FileEntry],
    sync: Sync,
) -> None:
    """Write one member and cross it off ``wanted``."""
    parts = inside(member.name, top)
    if member.isdir():
        return
    if not _plain_file(member):
        raise IntegrityError(f"{top}: {member.name} is a link or a device; a package has only files")
    entry = wanted.pop(parts, None)
    if entry is None:
        raise IntegrityError(f"{top}: the archive holds {member.name}, not in its manifest or there twice")
    if member.size != entry.size:
        raise IntegrityError(_differs(top, entry.path, "size", str(entry.size), str(member.size)))
    _make_folders(folder, parts[:-1])
    source = archive.extractfile(member)
    target = folder.joinpath(*parts)
    digest = write_file(source, target, file_mode(entry.path), sync) if source else ""
    if digest != entry.sha256:
        raise IntegrityError(_differs(top, entry.path, "sha256", entry.sha256, digest))


def _make_folders(folder: Path, parts: Tuple[str, ...]) -> None:
    for end in range(1, len(parts) + 1):
        made = folder.joinpath(*parts[:end])
        if not made.is_dir():
            made.mkdir()
            made.chmod(FOLDER_MODE)


def _plain_file(member: tarfile.TarInfo) -> bool:
    return member.type in {tarfile.REGTYPE, tarfile.AREGTYPE} and not member.issparse()


def _differs(top: str, path: str, what: str, wanted: str, got: str) -> str:
    return f"{top}: {path}: {what} differs from the manifest.\n    wanted: {wanted}\n    got:    {got}"


def _some(wanted: Dict[Tuple[str, ...], FileEntry]) -> str:
    names = sorted(entry.path for entry in wanted.values())
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004


class Forward:
    """Reads to the full and seeks forwards; back by one byte, which ``tarfile`` looks at twice."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._at = 0
        self._last = b""
        """The byte before ``_at``, or at it when ``_again``."""
        self._again = False

    def tell(self) -> int:
        """Bytes from the stream's beginning."""
        return self._at

    def seek(self, position: int) -> int:
        """Go to ``position``. Raises ``StreamError`` for one that has gone by."""
        if position == self._at - 1 and self._last:
            self._again, self._at = True, position
        while self._at < position and self.read(min(CHUNK, position - self._at)):
            pass
        if position < self._at:
            raise tarfile.StreamError("seeking backwards is not allowed")
        return self._at

    def read(self, size: int) -> bytes:
        """``size`` bytes; fewer at the end only."""
        if self._again and size:
            self._again, self._at = False, self._at + 1
            return self._last + self.read(size - 1)
        data = self._stream.read(size) if size else b""
        while data and len(data) < size and (more := self._stream.read(size - len(data))):
            data += more
        self._at += len(data)
        self._last = data[-1:] or self._last
        return data
