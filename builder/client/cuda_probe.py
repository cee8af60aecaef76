"""Asks libcuda for its devices and prints one JSON line. Run as a script in a process of its own.

A child, because ``cuInit`` can hang, crash or hold the GPU; a script without imports of ours, because it is
handed to ``python -c``. It sees what CUDA sees: ``CUDA_VISIBLE_DEVICES`` and MIG are respected.

Arguments: the library names to try, in order.
"""

import ctypes
import json
import sys
import uuid

CAPABILITY_MAJOR = 75
CAPABILITY_MINOR = 76


class CudaError(Exception):
    """A driver call returned a code other than 0."""


def load(names: "list[str]") -> "ctypes.CDLL":
    """The first library that loads; ``OSError`` with every reason."""
    reasons = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:  # noqa: PERF203 three names
            reasons.append(str(error))
    raise OSError("; ".join(reasons))


def call(cuda: "ctypes.CDLL", name: str, *arguments: object) -> None:
    """Call and check: the error text is CUDA's own name for the code."""
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(text))
        raise CudaError(f"{name}: {(text.value or b'error').decode()} ({code})")


def integer(cuda: "ctypes.CDLL", name: str, *arguments: object) -> int:
    """An int that a call returns through its first argument."""
    value = ctypes.c_int()
    call(cuda, name, ctypes.byref(value), *arguments)
    return value.value


def describe(cuda: "ctypes.CDLL", index: int) -> "dict[str, object]":
    """One device as CUDA numbers it."""
    device = integer(cuda, "cuDeviceGet", ctypes.c_int(index))
    name = ctypes.create_string_buffer(256)
    call(cuda, "cuDeviceGetName", name, ctypes.c_int(len(name)), ctypes.c_int(device))
    memory = ctypes.c_size_t()
    call(cuda, "cuDeviceTotalMem_v2", ctypes.byref(memory), ctypes.c_int(device))
    major = integer(cuda, "cuDeviceGetAttribute", ctypes.c_int(CAPABILITY_MAJOR), ctypes.c_int(device))
    minor = integer(cuda, "cuDeviceGetAttribute", ctypes.c_int(CAPABILITY_MINOR), ctypes.c_int(device))
    return {
        "index": index,
        "uuid": identify(cuda, device),
        "name": name.value.decode(errors="replace"),
        "capability": f"{major}.{minor}",
        "memory_mib": memory.value // 2**20,
    }


def identify(cuda: "ctypes.CDLL", device: int) -> str:
    """``GPU-…``; CUDA does not say whether it is a MIG instance, whose name starts with ``MIG-``.

    ``cuDeviceGetUuid_v2`` (drivers since CUDA 11.4) names the instance, the old one its parent.
    """
    raw = (ctypes.c_ubyte * 16)()
    name = "cuDeviceGetUuid_v2" if hasattr(cuda, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    call(cuda, name, ctypes.byref(raw), ctypes.c_int(device))
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def main(names: "list[str]") -> "dict[str, object]":
    """``{"devices": […], "cuda": 12090}``, ``{"missing": why}`` or ``{"error": why}``."""
    try:
        cuda = load(names)
    except OSError as error:
        return {"missing": str(error)}
    try:
        call(cuda, "cuInit", ctypes.c_uint(0))
        count = integer(cuda, "cuDeviceGetCount")
        return {
            "cuda": integer(cuda, "cuDriverGetVersion"),
            "devices": [describe(cuda, index) for index in range(count)],
        }
    except (CudaError, AttributeError) as error:
        return {"error": str(error)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))  # noqa: T201 the parent reads it
