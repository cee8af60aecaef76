"""Tar archives that nobody vouches for: member by member, only libraries written, no name followed.

``tarfile`` takes a broken header in the middle of an archive for its end, and follows sizes that lead
backwards. ``_Strict`` makes both an error.
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
    Allowance,
    Scratch,
    damage,
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
"""Bytes of a long name or of pax records, which ``tarfile`` takes into memory; most have some hundred."""

_HEADER_LIMIT = 1 << 17
"""Bytes of all headers of one member, the map of a sparse one included."""

_MOST_PIECES = 2000
"""Of a sparse member; a library has a few."""

_GLOBAL_LIMIT = 64
"""Pax records for all members that follow, which ``tarfile`` copies for each of them; git writes one."""

_DIGITS = re.compile(rb"\d{40}")
"""More in a row than any record has: ``tarfile`` before Python 3.11.10 takes them times themselves."""

_ENDS = ("EOFHeaderError", "EmptyHeaderError")
"""How ``tarfile`` calls a block of zeros and the end of the file, by names that it does not export."""


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
    """The stream that ``tarfile`` reads one member's headers from; it raises for too many bytes of them."""

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
    """Count what is read of ``tar`` inside the block; headers that lead to further headers count together."""
    whole = cast("IO[bytes]", tar.fileobj)
    if isinstance(whole, _Headers):
        yield
        return
    tar.fileobj = cast("IO[bytes]", _Headers(whole))
    try:
        yield
    finally:
        tar.fileobj = whole


class _Lean(tarfile.TarFile):
    members: list[tarfile.TarInfo]

    def next(self) -> tarfile.TarInfo | None:
        info = super().next()
        self.members.clear()  # it would keep the headers of all
        return info


@dataclass(frozen=True)
class ForwardTar:
    """A tar that is read forward: its members in order, each with its bytes while it is the current one."""

    tar: tarfile.TarFile
    seekable: bool
    """Whether the members' bytes can be read in any order."""
    what: str
    """What the tar is called in messages."""
    allowance: Allowance

    def members(self) -> Iterator[tuple[tarfile.TarInfo, io.BufferedReader | None]]:
        """Header and, for a member that has any, content."""
        while True:
            with damage(self.what):
                info = self.tar.next()
                content = self._content(info) if info else None
            if info is None:
                return
            self.allowance.take_headers(info.offset_data - info.offset)
            self.allowance.take_content(info.size)
            yield info, content

    def _content(self, info: tarfile.TarInfo) -> io.BufferedReader | None:
        """The member's bytes, if it has any. POSIX and GNU tar take members of an unknown kind for files."""
        if not info.isreg() and info.type in tarfile.SUPPORTED_TYPES:
            return None
        return cast("io.BufferedReader", self.tar.extractfile(info))


@contextmanager
def opened_tar(
    file: io.BufferedReader, what: str, allowance: Allowance, *, seekable: bool
) -> Iterator[ForwardTar]:
    """The tar in ``file``, compressed or not. ``seekable`` says whether ``file`` can be read in any order."""
    with ExitStack() as stack:
        with damage(what):
            stream = decompressed(file)
            seekable = seekable and stream is None
            _require_tar(stream, what)
            source = file if seekable else cast("IO[bytes]", Forward(stream or file))
            tar = stack.enter_context(_Lean.open(fileobj=source, mode="r:", tarinfo=_Strict))
        yield ForwardTar(tar, seekable, what, allowance)
        if stream is not None:
            with damage(what):
                read_to_end(stream)


def _require_tar(stream: io.BufferedReader | None, what: str) -> None:
    """Raise ``ValidationError`` where what is compressed is no tar; of too few bytes ``tarfile`` judges."""
    head = stream.peek(tarfile.BLOCKSIZE) if stream else b""
    if len(head) >= tarfile.BLOCKSIZE and not is_tar(head):
        raise ValidationError(
            f"{what}: what is compressed in it is no tar archive. Decompress it and name what comes out."
        )


@dataclass
class LayerReader:
    """Reads members into a ``Layer``. Libraries and our manifests are kept as files, of the rest the name."""

    scratch: Scratch
    what: str
    allowance: Allowance
    layer: Layer = field(default_factory=Layer)
    opens_zips: bool = False
    """Whether the libraries of zips in it are taken too."""

    def take(self, info: tarfile.TarInfo, content: io.BufferedReader | None) -> None:
        """Note one member."""
        name = plain(info.name)
        if info.isdir():
            self.layer.add_folder(name)
        elif info.islnk():
            self._take_link(name, plain(info.linkname))
        else:
            self.layer.add(name, self._library(name, content, info) if content is not None else None)

    def _library(self, name: str, content: io.BufferedReader, info: tarfile.TarInfo) -> Path | None:
        """The member as a file, if it is kept. Of a zip what it holds is noted, and nothing kept."""
        head, whole = self._head(content, info), f"{self.what}: {printable(name)}"
        is_nested = self.opens_zips and is_zip(head)
        if not is_nested and not self._is_kept(name, head):
            return None
        self.allowance.take_libraries(1)
        file = self.scratch.keep(content, info.size, whole)
        if not is_nested:
            return file
        for inner, library in members_of(file, self.scratch, whole, self.allowance):
            self.layer.add(f"{name}/{inner}", library)
        file.unlink()
        return None

    def _is_kept(self, name: str, head: bytes) -> bool:
        """A manifest outside of any folder is docker's: packages have a top folder."""
        return is_library(name, head) or ("/" in name and is_manifest(name, head))

    def _head(self, content: io.BufferedReader, info: tarfile.TarInfo) -> bytes:
        with damage(self.what):
            return content.peek(max(HEAD, MANIFEST_HEAD)) if info.size else b""

    def _take_link(self, name: str, target: str) -> None:
        """Note a hard link, which is a second name of bytes that came before. Raises ``IntegrityError``."""
        library = self.layer.files.get(target)
        if library is None and is_named_like_a_library(name):
            raise IntegrityError(
                f"{self.what}: {printable(name)} is a hard link to {printable(target)}, which is no library "
                "in there. Pack the archive again with the file itself in it."
            )
        self.layer.add(name, library)
