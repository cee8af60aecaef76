"""A package's tar is read forwards and not trusted: rules for the names, types and headers of members.

``tarfile``'s own mode for streams copies all bytes twice, a third of the time of unpacking. So ``tarfile``
gets the stream as a file that can seek forwards.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import IO, Sequence, Tuple, Union, cast

from builder.errors import IntegrityError
from builder.files.digest import CHUNK
from builder.files.disk import set_mode
from builder.formats.package_names import FOLDER_MODE
from builder.formats.text import SURROGATE

HEADER_LIMIT = 64 * 2**10
"""The largest extension header in bytes; long names need a few hundred."""

NO_TAR = (tarfile.TarError, ValueError, RecursionError, OverflowError)
"""The exceptions of ``tarfile`` for malformed headers."""

_DEEPEST = 16
"""The most parts of a path; real packages have three. Thousands of nested folders could not be removed
again."""


def forward_tar(stream: IO[bytes]) -> tarfile.TarFile:
    """Return the tar in ``stream``, which is read once, forwards. Reading it raises one of ``NO_TAR``."""
    return tarfile.open(fileobj=cast("IO[bytes]", Forward(stream)), mode="r:", tarinfo=_Header)


def bad_package(where: str, why: str, details: Sequence[str] = ()) -> IntegrityError:
    """Return the error for an archive that is no valid package, even where its sha256 is right."""
    advice = "Take it from another release, and tell whoever publishes this one."
    return IntegrityError(f"{where}: {why}", details=details, advice=advice)


def is_plain(path: str) -> bool:
    """Return whether a relative path is short and stays in its folder: no ``..``, drive or empty part."""
    parts = path.split("/")
    plain = all(part not in {"", ".", ".."} for part in parts)
    return plain and len(parts) <= _DEEPEST and not set(path) & set("\\:\0") and not SURROGATE.search(path)


def parts_of(path: str, where: str) -> Tuple[str, ...]:
    """Return the parts of a plain path.

    Raises ``IntegrityError``, whose message begins with ``where``, for any other path.
    """
    if not is_plain(path):
        raise bad_package(where, f"it names {path!r}, which does not lie in its folder")
    return tuple(path.split("/"))


def inside(name: str, top: str) -> Tuple[str, ...]:
    """Return the parts of a member's path below the archive's folder ``top``.

    Raises ``IntegrityError`` for a path that does not lie there.
    """
    first, *parts = parts_of(name, top)
    if first != top:
        raise IntegrityError(
            f"{top}: the archive holds {name!r}, which does not lie in its folder",
            cause="the folder in a package has the package's name",
            advice="If the file was renamed, give it its old name; else take it from another release.",
        )
    return tuple(parts)


def plain_file(member: tarfile.TarInfo) -> bool:
    """Return whether a member is a regular file: no link, device, folder or sparse file."""
    return member.type in {tarfile.REGTYPE, tarfile.AREGTYPE} and not member.issparse()


def place_in(folder: Path, parts: Sequence[str]) -> Path:
    """Return the path of a member in ``folder``, after making the folders above it with a package's mode."""
    for end in range(1, len(parts)):
        made = folder.joinpath(*parts[:end])
        if not made.is_dir():
            made.mkdir()
            set_mode(made, FOLDER_MODE)
    return folder.joinpath(*parts)


class _Header(tarfile.TarInfo):
    """A header of limited size, because ``tarfile`` reads extension headers into memory."""

    @classmethod
    def frombuf(cls, buf: Union[bytes, bytearray], encoding: str, errors: str) -> _Header:
        """Return the header as ``TarInfo`` does. Raises ``ReadError`` where it is too large."""
        header = super().frombuf(buf, encoding, errors)
        if not plain_file(header) and header.size > HEADER_LIMIT:
            raise tarfile.ReadError(f"a header of {header.size} bytes")
        return header

    def _proc_gnusparse_10(self, *_: object) -> None:
        raise tarfile.ReadError("a sparse file")


class Forward:
    """A stream that can seek forwards, and back by one byte, which ``tarfile`` reads twice."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._at = 0
        self._last = b""
        """The byte before ``_at``, or at ``_at`` when ``_again`` is set."""
        self._again = False

    def tell(self) -> int:
        """Return the offset in bytes from the stream's beginning."""
        return self._at

    def seek(self, position: int) -> int:
        """Go to ``position`` and return it. Raises ``StreamError`` for an earlier position."""
        if position == self._at - 1 and self._last:
            self._again, self._at = True, position
        while self._at < position and self.read(min(CHUNK, position - self._at)):
            pass
        if position < self._at:
            raise tarfile.StreamError("seeking backwards is not allowed")
        return self._at

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes; fewer only at the end."""
        if self._again and size:
            self._again, self._at = False, self._at + 1
            return self._last + self.read(size - 1)
        data = self._stream.read(size) if size else b""
        while data and len(data) < size and (more := self._stream.read(size - len(data))):
            data += more
        self._at += len(data)
        self._last = data[-1:] or self._last
        return data
