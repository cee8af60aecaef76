"""Machines as doctor sees them, each with exactly the codes that it must get.

Sources: NVIDIA's container user guide and CUDA compatibility pages, the threads that the cases are named
after (NVIDIA/nvidia-container-toolkit#520, NixOS/nixos-hardware#1880, microsoft/onnxruntime#21825), the error
numbers of cuda.h and nvml.h.
"""

from dataclasses import replace
from functools import partial

from builder.client.doctor.observations import (
    ABSENT,
    FORBIDDEN,
    THERE,
    BrokenImport,
    Cache,
    Distribution,
    InstalledPackage,
    Kernel,
    ModelTrial,
    Observations,
    Outcome,
    PciCard,
    Probe,
    SessionTrial,
    Shadow,
    System,
)
from builder.client.selection.forms import OF_A_PACKAGE, OWN_PROVIDER, ApplicationHost
from tests.unit.client.selection.select_cases import (
    LEGACY,
    MODERN,
    NOT_MICROSOFTS,
    gpu,
    package,
    plain,
    plugin,
)

ON_CPU = SessionTrial("cpu")

RTX3060 = PciCard("0000:01:00.0", 0x2503, "nvidia")

GTX1080 = PciCard("0000:02:00.0", 0x1B80)


def reply(
    outcome: str, detail: str = "", *, listed: int = 0, code: int | None = None, error: str = ""
) -> Probe:
    """Return a probe's result; the key in ``replies`` names the probe."""
    return Probe("", Outcome(outcome), detail, (gpu("8.6"),) * listed, code=code, error=error)


def asked(nvml: Probe | None = None, cuda: Probe | None = None, smi: Probe | None = None) -> dict[str, Probe]:
    """Return the replies of those probes that answer."""
    replies = {"NVML": nvml, "libcuda": cuda, "nvidia-smi": smi}
    return {name: probe for name, probe in replies.items() if probe}


MISSING, NONE, HANGS = reply("missing"), reply("none"), reply("timeout")

FOUND = reply("found", listed=1)

NOT_LOADED = reply("failed", "nvmlInit_v2: Driver Not Loaded (9)", code=9, error="Driver Not Loaded")

SMI_9 = reply("failed", "exit 9: NVIDIA-SMI has failed", code=9, error="NVIDIA-SMI has failed")

NO_DEVICE = reply("none", code=100, error="CUDA_ERROR_NO_DEVICE")

FOLDER = "/data/versions/modern-0123456789ab"

OWN = InstalledPackage(
    package=MODERN, cuda="12.9", folder=FOLDER, support="native", gpu="NVIDIA GeForce RTX 3060"
)

OLD = replace(OWN, package=LEGACY)

CPU_ONLY = replace(OWN, package=plain("cpu"), cuda=None)

WELL = Observations(
    system=System(glibc="2.36"),
    kernel=Kernel(cards=(RTX3060,), loaded=True, control=THERE),
    replies=asked(nvml=FOUND, cuda=FOUND, smi=reply("skipped")),
    devices=(gpu("8.6"),),
    driver="570.133.07",
    cuda="12.8",
    installed=OWN,
    trial=SessionTrial("cuda"),
)
"""A machine with one card, one package, and a session that ran."""

BARE = replace(
    WELL,
    kernel=Kernel(),
    replies=asked(nvml=MISSING, cuda=MISSING, smi=MISSING),
    devices=(),
    driver=None,
    cuda=None,
    trial=ON_CPU,
)
"""The same machine without NVIDIA's hardware and software."""

NEW = replace(BARE, installed=None, trial=None)
"""That machine before the first install."""


DOCKER = System(glibc="2.36", container="docker")

IN_SIGHT = Kernel(cards=(RTX3060,), loaded=True)
"""A container's view of its host's card: no device files."""

TWO_CARDS = replace(WELL.kernel, cards=(RTX3060, replace(RTX3060, address="0000:02:00.0")))


well, bare = partial(replace, WELL), partial(replace, BARE)


def driven(**changes: object) -> Observations:
    """Return a machine with a card and a loaded driver; each case has the probes' replies."""
    return bare(**{"kernel": WELL.kernel, "driver": "570.1", **changes})


def beside(device: int) -> Observations:
    """Return a machine with driver 590 and a second card, which the driver does not list."""
    return well(driver="590.1", kernel=replace(WELL.kernel, cards=(RTX3060, replace(GTX1080, device=device))))


