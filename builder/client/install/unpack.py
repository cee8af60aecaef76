"""A package's files are unpacked from an archive into a new folder, and verified again once installed.

Only files that the manifest lists are unpacked. Their names, types, number, sizes and sha256 must be those of
``manifest.json``, the archive's first member.
"""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from threading import Thread
from typing import IO, Callable, Dict, Iterator, List, Optional, Tuple
from unicodedata import normalize

from builder.client.install.prefix import INFO
from builder.errors import ConfigError, DiskError, IntegrityError, ParseError, SchemaError, TransferError
from builder.files.archive_reader import TarMember, UnpackLimits, plain_file, tar_members
from builder.files.decompression import CheckedStream, decompressed, packing_in
from builder.files.digest import (
    Digest,
    Readable,
    RunningDigest,
    chunks_in,
    other_bytes,
    sha256_of,
    size_of,
    write_new,
)
from builder.files.disk import Sync, disk_errors, paths_below, set_mode, sync_file
from builder.files.safe_paths import OTHER_RELEASE, bad_package, inside, is_plain, parts_of, place_in
from builder.formats.index import Index, build_index
from builder.formats.index import loads as load_index
from builder.formats.json_values import json_text
from builder.formats.manifest import MANIFEST_LIMIT, FileEntry, Manifest, loads
from builder.formats.package_names import FOLDER_MODE, MANIFEST, Form, file_mode
from builder.formats.stored_file import SHA256, StoredFile
from builder.formats.text import abridged

COUNT_LIMIT = 10_000

_HEADERS_OF_A_MEMBER = 4096
"""The most bytes of headers for each member; a long name has 1,536."""

_UNFIT = re.compile(
    r'[\x00-\x1f<>:"|?*\\]|[. ](?:/|$)|(?:^|/)(?:con|prn|aux|nul|(?:com|lpt)[0-9¹²³])(?:[./]|$)'
)
"""Characters, endings and device names that no Windows file name may have; matched against lower-case paths.

Source: Microsoft, "Naming Files, Paths, and Namespaces". Packages must keep to it on every system.
"""


@contextmanager
def open_tar(file: Path, form: Form, wanted: Optional[Digest] = None) -> Iterator[CheckedStream]:
    """Yield the tar in ``file`` as a stream.

    ``wanted`` is the digest that the bytes read must have: a file that others write to may change after it
    was verified. Raises ``IntegrityError`` for damaged bytes and, at the end of the block, for other bytes
    than wanted; ``ToolMissingError`` where nothing decompresses zstd.
    """
    with _opened(file, wanted) as source, decompressed(source, packing_in(form), str(file), file) as stream:
        yield stream


@contextmanager
def _opened(file: Path, wanted: Optional[Digest]) -> Iterator[IO[bytes]]:
    """Yield the bytes of ``file``, without a buffer: a program reads from where this process stopped.

    With ``wanted`` they come through a pipe, and their digest is compared at the end of the block. Raises
    ``DiskError`` where ``file`` cannot be read to its end.
    """
    if wanted is None:
        with file.open("rb", buffering=0) as source:
            yield source
        return
    reading, writing = os.pipe()
    running = RunningDigest()
    unread: List[OSError] = []

    def pour() -> None:
        with suppress(OSError), os.fdopen(writing, "wb") as pipe:
            for chunk in _readable_chunks(file, unread):
                running.update(chunk)
                pipe.write(chunk)

    with _unread_first(file, unread), os.fdopen(reading, "rb", buffering=0) as pipe:
        pouring = Thread(target=pour, daemon=True)
        pouring.start()
        with os.fdopen(os.dup(reading), "rb", buffering=0) as source:  # zstandard closes what it reads
            yield source
        for _ in chunks_in(pipe):  # the tar may end before the file does
            pass
        pouring.join()
    read = running.digest
    if read != wanted:
        raise other_bytes(f"{file}: changed while it was unpacked", wanted.sha256, read.sha256)


def _readable_chunks(file: Path, unread: List[OSError]) -> Iterator[bytes]:
    """Yield the bytes of ``file`` up to an error of its disk, which is added to ``unread``."""
    try:
        with file.open("rb") as source:
            yield from chunks_in(source)
    except OSError as error:
        unread.append(error)


@contextmanager
def _unread_first(file: Path, unread: List[OSError]) -> Iterator[None]:
    """Raise ``DiskError`` for an error in ``unread``, in place of the damage that it looks like."""
    try:
        yield
    except IntegrityError as error:
        if not unread:
            raise
        raise _unreadable(file, unread[0]) from error
    if unread:
        raise _unreadable(file, unread[0])


def _unreadable(file: Path, error: OSError) -> DiskError:
    return DiskError(
        f"{file} cannot be read",
        cause=error.strerror or str(error),
        advice="Copy it to another disk and run again.",
    )


