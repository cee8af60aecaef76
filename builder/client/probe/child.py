"""Asks a native library in a child process: a driver that hangs or crashes takes only its own answer down.

What a probe answers, and the words for how it went.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Mapping, Optional, Sequence, Tuple, cast

from builder.client.probe.processes import Answer, Ask
from builder.findings.observed import Outcome
from builder.gpu.architectures import Capability
from builder.gpu.devices import Device
from builder.gpu.table import capability_of_product

_ROOT = str(Path(__file__).parents[3])
"""What holds the package ``builder``: a folder, or ``ortpacks.pyz``."""

_START = """\
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module(sys.argv.pop(1), run_name="__main__")
"""

NAMELESS = "NVIDIA GPU"
"""Of a GPU whose name the driver does not say."""


@dataclass(frozen=True)
class Library:
    """A native library and the script that asks it."""

    name: str
    """The probe's name."""
    script: str
    """A module that, run as a program, prints a JSON object on a line of its own."""
    seconds: float


def ask_library(
    library: Library,
    ask: Ask,
    python: str,
    places: Sequence[str],
    read: Callable[[Mapping[str, object]], Probe],
) -> Probe:
    """What ``read`` makes of the script's answer, or a probe that says how it failed."""
    try:
        answer = ask([python, "-I", "-S", "-c", _START, _ROOT, library.script, *places], library.seconds)
    except TimeoutError as error:
        return Probe(library.name, Outcome.TIMEOUT, str(error))
    except OSError as error:
        return Probe(library.name, Outcome.FAILED, f"{python} cannot be started: {error}")
    try:
        said = json.loads(_object(answer.stdout))
        return _refused(library.name, said) or read(said)
    except (ValueError, KeyError, TypeError):
        return _broken(library.name, answer)


def device_of(row: Mapping[str, object], memory_mib: Optional[int], mig: Optional[Tuple[str, ...]]) -> Device:
    """A row of the script's ``devices``; what it does not say is unknown."""
    capability, name = row["capability"], str(row["name"] or NAMELESS)
    return Device(
        index=int(str(row["index"])),
        uuid=str(row["uuid"] or ""),
        name=name,
        capability=Capability.parse(str(capability)) if capability else capability_of_product(name),
        memory_mib=memory_mib,
        driver=None,
        mig=mig,
    )


def optional_int(value: object) -> Optional[int]:
    """``None`` stays ``None``; ``ValueError`` on what is no whole number."""
    return None if value is None else int(str(value))


def cuda_version(number: object) -> Optional[str]:
    """``12.9`` for 12090, the way CUDA writes versions; ``None`` where the driver did not say."""
    whole = optional_int(number)
    return None if whole is None else f"{whole // 1000}.{whole % 1000 // 10}"


def _refused(name: str, said: Mapping[str, object]) -> Optional[Probe]:
    if "missing" in said:
        return Probe(name, Outcome.MISSING, str(said["missing"]))
    if "unloadable" in said:
        return Probe(name, Outcome.FAILED, f"it is there and cannot be loaded: {said['unloadable']}")
    if "error" not in said:
        return None
    call, error, code = cast("Tuple[str, str, Optional[int]]", said["error"])
    number = "" if code is None else f" ({code})"
    return Probe(
        name,
        Outcome.FAILED,
        f"{call}: {error}{number}",
        cuda=cuda_version(said.get("cuda")),
        code=optional_int(code),
        error=str(error),
    )


def _object(stdout: str) -> str:
    """The script's line: drivers print too, and what C buffers comes after it."""
    return next((line for line in stdout.splitlines() if line.startswith("{")), "")


def _broken(name: str, answer: Answer) -> Probe:
    """It crashed, or wrote what is no answer."""
    died = _signal(answer.code)
    last = answer.stderr.strip().splitlines()[-1:]
    how = f"killed by {died}" if died else f"exit {answer.code}"
    return Probe(name, Outcome.FAILED, " ".join(["the probe did not come through:", how, *last]), error=died)


def _signal(code: int) -> Optional[str]:
    """``SIGSEGV`` for -11."""
    names = {-int(item): item.name for item in signal.Signals}
    return names.get(code)


@dataclass(frozen=True)
class Probe:
    """One question to the machine and what came back, kept for the user to read."""

    name: str
    outcome: Outcome
    detail: str
    devices: Tuple[Device, ...] = ()
    """All it lists, those that ``CUDA_VISIBLE_DEVICES`` hides too where the probe does not respect it."""
    driver: Optional[str] = None
    cuda: Optional[str] = None
    """The newest CUDA that the driver serves, ``12.9``."""
    code: Optional[int] = None
    """The number a library or nvidia-smi failed with: 803 of libcuda, 18 of NVML."""
    error: Optional[str] = None
    """That number's name as the library spells it, or the signal a probe died of."""
