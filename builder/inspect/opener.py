"""Opener of libraries in files, folders and archives, at a path or a URL."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from builder.binary.file_kinds import DEBIAN_PACKAGE, HEAD
from builder.binary.library_names import is_library, is_named_like_a_library
from builder.errors import NothingToDoError, ValidationError
from builder.files.archive_reader import is_tar
from builder.files.atomic_write import scratch_folder
from builder.files.decompression import packing_of
from builder.formats.manifest import MANIFEST_HEAD, is_manifest
from builder.formats.package_names import MANIFEST
from builder.formats.text import printable, redacted
from builder.inspect.archives import (
    VERSION,
    VERSION_LIMIT,
    Scratch,
    Wanted,
    disk_faults,
    is_version,
    is_zip,
    read_tar,
    read_zip,
    require_no_image,
)
from builder.io.transfer import HttpTransfer, TransferReporter

Library = tuple[str, Path]
"""The name to show, and the file that has the bytes."""

_SUFFIX = re.compile(r"\.(?:whl|zip|nupkg|tar|tgz|txz|tbz2?|tzst|tar\.(?:gz|zst|bz2|xz))\Z", re.IGNORECASE)

_TAKEN = "a library, a folder, a wheel, a zip or tar archive, or the URL of one"

_NOT_OPENED = "Archives in folders and in archives are not opened: name each of them."


@dataclass(frozen=True)
class SourceFiles:
    """The files of a source that are inspected, sorted by name."""

    libraries: Sequence[Library]
    manifests: Sequence[Library]
    """The ``manifest.json`` of each ortpacks package in the source."""
    versions: Mapping[str, str]
    """By folder, with its slash: the version in its ``version.json``."""


@dataclass(frozen=True, kw_only=True)
class Opener:
    """An opener of sources, which removes afterwards the files that it unpacked or downloaded."""

    transfer: HttpTransfer
    scratch: Path
    """A path next to which scratch folders are made."""

    @contextmanager
    def files(self, source: str, wants: Wanted | None = None) -> Iterator[SourceFiles]:
        """Yield the libraries and manifests of ``source``, which can be read inside the block.

        With ``wants``, an archive's other files are not unpacked, and there may be none.

        Raises ``NothingToDoError`` (no library), ``ValidationError`` (no such source, or one that cannot be
        opened), ``IntegrityError`` (damaged), ``TransferError``, ``DiskError``.
        """
        with self._libraries_of(source, wants) as by_name:
            named = [(printable(name), path) for name, path in sorted(by_name.items())]
            manifests = [pair for pair in named if _is_manifest(*pair)]
            texts = [pair for pair in named if pair[0].rpartition("/")[2] == VERSION]
            versions = {name.removesuffix(VERSION): _version_in(path) for name, path in texts}
            libraries = [pair for pair in named if pair not in (*manifests, *texts)]
            if not libraries and wants is None:
                raise NothingToDoError(
                    f"No library for Linux or Windows in {shown(source)}",
                    advice=f"Name {_TAKEN}. {_NOT_OPENED}",
                )
            yield SourceFiles(libraries, manifests, versions)

    @contextmanager
    def _libraries_of(self, source: str, wants: Wanted | None) -> Iterator[dict[str, Path]]:
        path, what = None if is_url(source) else require_path(source), shown(source)
        if path and path.is_file() and is_library(path.name, _head(path, what)):
            yield {path.name: path}
            return
        with scratch_folder(self.scratch, needed=0) as folder:
            scratch, reporter = Scratch(folder, wants), self.transfer.reporter
            name = path.name if path else _name_in(source)
            if path is None:
                path = scratch.place()
                self.transfer.download(source, path)
            plain = path.is_dir()
            yield _in_folder(path, what) if plain else _in_file(path, name, what, scratch, reporter)


def is_url(source: str) -> bool:
    """Return whether a source is a URL, which is downloaded before it is opened.

    Raises ``ValidationError`` for a malformed one.
    """
    if not source.lower().startswith(("http://", "https://")):
        return False
    try:
        urlsplit(source)
    except ValueError as error:
        raise ValidationError(
            f"{shown(source)} is no URL", cause=str(error), advice="Write it like https://HOST/PATH."
        ) from error
    return True


def shown(source: str) -> str:
    """Return a source as messages and reports name it, without secrets of a URL and control characters."""
    return printable(redacted(source))


def require_path(source: str) -> Path:
    """Return the path of the file or folder that ``source`` names. Raises ``ValidationError`` without one."""
    path = Path(source)
    try:
        there = source and (path.is_file() or path.is_dir())
    except OSError as error:
        advice = "Check the path and its folders' modes."
        cause = error.strerror or str(error)
        raise ValidationError(f"{shown(source)} cannot be looked at", cause=cause, advice=advice) from error
    if not there:
        raise ValidationError(
            f"{shown(source) or repr(source)} is neither a file nor a folder", advice=f"Name {_TAKEN}."
        )
    return path


def _name_in(url: str) -> str:
    return PurePosixPath(urlsplit(url).path).name or "download"


def _head(path: Path, what: str) -> bytes:
    with path.open("rb") as file, disk_faults(what):
        return file.read(HEAD)


def is_library_or_archive(path: Path) -> bool:
    """Whether a file is one that is looked into: a library or an archive. Raises ``OSError``."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    return is_library(path.name, head) or is_zip(head) or bool(packing_of(head)) or is_tar(head)


