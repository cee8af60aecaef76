"""What Microsoft's own builds for Linux x64 are configured with, by ORT version: architectures and options.

Two packages: the wheel ``onnxruntime-gpu`` (``build_linux_python_package.sh``), which ``origin: wheel``
repacks and ``host: wheel`` takes the host library from, and the archive of the C API
(``build_cuda_c_api_package.sh``), both in ``tools/ci_build/github/linux``. 1.21.0's scripts were read in its
source; later lists are those of the pull requests named with them, and of the scripts as they stood then.
Where a wheel was counted, its containers agree with its list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from builder.formats.release_range import ALWAYS, ReleaseRange


@dataclass(frozen=True)
class ArchList:
    """The value of CMAKE_CUDA_ARCHITECTURES of both packages, built with CUDA 12."""

    wheel: str
    archive: str
    span: ReleaseRange
    source: str


@dataclass(frozen=True)
class Setting:
    """An option as the official build has it, and what it is where nobody sets it."""

    name: str
    value: str
    default: str
    source: str
    span: ReleaseRange = ALWAYS
    argued: str = ""
    """Why ours differs, for options that no profile sets or that all set alike."""


_UP_TO_80 = "60-real;70-real;75-real;80-real"

_LISTS = (
    ArchList(
        *(f"{_UP_TO_80};86-real;90", f"{_UP_TO_80};90", ReleaseRange(last=(1, 22))),
        "1.21.0's scripts; pull request 23671; the wheel 1.21.0: 155 containers 60 70 75 80 86 90, PTX 90",
    ),
    ArchList(
        *(f"{_UP_TO_80};86-real;90a-real;90a-virtual", f"{_UP_TO_80};90a-real;90a-virtual"),
        ReleaseRange(first=(1, 23, 0), last=(1, 23, 0)),
        "pull requests 25126, 26002 and 26087",
    ),
    ArchList(
        *(f"{_UP_TO_80};86-real;90a-real;90-virtual", f"{_UP_TO_80};90a-real;90-virtual"),
        ReleaseRange(first=(1, 23, 1)),
        "pull request 26230; the wheel 1.23.2: 184 containers 60 70 75 80 86 90a, PTX 90",
    ),
)

_BUILD_PY = "1.21.0's tools/ci_build/build.py"

_LTO = (
    "link-time optimisation of C++ (1.21.0's adjust_global_compile_flags.cmake line 104; CMakeLists.txt line "
    "728 leaves it out of CUDA builds on Windows); device code is as without it: the wheels hold no LTO IR"
)

_CPUINFO = "its source is not in Debian's archive, and only the host library asks for it"

_HARDENED = "-O3 -fstack-protector-strong -fcf-protection -D_FORTIFY_SOURCE=2 ..."

SETTINGS: tuple[Setting, ...] = (
    Setting("CMAKE_BUILD_TYPE", "Release", "RelWithDebInfo", "--config Release"),
    Setting("onnxruntime_USE_CUDA", "ON", "OFF", "--use_cuda"),
    Setting("onnxruntime_BUILD_SHARED_LIB", "ON", "OFF", "--build_shared_lib"),
    Setting("onnxruntime_DISABLE_CONTRIB_OPS", "OFF", "OFF", "not set by the scripts"),
    Setting("onnxruntime_USE_FLASH_ATTENTION", "ON", "ON", "not set by the scripts"),
    Setting("onnxruntime_USE_LEAN_ATTENTION", "ON", "ON", "not set by the scripts"),
    Setting("onnxruntime_USE_MEMORY_EFFICIENT_ATTENTION", "ON", "ON", "not set by the scripts"),
    Setting("onnxruntime_CUDA_MINIMAL", "OFF", "OFF", f"{_BUILD_PY} line 1228"),
    Setting("onnxruntime_NVCC_THREADS", "1", "1", "--nvcc_threads 1"),
    Setting(
        *("onnxruntime_USE_FPA_INTB_GEMM", "OFF", "ON"),
        "the archive's script of 1.24",
        ReleaseRange(first=(1, 23)),
    ),
    Setting(
        *("onnxruntime_USE_FULL_PROTOBUF", "OFF", "OFF", f"{_BUILD_PY} line 1505", ALWAYS),
        "all of protobuf is linked into the provider statically: NEEDED is the same, and the pair of our "
        "provider and the wheel's host library was tried",
    ),
    Setting(
        *("onnxruntime_BUILD_UNIT_TESTS", "ON", "ON", "--skip_tests compiles and does not run them", ALWAYS),
        "they need a GPU to run, and are in no package",
    ),
    Setting("onnxruntime_ENABLE_LTO", "ON", "OFF", "--enable_lto", ALWAYS, _LTO),
    Setting("onnxruntime_ENABLE_CPUINFO", "ON", "ON", "1.21.0's CMakeLists.txt line 229", ALWAYS, _CPUINFO),
    Setting(
        *("onnxruntime_USE_TENSORRT", "ON", "OFF", "--use_tensorrt, the wheel's script alone", ALWAYS),
        "the TensorRT provider is a library of its own, which our packages do not hold",
    ),
    Setting(
        *("onnxruntime_USE_VCPKG", "ON", "OFF", "--use_vcpkg", ALWAYS),
        "where the dependencies' sources come from; both link them statically",
    ),
    Setting(
        *("CMAKE_CXX_FLAGS", _HARDENED, "", "--use_binskim_compliant_compile_flags", ALWAYS),
        "hardening of C++ code; build.py says of these flags that ORT works without them",
    ),
    Setting(
        *("CMAKE_BUILD_WITH_INSTALL_RPATH", "OFF", "OFF", "not set by the scripts", ALWAYS),
        "the library is taken from the build tree, and has to be free of its paths",
    ),
    Setting(
        *("CMAKE_INSTALL_RPATH", "", "", "the wheels' providers have no RUNPATH", ALWAYS),
        "the package brings the CUDA libraries, so the provider looks beside itself",
    ),
)
"""Options that either build sets. Those of one value everywhere, such as paths, are left out."""


def arch_list(version: str) -> ArchList:
    """The official lists of ``version``; of a later one than is known, those of the latest."""
    return next(entry for entry in _LISTS if version in entry.span)


def settings(version: str) -> Iterator[Setting]:
    """The options of the official build of ``version``."""
    return (setting for setting in SETTINGS if version in setting.span)
