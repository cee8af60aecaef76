"""The GPUs that a package serves on a machine, the rank that this gives it, and how the others are hidden.

One process can load one package, and GPUs of several generations may need several. The rule: a package that
runs every operator goes before one that does not (``cannot_run``); then the package that serves the most GPU
memory natively; of equals the one with the most GPUs; then the same by just-in-time compilation; then the
newer CUDA, whose ONNX Runtime is newer too; then the smaller archive, then the name. Memory stands for what a
GPU is worth: it decides which models fit, and larger cards are the faster ones. Memory that is not known
counts as 0, its GPU counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional, Sequence, Tuple

from builder.formats.index import IndexPackage
from builder.gpu.compatibility import JIT, NATIVE
from builder.gpu.devices import Device
from builder.selection.reasons import cuda_of, lacking, refusal, support_of

_WHY_NO_LINE = (
    "The line is not given here: not every UUID is known, and numbers are not reliable, for CUDA begins with "
    "the fastest GPU and nvidia-smi counts by PCI slot. With CUDA_DEVICE_ORDER=PCI_BUS_ID both count alike."
)


@dataclass(frozen=True)
class Share:
    """GPUs that one package runs on in one way."""

    devices: Tuple[Device, ...]

    @property
    def mib(self) -> int:
        """Their memory."""
        return sum(device.memory_mib or 0 for device in self.devices)


@dataclass(frozen=True)
class Served:
    """A package and the GPUs it runs on."""

    package: IndexPackage
    native: Share
    jit: Share

    @property
    def devices(self) -> Tuple[Device, ...]:
        """All of them, the one with the most memory first; of equals those with native code."""
        return tuple(sorted((*self.native.devices, *self.jit.devices), key=self._by_memory))

    @property
    def worth(self) -> Tuple[int, int, int, int]:
        """What the module's rule compares before the archives: more is better."""
        return (self.native.mib, len(self.native.devices), self.jit.mib, len(self.jit.devices))

    @property
    def rank(self) -> Tuple[int, int, int, int, int, int, int, str]:
        """The module's rule as a sort key: the least is the best."""
        native, natives, jit, jits = self.worth
        package = self.package
        return (
            lacking(package),
            -native,
            -natives,
            -jit,
            -jits,
            -cuda_of(package),
            package.size,
            package.name,
        )

    def _by_memory(self, device: Device) -> Tuple[int, bool, int, str, str]:
        jit = support_of(self.package, device) == JIT
        return (-(device.memory_mib or 0), jit, device.index, device.uuid, device.name)


def serve(package: IndexPackage, devices: Iterable[Device], platform: str, glibc: Optional[str]) -> Served:
    """The GPUs that the package may run on."""
    runs = [device for device in devices if refusal(package, device, platform, glibc) is None]
    native, jit = (
        tuple(device for device in runs if support_of(package, device) == word) for word in (NATIVE, JIT)
    )
    return Served(package, Share(native), Share(jit))


def visible(served: Sequence[Device], present: Sequence[Device]) -> Optional[str]:
    """``CUDA_VISIBLE_DEVICES`` that hides what is not served; ``None`` where all are, or a UUID is missing.

    CUDA sees no GPU at all when the line names one twice.
    """
    if not _hidden(served, present) or not all(device.uuid for device in served):
        return None
    return ",".join(dict.fromkeys(device.uuid for device in served))


def note(served: Sequence[Device], present: Sequence[Device]) -> Tuple[str, ...]:
    """What to do by hand where something must be hidden and no line can be given."""
    hidden = _hidden(served, present)
    if not hidden or all(device.uuid for device in served):
        return ()
    names = ", ".join(f"GPU {device.index} ({device.name})" for device in hidden)
    return (f"Hide {names} from the application with CUDA_VISIBLE_DEVICES. {_WHY_NO_LINE}",)


def _hidden(served: Sequence[Device], present: Sequence[Device]) -> Sequence[Device]:
    return [device for device in by_number(present) if device not in served]


def by_number(devices: Iterable[Device]) -> Tuple[Device, ...]:
    """The same GPUs in the same order, however they were listed."""
    return tuple(sorted(devices, key=lambda device: (device.index, device.uuid, device.name)))