def answering(cuda: Probe, **changes: object) -> Observations:
    """Return a machine on which NVML lists the GPU and libcuda answers with no GPU."""
    return well(**{"replies": asked(nvml=FOUND, cuda=cuda), "trial": ON_CPU, **changes})


def failing(code: int, error: str) -> Observations:
    """Return a machine on which NVML lists the GPU and CUDA fails."""
    return answering(reply("failed", f"cuInit: {error} ({code})", code=code, error=error))


def venv(*names: str, version: str = "1.23.2", lacks: tuple[str, ...] = ()) -> Observations:
    """Return a machine with these distributions of ONNX Runtime in one Python."""
    return replace(WELL, distributions=tuple(Distribution(name, version, "/venv", lacks) for name in names))


def trying(failure: str, code: int | None, *, on_cpu: bool = True) -> Observations:
    """Return a machine on which CUDA works and the session fails."""
    return replace(WELL, trial=SessionTrial("cuda", failure, code, on_cpu=on_cpu))


def jitted(**changes: object) -> Observations:
    """Return a machine with an H100 and the package for Ampere, which runs by JIT."""
    own = replace(OWN, support="jit", cuda="12.8")
    return replace(WELL, devices=(gpu("9.0"),), installed=own, **changes)  # type: ignore[arg-type]


LEAN = replace(OWN, package=package("modern-lean", "7.5 8.0 8.6", lacks=NOT_MICROSOFTS))

NO_BIAS_GELU = (
    "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Failed to find kernel for com.microsoft.BiasGelu(1) "
    "(node:'n' ep:'CUDAExecutionProvider'). Kernel not found"
)
"""Message of ONNX Runtime 1.21.0 for MiniLM with a lean package."""


def opening(failure: str | None, installed: InstalledPackage = LEAN) -> Observations:
    """Return a machine on which a user's model is opened with the installed package."""
    return replace(WELL, installed=installed, models=(ModelTrial("/m/minilm.onnx", "cuda", failure),))


def plugged(application: ApplicationHost | None, **changes: object) -> Observations:
    """Return a machine with a plug-in in use and this application."""
    return well(installed=replace(OWN, package=plugin("modern", "8.6")), application=application, **changes)


def shadow(name: str, version: str | None, own: str | None) -> Observations:
    """Return a machine with a foreign library before the package's on the search path."""
    return replace(WELL, shadows=(Shadow(name, f"/opt/other/{name}", version, own),))


WSL = System(glibc="2.36", wsl=True)

WSL_500 = replace(
    failing(500, "CUDA_ERROR_NOT_FOUND"),
    system=replace(DOCKER, wsl=True),
    kernel=Kernel(dxg=True),
    driver="560.94",
)


NOUVEAU, VFIO = (Kernel(cards=(replace(RTX3060, driver=name),)) for name in ("nouveau", "vfio-pci"))

PASCAL = replace(WELL.kernel, cards=(GTX1080,))


NO_CUDA = asked(cuda=NO_DEVICE)


