"""NVIDIA's libraries of a thin package are copied from this machine, else unpacked from their wheels.

The client searches for the libraries in installed packages, in Python environments, and in the folders of
conda and the system. A wheel is taken from a folder that the user names if its bytes match; else pip fetches
it, with this machine's index, proxy and certificates.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from builder.client.install.pip import Pip
from builder.client.install.prefix import Prefix, make_folder
from builder.errors import ConfigError, DiskError, TransferError
from builder.files.archive_reader import opened_zip
from builder.files.digest import (
    Digest,
    chunks_in,
    has_bytes,
    other_bytes,
    sha256_of,
    write_new,
)
from builder.files.disk import is_folder, rename, sync_file
from builder.files.safe_paths import OTHER_RELEASE, bad_package, parts_of
from builder.formats.manifest import FileEntry, Manifest, WheelEntry
from builder.formats.package_names import MANIFEST, file_mode
from builder.formats.text import amount

SPARE_BYTES = 64 * 2**20
"""Bytes that must stay free besides those that the package needs."""

_SOURCE = re.compile(r"wheel:([A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!]*)(?:@[a-z0-9-]+)?")

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*-([a-z0-9_]+)(?:\.[a-z0-9_.]+)?\.whl")

_OR_FULL = ", or take what has NVIDIA's libraries inside: --layout full"


def complete(
    manifest: Manifest,
    folder: Path,
    libraries: Libraries,
    say: Callable[[str], None],
    free: Callable[[Path], int],
) -> None:
    """Bring every absent file of ``manifest`` into ``folder``, each verified by its sha256.

    Libraries that were unpacked from wheels stay under the prefix until the install ends, so that a run after
    an interruption takes them from there. ``free(path)`` returns the free bytes on the file system of
    ``path``. Raises ``DiskError``, ``IntegrityError``, ``ToolMissingError`` (no pip) or ``TransferError``.
    """
    if not manifest.absent:
        return
    places = libraries.survey(manifest.absent)
    missing = [entry for entry in manifest.absent if entry not in places]
    wheels = _wheels(missing, manifest)
    copied = [entry for entry, place in places.items() if not place.ours]
    largest = max((wheel.size for wheel in wheels if libraries.wheel_here(wheel) is None), default=0)
    needed = sum(entry.size for entry in (*copied, *missing)) + 2 * largest  # pip copies a fetched wheel
    require_disk_space(libraries.prefix, needed, "for NVIDIA's libraries and the wheels they come in", free)
    if places:
        say(f"{len(places)} of {len(manifest.absent)} NVIDIA libraries are on this machine already.")
    for wheel in wheels:
        _take_from(wheel, [entry for entry in missing if entry.source == wheel.source], libraries, say)
    for entry in manifest.absent:
        waiting = Found(libraries.prefix.library(entry.sha256), ours=True)
        _place(places.get(entry, waiting), entry, folder)


def _wheels(missing: Iterable[FileEntry], manifest: Manifest) -> List[WheelEntry]:
    """Return the wheels of ``missing``. Raises ``IntegrityError`` where the manifest names none."""
    known = {wheel.source: wheel for wheel in manifest.wheels}
    lost = [entry.path for entry in missing if entry.source not in known or entry.member is None]
    if lost:
        raise bad_package(manifest.name, f"its manifest does not say where {lost[0]} comes from")
    return [known[source] for source in sorted({entry.source for entry in missing})]


def require_disk_space(prefix: Prefix, needed: int, what: str, free: Callable[[Path], int]) -> None:
    """Raise ``DiskError`` unless ``needed`` bytes and ``SPARE_BYTES`` are free under the prefix.

    ``what`` completes the message's "bytes are needed …".
    """
    needed, there = needed + SPARE_BYTES, free(prefix.root)
    if there < needed:
        raise DiskError(
            f"{prefix.root}: {needed} bytes are needed {what} ({amount(needed)}), {there} are free "
            f"({amount(there)}).",
            advice="Free some space or choose another place with --prefix.",
        )


def _take_from(
    wheel: WheelEntry, entries: Sequence[FileEntry], libraries: Libraries, say: Callable[[str], None]
) -> None:
    """Fetch one wheel, unpack its libraries and remove it, so that at most one wheel is on the disk."""
    work = libraries.prefix.part("wheel")
    work.mkdir()
    try:
        path = libraries.wheel_here(wheel) or _fetched(wheel, libraries.pip, work, say)
        for entry in entries:
            part = work / entry.sha256
            _unzip(path, wheel, entry, part)
            rename(part, libraries.prefix.library(entry.sha256))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _unzip(path: Path, wheel: WheelEntry, entry: FileEntry, target: Path) -> None:
    what = f"{wheel.file}: {entry.member}"
    try:
        with opened_zip(path, what, OTHER_RELEASE) as archive, archive.open(str(entry.member)) as source:
            _write(source, target, entry, what)
    except KeyError as error:
        raise bad_package(wheel.file, f"it does not hold {entry.member}") from error


def _place(found: Found, entry: FileEntry, folder: Path) -> None:
    """Link a library that only the client writes to into ``folder``; copy any other."""
    *above, name = parts_of(entry.path, MANIFEST)
    home = folder.joinpath(*above)
    make_folder(home)
    target = home / name
    if not (found.ours and _linked(found.path, target)):
        with found.path.open("rb") as source:
            _write(source, target, entry, str(found.path))


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def _write(source: IO[bytes], target: Path, entry: FileEntry, where: str) -> None:
    """Write a new file with the bytes of ``entry``; ``where`` names the source in an ``IntegrityError``."""
    digest = write_new(chunks_in(source), target, file_mode(entry.path), sync_file).sha256
    if digest != entry.sha256:
        raise other_bytes(f"{where}: sha256 differs from the manifest", entry.sha256, digest)


NVIDIA = "nvidia"
"""The folder in ``site-packages`` that NVIDIA's wheels unpack to."""

