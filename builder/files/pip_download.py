"""pip, asked for one wheel: as a program, so that the machine's own index and certificates are used."""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence, Union

from builder.errors import DiskError, IntegrityError, TransferError
from builder.files.disk import says_full

NO_PIP = 97
"""Exit status of a Python that has no pip."""

_TAIL = 6
"""Lines of pip's own words that an error shows."""

# Not ``-m pip``: that would run a pip.py of whatever folder the user is in. It ends with whoever started it:
# a download of gigabytes must not go on behind the back of one that was killed.
_START = f"""\
import importlib.util, os, runpy, sys, threading, time
def end_with(parent):
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
threading.Thread(target=end_with, args=[os.getppid()], daemon=True).start()
sys.path = [folder for folder in sys.path if folder]
if importlib.util.find_spec("pip") is None:
    sys.exit({NO_PIP})
os.environ.setdefault("PIP_RESUME_RETRIES", "20")
runpy.run_module("pip", run_name="__main__")
"""

_OPTIONS = (
    *("--no-input", "--disable-pip-version-check", "--progress-bar=off"),
    *("--no-deps", "--only-binary=:all:"),
    "--no-cache-dir",  # who asks keeps the wheel; pip's cache would hold every byte again
)


def pip_download(python: str, folder: Path, wanted: Sequence[str]) -> List[str]:
    """The command that brings a wheel into ``folder``; the arguments ``wanted`` name it."""
    return [python, "-c", _START, "download", *_OPTIONS, f"--dest={folder}", *wanted]


def downloaded(folder: Path, name: str) -> Path:
    """The wheel in ``folder``, where pip ended well. ``TransferError`` where it left none."""
    wheel = next(iter(sorted(folder.glob("*.whl"))), None)
    if wheel is None:
        raise TransferError(f"{name}: pip ended well and left no wheel. Run the same command again.")
    return wheel


def refusal(name: str, output: Sequence[str], advice: str) -> Union[DiskError, IntegrityError, TransferError]:
    """The error to report where pip failed and ``output`` so; ``advice`` is for a wheel not to be had."""
    tail = "\n".join(f"    {line.strip()}" for line in [line for line in output if line.strip()][-_TAIL:])
    if "DO NOT MATCH THE HASHES" in " ".join(" ".join(output).split()):
        return IntegrityError(f"{name}: the package index serves other bytes. pip says:\n{tail}")
    if says_full(output):
        return DiskError(f"{name}: the disk is full. Free space and run again. pip says:\n{tail}")
    return TransferError(f"{name}: pip could not fetch it. {advice} pip says:\n{tail}")
