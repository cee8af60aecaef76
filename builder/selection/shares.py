"""Rules for the rank of a package by the GPUs that it serves, and for hiding the GPUs that it does not.

One process can load one package, and GPUs of several generations may need several. A package that runs every
operator precedes one that does not (``cannot_run``). Then these are compared in turn: the GPU memory served
natively, the number of GPUs served natively, the same two for just-in-time compilation, the version of CUDA
(a newer one has a newer ONNX Runtime), the size of the archive (smaller first), the name.

Memory measures the worth of a GPU: it limits the size of models, and GPUs with more of it are the faster
ones. Unknown memory counts as 0.
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
class Served:
    """A package, and the GPUs that run its native code or its PTX."""

    package: IndexPackage
    native: Tuple[Device, ...]
    jit: Tuple[Device, ...]

    @property
    def devices(self) -> Tuple[Device, ...]:
        """Return all GPUs, largest memory first; of equal ones, those with native code first."""
        return tuple(sorted((*self.native, *self.jit), key=self._by_memory))

    @property
    def worth(self) -> Tuple[int, int, int, int]:
        """Return the values that the module's rule compares before CUDA's version: more is better."""
        return (total_mib(self.native), len(self.native), total_mib(self.jit), len(self.jit))

    @property
    def rank(self) -> Tuple[int, int, int, int, int, int, int, str]:
        """Return the module's rule as a sort key: the least is the best."""
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


def served_by(
    package: IndexPackage, devices: Iterable[Device], platform: str, glibc: Optional[str]
) -> Served:
    """Return the package with the GPUs that it may run on."""
    runs = [device for device in devices if refusal(package, device, platform, glibc) is None]
    native, jit = (
        tuple(device for device in runs if support_of(package, device) == word) for word in (NATIVE, JIT)
    )
    return Served(package, native, jit)


def total_mib(devices: Iterable[Device]) -> int:
    """Return the memory of GPUs in MiB; unknown memory counts as 0."""
    return sum(device.memory_mib or 0 for device in devices)


def visible_devices(served: Sequence[Device], present: Sequence[Device]) -> Optional[str]:
    """Return the value of ``CUDA_VISIBLE_DEVICES`` that hides the GPUs that are not served.

    ``None`` where all are served, or a served GPU's UUID is unknown. Each UUID comes once, because CUDA sees
    no GPU at all when one comes twice.
    """
    if not _hidden(served, present) or not all(device.uuid for device in served):
        return None
    return ",".join(dict.fromkeys(device.uuid for device in served))


def hiding_advice(served: Sequence[Device], present: Sequence[Device]) -> Tuple[str, ...]:
    """Return advice on hiding GPUs by hand where ``visible_devices`` gives no value; empty elsewhere."""
    hidden = _hidden(served, present)
    if not hidden or all(device.uuid for device in served):
        return ()
    names = ", ".join(f"GPU {device.index} ({device.name})" for device in hidden)
    return (f"Hide {names} from the application with CUDA_VISIBLE_DEVICES. {_WHY_NO_LINE}",)


def _hidden(served: Sequence[Device], present: Sequence[Device]) -> Sequence[Device]:
    return [device for device in by_number(present) if device not in served]


def by_number(devices: Iterable[Device]) -> Tuple[Device, ...]:
    """Return the GPUs sorted by index, UUID and name."""
    return tuple(sorted(devices, key=lambda device: (device.index, device.uuid, device.name)))
