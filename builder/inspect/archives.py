"""Reader of the libraries in untrusted archives: tars, and zips such as wheels and NuGet packages.

Only libraries and manifests are written to disk, and nested zips until they are read. No name in an archive
is used as a path: ``Scratch`` gives files numbers as names.
"""

from __future__ import annotations

import os
import re
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from builder.binary.elf_headers import LARGEST
from builder.binary.file_kinds import HEAD
from builder.binary.library_names import is_library, is_named_like_a_library
from builder.errors import IntegrityError, ValidationError
from builder.files.archive_reader import UnpackLimits, is_tar, opened_zip, tar_members, zip_member
from builder.files.decompression import AGAIN, CheckedStream, decompressed
from builder.files.digest import Readable
from builder.files.disk import disk_errors, require_space
from builder.formats.manifest import MANIFEST_HEAD, is_manifest
from builder.formats.text import printable
from builder.io.transfer import TransferReporter


def is_zip(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is a zip archive, as a wheel or a NuGet package is."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def plain(name: str) -> str:
    """Return a member's name without ``./`` and without leading, doubled or final slashes."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))


@contextmanager
def disk_faults(what: str) -> Iterator[None]:
    """Turn a failure of the disk while ``what`` is read inside the block into ``IntegrityError``."""
    try:
        yield
    except OSError as error:
        raise IntegrityError(
            f"{what} cannot be read", cause=error.strerror or str(error), advice=AGAIN
        ) from error


_CHUNK = 1 << 20


VERSION = "version.json"
"""The file beside an official plug-in that has its version."""

VERSION_LIMIT = 4096

_VERSION = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"version"\s*:\s*"')


def is_version(name: str, head: bytes) -> bool:
    """Return whether a file is a ``version.json`` whose version is a text; that of CUDA is an object."""
    return name.rpartition("/")[2] == VERSION and _VERSION.match(head) is not None


Wanted = Callable[[str], bool]
"""Tells by its path in an archive whether a library or manifest is wanted."""


class Scratch:
    """A folder that keeps files from archives, with numbers as names."""

    def __init__(self, folder: Path, wants: Wanted | None = None) -> None:
        """Make ``folder``, which the caller removes, for the files that ``wants`` takes (default: all)."""
        self.wants = wants or (lambda _: True)
        self._folder = folder
        self._count = 0
        with disk_errors(folder):
            folder.mkdir()

    def place(self) -> Path:
        """Return a path in the folder that no file has yet."""
        self._count += 1
        return self._folder / str(self._count)

    def keep(self, stream: Readable, size: int, what: str, most: float = LARGEST) -> Path:
        """Write the ``size`` bytes of ``what`` to a new file, and return its path.

        Raises ``DiskError`` before the disk is full, ``IntegrityError`` for more than ``most`` bytes
        (default: the largest library) and for a stream with fewer than ``size``.
        """
        if size > most:
            raise IntegrityError(f"{what} has {size:,} bytes", cause="no library is larger than 4 GiB")
        path, left = self.place(), size
        self.require(size, what)
        with disk_errors(path, size), path.open("xb") as file:
            while left:
                with disk_faults(what):
                    chunk = stream.read(min(_CHUNK, left))
                if not chunk:
                    raise IntegrityError(
                        f"{what} ends {left:,} bytes before the size that its header says ({size:,})",
                        advice=AGAIN,
                    )
                file.write(chunk)
                left -= len(chunk)
        return path

    def require(self, size: int, what: str) -> None:
        """Raise ``DiskError`` unless ``size`` bytes, the size that ``what`` claims to have, are free."""
        require_space(self._folder / what.rpartition("/")[2], size)


_ENCRYPTED = 0x1

_DEEPEST = 3
"""The deepest nesting of archives that is read."""


def read_zip(path: Path, scratch: Scratch, what: str, reporter: TransferReporter) -> dict[str, Path]:
    """Return an archive's libraries by path.

    Raises ``IntegrityError``, ``ValidationError`` or ``DiskError``.
    """
    size = path.stat().st_size
    with reporter.progress(what.rpartition("/")[2], size) as advance:
        return dict(members_of(path, scratch, what, UnpackLimits.of(what, size), advance=advance))


def members_of(
    path: Path,
    scratch: Scratch,
    what: str,
    limits: UnpackLimits,
    depth: int = 1,
    advance: Callable[[int], object] = lambda _: None,
) -> Iterator[tuple[str, Path]]:
    """Yield path and file of each library in a zip and in zips in it. Raises what ``read_zip`` raises.

    ``advance`` is told the packed bytes of each member.
    """
    if depth > _DEEPEST:
        raise ValidationError(
            f"{what} lies in {_DEEPEST} archives, one in the other",
            advice="Unpack the outer archives and name the inner file.",
        )
    with opened_zip(path, what) as archive:
        files = {plain(info.filename): info for info in archive.infolist() if _is_file(info)}
        wanted: dict[str, bool] = {}
        for name, info in files.items():
            head = _head(archive, name, info, what)
            if is_zip(head) or ((is_library(name, head) or is_version(name, head)) and scratch.wants(name)):
                wanted[name] = is_zip(head)
        unpacked = sum(files[name].file_size for name in wanted)
        limits.take_libraries(len(wanted))
        limits.take_content(unpacked)
        scratch.require(unpacked, what)
        for name, is_nested in wanted.items():
            info, whole = files[name], f"{what}: {printable(name)}"
            with zip_member(archive, info, whole) as content:
                file = scratch.keep(content, info.file_size, whole)
            advance(info.compress_size)
            if is_nested:
                for inner, library in members_of(file, scratch, whole, limits, depth + 1):
                    yield f"{name}/{inner}", library
                file.unlink()
            else:
                yield name, file


def _is_file(info: ZipInfo) -> bool:
    return not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16)


def _head(archive: ZipFile, name: str, info: ZipInfo, what: str) -> bytes:
    """Return a member's first bytes. Raises ``ValidationError`` if the member is encrypted."""
    if info.flag_bits & _ENCRYPTED:
        raise ValidationError(
            f"{what}: {printable(name)} is encrypted",
            advice="Unpack it with its password and name the folder.",
        )
    with archive.open(info) as content:
        return content.read(HEAD)


def _require_tar(stream: CheckedStream, what: str) -> None:
    """Raise ``ValidationError`` if decompressed bytes are no tar."""
    head = stream.peek(tarfile.BLOCKSIZE)
    if any(head) and not is_tar(head):
        raise ValidationError(
            f"{what}: what is compressed in it is no tar archive",
            advice="Decompress it and name the resulting file.",
        )


def read_tar(
    path: Path, packing: str, what: str, scratch: Scratch, reporter: TransferReporter
) -> dict[str, Path]:
    """Return the libraries of a tar by name; ``packing`` is how it is compressed, empty if it is not.

    Raises ``IntegrityError``, ``ValidationError`` or ``DiskError``.
    """
    limits = UnpackLimits.of(what, path.stat().st_size)
    reader = _TarLibraries(scratch, what, limits)
    with disk_faults(what), ExitStack() as stack:
        file = stack.enter_context(path.open("rb"))
        advance = stack.enter_context(reporter.progress(what.rpartition("/")[2], path.stat().st_size))
        if packing:
            stream = stack.enter_context(decompressed(file, packing, what, path))
            _require_tar(stream, what)
            members = tar_members(stream, limits)
        else:
            members = tar_members(file, limits, seeks=True)
        done = 0
        for info, content in members:
            require_no_image([plain(info.name)], what)
            reader.take(info, content)
            at = os.lseek(file.fileno(), 0, os.SEEK_CUR)
            advance(at - done)
            done = at
    return reader.libraries


_IMAGE = re.compile(r"(?:.*/)?layer\.tar|blobs/sha256/[0-9a-f]{64}|oci-layout")
"""Names of files that only a container image has, from ``docker save`` or as an OCI image layout."""


def require_no_image(names: Iterable[str], what: str) -> None:
    """Raise ``ValidationError`` if a file's name is one that only a container image has."""
    if any(_IMAGE.fullmatch(name) for name in names):
        raise ValidationError(
            f"{what} is a container image, and its layers are not looked into",
            advice="Copy the libraries out of it (docker create, docker cp) and name their folder, or name "
            "the package that was installed in it.",
        )


@dataclass
class _TarLibraries:
    """The members of a tar: libraries and manifests as files, other members by name only."""

    scratch: Scratch
    what: str
    limits: UnpackLimits
    files: dict[str, Path | None] = field(default_factory=dict)
    """By path: the file with the bytes of a library, ``None`` for any other member that is no folder."""
    without: set[str] = field(default_factory=set)
    """The names of symbolic links, of libraries that are not wanted, and of hard links to them."""

    @property
    def libraries(self) -> dict[str, Path]:
        """Return the libraries by path; of several names of one file, only the first."""
        first = {path: name for name, path in reversed(list(self.files.items())) if path}
        return {name: path for name, path in self.files.items() if path and first[path] == name}

    def take(self, info: tarfile.TarInfo, content: CheckedStream | None) -> None:
        name = plain(info.name)
        if info.isdir():
            self.files.pop(name, None)
        elif info.islnk():
            self._take_link(name, plain(info.linkname))
        else:
            if info.issym():
                self.without.add(name)
            self.files[name] = self._library(name, content, info) if content is not None else None

    def _library(self, name: str, content: CheckedStream, info: tarfile.TarInfo) -> Path | None:
        """Return a file with the member's bytes if the member is kept, else ``None``.

        A zip is not kept; its libraries are added.
        """
        head, whole = content.peek(max(HEAD, MANIFEST_HEAD)), f"{self.what}: {printable(name)}"
        is_nested = is_zip(head)
        kept = is_library(name, head) or is_manifest(name, head) or is_version(name, head)
        if kept and not self.scratch.wants(name):
            self.without.add(name)
            return None
        if not (is_nested or kept):
            return None
        self.limits.take_libraries(1)
        file = self.scratch.keep(content, info.size, whole)
        if not is_nested:
            return file
        for inner, library in members_of(file, self.scratch, whole, self.limits):
            self.files[f"{name}/{inner}"] = library
        file.unlink()
        return None

    def _take_link(self, name: str, target: str) -> None:
        """Add a hard link, a second name of an earlier member.

        Raises ``IntegrityError`` for a library's name whose target is no library and no symbolic link.
        """
        library = self.files.get(target)
        if library is None and target in self.without:
            self.without.add(name)
        elif library is None and is_named_like_a_library(name):
            raise IntegrityError(
                f"{self.what}: {printable(name)} is a hard link to {printable(target)}, which is no library "
                "in there",
                advice="Pack the archive again with the file itself in it.",
            )
        self.files[name] = library
