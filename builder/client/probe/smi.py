"""nvidia-smi lists the GPUs; each field is a query of its own, because an unknown field fails a query.

The 470 branch has no ``compute_cap`` (huggingface/candle#733); unified memory is ``[N/A]``
(unslothai/unsloth#10703); errors are printed on stdout with exit code 2, 9 or 18.
"""

from __future__ import annotations

from typing import Callable, Dict, Optional, Sequence, Tuple, TypeVar

from builder.client.doctor.observations import NAMELESS, Outcome, Probe
from builder.client.probe.processes import Ask, ProcessAnswer
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device, parse_driver
from builder.facts.gpu.table import capability_of_product

NAME = "nvidia-smi"

PROGRAMS = (
    "nvidia-smi",
    "/usr/lib/wsl/lib/nvidia-smi",
    "/usr/local/nvidia/bin/nvidia-smi",
    r"C:\Program Files\NVIDIA Corporation\NVSMI\nvidia-smi.exe",
)
"""The names of nvidia-smi. On WSL2 it is not on the PATH of services (NVIDIA/OpenShell#441), nor in GKE's
containers."""

SECONDS = 5.0

_MOST_DIGITS = 9
"""The most digits of a GPU's index."""

_NOTHING = ("No devices were found", "No supported GPUs were found")

T = TypeVar("T")


def probe(ask: Ask, programs: Sequence[str] = PROGRAMS) -> Probe:
    """Return every GPU that nvidia-smi lists, with the fields that it knows of each.

    Of several programs the first that succeeds is used: on WSL2, one from a Linux driver may come first and
    fails.
    """
    failed = None
    for program in programs:
        try:
            answer = _query(ask, program, "uuid,name")
        except TimeoutError as error:
            return Probe(NAME, Outcome.TIMEOUT, str(error))
        except OSError:
            continue
        if answer.code == 0:
            return _describe(ask, program, answer.stdout)
        failed = failed or _failure(answer)
    return failed or Probe(NAME, Outcome.MISSING, "nvidia-smi is not on PATH")


def driver_version(ask: Ask, programs: Sequence[str] = PROGRAMS) -> Optional[str]:
    """Return the driver's version; ``None`` where no nvidia-smi gives one."""
    for program in programs:
        versions = _column(ask, program, "driver_version", _driver)
        if versions:
            return next(iter(versions.values()))
    return None


def _describe(ask: Ask, program: str, listing: str) -> Probe:
    rows = dict(row for row in map(_row, listing.splitlines()) if row[1])
    if not rows:
        return Probe(NAME, Outcome.NONE, _first_line(listing) or "it lists no GPU")
    capabilities = _column(ask, program, "compute_cap", Capability.parse)
    memory = _column(ask, program, "memory.total", int)
    drivers = _column(ask, program, "driver_version", _driver)
    divided = _column(ask, program, "mig.mode.current", _divided)
    devices = []
    for index, fields in sorted(rows.items()):
        uuid, name, in_mig = fields[0], fields[-1], divided.get(index, False)
        devices.append(
            Device(
                index=index,
                uuid=uuid if uuid.startswith("GPU-") and uuid != "GPU-" else "",
                name=NAMELESS if name.startswith("[") else name,
                capability=capabilities.get(index) or capability_of_product(name),
                memory_mib=None if in_mig else memory.get(index),  # the CSV has no memory of an instance
                driver=None,
                mig=() if in_mig else None,
            )
        )
    driver = next(iter(drivers.values()), None)
    return Probe(NAME, Outcome.FOUND, f"{len(devices)} listed", tuple(devices), driver)


def _query(ask: Ask, program: str, fields: str) -> ProcessAnswer:
    return ask([program, f"--query-gpu=index,{fields}", "--format=csv,noheader,nounits"], SECONDS)


def _column(ask: Ask, program: str, field: str, parse: Callable[[str], T]) -> Dict[int, T]:
    """Return a field's values by GPU index, without GPUs and drivers that do not know the field."""
    try:
        answer = _query(ask, program, field)
    except OSError:
        return {}
    values: Dict[int, T] = {}
    for line in answer.stdout.splitlines() if answer.code == 0 else ():
        index, fields = _row(line)
        try:
            values[index] = parse(fields[0])
        except (ValueError, IndexError):
            continue
    return values


def _row(line: str) -> Tuple[int, Tuple[str, ...]]:
    """Return the index and the fields ``(first, rest)`` of a line; ``(-1, ())`` for any other line."""
    first, *rest = [part.strip() for part in line.split(",", 2)]
    return (int(first), tuple(rest)) if first.isdecimal() and len(first) <= _MOST_DIGITS else (-1, ())


def _driver(text: str) -> str:
    parse_driver(text)
    return text.strip()


def _divided(text: str) -> bool:
    return text.strip() == "Enabled"


def _failure(answer: ProcessAnswer) -> Probe:
    """Return the probe of a failed nvidia-smi.

    With an old driver it also fails where there is no GPU, which is outcome ``NONE``.
    """
    text = _first_line(answer.stdout) or _first_line(answer.stderr) or "it said nothing"
    outcome = Outcome.NONE if any(words in text for words in _NOTHING) else Outcome.FAILED
    return Probe(NAME, outcome, f"exit {answer.code}: {text}", code=answer.code, error=text)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