def extract(stream: Readable, top: str, folder: Path, limit: int) -> Manifest:
    """Unpack the tar ``stream``, whose members all lie under ``top``, and return its manifest.

    ``folder`` must be empty. Modes are those of ``file_mode``, whatever the archive and the umask say.
    ``limit`` is the index's ``unpacked_size`` in bytes. Raises ``IntegrityError`` for a member that differs
    from the manifest or is not in it, and ``DiskError`` where a file cannot be written.
    """
    members = tar_members(stream, _limits(top, limit))
    with disk_errors(folder), _syncing() as sync:
        set_mode(folder, FOLDER_MODE)
        content = _first(members, top)
        write_new([content], folder / MANIFEST, file_mode(MANIFEST), sync)
        manifest = _parse(content, top)
        wanted = _wanted(manifest, top, limit)
        for member in members:
            _take(member, top, folder, wanted, sync)
    if wanted:
        names = abridged(sorted(entry.path for entry in wanted.values()), 3)
        raise bad_package(top, f"the archive lacks {names}, which its manifest lists")
    return manifest


def _limits(what: str, size: int) -> UnpackLimits:
    members = COUNT_LIMIT * 2  # folders count too
    return UnpackLimits(
        what=what,
        members=members,
        headers=members * _HEADERS_OF_A_MEMBER,
        libraries=0,
        content=MANIFEST_LIMIT + size,
        advice=OTHER_RELEASE,
    )


def read_manifest(stream: Readable, where: str) -> Manifest:
    """Return the manifest at the head of the tar ``stream``; ``where`` names the tar in errors.

    The manifest's name must be that of the archive's top folder. Raises ``IntegrityError`` or
    ``ConfigError``.
    """
    members = tar_members(stream, _limits(where, sys.maxsize))  # no content but the manifest is read
    first = next(members, None)
    top = first[0].name.partition("/")[0] if first else where
    manifest = _parse(_first(chain([first] if first else [], members), top), where)
    if manifest.name != top:
        raise bad_package(where, f"its manifest is of {manifest.name}, and lies in the folder {top}")
    return manifest


@contextmanager
def _syncing() -> Iterator[Sync]:
    """Yield a ``sync`` function that a second thread runs while the next files are written.

    The end of the block waits for all calls and raises the first ``OSError``.
    """
    begun: List[Future[None]] = []
    with ThreadPoolExecutor(1) as pool:
        yield lambda path: begun.append(pool.submit(sync_file, path))
        for done in begun:
            done.result()


def _first(members: Iterator[TarMember], top: str) -> bytes:
    """Return the manifest's bytes.

    The manifest must be the first member after the top-level folder. Raises ``IntegrityError``.
    """
    for member, content in members:
        if member.isdir() and inside(member.name, top) == ():
            continue
        if inside(member.name, top) != (MANIFEST,) or not plain_file(member) or content is None:
            break
        if member.size > MANIFEST_LIMIT:
            raise bad_package(top, f"{MANIFEST} has {member.size} bytes; at most {MANIFEST_LIMIT} are read")
        return content.read()
    raise bad_package(top, f"the archive does not begin with {MANIFEST}")


def _parse(content: bytes, top: str) -> Manifest:
    """Return the manifest. Raises ``IntegrityError`` where it has wrong keys or values.

    The check of each sha256 matters because hashes become parts of file names and of pip's arguments.
    """
    try:
        manifest = loads(content.decode(), top)
    except UnicodeDecodeError as error:
        raise bad_package(top, f"{MANIFEST} is not UTF-8 text") from error
    except SchemaError as error:
        raise bad_package(top, f"{MANIFEST} has wrong keys or values", error.problems) from error
    hashes = [entry.sha256 for entry in manifest.files] + [wheel.sha256 for wheel in manifest.wheels]
    for sha256 in hashes:
        if SHA256.fullmatch(sha256) is None:
            raise bad_package(top, f"its manifest has {sha256!r} for a sha256")
    return manifest


def _wanted(manifest: Manifest, top: str, limit: int) -> Dict[Tuple[str, ...], FileEntry]:
    """Return the packed files of the manifest by their path's parts. Raises ``IntegrityError``.

    The rules for paths and sizes apply to absent files too.
    """
    entries = {parts_of(entry.path, top): entry for entry in manifest.files}
    # One on Windows and macOS, which take marks in any order.
    alike = {normalize("NFC", normalize("NFD", entry.path).casefold()) for entry in manifest.files}
    unfit = next((path for path in alike if _UNFIT.search(path)), None)
    if unfit is not None:
        raise bad_package(top, f"its manifest lists {unfit!r}, which is no name of a file on Windows")
    if len(manifest.files) > COUNT_LIMIT or len(alike) != len(manifest.files):
        raise bad_package(top, f"its manifest lists {len(manifest.files)} files, some twice or too many")
    if {(MANIFEST,), (INFO,)} & set(entries) or any(entry.size < 0 for entry in manifest.files):
        raise bad_package(top, f"its manifest lists itself, {INFO} or a negative size")
    files = alike | {MANIFEST, INFO}
    above = next(
        (path for path in alike if files & {str(parent) for parent in PurePosixPath(path).parents}), None
    )
    if above is not None:
        raise bad_package(top, f"its manifest lists {above!r}, and a part of that path as a file")
    if manifest.unpacked_size > limit:
        sizes = f"{manifest.unpacked_size} bytes in the manifest, at most {limit} in the index"
        raise bad_package(top, f"unpacked size differs: {sizes}")
    return {parts: entry for parts, entry in entries.items() if entry.packed}


