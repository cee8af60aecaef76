"""This module chooses ONNX Runtime's options for a device's profile, and the file of a model for a level."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ortpacks_runtime.providers import CUDA, TENSORRT

_SUFFIXES = {"int8": ("_int8", "_quantized"), "fp16": ("_fp16",), "bf16": ("_bf16",), "fp32": ("",)}
"""Ends of a model's file name by number type, as Hugging Face's ``optimum`` writes them."""

_CPU_DTYPES = {"low": ("int8", "fp32"), "medium": ("fp32",), "high": ("fp32",)}

Profile = Mapping[str, Any]
"""A device's ``profile`` in the client's ``detect --json``."""


def model_file(model: Path, level: str, profile: Profile | None) -> Path:
    """Return the file next to ``model`` whose number type the level prefers on the device, else ``model``.

    ``encoder_fp16.onnx`` is the fp16 file of ``encoder.onnx``.
    """
    for dtype in (profile["dtypes"] if profile else _CPU_DTYPES)[level]:
        for suffix in _SUFFIXES[dtype]:
            file = model.with_name(f"{model.stem}{suffix}{model.suffix}")
            if file.is_file():
                return file
    return model


def dtype_of(file: Path) -> str | None:
    """Return the number type that the file's name ends with; ``None`` if it ends with none."""
    told = (dtype for dtype, ends in _SUFFIXES.items() for end in ends if end and file.stem.endswith(end))
    return next(told, None)


def provider_options(provider: str, ordinal: int, level: str, profile: Profile | None) -> dict[str, str]:
    """Return the provider's options by ONNX Runtime's names; ``ordinal`` is the GPU's number in CUDA's order.

    TensorRT's flags are ``True`` and ``False``, CUDA's ``1`` and ``0``; each provider refuses the other form.
    """
    if profile is None:
        return {}
    limit = profile["memory_limit_mib"]
    if provider == TENSORRT:
        cache = engine_cache()
        cache.mkdir(parents=True, exist_ok=True)
        return {
            "device_id": str(ordinal),
            "trt_engine_cache_enable": "True",
            "trt_engine_cache_path": str(cache),
            "trt_fp16_enable": str("fp16" in profile["dtypes"][level]),
        }
    if provider != CUDA:
        return {}
    return {
        "device_id": str(ordinal),
        **({"gpu_mem_limit": str(limit * 2**20)} if limit else {}),
        "arena_extend_strategy": profile["arena"],
        "cudnn_conv_algo_search": profile["cudnn_search"],
        "use_tf32": "1" if profile["tf32"] and level != "high" else "0",
        "enable_cuda_graph": "1" if profile["cuda_graphs"] else "0",
    }


def engine_cache() -> Path:
    """Return the folder of TensorRT's compiled engines."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "ortpacks" / "tensorrt"
