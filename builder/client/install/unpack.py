"""A package's files are unpacked from an archive into a new folder, and verified again once installed.

Only files that the manifest lists are unpacked. Their names, types, number, sizes and sha256 must be those of
``manifest.json``, the archive's first member. ``tarfile``'s own filters are not in every Python 3.9.
"""

from __future__ import annotations

import re
import tarfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import IO, Dict, Iterator, List, Optional, Tuple

from builder.client.install.decompress import AGAIN, open_tar
from builder.client.install.prefix import INFO
from builder.errors import ConfigError, IntegrityError, ParseError, SchemaError, TransferError
from builder.files.digest import chunks_in, sha256_of, size_of, write_new
from builder.files.disk import Sync, disk_errors, paths_below, set_mode, sync_file
from builder.files.package_tar import (
    NO_TAR,
    bad_package,
    forward_tar,
    inside,
    is_plain,
    parts_of,
    place_in,
    plain_file,
)
from builder.formats.index import Index, StoredArchive, build_index
from builder.formats.index import loads as load_index
from builder.formats.json_values import json_text
from builder.formats.manifest import MANIFEST_LIMIT, FileEntry, Manifest, loads
from builder.formats.package_names import FOLDER_MODE, MANIFEST, Form, file_mode
from builder.formats.parts import SHA256
from builder.formats.text import abridged

COUNT_LIMIT = 10_000

_UNFIT = re.compile(
    r'[\x00-\x1f<>:"|?*\\]|[. ](?:/|$)|(?:^|/)(?:con|prn|aux|nul|(?:com|lpt)[0-9¹²³])(?:[./]|$)'
)
"""Characters, endings and device names that no Windows file name may have; matched against lower-case paths.

Source: Microsoft, "Naming Files, Paths, and Namespaces". Packages must keep to it on every system.
"""


def extract(stream: IO[bytes], top: str, folder: Path, limit: int) -> Manifest:
    """Unpack the tar ``stream``, whose members all lie under ``top``, and return its manifest.

    ``folder`` must be empty. Modes are those of ``file_mode``, whatever the archive and the umask say.
    ``limit`` is the index's ``unpacked_size`` in bytes. Raises ``IntegrityError`` for a member that differs
    from the manifest or is not in it, and ``DiskError`` where a file cannot be written.
    """
    try:
        with disk_errors(folder), forward_tar(stream) as archive, _syncing() as sync:
            members = islice(archive, COUNT_LIMIT * 2)  # folders count too
            set_mode(folder, FOLDER_MODE)
            content = _first(archive, members, top)
            write_new([content], folder / MANIFEST, file_mode(MANIFEST), sync)
            manifest = _parse(content, top)
            wanted = _wanted(manifest, top, limit)
            for member in members:
                _take(archive, member, top, folder, wanted, sync)
    except NO_TAR as error:
        raise IntegrityError(f"{top}: not a whole tar archive: {error}", advice=AGAIN) from error
    if wanted:
        names = abridged(sorted(entry.path for entry in wanted.values()), 3)
        raise bad_package(top, f"the archive lacks {names}, which its manifest lists")
    return manifest


def read_manifest(stream: IO[bytes], where: str) -> Manifest:
    """Return the manifest at the head of the tar ``stream``, which errors call ``where``.

    The manifest's name must be that of the archive's top folder. Raises ``IntegrityError`` or
    ``ConfigError``.
    """
    try:
        with forward_tar(stream) as archive:
            first = archive.next()
            top = first.name.partition("/")[0] if first else where
            manifest = _parse(_first(archive, chain([first] if first else [], archive), top), where)
    except NO_TAR as error:
        raise IntegrityError(f"{where}: not a whole tar archive: {error}", advice=AGAIN) from error
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


def _first(archive: tarfile.TarFile, members: Iterator[tarfile.TarInfo], top: str) -> bytes:
    """Return the manifest's bytes.

    The manifest must be the first member after the top-level folder. Raises ``IntegrityError``.
    """
    member = next((item for item in members if not (item.isdir() and inside(item.name, top) == ())), None)
    if member is None or inside(member.name, top) != (MANIFEST,) or not plain_file(member):
        raise bad_package(top, f"the archive does not begin with {MANIFEST}")
    if member.size > MANIFEST_LIMIT:
        raise bad_package(top, f"{MANIFEST} has {member.size} bytes; at most {MANIFEST_LIMIT} are read")
    source = archive.extractfile(member)
    return source.read() if source else b""


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
    alike = {entry.path.casefold() for entry in manifest.files}  # one file on Windows and macOS
    unfit = next((path for path in alike if _UNFIT.search(path)), None)
    if unfit is not None:
        raise bad_package(top, f"its manifest lists {unfit!r}, which is no name of a file on Windows")
    if len(manifest.files) > COUNT_LIMIT or len(alike) != len(manifest.files):
        raise bad_package(top, f"its manifest lists {len(manifest.files)} files, some twice or too many")
    if {(MANIFEST,), (INFO,)} & set(entries) or any(entry.size < 0 for entry in manifest.files):
        raise bad_package(top, f"its manifest lists itself, {INFO} or a negative size")
    files = alike | {MANIFEST, INFO}
    above = next((path for path in alike if files & {str(one) for one in PurePosixPath(path).parents}), None)
    if above is not None:
        raise bad_package(top, f"its manifest lists {above!r}, and a part of that path as a file")
    if manifest.unpacked_size > limit:
        sizes = f"{manifest.unpacked_size} bytes in the manifest, at most {limit} in the index"
        raise bad_package(top, f"unpacked size differs: {sizes}")
    return {parts: entry for parts, entry in entries.items() if entry.packed}


def _take(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    top: str,
    folder: Path,
    wanted: Dict[Tuple[str, ...], FileEntry],
    sync: Sync,
) -> None:
    """Write one member and remove its entry from ``wanted``."""
    parts = inside(member.name, top)
    if member.isdir():
        return
    if not plain_file(member):
        raise bad_package(top, f"{member.name} is a link or a device; a package has only files")
    entry = wanted.pop(parts, None)
    if entry is None:
        raise bad_package(top, f"its manifest does not list {member.name}, or the archive holds it twice")
    if member.size != entry.size:
        raise _differs(top, entry.path, "size", str(entry.size), str(member.size))
    target = place_in(folder, parts)
    source = archive.extractfile(member)
    digest = write_new(chunks_in(source), target, file_mode(entry.path), sync).sha256 if source else ""
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
    problems = [*_wrong_files(folder, manifest), *_strangers(folder, manifest)]
    return Verification(folder, manifest, tuple(problems))


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


def _wrong_files(folder: Path, manifest: Manifest) -> Iterator[str]:
    for entry in manifest.files:
        if not is_plain(entry.path):
            yield f"{entry.path!r} does not lie in the package's folder"
            continue
        problem = _problem(folder / entry.path, entry)
        if problem:
            yield f"{entry.path}: {problem}"


def _problem(path: Path, entry: FileEntry) -> str:
    if path.is_symlink() or not path.is_file():
        return "is missing or not a regular file"
    size = path.stat().st_size
    if size != entry.size:
        return f"size differs: wanted {entry.size} bytes, got {size}"
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
    stored = StoredArchive(f"{manifest.name}{form.value}", size_of(archive), sha256_of(archive))
    return load_index(json_text(build_index("", [(manifest, stored)], manifest.models)), archive.name)
