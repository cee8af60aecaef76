"""What is known of a library by its name alone: whose it is, and what its device code must be like.

The one table of names. What a package holds, and from which wheel, is ``core.content``'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

NVIDIA, ONNXRUNTIME = "nvidia", "onnxruntime"


@dataclass(frozen=True)
class Family:
    """Libraries whose names begin alike."""

    beginning: str
    vendor: str
    specialised: bool = False
    """Made of containers for one architecture each: the library chooses one by device."""
    with_code: Tuple[str, ...] = ()
    """Those that are of no use without device code that runs, by their names up to ``.so``."""


_CUDNN_WITH_CODE = (
    *("libcudnn_adv", "libcudnn_cnn", "libcudnn_ops"),
    *("libcudnn_engines_precompiled", "libcudnn_engines_runtime_compiled"),
)
_FAMILIES = (
    Family("libonnxruntime", ONNXRUNTIME, with_code=("libonnxruntime_providers_cuda",)),
    Family("libcublas", NVIDIA, specialised=True, with_code=("libcublas", "libcublasLt")),
    Family("libcudnn", NVIDIA, specialised=True, with_code=_CUDNN_WITH_CODE),
    Family("libcufft", NVIDIA, specialised=True, with_code=("libcufft",)),  # libcufftw has nothing to run
    Family("libcurand", NVIDIA, specialised=True, with_code=("libcurand",)),
    *(
        Family(beginning, NVIDIA, specialised=True)
        for beginning in ("libcusolver", "libcusparse", "libcutensor", "libnpp", "libnvjpeg", "libnccl")
    ),
    *(Family(beginning, NVIDIA) for beginning in ("libcuda", "libcupti", "libcufile", "libnv")),
)
"""The first whose beginning fits. Source: the device code in the wheels of CUDA 12.9, cuDNN 9.10 and 9.28."""


def family_of(name: str) -> Optional[Family]:
    """The family of a library's file name; ``None`` for one that is nobody's here."""
    return next((family for family in _FAMILIES if name.startswith(family.beginning)), None)


def must_hold_code(name: str) -> bool:
    """Whether the library of this file name must hold device code that runs."""
    family = family_of(name)
    return family is not None and name.partition(".so")[0] in family.with_code