CASES: dict[str, Observations] = {
    "all is well": WELL,
    "a container that was given one of two cards": well(system=DOCKER, kernel=TWO_CARDS),
    "an odd limit": well(installed=replace(OWN, package=package("x", "8.6", floor="?", ceiling="??"))),
    "a Python with the same version": venv("onnxruntime"),
    "JIT with a cache of just 1 GiB": jitted(cache=Cache(max_bytes=2**30)),
    "a GPU of unknown capability": well(devices=(gpu(None),)),
    "D001: a card and no driver": bare(kernel=Kernel(cards=(replace(RTX3060, driver=None),))),
    "D002: nouveau on the host of a container": bare(system=DOCKER, kernel=NOUVEAU),
    "D002: CUDA_VISIBLE_DEVICES hides all, and the card's driver is nouveau": bare(
        cuda_visible="-1", kernel=Kernel(cards=(replace(GTX1080, driver="nouveau"),))
    ),
    "D003: all is well on the CPU of a machine without a GPU": bare(installed=CPU_ONLY),
    "D003: a container, and a card for a virtual machine on its host": bare(system=DOCKER, kernel=VFIO),
    "D003: CUDA_VISIBLE_DEVICES is empty on a machine without a driver": bare(cuda_visible=""),
    "D003: CUDA says 100 on a machine without a GPU": bare(replies=NO_CUDA),
    "D003 D108: a package on Alpine all the same": bare(system=System(glibc="")),
    "D003 D109 D201: a Mac with an Intel processor": replace(NEW, platform="macos-x64", system=System()),
    "D003 D201: nothing at all": NEW,
    **{
        f"D004: {stated}, and a Pascal card that the driver does not list": bare(
            stated=(stated,), kernel=PASCAL, replies=asked(cuda=FOUND), driver="590.1"
        )
        for stated in ("ORTPACKS_FORCE_CC=none", "ORTPACKS_FORCE_DRIVER=590.1")
    },
    "D005: CUDA_VISIBLE_DEVICES names no GPU here": answering(NO_DEVICE, cuda_visible="7", devices=()),
    "D005: CUDA_VISIBLE_DEVICES empty": driven(cuda_visible="", replies=asked(nvml=MISSING, cuda=NO_DEVICE)),
    "D006: no device files": driven(kernel=replace(WELL.kernel, control=ABSENT), replies=NO_CUDA),
    "D007 D028: device files of a group, and CUDA says 999": replace(
        failing(999, "CUDA_ERROR_UNKNOWN"), kernel=replace(WELL.kernel, control=FORBIDDEN), devices=()
    ),
    "D008: a driver without its part for CUDA": answering(MISSING),
    "D008: WSL2 without libcuda": bare(system=WSL, kernel=Kernel(dxg=True)),
    "D009: a driver somewhere that lists no GPU": bare(replies=asked(nvml=NONE, cuda=NO_DEVICE, smi=MISSING)),
    "D009: all GPUs in MIG mode without an instance": answering(NO_DEVICE),
    "D009: a container where CUDA says 100": answering(NO_DEVICE, system=DOCKER),
    "D010: a Pascal card and driver 590": bare(
        kernel=PASCAL, replies=asked(nvml=NONE, cuda=NO_DEVICE, smi=NONE), driver="590.44.01", installed=OLD
    ),
    "D013: NVML hangs, and CUDA is not there": bare(replies=asked(nvml=HANGS, cuda=MISSING, smi=HANGS)),
    "D014: a libcuda that does not load": answering(reply("failed", "it is there and cannot be loaded: …")),
    "D015: an unloaded driver, and no card": bare(replies=asked(nvml=NOT_LOADED, cuda=NO_DEVICE, smi=SMI_9)),
    "D021 D403: 35": trying("CUDA failure 35: CUDA driver version is insufficient for CUDA runtime", 35),
    "D022 D403: 209": trying("CUDA failure 209: no kernel image is available for execution", 209),
    "D023 D403: 222": trying("CUDA failure 222: the provided PTX was compiled with", 222),
    "D024: 803, and NVML and nvidia-smi say 18": driven(
        replies=asked(
            nvml=reply("failed", code=18, error="Driver/library version mismatch"),
            cuda=reply("failed", code=803, error="CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
            smi=reply("failed", code=18, error="Failed to initialize NVML"),
        )
    ),
    "D025: 804": failing(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
    "D026: WSL2's 500 with a driver from before 555": replace(WSL_500, driver="552.44"),
    "D026: WSL2's 500 with the library there": replace(WSL_500, kernel=Kernel(dxg=True, dxgdmal=True)),
    "D026: 500 in a container without WSL": replace(failing(500, "CUDA_ERROR_NOT_FOUND"), system=DOCKER),
    "D027: 802": failing(802, "CUDA_ERROR_SYSTEM_NOT_READY"),
    "D029: a number that nobody has met": failing(12345, "CUDA_ERROR_OF_TOMORROW"),
    "D030: a GPU that fell off the bus": driven(
        replies=asked(nvml=reply("failed", code=15, error="GPU is lost"), cuda=NO_DEVICE)
    ),
    "D031: a driver below the package's floor": well(driver="520.61.05", devices=(gpu("8.6", "520.61.05"),)),
    "D031 D201: an old driver": well(driver="470.256.02", devices=(gpu("8.6"),), installed=None, trial=None),
    "D032: a Pascal card that driver 590 lists all the same": well(
        kernel=replace(WELL.kernel, cards=(replace(GTX1080, driver="nvidia"),)),
        devices=(gpu("6.1", "590.44.01"),),
        driver="590.44.01",
        installed=OLD,
    ),
    "D033 D403: 2": trying("CUDA failure 2: out of memory", 2),
    # cuda.h: the application has loaded a stub library; NVIDIA/warp#219 had its folder on the search path
    "D034: 34": failing(34, "CUDA_ERROR_STUB_LIBRARY"),
    "D101: docker run without --gpus": bare(system=DOCKER, kernel=IN_SIGHT),
    "D028 D101: docker run without --gpus, and an application's error 999": bare(
        system=DOCKER, kernel=IN_SIGHT, trial=SessionTrial("cuda", "unknown error 999", 999)
    ),
    "D101: a container, and the host's card alone": bare(system=DOCKER, kernel=Kernel(cards=(RTX3060,))),
    "D102: NVIDIA_VISIBLE_DEVICES=void": bare(system=replace(DOCKER, nvidia_visible="void"), kernel=IN_SIGHT),
    "D103: utility, no compute": answering(MISSING, system=replace(DOCKER, nvidia_capabilities="utility")),
    "D103: void, with device files": bare(system=replace(DOCKER, nvidia_visible="void"), kernel=WELL.kernel),
    "D104: a container with compute and without utility": well(
        system=replace(DOCKER, nvidia_capabilities="compute"), replies=asked(nvml=MISSING, cuda=FOUND)
    ),
    "D105: WSL2's 500 with a driver of 555": replace(WSL_500, driver="555.85"),
    "D106: WSL without a GPU": bare(system=WSL),
    "D107 D201: a Jetson": replace(
        NEW, platform="linux-arm64", system=System(glibc="2.35", jetson="NVIDIA Jetson Orin Nano")
    ),
    "D202: current is broken": well(installed=None, broken="/data/current leads to no package.", trial=None),
    "D203: a library of the package was replaced": well(
        installed=replace(OWN, problems=("lib/x: sha256 differs", "lib/y: is missing"))
    ),
    "D003 D201 D212: a file of the image's package is gone, which the failure names": replace(
        BARE,
        system=DOCKER,
        installed=None,
        outside=replace(OWN, folder="/opt/ortpacks", problems=("lib/libcudnn.so.9: is missing",)),
        trial=SessionTrial("cuda", "libcudnn.so.9: cannot open shared object file"),
    ),
    "D205: another card, which runs by JIT": replace(jitted(), installed=replace(OWN, cuda="12.8")),
    "D206: two cards of two packages": well(
        kernel=TWO_CARDS,
        replies=asked(nvml=reply("found", listed=2), cuda=reply("found", listed=2)),
        devices=(gpu("8.6"), gpu("12.0", index=1, uuid="GPU-b")),
    ),
    "D208: a GPU and the package for the CPU": well(installed=CPU_ONLY, trial=ON_CPU),
    "D208: Windows with DirectML and an old driver": well(
        platform="win-x64",
        system=System(),
        kernel=Kernel(),
        driver="472.12",
        installed=replace(OWN, package=plain("directml", "win-x64"), cuda=None),
        trial=SessionTrial("directml"),
    ),
    "D209 D402: an old glibc": well(
        system=System(glibc="2.31"),
        trial=SessionTrial("cuda", "version `GLIBC_2.34' not found", on_cpu=False),
    ),
    "D210: PTX of CUDA 12.9 and a driver of 12.8": replace(jitted(), installed=replace(OWN, support="jit")),
    "D211: a lean package": well(installed=LEAN),
    "D211: a full plug-in, which lacks what every one does": well(
        installed=replace(OWN, package=plugin("modern", "8.6", NOT_MICROSOFTS)),
        application=ApplicationHost("onnxruntime 1.32.0 in /venv", "1.32.0"),
    ),
    "D211: a lean plug-in": well(
        installed=replace(OWN, package=plugin("modern-lean", "8.6", NOT_MICROSOFTS, "lean")),
        application=ApplicationHost("onnxruntime 1.32.0 in /venv", "1.32.0"),
    ),
    "D211 D419: a lean package, and a model that fails otherwise": opening("Protobuf parsing failed."),
    "D211 D403 D404: it lacks a kernel itself": replace(trying("Kernel not found", None), installed=LEAN),
    "D211 D404: a lean package, and a transformer": opening(NO_BIAS_GELU),
    "D301: ORT_DYLIB_PATH leads elsewhere": well(host="/usr/lib/libonnxruntime.so"),
    "D302: another ONNX Runtime first": shadow("libonnxruntime.so.1", "1.20.1", "1.23.2"),
    "D311: one of two wheels was removed": replace(
        venv("onnxruntime"),
        broken_imports=(
            BrokenImport("/venv", "AttributeError: module 'onnxruntime' has no attribute 'InferenceSession'"),
        ),
    ),
    "D423: a Python with NumPy 2": replace(
        venv("onnxruntime"),
        broken_imports=(BrokenImport("/venv", "AttributeError: _ARRAY_API not found"),),
    ),
    "D312: the session's cuDNN is torch's": well(
        trial=SessionTrial(
            "cuda", loaded=(f"{FOLDER}/lib/libcudnn.so.9", "/venv/nvidia/cudnn/lib/libcudnn.so.9")
        )
    ),
    "D313: a plug-in, and a Python with onnxruntime-gpu": plugged(
        ApplicationHost("onnxruntime-gpu 1.31.1 in /venv", "1.31.1", obstacle=OWN_PROVIDER)
    ),
    "D314: a plug-in, and an older host": plugged(ApplicationHost("onnxruntime 1.23.2 in /venv", "1.23.2")),
    "D315: a plug-in, and ORT_DYLIB_PATH names a package": plugged(
        ApplicationHost("ONNX Runtime 1.30.0 in /p/lib (ORT_DYLIB_PATH)", "1.30.0", obstacle=OF_A_PACKAGE)
    ),
    "a plug-in, and a host of another version that registers it": plugged(
        ApplicationHost("onnxruntime 1.32.0 in /venv", "1.32.0"), host="/venv/libonnxruntime.so.1"
    ),
    "D313 D403: a wheel with a plug-in, and onnxruntime-gpu": replace(
        venv("onnxruntime-gpu"), plugin_wheels=(Distribution("onnxruntime-ep-cuda12", "0.4.0", "/venv"),)
    ),
    "D316: a plug-in that is not registered": plugged(
        None,
        trial=SessionTrial("cuda", "provider 'CUDAExecutionProvider' is not in available provider names"),
    ),
    "D303: a Python with another version": venv("onnxruntime", version="1.20.1"),
    "D304 D403: a Python with both": venv("onnxruntime", "onnxruntime-gpu"),
    "D305: another cuDNN first": shadow("libcudnn.so.9", "9.1.0", "9.10.2.21"),
    "D305: a cuDNN of an unknown release in the package": shadow("libcudnn.so.9", "9.1.0", None),
    "D306: the same cuDNN of another build": shadow("libcudnn.so.9", "9.10.2", "9.10.2.21"),
    "D306: another cuBLAS first": shadow("libcublasLt.so.12", "12.1.3.1", "12.9.1.4"),
    "D307: the package on noexec": well(noexec=(FOLDER,)),
    "D309: JIT without a cache": jitted(cache=Cache(disabled=True)),
    "D309: JIT with a cache of 256 MiB": jitted(cache=Cache(max_bytes=2**28)),
    "D309: JIT with a cache folder of root's": jitted(cache=Cache(folder="/root/.nv", writable=False)),
    "D310 D403: our wheel alone": venv("ortpacks-onnxruntime-gpu", lacks=("nvidia-cudnn-cu12==9.10.2.21",)),
    "D421: a full package, and an operator without a kernel": opening(NO_BIAS_GELU, OWN),
    "D402: a host library that does not load": trying("invalid ELF header", None, on_cpu=False),
    "D403 D405: no provider that loads": trying("libcufft.so.11: cannot open shared object file", None),
    "D403 D405: a provider that does not load on Windows": trying(
        'Error loading "C:\\a.dll" which depends on "cublasLt64_12.dll" which is missing.', None
    ),
    "D004: stated memory": well(stated=("ORTPACKS_FORCE_MEMORY=8192",)),
    # the numbers of NVIDIA's cards by generation: GM107 is the first Maxwell, TU102 the first Turing
    "D010: GM107, the first that 580 is the last driver of": beside(0x1340),
    "D010: the last before Turing": beside(0x1DFF),
    "D012: the last Kepler": beside(0x133F),
    "D011: the first Turing": beside(0x1E00),
    "D204: half precision begins at 5.3": well(devices=(gpu("5.3"),)),
    "D203: a library that is missing": well(installed=replace(OWN, problems=("lib/x: is missing",))),
    **{
        f"D306: {count} libraries": well(
            shadows=tuple(Shadow(f"libcublas.so.{number}", f"/cuda/{number}") for number in range(count))
        )
        for count in (3, 4)
    },
    "D204 D207 D308: an error, a warning and a note": well(devices=(gpu("5.2"),), noexec=("/tmp",)),
}
"""Machines by the codes that each must get, and a name."""
