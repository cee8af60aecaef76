"""This module chooses ONNX Runtime's options for a device's profile, and the file of a model for a level."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ortpacks_runtime.providers import CUDA, TENSORRT, ProviderError

_FP32 = "fp32"

_SUFFIXES = {"int8": ("_int8", "_quantized"), "fp16": ("_fp16",), "bf16": ("_bf16",), _FP32: ("",)}
"""Ends of a model's file name by number type, as Hugging Face's ``optimum`` writes them."""

_CPU_DTYPES = {"low": ("int8", _FP32), "medium": (_FP32,), "high": (_FP32,)}

Profile = Mapping[str, Any]
"""A device's ``profile`` in the client's ``detect --json``."""


Model = Path | bytes
"""A model's file, or the bytes of one."""


def shown_as(model: Model) -> str:
    """Return a model's path, or how many bytes it has."""
    return f"{len(model)} bytes" if isinstance(model, bytes) else str(model)


def model_file(model: Model, level: str, profile: Profile | None) -> tuple[Model, str]:
    """Return the file next to ``model`` whose number type the level prefers on the device, else ``model``.

    ``encoder_fp16.onnx`` is the fp16 file of ``encoder.onnx``, and is itself the only choice, as
    are bytes. The text is a note if the level's first choice is not there, else empty.
    """
    if isinstance(model, bytes) or dtype_of(model):
        return model, ""
    dtypes = (profile["dtypes"] if profile else _CPU_DTYPES)[level]
    files = [(dtype, _named(model, suffix)) for dtype in dtypes for suffix in _SUFFIXES[dtype]]
    dtype, file = next((one for one in files if one[1].is_file()), (_FP32, model))
    first, wanted = files[0]
    return file, "" if dtype == first else f"level {level} prefers {first}: there is no {wanted.name}"


def _named(model: Path, suffix: str) -> Path:
    return model.with_name(f"{model.stem}{suffix}{model.suffix}")


def dtype_of(file: Model) -> str | None:
    """Return the number type that the file's name ends with; ``None`` if it ends with none."""
    if isinstance(file, bytes):
        return None
    named = (dtype for dtype, ends in _SUFFIXES.items() for end in ends if end and file.stem.endswith(end))
    return next(named, None)


def provider_options(provider: str, ordinal: int, level: str, profile: Profile | None) -> dict[str, str]:
    """Return the provider's options by ONNX Runtime's names; ``ordinal`` is the GPU's number in CUDA's order.

    A GPU of unknown capability has no ``profile``, and the provider's defaults hold apart from ``device_id``.
    TensorRT's flags are ``True`` and ``False``; it refuses ``1`` and ``0``, which CUDA takes as well.

    Raises ``ProviderError`` if TensorRT's engines cannot be kept.
    """
    if provider == TENSORRT:
        try:
            cache = engine_cache()
            cache.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError) as error:
            why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            what = f"TensorRT's engines cannot be kept: {why}"
            raise ProviderError(what, "set XDG_CACHE_HOME to a folder that can be written") from error
        return {
            "device_id": str(ordinal),
            "trt_engine_cache_enable": "True",
            "trt_engine_cache_path": str(cache),
            **({"trt_fp16_enable": str("fp16" in profile["dtypes"][level])} if profile else {}),
        }
    if provider != CUDA:
        return {}
    if profile is None:
        return {"device_id": str(ordinal)}
    limit = profile["memory_limit_mib"]
    return {
        "device_id": str(ordinal),
        **({"gpu_mem_limit": str(limit * 2**20)} if limit else {}),
        "arena_extend_strategy": profile["arena"],
        "cudnn_conv_algo_search": profile["cudnn_search"],
        "use_tf32": "1" if profile["tf32"] and level != "high" else "0",
        "enable_cuda_graph": "1" if profile["cuda_graphs"] else "0",
    }


_OF_PLUGIN = {"gpu_mem_limit": "arena.max_mem", "arena_extend_strategy": "arena.extend_strategy"}

_STRATEGIES = {"kNextPowerOfTwo": "0", "kSameAsRequested": "1"}


def plugin_entries(options: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of a session's configuration by which a plug-in takes the options of CUDA.

    A plug-in gets its device otherwise. Hosts up to 1.26 hand ``add_provider_for_devices``'s options to a
    plug-in under names that it does not read.
    """
    return {
        f"ep.cuda.{_OF_PLUGIN.get(name, name)}": _STRATEGIES.get(value, value)
        for name, value in options.items()
        if name != "device_id"
    }


def engine_cache() -> Path:
    """Return the folder of TensorRT's compiled engines. Raises ``RuntimeError`` for a user without a home."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "ortpacks" / "tensorrt"
