"""NVIDIA's wheels: from folders that the user names, by their bytes; else through pip.

pip knows this machine's package index, proxy and certificates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, Optional, Sequence, Tuple

from builder.client.probe.processes import ProcessAnswer, Work
from builder.errors import IntegrityError, ToolMissingError, TransferError
from builder.files.digest import Digest, has_bytes, require_bytes
from builder.files.pip_download import NO_PIP, downloaded, pip_download, refusal
from builder.formats.manifest import WheelEntry
from builder.formats.text import mib

_SOURCE = re.compile(r"wheel:([A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!]*)")

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*-([a-z0-9_]+)(?:\.[a-z0-9_.]+)?\.whl")

_ADVICE = "Set its index (PIP_INDEX_URL, pip.conf), or take --layout full."


@dataclass(frozen=True)
class Pip:
    """The pip of the first of ``pythons`` that has one."""

    pythons: Tuple[str, ...]
    work: Work

    def download(self, wheel: WheelEntry, folder: Path) -> Path:
        """The wheel, proved, in the empty ``folder``, which also takes pip's own temporary files.

        Raises ``ToolMissingError`` (no pip), ``TransferError`` (not to be had), ``IntegrityError`` (other
        bytes) or ``DiskError``.
        """
        asked = folder / "requirements.txt"
        asked.write_text(f"{_requirement(wheel)} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        platform = _platform(wheel.file)
        wanted = ["--require-hashes", "-r", str(asked), *(["--platform", platform] if platform else [])]
        answer = self._run(wanted, folder)
        if answer.code != 0:
            raise refusal(_requirement(wheel), answer.stderr.splitlines(), _ADVICE)
        path = downloaded(folder, wheel.file)
        require_bytes(path, Digest(wheel.size, wheel.sha256), wheel.file)
        return path

    def _run(self, wanted: Sequence[str], folder: Path) -> ProcessAnswer:
        for python in self.pythons:
            answer = self._try(pip_download(python, folder, wanted), folder)
            if answer is not None and answer.code != NO_PIP:
                return answer
        raise ToolMissingError(
            f"None of {', '.join(self.pythons)} has pip, which fetches NVIDIA's libraries. Install it "
            "(apt install python3-pip, python3 -m ensurepip), or take what has them inside: --layout full."
        )

    def _try(self, argv: Sequence[str], folder: Path) -> Optional[ProcessAnswer]:
        try:
            return self.work(argv, folder)
        except OSError:
            return None


def _requirement(wheel: WheelEntry) -> str:
    """``nvidia-cublas-cu12==12.9.1.4``; nothing that pip could take for an option gets through."""
    match = _SOURCE.fullmatch(wheel.source)
    if match is None:
        raise IntegrityError(f"{wheel.source!r}: the manifest names no wheel that pip could be asked for")
    return match[1]


def _platform(file: str) -> Optional[str]:
    """The wheel's first platform tag: an old pip does not know by itself that the newest tags fit."""
    match = _FILE.fullmatch(file)
    return match[1] if match and match[1] != "any" else None


@dataclass(frozen=True)
class Wheels:
    """The sources of wheels: folders, then ``pip``, which is ``None`` where nothing may be fetched."""

    folders: Tuple[Path, ...]
    pip: Optional[Pip]

    def bring(self, wheel: WheelEntry, work: Path, say: Callable[[str], None]) -> Path:
        """The wheel, with its sha256 proved. ``work`` is an empty folder for what is fetched.

        Raises ``TransferError`` where it is in none of the folders and pip may not be asked, or as ``Pip``.
        """
        path = self.find(wheel)
        if path is not None:
            return path
        if self.pip is None:
            raise TransferError(
                f"{wheel.file}: not here, and --offline fetches nothing. Put it into a folder for --wheels, "
                "or take what has NVIDIA's libraries inside: --layout full."
            )
        say(f"Fetching {wheel.file} ({mib(wheel.size)}) through pip.")
        return self.pip.download(wheel, work)

    def find(self, wheel: WheelEntry) -> Optional[Path]:
        """A file with exactly the wheel's bytes, whatever its name; one that has it is looked at first."""
        return next(
            (path for path in self._candidates(wheel) if has_bytes(path, Digest(wheel.size, wheel.sha256))),
            None,
        )

    def _candidates(self, wheel: WheelEntry) -> Iterator[Path]:
        yield from (folder / wheel.file for folder in self.folders)
        for folder in self.folders:
            yield from sorted(path for path in folder.glob("*.whl") if path.name != wheel.file)
