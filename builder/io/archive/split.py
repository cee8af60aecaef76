"""Reader of split packages as one verified stream, and the cutting of an archive into parts.

An archive is cut in one pass. The ``.parts.json``, which joins the parts, is written last, and the archive is
removed after that.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from builder.errors import IntegrityError, ValidationError
from builder.files.atomic_write import part_file, write_file
from builder.files.digest import CHUNK, Digest, RunningDigest, chunks_in, stream_digest
from builder.files.disk import disk_errors, require_space, sync_folder
from builder.formats import parts as format_
from builder.formats.json_values import json_text
from builder.formats.package_names import PARTS_SUFFIX
from builder.formats.parts import FORMAT, Parts, StoredFile, part_names

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


@contextmanager
def opened_whole(package: Path) -> Iterator[IO[bytes]]:
    """Yield a stream of the archive's bytes: ``package`` itself, or the parts that a ``.parts.json`` joins.

    Raises ``ValidationError`` when there is no such file, and what ``parts_of`` raises. Reading raises
    ``IntegrityError``, which names the missing or different part, at the end of that part at the latest.
    """
    if not package.is_file():
        raise ValidationError(
            f"{package}: no such package", advice="`./run build` leaves its packages in dist/."
        )
    if not package.name.endswith(PARTS_SUFFIX):
        with package.open("rb") as file:
            yield file
        return
    yield cast("IO[bytes]", _Stream(_joined(package.parent, parts_of(package))))


def blame_part(package: Path, file: IO[bytes]) -> None:
    """Read the rest of a split package, which raises ``IntegrityError`` if a part differs.

    A part is compared at its end, while decompression of its bytes may fail before.
    """
    while package.name.endswith(PARTS_SUFFIX) and file.read(CHUNK):
        pass


def whole_digest(package: Path) -> Digest:
    """Return size and sha256 of the archive's bytes. Raises as ``opened_whole``."""
    with opened_whole(package) as file:
        return stream_digest(file)


def parts_of(package: Path) -> Parts:
    """Return the content of a ``.parts.json``.

    Raises ``IntegrityError`` for a file that is too large, ``ValidationError`` for a file of another name,
    and what ``formats.parts.loads`` raises.
    """
    with package.open("rb") as file:
        text = file.read(format_.LIMIT + 1)
    if len(text) > format_.LIMIT:
        raise IntegrityError(
            f"{package} has more than {format_.LIMIT:,} bytes", cause="it is no .parts.json of ortpacks"
        )
    parts = format_.loads(text, package.name)
    if package.name != f"{parts.file}{PARTS_SUFFIX}":
        raise ValidationError(
            f"{package} joins the parts of {parts.file}",
            advice=f"Rename it to {parts.file}{PARTS_SUFFIX}.",
        )
    return parts


def _joined(folder: Path, parts: Parts) -> Iterator[bytes]:
    """Yield the archive's bytes. Raises ``IntegrityError`` at the end of a part that is not as listed."""
    whole = RunningDigest()
    for part in parts.parts:
        for chunk in _proved(folder / part.file, part):
            whole.update(chunk)
            yield chunk
    if whole.digest.sha256 != parts.sha256:
        raise IntegrityError(
            f"{folder / parts.file}: its parts are undamaged, but joined they are another file: sha256 "
            f"{parts.sha256} is wanted, got {whole.digest.sha256}",
            advice="Download the parts and the file that joins them again.",
        )


def _proved(path: Path, part: StoredFile) -> Iterator[bytes]:
    running = RunningDigest()
    try:
        with path.open("rb") as file:
            for chunk in chunks_in(file):
                running.update(chunk)
                yield chunk
    except OSError as error:
        raise IntegrityError(
            f"{path} cannot be read",
            cause=error.strerror or str(error),
            advice="It is a part of the package: download it again.",
        ) from error
    got = running.digest
    if got != Digest(part.size, part.sha256):
        raise IntegrityError(
            f"{path} is damaged: {part.size} bytes, sha256 {part.sha256} are wanted, got {got.size} bytes, "
            f"sha256 {got.sha256}",
            advice="Download it again.",
        )


class _Stream(io.RawIOBase):
    """A file that is read forward, made of chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the beginning of ``buffer`` and return how many bytes; none only at the end."""
        self._left = self._left or memoryview(next(self._chunks, b""))
        room = memoryview(buffer)
        given, self._left = self._left[: len(room)], self._left[len(room) :]
        room[: len(given)] = given
        return len(given)


def split_archive(package: Path, most: int) -> tuple[Path, ...]:
    """Cut an archive into parts of at most ``most`` bytes.

    Returns the parts in order, then the ``.parts.json``. The archive is removed when all parts are
    written. An archive of at most ``most`` bytes stays and is returned alone. Files of an earlier split
    are replaced. Raises ``IntegrityError`` (the archive changed meanwhile) and ``DiskError``.
    """
    size = package.stat().st_size
    if size <= most:
        return (package,)
    paths = tuple(package.with_name(name) for name in part_names(package.name, -(-size // most)))
    joins = package.with_name(f"{package.name}{PARTS_SUFFIX}")
    with disk_errors(package, size):
        _clear(package, joins, paths)
        require_space(package, size)
        parts = _cut(package, size, paths, most)
    write_file(joins, json_text(parts).encode())
    with disk_errors(package):
        package.unlink()
        sync_folder(package.parent)
    return (*paths, joins)


def _clear(package: Path, joins: Path, paths: tuple[Path, ...]) -> None:
    """Remove what another split of an archive of this name left and this split does not overwrite.

    The ``.parts.json`` is removed first, so that none exists while parts change.
    """
    joins.unlink(missing_ok=True)
    piece = re.compile(rf"({re.escape(package.name)}\.part\d+)(\.part-.*)?")
    names = {path.name for path in paths}
    for path in package.parent.iterdir():
        match = piece.fullmatch(path.name)
        if match and match[1] not in names:
            path.unlink(missing_ok=True)


def _cut(package: Path, size: int, paths: tuple[Path, ...], most: int) -> Parts:
    whole = RunningDigest()
    with package.open("rb") as archive:
        entries = tuple(_part(archive, path, most, whole) for path in paths)
        rest = archive.read(1)
    if rest or sum(entry.size for entry in entries) != size:
        raise IntegrityError(
            f"{package} changed while it was split", advice="Let nothing else write there, and build again."
        )
    return Parts(format=FORMAT, file=package.name, size=size, sha256=whole.digest.sha256, parts=entries)


def _part(archive: IO[bytes], path: Path, most: int, whole: RunningDigest) -> StoredFile:
    running = RunningDigest()
    with part_file(path) as file:
        for chunk in chunks_in(archive, most=most):
            running.update(chunk)
            whole.update(chunk)
            file.write(chunk)
    return StoredFile(path.name, running.digest.size, running.digest.sha256)