def _take(
    one: TarMember, top: str, folder: Path, wanted: Dict[Tuple[str, ...], FileEntry], sync: Sync
) -> None:
    member, content = one
    parts = inside(member.name, top)
    if member.isdir():
        return
    if content is None or not plain_file(member):
        raise bad_package(top, f"{member.name} is a link or a device; a package has only files")
    entry = wanted.pop(parts, None)
    if entry is None:
        raise bad_package(top, f"its manifest does not list {member.name}, or the archive holds it twice")
    if member.size != entry.size:
        raise _differs(top, entry.path, "size", str(entry.size), str(member.size))
    target = place_in(folder, parts)
    digest = write_new(chunks_in(content), target, file_mode(entry.path), sync).sha256
    if digest != entry.sha256:
        raise _differs(top, entry.path, "sha256", entry.sha256, digest)


def _differs(top: str, path: str, what: str, wanted: str, got: str) -> IntegrityError:
    return bad_package(
        top, f"{path}: {what} differs from the manifest.", (f"    wanted: {wanted}", f"    got:    {got}")
    )


@dataclass(frozen=True)
class Verification:
    """The result of a verification; without ``problems`` every byte is as the manifest says."""

    folder: Path
    manifest: Manifest
    problems: Tuple[str, ...]


def verify(folder: Path) -> Verification:
    """Verify every file below ``folder``. Raises ``IntegrityError`` without a readable manifest."""
    manifest = manifest_in(folder)
    problems = [*_wrong_files(folder, manifest, _problem), *_strangers(folder, manifest)]
    return Verification(folder, manifest, tuple(problems))


def verify_sizes(folder: Path) -> Verification:
    """Find the missing files below ``folder`` and those of another size. Raises as ``verify``."""
    manifest = manifest_in(folder)
    return Verification(folder, manifest, tuple(_wrong_files(folder, manifest, _other_size)))


def manifest_in(folder: Path) -> Manifest:
    """Return the manifest of the package in ``folder``.

    Raises ``IntegrityError`` for one that is missing or damaged, ``ValidationError`` for an unknown format.
    """
    path = folder / MANIFEST
    try:
        return loads(path.read_text(encoding="utf-8"), folder.name)
    except (OSError, UnicodeDecodeError) as error:
        raise IntegrityError(
            f"{path} cannot be read", cause=str(error), advice="Run install again."
        ) from error
    except (ParseError, SchemaError) as error:
        raise IntegrityError(f"{path} is damaged", cause=error.what, advice="Run install again.") from error


def whole(folder: Path) -> Optional[Manifest]:
    """Return the manifest of the package in ``folder`` if the package is complete and unchanged.

    ``None`` where it is not, or where the manifest cannot be read.
    """
    try:
        verdict = verify(folder)
    except (IntegrityError, ConfigError):
        return None
    return None if verdict.problems else verdict.manifest


def _wrong_files(
    folder: Path, manifest: Manifest, problem_of: Callable[[Path, FileEntry], str]
) -> Iterator[str]:
    for entry in manifest.files:
        if not is_plain(entry.path):
            yield f"{entry.path!r} does not lie in the package's folder"
            continue
        problem = problem_of(folder / entry.path, entry)
        if problem:
            yield f"{entry.path}: {problem}"


def _other_size(path: Path, entry: FileEntry) -> str:
    if path.is_symlink() or not path.is_file():
        return "is missing or not a regular file"
    size = path.stat().st_size
    return "" if size == entry.size else f"size differs: wanted {entry.size} bytes, got {size}"


def _problem(path: Path, entry: FileEntry) -> str:
    other = _other_size(path, entry)
    if other:
        return other
    digest = sha256_of(path)
    return "" if digest == entry.sha256 else f"sha256 differs: wanted {entry.sha256}, got {digest}"


def _strangers(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Yield a problem for each file that the manifest does not name.

    The loader could take such a library instead of the package's.
    """
    known = {entry.path for entry in manifest.files} | {MANIFEST, INFO}
    for path in sorted(paths_below(folder)):
        name = path.relative_to(folder).as_posix()
        if name not in known and not (path.is_dir() and not path.is_symlink()):
            yield f"{name}: does not belong to the package"


def index_of(archive: Path, form: Form) -> Index:
    """Return an index with the one package whose archive, of this ``form``, is ``archive``.

    No release promises the archive's sha256, so it is taken as it is; the manifest inside names the sha256 of
    each file. The file's name may differ from the package's, because browsers change it. The index is checked
    like any other. Raises ``TransferError``, ``IntegrityError``, ``ToolMissingError`` or ``ConfigError``.
    """
    if not archive.is_file():
        raise TransferError(f"{archive}: no such file. A package's archive, or a folder with index.json.")
    with open_tar(archive, form) as stream:
        manifest = read_manifest(stream, archive.name)
    stored = StoredFile(f"{manifest.name}{form.value}", size_of(archive), sha256_of(archive))
    return load_index(json_text(build_index("", [(manifest, stored)], manifest.models)), archive.name)
