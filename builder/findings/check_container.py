"""Checks of containers, WSL, Jetsons and other systems, most of them for why CUDA lists no GPU."""

from __future__ import annotations

from typing import Iterator

from builder.findings.finding import Advice, CheckAdvice, Finding, Severity
from builder.findings.observations import ABSENT, Observations, Outcome
from builder.formats.package_names import CUDA, MUSL, SERVED

ADVICE = CheckAdvice(
    {
        "D101": Advice(
            Severity.ERROR,
            "The host has a GPU and this container was started without it.",
            "`docker run --gpus all`, `podman run --device nvidia.com/gpu=all`, `apptainer run --nv`, in "
            "Kubernetes a limit `nvidia.com/gpu: 1`. The host needs the nvidia-container-toolkit.",
        ),
        "D102": Advice(
            Severity.WARNING,
            "The NVIDIA container runtime was told to give this container no GPU.",
            "Start the container with `--gpus all`, or with NVIDIA_VISIBLE_DEVICES=all or a GPU's UUID.",
        ),
        "D103": Advice(
            Severity.ERROR,
            "The container was given the GPU without the driver's part for CUDA{why}.",
            "Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility.",
        ),
        "D104": Advice(
            Severity.NOTE,
            "The container was given the driver without the part `utility`. CUDA works without it.",
            "Nothing. NVIDIA_DRIVER_CAPABILITIES=compute,utility brings nvidia-smi.",
        ),
        "D105": Advice(
            Severity.ERROR,
            "Windows drivers from 555 on bring libnvdxgdmal.so.1, and a container toolkit that is too old "
            "does not mount it: CUDA then fails with 500, named symbol not found. nvidia-smi works all the "
            "same.",
            "Update to Docker Desktop 4.31.0 or newer, or in WSL to nvidia-container-toolkit 1.14.4 or "
            "1.15.0 and newer. With CDI (podman) run `nvidia-ctk cdi generate --mode=wsl` again. Then start "
            "a new container.",
        ),
        "D106": Advice(
            Severity.WARNING,
            "WSL has a GPU only as WSL 2, with NVIDIA's driver installed in Windows (none in Linux).",
            "In Windows: install NVIDIA's driver, `wsl --update`, `wsl --shutdown`; `wsl -l -v` must say "
            "version 2. A container in WSL is started with `--gpus all`.",
        ),
        "D107": Advice(
            Severity.ERROR,
            "A Jetson's GPU is part of its chip and has a driver and a CUDA of its own: packages for "
            "graphics cards do not run there.",
            "Take NVIDIA's build of ONNX Runtime for JetPack (Jetson Zoo).",
        ),
        "D108": Advice(
            Severity.ERROR,
            "The packages are built for glibc; with musl their libraries do not load, not even for the CPU.",
            "Use a system or an image with glibc: Debian, Ubuntu, Fedora instead of Alpine.",
        ),
        "D109": Advice(
            Severity.NOTE,
            f"Packages for NVIDIA GPUs are made for {', '.join(SERVED[CUDA])}.",
            "`select` shows what the release has for this system.",
        ),
    }
)

KEPT = ("nouveau", "vfio-pci")
"""Kernel drivers whose cards cannot be given to a container."""

_NO_GPU = ("void", "none", "")

DXGDMAL_SINCE = 555
"""The first branch of the Windows driver with libnvdxgdmal (NVIDIA/nvidia-container-toolkit#520)."""


def container_without_gpus(observed: Observations) -> Iterator[Finding]:
    """Yield D102 where the container was started with no GPU on purpose."""
    system = observed.system
    if system.container and system.nvidia_visible in _NO_GPU and observed.kernel.control == ABSENT:
        yield ADVICE.found(
            "D102", f"NVIDIA_VISIBLE_DEVICES={system.nvidia_visible} in a container ({system.container})."
        )


def no_wsl_gpu(observed: Observations) -> Iterator[Finding]:
    """Yield D106 where WSL has no ``/dev/dxg``."""
    if observed.system.wsl and not observed.kernel.dxg:
        where = f", in a container ({observed.system.container})" if observed.system.container else ""
        yield ADVICE.found("D106", f"This is WSL{where}, and there is no /dev/dxg.")


def gpu_not_passed(observed: Observations) -> Iterator[Finding]:
    """Yield D101 where a container shows its host's PCI bus or modules, and no device files."""
    cards = [card for card in observed.kernel.cards if card.driver not in KEPT]
    host = cards or observed.kernel.loaded
    if observed.system.container and host and observed.kernel.control == ABSENT:
        where = f"In a container ({observed.system.container}) with the host's NVIDIA card in sight"
        yield ADVICE.found("D101", f"{where}, and there is no /dev/nvidiactl.")


def container_without_libcuda(observed: Observations) -> Iterator[Finding]:
    """Yield D103 where a container with a GPU has no ``libcuda.so.1``."""
    given = observed.kernel.control != ABSENT or observed.kernel.dxg or observed.listed
    if observed.system.container and given and observed.reply("libcuda").outcome == Outcome.MISSING:
        parts = observed.system.nvidia_capabilities
        why = f": NVIDIA_DRIVER_CAPABILITIES={parts}" if parts is not None else ""
        yield ADVICE.found("D103", "In a container with a GPU, and libcuda.so.1 is not there.", why=why)


def jetson(observed: Observations) -> Iterator[Finding]:
    """Yield D107 where the machine is a Jetson or another Tegra."""
    if observed.system.jetson:
        yield ADVICE.found("D107", f"This is a {observed.system.jetson}.")


CAUSES = (jetson, container_without_gpus, no_wsl_gpu, gpu_not_passed, container_without_libcuda)
"""Rules in order: the first one with a finding names the cause."""


def container_without_smi(observed: Observations) -> Iterator[Finding]:
    """Yield D104 where a container with CUDA has no nvidia-smi.

    nvidia-smi does not run where CUDA lists GPUs, so the absence of NVML is taken for it: both belong to the
    same part of the driver.
    """
    system = observed.system
    if (
        system.container
        and observed.reply("libcuda").devices
        and observed.reply("NVML").outcome == Outcome.MISSING
    ):
        yield ADVICE.found("D104", f"In a container ({system.container}) with CUDA and without nvidia-smi.")


def musl(observed: Observations) -> Iterator[Finding]:
    """Yield D108 where the C library of the system is musl."""
    if observed.system.glibc == MUSL:
        yield ADVICE.found("D108", "This system's C library is musl.")


def unserved_platform(observed: Observations) -> Iterator[Finding]:
    """Yield D109 where no packages for NVIDIA GPUs are made for the system."""
    system = observed.system
    if not system.jetson and observed.platform not in SERVED[CUDA]:
        yield ADVICE.found("D109", f"This system is {observed.platform}.")


def wsl_500(observed: Observations) -> bool:
    """Return whether the cause of a failure with 500 is that of D105."""
    if not (observed.kernel.dxg and observed.system.container) or observed.kernel.dxgdmal:
        return False
    return observed.driver is None or int(observed.driver.split(".")[0]) >= DXGDMAL_SINCE


RULES = (jetson, container_without_smi, musl, unserved_platform)
