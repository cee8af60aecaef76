"""Facts that follow from a library's file name: its vendor, and what device code it must hold.

A DLL and a static library are of the family of the one for Linux: ``cublasLt64_12.dll`` and
``libcublasLt_static.a`` of ``libcublasLt``'s.

The one table of names. What a package holds, and from which wheel, is ``package.contents``'s.

Which of many files are reported on as libraries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from builder.binary.kinds.file_kinds import kind_of
from builder.formats.package_names import HOSTS, LINUX, LINUX_ARM64, WINDOWS

NVIDIA, ONNXRUNTIME = "nvidia", "onnxruntime"


@dataclass(frozen=True)
class Family:
    """Libraries of one kind, by a pattern that their stems fit."""

    pattern: str
    vendor: str
    specialised: bool = False
    """Made of containers for one architecture each: the library chooses one by device."""
    with_code: tuple[str, ...] = ()
    """Those that are of no use without device code that runs, by their stems."""


_CUDNN_WITH_CODE = (
    *("libcudnn_adv", "libcudnn_cnn", "libcudnn_ops"),
    *("libcudnn_engines_precompiled", "libcudnn_engines_runtime_compiled"),
)

_FAMILIES = (
    Family(r"libonnxruntime.*", ONNXRUNTIME, with_code=("libonnxruntime_providers_cuda",)),
    Family(r"libcublas(Lt)?", NVIDIA, specialised=True, with_code=("libcublas", "libcublasLt")),
    Family(r"libcudnn(_\w+)?", NVIDIA, specialised=True, with_code=_CUDNN_WITH_CODE),
    Family(r"libcufftw?", NVIDIA, specialised=True, with_code=("libcufft",)),  # libcufftw has nothing to run
    Family(r"libcurand", NVIDIA, specialised=True, with_code=("libcurand",)),
    *(
        Family(pattern, NVIDIA, specialised=True)
        for pattern in (r"libcusolver(Mg)?", r"libcusparse(Lt)?", r"libcutensor(Mg)?", r"libnpp\w+")
    ),
    *(Family(pattern, NVIDIA, specialised=True) for pattern in (r"libnvjpeg", r"libnccl")),
    *(Family(rf"{beginning}.*", NVIDIA) for beginning in ("libcuda", "libcupti", "libcufile", "libnv")),
)
"""The first that fits. Source: the device code in the wheels of CUDA 12.9, cuDNN 9.10 and 9.28."""


def family_of(name: str) -> Family | None:
    """The family of a library's file name; ``None`` for one that is nobody's here."""
    stem = stem_of(name)
    return next((family for family in _FAMILIES if re.fullmatch(family.pattern, stem)), None)


_OTHER = re.compile(
    r"(.+?)(?:64(?:_\d+)*)?\.dll\Z|(?:lib)?(.+?)_static(?:_nocallback)?\.(?:a|lib)\Z", re.IGNORECASE
)


_HASH = re.compile(r"-[0-9a-f]{8,}\Z")


def without_hash(stem: str) -> str:
    """The stem without what auditwheel adds: ``libcusparseLt`` of ``libcusparseLt-f80c68d1``."""
    return _HASH.sub("", stem)


def stem_of(name: str) -> str:
    """A library's file name up to ``.so``; of a DLL or a static one, that of the shared one for Linux."""
    other = _OTHER.match(name)
    return f"lib{other[1] or other[2]}" if other else without_hash(name.partition(".so")[0])


def must_hold_code(name: str) -> bool:
    """Whether the library of this file name must hold device code that runs."""
    family = family_of(name)
    return family is not None and stem_of(name) in family.with_code


_NAME = re.compile(r"\.so(?:\.\d+[a-z]?)*\Z|\.(?i:dll|exe|pyd)\Z")
"""``libfoo.so``, ``libfoo.so.1.2``, ``libcrypto.so.1.0.2k``, ``foo.dll``, ``foo.pyd``; not ``ld.so.conf``."""


def is_library(name: str, head: bytes) -> bool:
    """Whether a file belongs into a report, by its first ``HEAD`` bytes or else by its name.

    The name alone is enough: an empty ``libfoo.so`` is a library that cannot be read, and is said to be one.
    """
    return kind_of(head) is not None or is_named_like_a_library(name)


def is_named_like_a_library(name: str) -> bool:
    """Whether the loader would look for a file of this name."""
    return _NAME.search(name) is not None


def is_provider(path: str) -> bool:
    """Whether a file of this path is ORT's CUDA provider, for Linux or Windows."""
    return stem_of(path.rpartition("/")[2]) == stem_of(PROVIDER)


HOST = HOSTS[LINUX]

BRIDGE = "libonnxruntime_providers_shared.so"

PROVIDER = "libonnxruntime_providers_cuda.so"

PROVIDERS = {LINUX: PROVIDER, LINUX_ARM64: PROVIDER, WINDOWS: "onnxruntime_providers_cuda.dll"}
"""File name of the CUDA provider by platform."""

TENSORRT = "libonnxruntime_providers_tensorrt.so"
