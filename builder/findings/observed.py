"""The state of a machine as ``doctor`` observed it, as values: the input of every check."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from builder.gpu.devices import Device

if TYPE_CHECKING:  # ``detect`` in a shell's start-up reads no index
    from builder.formats.index import IndexPackage

THERE = "there"

ABSENT = "absent"

FORBIDDEN = "forbidden"
"""What became of ``/dev/nvidiactl`` when it was opened."""


class Outcome(str, Enum):
    """How a probe went."""

    FOUND = "found"
    NONE = "none"
    """It works and says there is nothing."""
    MISSING = "missing"
    """The library, program or file is not there."""
    FAILED = "failed"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"
    """Not asked: an earlier probe settled it, or there is nothing to ask on this system."""


NAMELESS = "NVIDIA GPU"
"""The name of a GPU whose name the driver does not say."""


@dataclass(frozen=True)
class Probe:
    """One question to the machine and what came back, kept for the user to read."""

    name: str
    outcome: Outcome
    detail: str = ""
    devices: Tuple[Device, ...] = ()
    """All it lists, those that ``CUDA_VISIBLE_DEVICES`` hides too where the probe does not respect it."""
    driver: Optional[str] = None
    cuda: Optional[str] = None
    """The newest CUDA that the driver serves, ``12.9``."""
    code: Optional[int] = None
    """The number a library or nvidia-smi failed with: 803 of libcuda, 18 of NVML."""
    error: Optional[str] = None
    """That number's name as the library spells it, or the signal a probe died of."""


@dataclass(frozen=True)
class PciCard:
    """An NVIDIA display device on the PCI bus."""

    address: str
    """``0000:01:00.0``."""
    device: int
    """PCI device id."""
    driver: Optional[str] = None
    """Kernel driver that has it: ``nvidia``, ``nouveau``, ``vfio-pci``; ``None`` where none has."""


@dataclass(frozen=True)
class Kernel:
    """The kernel's side of it: the bus, the modules, the device files."""

    cards: Tuple[PciCard, ...] = ()
    loaded: bool = False
    """Whether the module ``nvidia`` is."""
    control: str = ABSENT
    """``there``, ``absent`` or ``forbidden``: ``/dev/nvidiactl``."""
    dxg: bool = False
    """Whether ``/dev/dxg`` is there: the GPU of WSL2."""
    dxgdmal: bool = False
    """Whether ``libnvdxgdmal.so.1`` of the Windows driver is there."""


@dataclass(frozen=True)
class System:
    """The machine around the GPUs."""

    os: str = ""
    """As ``sys.platform``: ``linux``, ``win32``, ``darwin``."""
    wsl: bool = False
    container: Optional[str] = None
    """What made the container: ``docker``, ``podman``, ``kubernetes`` …; ``None`` outside of one."""
    jetson: Optional[str] = None
    """The board's model, where it is a Jetson or another Tegra."""
    glibc: Optional[str] = None
    """``2.36``; ``""`` with musl; ``None`` where it is unknown, and where there is none."""
    nvidia_visible: Optional[str] = None
    """``NVIDIA_VISIBLE_DEVICES``: the GPUs that a container was given."""
    nvidia_capabilities: Optional[str] = None
    """``NVIDIA_DRIVER_CAPABILITIES``: the parts of the driver that a container was given."""


@dataclass(frozen=True)
class InstalledPackage:
    """The package in use."""

    package: IndexPackage
    cuda: Optional[str]
    """The toolkit's version, ``12.9``."""
    folder: str
    problems: Tuple[str, ...] = ()
    """What of its files is not as its manifest says."""
    support: Optional[str] = None
    """``native`` or ``jit``: how it was to run when it was installed."""
    gpu: Optional[str] = None
    """The GPU it was installed for."""


@dataclass(frozen=True)
class Shadow:
    """A library of the package's name in a folder that the loader searches before the package's."""

    name: str
    path: str
    version: Optional[str] = None
    own: Optional[str] = None
    """The package's version of it."""


@dataclass(frozen=True)
class Distribution:
    """ONNX Runtime in a Python environment."""

    name: str
    version: str
    folder: str
    lacks: Tuple[str, ...] = ()
    """NVIDIA's wheels, ``name==version``, that it requires and that are not there."""


@dataclass(frozen=True)
class Cache:
    """Where the driver keeps what it compiled."""

    disabled: bool = False
    max_bytes: Optional[int] = None
    """``CUDA_CACHE_MAXSIZE``; ``None`` where it is not set."""
    folder: str = ""
    writable: bool = True


@dataclass(frozen=True)
class SessionTrial:
    """A session that was run in the installed package with a model of one node."""

    provider: str
    failure: Optional[str] = None
    code: Optional[int] = None
    """CUDA's number of the failure, where it has one."""
    on_cpu: Optional[bool] = None
    """Whether the same session runs on the CPU; ``None``: not tried."""


@dataclass(frozen=True)
class ModelTrial:
    """A model of the user's that was opened in the installed package."""

    model: str
    provider: str
    failure: Optional[str] = None
    """ONNX Runtime's words."""


@dataclass(frozen=True)
class Seen:
    """Everything that was observed on one machine."""

    platform: str = "linux-x64"
    system: System = field(default_factory=System)
    kernel: Kernel = field(default_factory=Kernel)
    replies: Mapping[str, Probe] = field(default_factory=dict)
    """By the probes' names, in the order asked: ``NVML``, ``libcuda``, ``nvidia-smi`` …"""
    devices: Tuple[Device, ...] = ()
    driver: Optional[str] = None
    cuda: Optional[str] = None
    """The newest CUDA that the driver serves, ``12.9``."""
    installed: Optional[InstalledPackage] = None
    broken: Optional[str] = None
    """Why the installed package cannot be read, where there is one that cannot."""
    shadows: Tuple[Shadow, ...] = ()
    host: Optional[str] = None
    """``ORT_DYLIB_PATH``, where it is set and leads elsewhere than the package in use."""
    distributions: Tuple[Distribution, ...] = ()
    cache: Cache = field(default_factory=Cache)
    noexec: Tuple[str, ...] = ()
    """Folders from which the system runs no code: of the prefix, of temporary files."""
    cuda_visible: Optional[str] = None
    """``CUDA_VISIBLE_DEVICES``."""
    stated: Tuple[str, ...] = ()
    """The ``ORTPACKS_FORCE_…`` variables that are set, ``NAME=value``."""
    trial: Optional[SessionTrial] = None
    models: Tuple[ModelTrial, ...] = ()

    def reply(self, name: str) -> Probe:
        """What this way of asking said; ``skipped`` where it was not asked."""
        return self.replies.get(name, Probe(name, Outcome.SKIPPED))

    @property
    def listed(self) -> int:
        """How many physical GPUs the driver lists."""
        return max(len(self.reply(name).devices) for name in ("NVML", "nvidia-smi"))