def _in_file(
    path: Path, name: str, what: str, scratch: Scratch, reporter: TransferReporter
) -> dict[str, Path]:
    head = _head(path, what)
    if is_library(name, head):
        return {name: path}
    _require_opened(name, head, what)
    if is_zip(head):
        return _without_top(read_zip(path, scratch, what, reporter), name)
    packing = packing_of(head)
    if packing or is_tar(head):
        return _without_top(read_tar(path, packing, what, scratch, reporter), name)
    if _SUFFIX.search(name):
        raise ValidationError(
            f"{what} is no archive, whatever its name says",
            cause="its bytes are neither zip nor tar, gzip, zstd, bzip2 or xz",
            advice="It may be cut short or an error page; fetch it again.",
        )
    raise NothingToDoError(
        f"{what} is neither a library for Linux or Windows nor an archive of a kind that is opened",
        advice=f"Name {_TAKEN}. Unpack any other archive and name the folder.",
    )


_LEFT = (
    (DEBIAN_PACKAGE, "a Debian package", "dpkg-deb --extract FILE FOLDER"),
    (b"\xed\xab\xee\xdb", "an RPM package", "rpm2archive FILE, then tar --extract"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x FILE"),
    (b"hsqs", "a squashfs image", "unsquashfs FILE"),
    (b"Rar!", "a RAR archive", "unrar x FILE"),
    (b"MSCF", "a cabinet", "cabextract FILE"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an installer of Windows (msi)", "msiextract FILE"),
    (b"xar!", "a package of macOS", "pkgutil --expand-full FILE FOLDER"),
    (b"0707", "a cpio archive", "cpio --extract < FILE"),
)
"""Formats that are not opened: their first bytes, name, and the program that unpacks them."""


def _require_opened(name: str, head: bytes, what: str) -> None:
    """Raise ``ValidationError`` for a package or archive of a format that is not opened."""
    known = next((row[1:] for row in _LEFT if head.startswith(row[0])), None)
    if name.lower().endswith(".conda") and is_zip(head):
        known = ("a package of conda", "cph extract FILE")
    if known:
        raise ValidationError(
            f"{what} is {known[0]}, and is not looked into",
            advice=f"Unpack it with `{known[1]}` and name the folder.",
        )


def _without_top(files: dict[str, Path], name: str) -> dict[str, Path]:
    """Return the files by their names without a top folder that only repeats the archive's own name."""
    prefix = f"{_SUFFIX.sub('', name)}/"
    if not all(name.startswith(prefix) for name in files):
        return files
    return {name[len(prefix) :]: path for name, path in files.items()}


def _in_folder(folder: Path, what: str) -> dict[str, Path]:
    walked = sorted(_walk(folder))
    files = {name: path for name, path in walked if not path.is_symlink()}
    require_no_image(files, what)
    libraries = {name: path for name, path in files.items() if _is_candidate(path)}
    links = [(name, path) for name, path in walked if path.is_symlink() and is_named_like_a_library(name)]
    return {**libraries, **dict(_other_names(links, libraries.values()))}


def _other_names(links: Iterable[Library], known: Iterable[Path]) -> Iterator[Library]:
    """Yield the links whose target is not in ``known``: it is outside the folder, no library, or missing."""
    shown_files = {_identity(path) for path in known}
    for name, path in links:
        target = _identity(path)
        if target is None or target not in shown_files:
            shown_files.add(target)
            yield name, path


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode, which all names of one file share; ``None`` for a link that leads nowhere."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _walk(folder: Path) -> Iterator[Library]:
    """Yield every regular file and every link below ``folder``, with its path relative to ``folder``."""

    def unreadable(error: OSError) -> None:
        raise ValidationError(
            f"{shown(str(error.filename))} cannot be read",
            cause=error.strerror or str(error),
            advice="Check its owner and mode.",
        ) from error

    for above, folders, names in os.walk(folder, onerror=unreadable):
        for path in (Path(above) / name for name in (*folders, *names)):
            if path.is_symlink() or path.is_file():
                yield path.relative_to(folder).as_posix(), path


def _is_candidate(path: Path) -> bool:
    """Return whether a file is a library or a manifest, or cannot be read, which its reader reports."""
    try:
        with path.open("rb") as file:
            head = file.read(max(HEAD, MANIFEST_HEAD))
    except OSError:
        return True
    return is_library(path.name, head) or is_manifest(path.name, head) or is_version(path.name, head)


def _version_in(path: Path) -> str:
    """Return the version in a ``version.json``; empty where it cannot be read as one."""
    with path.open("rb") as file, suppress(ValueError, KeyError, RecursionError):
        return str(json.loads(file.read(VERSION_LIMIT).decode("utf-8-sig"))["version"])
    return ""


def _is_manifest(name: str, path: Path) -> bool:
    return name.rpartition("/")[2] == MANIFEST and not is_library("", _head(path, name))