_PLACES = ("lib*/python3*/site-packages", "lib/python3*/dist-packages", "Lib/site-packages")
"""Folders of packages in a Python environment. Source: the schemes of ``sysconfig``, and Debian's."""


@dataclass(frozen=True)
class Found:
    """A library on this machine whose bytes match the manifest's."""

    path: Path
    ours: bool
    """Whether only the client writes to it. Such a file may be linked; any other could change later."""


@dataclass(frozen=True)
class Libraries:
    """The places of NVIDIA's libraries: files on this machine first, then wheels, last pip.

    The sha256 of the files that were read is kept.
    """

    prefix: Prefix
    environments: Tuple[Path, ...]
    """The ``site-packages`` folders."""
    folders: Tuple[Path, ...]
    """Folders that hold libraries directly: conda's and the system's."""
    wheels: Tuple[Path, ...]
    """Folders that may hold NVIDIA's wheels."""
    pip: Optional[Pip]
    """``None`` where nothing may be fetched."""
    _digests: Dict[Tuple[str, int, int], str] = field(default_factory=dict, compare=False, repr=False)

    def may_have_some(self) -> bool:
        """Return whether any place on this machine may hold a library, without reading a file."""
        versions = self.prefix.versions
        there = any(is_folder(folder / NVIDIA) for folder in self.environments) or bool(self.folders)
        return there or (versions.is_dir() and any(versions.iterdir()))

    def survey(self, entries: Iterable[FileEntry]) -> Dict[FileEntry, Found]:
        """Return the files on this machine whose bytes are those of ``entries``, by entry.

        The client's own files are compared before those of environments and of the system.
        """
        places = ((entry, next(self._copies(entry), None)) for entry in entries)
        return {entry: place for entry, place in places if place is not None}

    def wheel_here(self, wheel: WheelEntry) -> Optional[Path]:
        """Return a file in ``wheels`` with exactly the wheel's bytes; ``None`` where there is none.

        The name of the file does not matter; files with the wheel's name are compared first.
        """
        named = [folder / wheel.file for folder in self.wheels]
        others = (path for folder in self.wheels for path in sorted(folder.glob("*.whl")))
        wanted = Digest(wheel.size, wheel.sha256)
        return next((path for path in dict.fromkeys((*named, *others)) if has_bytes(path, wanted)), None)

    def _copies(self, entry: FileEntry) -> Iterator[Found]:
        return (place for place in self._candidates(entry) if self._matches(place, entry))

    def _candidates(self, entry: FileEntry) -> Iterator[Found]:
        yield Found(self.prefix.library(entry.sha256), ours=True)
        place = parts_of(entry.path, MANIFEST)
        versions = sorted(self.prefix.versions.iterdir()) if self.prefix.versions.is_dir() else []
        yield from (Found(folder.joinpath(*place), ours=True) for folder in versions)
        if entry.member is not None:
            member = parts_of(entry.member, MANIFEST)
            yield from (Found(folder.joinpath(*member), ours=False) for folder in self.environments)
            yield from (Found(folder / place[-1], ours=False) for folder in self.folders)

    def _matches(self, found: Found, entry: FileEntry) -> bool:
        path = found.path
        try:
            if not path.is_file() or (found.ours and path.is_symlink()):
                return False
            stat = path.stat()
            return stat.st_size == entry.size and self._digest(path, stat) == entry.sha256
        except OSError:
            return False

    def _digest(self, path: Path, stat: os.stat_result) -> str:
        """Return the sha256 of a file, which is read again only when its size or time has changed."""
        key = (str(path), stat.st_size, stat.st_mtime_ns)
        if key not in self._digests:
            self._digests[key] = sha256_of(path)
        return self._digests[key]


