"""Asks nvidia-smi, one field set at a time: a field its driver does not know fails the whole query.

The 470 branch has no ``compute_cap`` (huggingface/candle#733); unified memory is ``[N/A]``
(unslothai/unsloth#10703); errors are printed on stdout with exit 2.
"""

from __future__ import annotations

from typing import Callable, Dict, Mapping, Optional, Sequence, Tuple, TypeVar

from builder.client.commands import Answer, Ask
from builder.client.probes import Outcome, Report, report
from builder.core.arch import Capability
from builder.core.device import Device, capability_of_product, parse_driver

NAME = "nvidia-smi"
PROGRAMS = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")
"""WSL2 keeps it off the PATH of services (NVIDIA/OpenShell#441)."""
SECONDS = 5.0

T = TypeVar("T")


def probe(ask: Ask, env: Mapping[str, str], programs: Sequence[str] = PROGRAMS) -> Report:
    """Every GPU that nvidia-smi lists and ``CUDA_VISIBLE_DEVICES`` leaves, with what it knows of each."""
    last = report(NAME, Outcome.MISSING, "nvidia-smi is not on PATH")
    for program in programs:
        try:
            answer = _query(ask, program, "uuid,name")
        except TimeoutError as error:
            return report(NAME, Outcome.TIMEOUT, str(error))
        except OSError:
            continue
        if answer.code != 0:
            return report(NAME, Outcome.FAILED, _complaint(answer))
        return _describe(ask, program, answer.stdout, env)
    return last


def driver_version(ask: Ask, programs: Sequence[str] = PROGRAMS) -> Optional[str]:
    """The driver's version alone, for when something else listed the GPUs."""
    for program in programs:
        versions = _column(ask, program, "driver_version", _driver)
        if versions:
            return next(iter(versions.values()))
    return None


def _describe(ask: Ask, program: str, listing: str, env: Mapping[str, str]) -> Report:
    rows = dict(row for row in map(_row, listing.splitlines()) if row[1])
    if not rows:
        return report(NAME, Outcome.NONE, _first_line(listing) or "it lists no GPU")
    capabilities = _column(ask, program, "compute_cap", Capability.parse)
    memory = _column(ask, program, "memory.total", int)
    drivers = _column(ask, program, "driver_version", _driver)
    devices = tuple(
        Device(
            index=index,
            uuid=fields[0],
            name=fields[-1],
            capability=capabilities.get(index) or capability_of_product(fields[-1]),
            memory_mib=memory.get(index),
            driver=drivers.get(index),
        )
        for index, fields in sorted(rows.items())
    )
    driver = next(iter(drivers.values()), None)
    shown = _visible(devices, env.get("CUDA_VISIBLE_DEVICES"))
    if not shown:
        hidden = f"CUDA_VISIBLE_DEVICES hides every GPU of {len(devices)}"
        return report(NAME, Outcome.NONE, hidden, driver=driver)
    return report(NAME, Outcome.FOUND, f"{len(shown)} of {len(devices)} listed", shown, driver)


def _query(ask: Ask, program: str, fields: str) -> Answer:
    return ask([program, f"--query-gpu=index,{fields}", "--format=csv,noheader,nounits"], SECONDS)


def _column(ask: Ask, program: str, field: str, parse: Callable[[str], T]) -> Dict[int, T]:
    """One field by GPU index; GPUs and drivers that do not know it are left out."""
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
    """``index, first, rest`` of a line; no fields for a line that is not a row."""
    first, *rest = [part.strip() for part in line.split(",", 2)]
    return (int(first), tuple(rest)) if first.isdecimal() else (-1, ())


def _driver(text: str) -> str:
    parse_driver(text)
    return text.strip()


def _visible(devices: Sequence[Device], wanted: Optional[str]) -> Tuple[Device, ...]:
    """CUDA's own rule: in the order named, up to the first that fits no GPU. MIG names keep all."""
    if wanted is None or wanted.startswith("MIG-"):
        return tuple(devices)
    shown = []
    for name in wanted.split(","):
        match = [device for device in devices if _named(device, name.strip())]
        if len(match) != 1:
            break
        shown += match
    return tuple(shown)


def _named(device: Device, name: str) -> bool:
    return str(device.index) == name or (name.startswith("GPU-") and device.uuid.startswith(name))


def _complaint(answer: Answer) -> str:
    text = _first_line(answer.stdout) or _first_line(answer.stderr) or "it said nothing"
    return f"exit {answer.code}: {text}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
