"""The observations of a machine that ``doctor`` collects: the input of every check."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from builder.facts.gpu.devices import Device

if TYPE_CHECKING:  # ``detect`` in a shell's start-up reads no index
    from builder.client.selection.forms import ApplicationHost
    from builder.formats.index import IndexPackage

THERE = "there"

ABSENT = "absent"

FORBIDDEN = "forbidden"
"""This user may not open ``/dev/nvidiactl`` (EACCES)."""

REFUSED = "refused"
"""The container or the unit may not open ``/dev/nvidiactl``, whatever the user's rights are (EPERM)."""

NO_DEVICE = 100
"""``CUDA_ERROR_NO_DEVICE`` in cuda.h."""


class Outcome(str, Enum):
    """The outcome of a probe."""

    FOUND = "found"
    NONE = "none"
    """The probe works and finds nothing."""
    MISSING = "missing"
    """The probe's library, program or file does not exist."""
    FAILED = "failed"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"
    """The probe did not run: an earlier one gave the answer, or it does not apply to this system."""


NAMELESS = "NVIDIA GPU"
"""The name of a GPU for which the driver gives no name."""


@dataclass(frozen=True)
class Probe:
    """The result of one probe, kept for the user to read."""

    name: str
    outcome: Outcome
    detail: str = ""
    devices: Tuple[Device, ...] = ()
    """All devices that the probe lists, with those hidden by ``CUDA_VISIBLE_DEVICES`` if it ignores that
    variable."""
    driver: Optional[str] = None
    cuda: Optional[str] = None
    """The newest CUDA version that the driver supports, ``12.9``."""
    code: Optional[int] = None
    """The number with which a library or nvidia-smi failed: 803 of libcuda, 18 of NVML."""
    error: Optional[str] = None
    """The name or text of the failure, or the signal that ended the probe."""


@dataclass(frozen=True)
class PciCard:
    """An NVIDIA display device on the PCI bus."""

    address: str
    """The PCI address, ``0000:01:00.0``."""
    device: int
    """The PCI device id."""
    driver: Optional[str] = None
    """The card's kernel driver: ``nvidia``, ``nouveau``, ``vfio-pci``; ``None`` without one."""


@dataclass(frozen=True)
class Kernel:
    """The kernel's view of the GPUs: the bus, the modules, the device files."""

    cards: Tuple[PciCard, ...] = ()
    loaded: bool = False
    """Whether the module ``nvidia`` is loaded."""
    control: str = ABSENT
    """The state of ``/dev/nvidiactl``: ``there``, ``absent``, ``forbidden`` or ``refused``."""
    open_module: Optional[bool] = None
    """Whether the loaded module is of the open flavour; ``None`` where that is unknown."""
    instances: int = 0
    """The number of MIG instances of compute below ``/proc/driver/nvidia/capabilities``."""
    instance_files: bool = False
    """Whether there is a device file of a MIG instance."""
    dxg: bool = False
    """Whether ``/dev/dxg`` exists, the GPU of WSL2."""
    dxgdmal: bool = False
    """Whether ``libnvdxgdmal.so.1`` of the Windows driver exists."""
    linux_libcuda: Optional[str] = None
    """The path of a libcuda of a Linux driver in a system folder; ``None`` where there is none."""


_SYSTEMS = {"win32": "windows", "darwin": "macos"}

_CONTAINERS = {
    **{name: name for name in ("kubernetes", "lxc", "apptainer")},
    "kubepods": "kubernetes",
    **dict.fromkeys(("lxc-libvirt", "lxd", "incus"), "lxc"),
}
"""Places by kinds of containers; any other kind is as docker's."""


@dataclass(frozen=True)
class System:
    """The system around the GPUs."""

    os: str = ""
    """The operating system as in ``sys.platform``: ``linux``, ``win32``, ``darwin``."""
    wsl: bool = False
    container: Optional[str] = None
    """The kind of container: ``docker``, ``podman``, ``kubernetes`` …; ``None`` outside of one."""
    jetson: Optional[str] = None
    """The model of a Jetson or another Tegra; ``None`` for any other machine."""
    glibc: Optional[str] = None
    """The version, ``2.36``; ``""`` with musl; ``None`` where it is unknown, and on other systems than
    Linux."""
    sandbox: Optional[str] = None
    """The systemd unit around this process, where its sandbox hides devices; ``None`` in any other case."""
    virtual: bool = False
    """Whether this is a virtual machine."""
    vgpu: Optional[str] = None
    """The model of the vGPU, ``GRID T4-2B``; ``None`` without one."""
    nvidia_visible: Optional[str] = None
    """The value of ``NVIDIA_VISIBLE_DEVICES``: the GPUs that a container was given."""
    nvidia_capabilities: Optional[str] = None
    """The value of ``NVIDIA_DRIVER_CAPABILITIES``: the parts of the driver that a container was given."""

    @property
    def place(self) -> str:
        """Return the place that advice must fit, a name of ``places.json``."""
        if self.os in _SYSTEMS:
            return _SYSTEMS[self.os]
        if self.wsl:
            return "wsl-container" if self.container else "wsl"
        if self.container:
            return _CONTAINERS.get(self.container, "docker")
        return "sandbox" if self.sandbox else "vgpu" if self.vgpu else "vm" if self.virtual else "bare"


