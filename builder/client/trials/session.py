"""A session with a model of one node in the installed package: whether it computes, and where."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

from builder.client.probe.processes import Answer, Ask
from builder.findings.observed import Trial
from builder.formats.providers import CPU

SECONDS = 60.0
"""The first time, the driver may compile, and a gigabyte of libraries comes from the disk."""

SUM = 3.75

_ROOT = Path(__file__).parents[3]
"""What ``builder`` is imported from: the source tree, or the one file of the client."""

_CHILD = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from builder.client.trials.session_probe import main; main()"
)

_CUDA = re.compile(r"CUDA failure (\d+): ([^;]+)")

_BY_NAME = re.compile(r"CUDA error (cudaError\w+):\s*([^;]+)")
"""How ONNX Runtime tells of a kernel that does not start: by the name of its number. See driver_types.h."""

_NAMED = {
    "cudaErrorInsufficientDriver": 35,
    "cudaErrorNoDevice": 100,
    "cudaErrorNoKernelImageForDevice": 209,
    "cudaErrorUnsupportedPtxVersion": 222,
    "cudaErrorSymbolNotFound": 500,
    "cudaErrorSystemNotReady": 802,
    "cudaErrorSystemDriverMismatch": 803,
    "cudaErrorCompatNotSupportedOnDevice": 804,
    "cudaErrorUnknown": 999,
}

_LOADER = re.compile(r"Failed to load library .*? with error: (.+)")


@dataclass(frozen=True)
class Sessions:
    """The interpreter that sessions are run with, and the door to it."""

    ask: Ask
    python: str

    def run(self, host: Path, provider: str) -> Trial:
        """A session on ``provider``; where that fails, on the CPU as well. Never an exception."""
        failure, code = self._once(host, provider)
        if failure is None or provider == CPU:
            return Trial(provider, failure, code)
        return Trial(provider, failure, code, on_cpu=self._once(host, CPU)[0] is None)

    def _once(self, host: Path, provider: str) -> Tuple[Optional[str], Optional[int]]:
        """Why it does not run, and CUDA's number of that."""
        argv: List[str] = [self.python, "-I", "-S", "-c", _CHILD, str(_ROOT), str(host), provider]
        try:
            return _read(self.ask(argv, SECONDS))
        except OSError as error:  # it cannot be started, or TimeoutError
            return str(error), None


def _read(answer: Answer) -> Tuple[Optional[str], Optional[int]]:
    try:
        said = json.loads(answer.stdout)
        if "failed" in said:
            return _reason(str(said["failed"]), answer.stderr)
        return (None, None) if said["sum"] == SUM else (f"1.5 + 2.25 gives {said['sum']}", None)
    except (ValueError, KeyError, TypeError):
        last = " ".join(answer.stderr.strip().splitlines()[-1:])
        return f"the process {_ended(answer.code)}: {last or 'no word'}", None


def _ended(code: int) -> str:
    """``died of SIGSEGV``, ``ended with exit code 1``."""
    try:
        return f"died of {signal.Signals(-code).name}"
    except ValueError:
        return f"ended with exit code {code}"


def _reason(said: str, log: str) -> Tuple[str, Optional[int]]:
    """CUDA's own words with their number, the loader's from the log, or all of it."""
    cuda, named, loader = _CUDA.search(said), _BY_NAME.search(said), _LOADER.search(log)
    if cuda:
        return f"CUDA failure {cuda[1]}: {cuda[2].strip()}", int(cuda[1])
    if named and named[1] in _NAMED:
        number = _NAMED[named[1]]
        return f"CUDA failure {number}: {named[2].strip()}", number
    return (loader[1].strip() if loader else " ".join(said.split())), None
