"""pip fetches one wheel, run as a program so that the machine's own index and certificates are used."""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence, Union

from builder.errors import DiskError, IntegrityError, TransferError
from builder.files.disk import says_full
from builder.formats.text import redacted

NO_PIP = 97
"""Exit code of an interpreter that has no pip."""

_TAIL = 6
"""The number of lines of pip's output that an error shows."""

MOST_BYTES = 4 * 2**30
"""The most bytes of a wheel whose size is not known; PyPI and NVIDIA have none that is as large."""

_PAGE_BYTES = 32 * 2**20
"""The most bytes of an index's page, which pip keeps in memory; the longest of NVIDIA's has 0.3 MiB."""

# Not ``-m pip``: that would run a pip.py in the current folder. The process ends when its parent does:
# a download of gigabytes must not continue after the parent was killed. A user's setting that pip installs
# only into virtual environments is left out, because nothing is installed. All connections have the limits
# of ``http_opener``, which is imported from here and no longer on the path when pip begins.
_START = f"""\
import importlib.util, os, runpy, sys, threading, time
sys.path.insert(0, sys.argv.pop(1))
from builder.files.http_opener import limit_connections
limit_connections(int(sys.argv.pop(1)))
del sys.path[0]
def end_with(parent):
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
threading.Thread(target=end_with, args=[os.getppid()], daemon=True).start()
sys.path = [folder for folder in sys.path if folder]
if importlib.util.find_spec("pip") is None:
    sys.exit({NO_PIP})
os.environ.setdefault("PIP_RESUME_RETRIES", "20")
os.environ["PIP_REQUIRE_VIRTUALENV"] = "0"
runpy.run_module("pip", run_name="__main__")
"""

_OPTIONS = (
    *("--no-input", "--disable-pip-version-check", "--progress-bar=off"),
    *("--no-deps", "--only-binary=:all:"),
    "--no-cache-dir",  # the caller keeps the wheel; pip's cache would store its bytes again
)


def pip_download(python: str, folder: Path, wanted: Sequence[str], size: int = MOST_BYTES) -> List[str]:
    """Return the command that downloads a wheel to ``folder``; the arguments ``wanted`` name the wheel.

    No answer of a server may have more bytes than ``size``, the wheel's, plus those of an index's page.
    """
    begin = [python, "-c", _START, str(Path(__file__).parents[2]), str(size + _PAGE_BYTES)]
    return [*begin, "download", *_OPTIONS, f"--dest={folder}", *wanted]


def downloaded(folder: Path, name: str) -> Path:
    """Return the wheel in ``folder`` after pip succeeded. Raises ``TransferError`` where it left none."""
    wheel = next(iter(sorted(folder.glob("*.whl"))), None)
    if wheel is None:
        raise TransferError(f"{name}: pip reported success and left no wheel. Run the same command again.")
    return wheel


def refusal(name: str, output: Sequence[str], advice: str) -> Union[DiskError, IntegrityError, TransferError]:
    """Return the error for a pip that failed with this ``output``.

    ``advice`` is for a wheel that is not available. Logins in the output are left out: an index without a
    host makes pip print its URL as it was given.
    """
    last = [redacted(line.strip()) for line in output if line.strip()][-_TAIL:]
    if any(line.startswith("Traceback (most") for line in output):  # what pip does not expect
        last = last[-1:]
    tail = [f"    {line}" for line in last]
    if "DO NOT MATCH THE HASHES" in " ".join(" ".join(output).split()):
        return IntegrityError(f"{name}: the package index serves other bytes. pip says:", details=tail)
    if says_full(output):
        return DiskError(f"{name}: the disk is full. Free space and run again. pip says:", details=tail)
    return TransferError(f"{name}: pip could not fetch it. {advice} pip says:", details=tail)