@dataclass(frozen=True)
class Detection:
    """The detected GPUs, and the result of every probe."""

    devices: Tuple[Device, ...] = ()
    driver: Optional[str] = None
    replies: Mapping[str, Probe] = field(default_factory=dict)
    """Results by the probes' names, in the order in which they ran: ``NVML``, ``libcuda``, ``nvidia-smi``
    …"""
    system: System = field(default_factory=System)
    cuda: Optional[str] = None
    """The newest CUDA version that the driver supports, ``12.9``."""

    def reply(self, name: str) -> Probe:
        """Return the result of the probe ``name``; ``SKIPPED`` where it did not run."""
        return self.replies.get(name, Probe(name, Outcome.SKIPPED))

    @property
    def listed(self) -> int:
        """Return the number of physical GPUs that the driver lists."""
        return max(len(self.reply(name).devices) for name in ("NVML", "nvidia-smi"))


@dataclass(frozen=True)
class InstalledPackage:
    """The package in use."""

    package: IndexPackage
    cuda: Optional[str]
    """The package's CUDA version, ``12.9``."""
    folder: str
    problems: Tuple[str, ...] = ()
    """The files that differ from the manifest, with the difference."""
    support: Optional[str] = None
    """``native`` or ``jit``: how the package was expected to run when it was installed."""
    gpu: Optional[str] = None
    """The name of the GPU that the package was installed for."""


@dataclass(frozen=True)
class Shadow:
    """A library with the name of one of the package's, in a folder that the loader searches first."""

    name: str
    path: str
    version: Optional[str] = None
    own: Optional[str] = None
    """The version of the package's library of this name."""


@dataclass(frozen=True)
class Distribution:
    """A distribution of ONNX Runtime in a Python environment."""

    name: str
    version: str
    folder: str
    lacks: Tuple[str, ...] = ()
    """Wheels of NVIDIA's, ``name==version``, that the distribution requires and the environment lacks."""


@dataclass(frozen=True)
class BrokenImport:
    """A Python environment whose ``onnxruntime`` cannot be imported."""

    folder: str
    failure: str


@dataclass(frozen=True)
class Cache:
    """The driver's cache of compiled kernels."""

    disabled: bool = False
    max_bytes: Optional[int] = None
    """``CUDA_CACHE_MAXSIZE`` in bytes; ``None`` where it is not set or no number."""
    folder: str = ""
    writable: bool = True


@dataclass(frozen=True)
class SessionTrial:
    """A session of one node in the installed package, or a failed session that an application reports."""

    provider: str
    failure: Optional[str] = None
    code: Optional[int] = None
    """CUDA's number of the failure, where it has one."""
    on_cpu: Optional[bool] = None
    """Whether the same session runs on the CPU; ``None`` where that was not tried."""
    loaded: Tuple[str, ...] = ()
    """The paths of the libraries of ONNX Runtime, CUDA and cuDNN that the session's process loaded."""
    registered_by: Optional[str] = None
    """The application's host in which a plug-in was registered, and no session run; ``None`` elsewhere."""


@dataclass(frozen=True)
class ModelTrial:
    """A user's model that was opened in the installed package."""

    model: str
    provider: str
    failure: Optional[str] = None
    """ONNX Runtime's message; ``None`` where the model opens."""


@dataclass(frozen=True)
class Observations(Detection):
    """All observations of one machine."""

    platform: str = "linux-x64"
    kernel: Kernel = field(default_factory=Kernel)
    installed: Optional[InstalledPackage] = None
    outside: Optional[InstalledPackage] = None
    """The package that ``ORT_DYLIB_PATH`` names and the client did not install: an image's, for example."""
    broken: Optional[str] = None
    """The reason for which the package in use cannot be read; ``None`` where it can or none is in use."""
    shadows: Tuple[Shadow, ...] = ()
    host: Optional[str] = None
    """``ORT_DYLIB_PATH`` where it leads out of the package in use; ``None`` in any other case."""
    application: Optional[ApplicationHost] = None
    """The ONNX Runtime of the application that a plug-in in use is for; ``None`` where none is known."""
    plugin_wheels: Tuple[Distribution, ...] = ()
    """Wheels with a plug-in for CUDA, official ones too."""
    distributions: Tuple[Distribution, ...] = ()
    broken_imports: Tuple[BrokenImport, ...] = ()
    hosts: Tuple[str, ...] = ()
    """The host libraries of ONNX Runtime that a program may find here, outside of packages."""
    cache: Cache = field(default_factory=Cache)
    noexec: Tuple[str, ...] = ()
    """The folders of the package and of temporary files whose file systems are mounted with noexec."""
    cuda_visible: Optional[str] = None
    """The value of ``CUDA_VISIBLE_DEVICES``."""
    stated: Tuple[str, ...] = ()
    """The ``ORTPACKS_FORCE_…`` variables that are set, as ``NAME=value``."""
    trial: Optional[SessionTrial] = None
    models: Tuple[ModelTrial, ...] = ()
