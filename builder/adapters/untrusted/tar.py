"""Reader of untrusted tar archives, member by member; only libraries and manifests are written to disk.

No name in an archive is used as a path. ``tarfile`` takes a broken header in the middle of an archive for the
archive's end, and follows a negative size backwards; ``_Strict`` makes both an error.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from builder.adapters.untrusted.image_documents import Layer, plain
from builder.adapters.untrusted.reading import (
    Scratch,
    UnpackLimits,
    damage_errors,
    decompressed,
    is_tar,
    is_zip,
    read_to_end,
)
from builder.adapters.untrusted.zip import members_of
from builder.binary.kinds.file_kinds import HEAD
from builder.binary.library_names import is_library, is_named_like_a_library
from builder.errors import IntegrityError, ValidationError
from builder.files.package_tar import Forward
from builder.formats.manifest import MANIFEST_HEAD, is_manifest
from builder.formats.text import printable

_EXTENSIONS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)

_EXTENSION_LIMIT = 1 << 16
"""The most bytes of a long name or of pax records, which ``tarfile`` keeps in memory; most have hundreds."""

_HEADER_LIMIT = 1 << 17
"""The most bytes of all headers of one member, the map of a sparse member included."""

_MOST_PIECES = 2000
"""The most pieces of a sparse member; a library has a few."""

_GLOBAL_LIMIT = 64
"""The most pax records for all later members, which ``tarfile`` copies for each member; git writes one."""

_DIGITS = re.compile(rb"\d{40}")
"""More digits in a row than a record has; ``tarfile`` before Python 3.11.10 parses them in quadratic time."""

_ENDS = ("EOFHeaderError", "EmptyHeaderError")
"""Names of ``tarfile``'s errors for a block of zeros and the file's end; ``tarfile`` does not export them."""


class _Strict(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Strict:
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if type(error).__name__ in _ENDS:
                raise
            raise tarfile.ReadError(f"a header in it is broken ({error})") from error
        if info.type in _EXTENSIONS and info.size > _EXTENSION_LIMIT:
            raise tarfile.ReadError(f"a header in it has {info.size:,} bytes")
        return info

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> _Strict:
        start = tarfile.offset
        with _metered(tarfile):
            info = super().fromtarfile(tarfile)
        if info.size < 0 or tarfile.offset <= start:
            raise ValueError(f"{printable(info.name)} has a size below zero")
        if len(info.sparse or ()) > _MOST_PIECES:
            raise ValueError(f"{printable(info.name)} is sparse, in more than {_MOST_PIECES:,} pieces")
        if len(tarfile.pax_headers) > _GLOBAL_LIMIT:
            raise ValueError(f"it has more than {_GLOBAL_LIMIT} records for all of its members")
        return info


class _Headers:
    """The stream that ``tarfile`` reads a member's headers from; too many bytes raise ``ValueError``."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = _HEADER_LIMIT

    def read(self, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise ValueError(f"the headers of one member have more than {_HEADER_LIMIT:,} bytes")
        data = self._stream.read(size)
        if size > tarfile.BLOCKSIZE and _DIGITS.search(data):
            raise ValueError("a record in it has a number of 40 digits")
        return data

    def tell(self) -> int:
        return self._stream.tell()


@contextmanager
def _metered(tar: tarfile.TarFile) -> Iterator[None]:
    """Limit the bytes of headers that are read from ``tar`` inside the block; nested blocks share a limit."""
    whole = cast("IO[bytes]", tar.fileobj)
    if isinstance(whole, _Headers):
        yield
        return
    tar.fileobj = cast("IO[bytes]", _Headers(whole))
    try:
        yield
    finally:
        tar.fileobj = whole


class _ForwardTarFile(tarfile.TarFile):
    members: list[tarfile.TarInfo]

    def next(self) -> tarfile.TarInfo | None:
        info = super().next()
        self.members.clear()  # TarFile would keep the headers of all
        return info


@dataclass(frozen=True)
class ForwardTar:
    """A tar that is read forward; the bytes of a member can be read until the next member is read."""

    tar: tarfile.TarFile
    seekable: bool
    """Whether the members' bytes can be read in any order."""
    what: str
    """The tar's name in messages."""
    limits: UnpackLimits

    def members(self) -> Iterator[tuple[tarfile.TarInfo, io.BufferedReader | None]]:
        """Yield header and content of each member; the content is ``None`` for a member without any."""
        while True:
            with damage_errors(self.what):
                info = self.tar.next()
                content = self._content(info) if info else None
            if info is None:
                return
            self.limits.take_headers(info.offset_data - info.offset)
            self.limits.take_content(info.size)
            yield info, content

    def _content(self, info: tarfile.TarInfo) -> io.BufferedReader | None:
        """Return the member's bytes, or ``None``. As POSIX and GNU tar have it, an unknown type is a file."""
        if not info.isreg() and info.type in tarfile.SUPPORTED_TYPES:
            return None
        return cast("io.BufferedReader", self.tar.extractfile(info))


@contextmanager
def opened_tar(
    file: io.BufferedReader, what: str, limits: UnpackLimits, *, seekable: bool
) -> Iterator[ForwardTar]:
    """Yield the tar in ``file``, compressed or not; ``seekable`` is whether ``file`` is read in any order."""
    with ExitStack() as stack:
        with damage_errors(what):
            stream = decompressed(file)
            seekable = seekable and stream is None
            _require_tar(stream, what)
            source = file if seekable else cast("IO[bytes]", Forward(stream or file))
            tar = stack.enter_context(_ForwardTarFile.open(fileobj=source, mode="r:", tarinfo=_Strict))
        yield ForwardTar(tar, seekable, what, limits)
        if stream is not None:
            with damage_errors(what):
                read_to_end(stream)


def _require_tar(stream: io.BufferedReader | None, what: str) -> None:
    """Raise ``ValidationError`` if decompressed bytes are no tar. ``tarfile`` checks fewer than 512 bytes.

    A block of zeros ends a tar, and an image's layer without a file begins with it.
    """
    head = stream.peek(tarfile.BLOCKSIZE)[: tarfile.BLOCKSIZE] if stream else b""
    if len(head) == tarfile.BLOCKSIZE and any(head) and not is_tar(head):
        raise ValidationError(
            f"{what}: what is compressed in it is no tar archive",
            advice="Decompress it and name the resulting file.",
        )


@dataclass
class LayerReader:
    """A reader of members into a ``Layer``: libraries and manifests as files, other members by name only."""

    scratch: Scratch
    what: str
    limits: UnpackLimits
    layer: Layer = field(default_factory=Layer)
    opens_zips: bool = False
    """Whether the libraries of zips in the tar are taken too."""
    symlinks: set[str] = field(default_factory=set)
    """The names of symbolic links, and of hard links to them."""

    def take(self, info: tarfile.TarInfo, content: io.BufferedReader | None) -> None:
        """Add one member to the layer."""
        name = plain(info.name)
        if info.isdir():
            self.layer.add_folder(name)
        elif info.islnk():
            self._take_link(name, plain(info.linkname))
        else:
            if info.issym():
                self.symlinks.add(name)
            self.layer.add(name, self._library(name, content, info) if content is not None else None)

    def _library(self, name: str, content: io.BufferedReader, info: tarfile.TarInfo) -> Path | None:
        """Return a file with the member's bytes if the member is kept, else ``None``.

        A zip is not kept; its libraries are added to the layer.
        """
        head, whole = self._head(content, info), f"{self.what}: {printable(name)}"
        is_nested = self.opens_zips and is_zip(head)
        if not is_nested and not self._is_kept(name, head):
            return None
        self.limits.take_libraries(1)
        file = self.scratch.keep(content, info.size, whole)
        if not is_nested:
            return file
        for inner, library in members_of(file, self.scratch, whole, self.limits):
            self.layer.add(f"{name}/{inner}", library)
        file.unlink()
        return None

    def _is_kept(self, name: str, head: bytes) -> bool:
        """Return whether a member is kept. A manifest outside of any folder is docker's, not a package's."""
        return is_library(name, head) or ("/" in name and is_manifest(name, head))

    def _head(self, content: io.BufferedReader, info: tarfile.TarInfo) -> bytes:
        with damage_errors(self.what):
            return content.peek(max(HEAD, MANIFEST_HEAD)) if info.size else b""

    def _take_link(self, name: str, target: str) -> None:
        """Add a hard link, a second name of an earlier member.

        Raises ``IntegrityError`` for a library's name whose target is no library and no symbolic link.
        """
        library = self.layer.files.get(target)
        if library is None and target in self.symlinks:
            self.symlinks.add(name)
        elif library is None and is_named_like_a_library(name):
            raise IntegrityError(
                f"{self.what}: {printable(name)} is a hard link to {printable(target)}, which is no library "
                "in there",
                advice="Pack the archive again with the file itself in it.",
            )
        self.layer.add(name, library)
