"""What a file name tells: whether it is a library, its vendor, and whether it must hold device code.

DLLs and static libraries belong to the family of the shared library for Linux: ``cublasLt64_12.dll`` and
``libcublasLt_static.a`` to that of ``libcublasLt``. The files of a package, and their wheels, are defined in
``contents.required_files``.
"""

from __future__ import annotations

import json
import pkgutil
import re
from dataclasses import dataclass
from functools import cache

from builder.binary.file_kinds import kind_of
from builder.facts.gpu.architectures import Capability
from builder.formats.package_names import HOSTS, LINUX, PROVIDER_LIBRARIES

NVIDIA, ONNXRUNTIME = "nvidia", "onnxruntime"


@dataclass(frozen=True)
class Family:
    """Libraries of one kind: those whose stems match ``pattern`` in full."""

    pattern: str
    vendor: str
    specialised: bool = False
    """Whether most containers hold one or two architectures only, and the library chooses one by device."""
    with_code: tuple[str, ...] = ()
    """Stems of the libraries that are useless without device code that runs."""


_CUDNN_WITH_CODE = (
    *("libcudnn_adv", "libcudnn_cnn", "libcudnn_ops"),
    *("libcudnn_engines_precompiled", "libcudnn_engines_runtime_compiled"),
)

_FAMILIES = (
    Family(r"libonnxruntime.*", ONNXRUNTIME, with_code=("libonnxruntime_providers_cuda",)),
    Family(r"libcublas(Lt)?", NVIDIA, specialised=True, with_code=("libcublas", "libcublasLt")),
    Family(r"libcudnn(_\w+)?", NVIDIA, specialised=True, with_code=_CUDNN_WITH_CODE),
    Family(r"libcufft(w|Mp)?", NVIDIA, specialised=True, with_code=("libcufft",)),  # libcufftw has no kernel
    Family(r"libcurand", NVIDIA, specialised=True, with_code=("libcurand",)),
    Family(r"libcu(solver|tensor)(Mg)?|libcusparse(Lt)?|libnpp\w+", NVIDIA, specialised=True),
    Family(r"libnvjpeg|libnccl|(lib)?tensorrt_rtx\w*|libnvinfer\w*", NVIDIA, specialised=True),
    *(Family(rf"{beginning}.*", NVIDIA) for beginning in ("libcuda", "libcupti", "libcufile", "libnv")),
)
"""All families; the first that matches counts. Source: the wheels of CUDA 12.9, cuDNN 9.10 and 9.28."""


def family_of(name: str) -> Family | None:
    """Return the family of a library by its file name; ``None`` for a name of no family."""
    stem = stem_of(name)
    return next((family for family in _FAMILIES if re.fullmatch(family.pattern, stem)), None)


@cache
def lowest_served() -> dict[str, Capability]:
    """Return the lowest capability that libraries of NVIDIA's have code for, by the recorded releases.

    ``library_names.json`` has what the records (``docs/atlas``) show, without libraries with code for 5.0.
    """
    rows = json.loads(pkgutil.get_data(__name__, "library_names.json") or b"")
    return {name: Capability.parse(low) for name, low in rows.items()}


def is_device_library(name: str) -> bool:
    """Return whether a library of this name is NVIDIA's, with device code that its users run."""
    family = family_of(name)
    return bool(family and family.specialised) or name in lowest_served()


_OTHER = re.compile(
    r"(.+?)(?:64(?:_\d+)*)?(?:-[0-9a-f]{8,})?\.dll\Z"
    r"|(?:lib)?(.+?)_static(?:_nocallback|_v\d+)?\.(?:a|lib)\Z",
    re.IGNORECASE,
)
"""``cufft64_11.dll``, ``cufft64_11-….dll`` with delvewheel's hash; ``libcudnn_ops_static_v9.a``."""

_HASH = re.compile(r"-[0-9a-f]{8,}\Z")


def without_hash(stem: str) -> str:
    """Return a stem without auditwheel's hash: ``libcusparseLt`` of ``libcusparseLt-f80c68d1``."""
    return _HASH.sub("", stem)


def stem_of(name: str) -> str:
    """Return a library's file name up to ``.so``, without auditwheel's or delvewheel's hash.

    For a DLL or a static library, return the stem of the shared library for Linux.
    """
    other = _OTHER.match(name)
    return f"lib{other[1] or other[2]}" if other else without_hash(name.partition(".so")[0])


_CUDA_MAJOR = re.compile(
    r"lib(?:cudart|cublas|cublasLt)\.so\.(\d+)|(?:cudart|cublas|cublasLt)64_(\d\d)\d?\.dll", re.IGNORECASE
)
"""Names with CUDA's own version: ``libcudart.so.13``, ``cublas64_12.dll``, ``cudart64_110.dll``. cuFFT and
cuRAND have versions of their own."""


def cuda_major(name: str) -> str | None:
    """Return CUDA's major version from the name of its run time or cuBLAS; ``None`` for another library."""
    match = _CUDA_MAJOR.match(name)
    return (match[1] or match[2]) if match else None


def must_hold_code(name: str) -> bool:
    """Return whether the library with this file name is useless without device code that runs."""
    family = family_of(name)
    return family is not None and stem_of(name) in family.with_code


_NAME = re.compile(r"\.so(?:\.\d+[a-z]?)*\Z|\.(?i:dll|exe|pyd)\Z")
"""``libfoo.so``, ``libfoo.so.1.2``, ``libcrypto.so.1.0.2k``, ``foo.dll``, ``foo.pyd``; not ``ld.so.conf``."""


def is_library(name: str, head: bytes) -> bool:
    """Return whether a file belongs into a report, by its first ``HEAD`` bytes or by its name.

    The name alone suffices: an empty ``libfoo.so`` is reported as a library that cannot be read.
    """
    return kind_of(head) is not None or is_named_like_a_library(name)


def is_named_like_a_library(name: str) -> bool:
    """Return whether a file has a name that a loader may search for."""
    return _NAME.search(name) is not None


def is_provider(path: str) -> bool:
    """Return whether a file of this path is ORT's CUDA provider, for Linux or Windows."""
    return stem_of(path.rpartition("/")[2]) == stem_of(PROVIDER)


HOST = HOSTS[LINUX]

BRIDGE = "libonnxruntime_providers_shared.so"

PROVIDER = PROVIDER_LIBRARIES[LINUX]

TENSORRT = "libonnxruntime_providers_tensorrt.so"
