"""Wheels through pip as a program, so that the machine's own index, certificates and find-links are used."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from builder.errors import CommandError, ConfigError
from builder.files.disk import disk_errors, require_space
from builder.files.pip_download import downloaded, pip_download, refusal
from builder.formats.package_names import LINUX, MACOS, WINDOWS
from builder.ports import Runner
from builder.project.inputs import Input, Pin

PYTHON = "3.11"
"""The Python whose wheels are taken where one has none of its own: only the libraries inside count."""

_ADVICE = "Check the network and pip's index (pip config list), then run the same command again."

_NEWEST_GLIBC = 35
"""Ubuntu 22.04 has glibc 2.35: no wheel that wants a newer one may get into a package."""

_ANY_LINUX_X64 = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(_NEWEST_GLIBC, 4, -1)),
    *(f"manylinux{legacy}_x86_64" for legacy in ("2014", "2010", "1")),
)

_TAGS = {LINUX: _ANY_LINUX_X64, WINDOWS: ("win_amd64",), MACOS: ("macosx_14_0_arm64",)}
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
    platforms = sorted({tag.platform for tag in tags})
    return _arguments(platforms, version, implementation, sorted({tag.abi for tag in tags}))


def _arguments(platforms: Sequence[str], python: str, implementation: str, abis: Sequence[str]) -> list[str]:
    return [
        *(f"--platform={platform}" for platform in platforms),
        f"--python-version={python}",
        f"--implementation={implementation}",
        *(f"--abi={abi}" for abi in abis),
    ]