def site_packages(folders: Iterable[Path]) -> Tuple[Path, ...]:
    """Return the folders with NVIDIA's libraries among ``folders`` and the ``site-packages`` inside them.

    Raises ``ConfigError`` for a folder that does not exist.
    """
    found: Dict[Path, None] = {}
    for folder in folders:
        if not is_folder(folder):
            raise ConfigError(f"{folder}: no such folder. --look-in and ORTPACKS_LOOK_IN name environments.")
        found.update(dict.fromkeys(path for path in folders_of(folder) if is_folder(path / NVIDIA)))
    return tuple(found)


def folders_of(environment: Path) -> Iterable[Path]:
    """Return ``environment``, which may be a ``site-packages``, and the ``site-packages`` inside it.

    A folder with two names, as ``lib64`` of a virtual environment leads to ``lib``, counts once.
    """
    by_real_path: Dict[str, Path] = {}
    for path in (environment, *(path for pattern in _PLACES for path in sorted(environment.glob(pattern)))):
        by_real_path.setdefault(os.path.realpath(path), path)
    return by_real_path.values()


_LIBRARIES = (
    "usr/local/cuda*/lib64",
    "usr/local/cuda*/targets/*/lib",
    "usr/lib/*-linux-gnu",
    "usr/lib64",
)
"""Folders with CUDA or cuDNN: of NVIDIA's installer and packages, and of distributions' packages."""

_KNOWN_BY = ("libcudart.so.*", "libcublas.so.*", "libcudnn.so.*")


def library_folders(root: Path, conda: Optional[str], folders: Iterable[Path]) -> Tuple[Path, ...]:
    """Return the folders with CUDA: the system's under ``root``, conda's, and those of ``folders``.

    ``conda`` is the environment's folder, if any. Of it and of each of ``folders``, the folder itself and its
    ``lib`` are examined.
    """
    system = (path for pattern in _LIBRARIES for path in sorted(root.glob(pattern)))
    named = [*([Path(conda)] if conda else []), *folders]
    places = (*system, *named, *(folder / "lib" for folder in named))
    return tuple(dict.fromkeys(place.resolve() for place in places if _has_cuda(place)))


def _has_cuda(folder: Path) -> bool:
    try:
        return any(any(folder.glob(name)) for name in _KNOWN_BY)
    except OSError:
        return False


def _fetched(wheel: WheelEntry, pip: Optional[Pip], work: Path, say: Callable[[str], None]) -> Path:
    """Fetch a wheel into the empty folder ``work`` and return its path, with its sha256 verified.

    Raises ``TransferError`` where nothing may be fetched, and the errors of ``Pip.download``.
    """
    if pip is None:
        raise TransferError(
            f"{wheel.file}: not here, and --offline fetches nothing.",
            advice=f"Put it into a folder for --wheels{_OR_FULL}.",
        )
    say(f"Fetching {wheel.file} ({amount(wheel.size)}) through pip.")
    return pip.download(
        _requirement(wheel),
        wheel.sha256,
        work,
        platform=_platform(wheel.file),
        otherwise=_OR_FULL,
        size=wheel.size,
    )


def _requirement(wheel: WheelEntry) -> str:
    """Return the requirement for pip, ``nvidia-cublas-cu12==12.9.1.4``.

    Raises ``IntegrityError`` for a source of any other form, so that nothing can be an option of pip.
    """
    match = _SOURCE.fullmatch(wheel.source)
    if match is None:
        raise bad_package(repr(wheel.source), "the manifest names no wheel that pip could be asked for")
    return match[1]


def _platform(file: str) -> Optional[str]:
    """Return the wheel's first platform tag; ``None`` for ``any`` and for a name of another form.

    pip needs the tag because an old pip does not know that the newest tags fit this machine.
    """
    match = _FILE.fullmatch(file)
    return match[1] if match and match[1] != "any" else None
