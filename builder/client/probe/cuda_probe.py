"""Asks libcuda for its devices and prints a line of JSON. Run as a script in a process of its own.

It sees what CUDA sees: ``CUDA_VISIBLE_DEVICES`` and MIG are respected. What one call does not say is
``null``, and the device stays listed.

Arguments: the library names to try, in order.
"""

import ctypes
from collections.abc import Callable

from builder.client.probe.native import CallError, answer, known

CAPABILITY_MAJOR = 75

CAPABILITY_MINOR = 76


def call(cuda: "ctypes.CDLL", name: str, *arguments: object) -> None:
    """Call and check: the error has CUDA's own name for the code."""
    if not hasattr(cuda, name):
        raise CallError(name, "the library has no such function", None)
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        raise CallError(name, error_name(cuda, code), code)


def error_name(cuda: "ctypes.CDLL", code: int) -> str:
    """``CUDA_ERROR_NO_DEVICE``; a library older than the code does not know its name."""
    text = ctypes.c_char_p()
    if hasattr(cuda, "cuGetErrorName"):
        cuda.cuGetErrorName(code, ctypes.byref(text))
    return (text.value or b"an error without a name").decode(errors="replace")


def integer(cuda: "ctypes.CDLL", name: str, *arguments: object) -> int:
    """An int that a call returns through its first argument."""
    value = ctypes.c_int()
    call(cuda, name, ctypes.byref(value), *arguments)
    return value.value


def name_of(cuda: "ctypes.CDLL", device: "ctypes.c_int") -> str:
    """``NVIDIA H200``; a MIG instance has its profile behind it."""
    name = ctypes.create_string_buffer(256)
    call(cuda, "cuDeviceGetName", name, ctypes.c_int(len(name)), device)
    return name.value.decode(errors="replace")


def capability_of(cuda: "ctypes.CDLL", device: "ctypes.c_int") -> str:
    """``9.0``."""
    major = integer(cuda, "cuDeviceGetAttribute", ctypes.c_int(CAPABILITY_MAJOR), device)
    minor = integer(cuda, "cuDeviceGetAttribute", ctypes.c_int(CAPABILITY_MINOR), device)
    return f"{major}.{minor}"


def memory_of(cuda: "ctypes.CDLL", device: "ctypes.c_int") -> int:
    """MiB; of unified memory, what the system has."""
    memory = ctypes.c_size_t()
    call(cuda, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    return memory.value // 2**20


def uuid_of(cuda: "ctypes.CDLL", device: "ctypes.c_int") -> str:
    """``GPU-…``; CUDA does not say whether it is a MIG instance, whose name starts with ``MIG-``.

    ``cuDeviceGetUuid_v2`` (drivers since CUDA 11.4) names the instance, the old one its parent.
    """
    raw = (ctypes.c_ubyte * 16)()
    name = "cuDeviceGetUuid_v2" if hasattr(cuda, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    call(cuda, name, ctypes.byref(raw), device)
    digits = bytes(raw).hex()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


ASKS: "dict[str, Callable[..., object]]" = {
    "name": name_of,
    "uuid": uuid_of,
    "capability": capability_of,
    "memory_mib": memory_of,
}


def describe(cuda: "ctypes.CDLL", index: int) -> "dict[str, object]":
    """One device as CUDA numbers it."""
    try:
        device = ctypes.c_int(integer(cuda, "cuDeviceGet", ctypes.c_int(index)))
    except CallError:
        return {"index": index, **dict.fromkeys(ASKS)}
    return {"index": index, **{key: known(ask, cuda, device) for key, ask in ASKS.items()}}


def ask(cuda: "ctypes.CDLL") -> "dict[str, object]":
    """``{"devices": […], "cuda": 12090}``, or ``error``."""
    version = known(integer, cuda, "cuDriverGetVersion")
    try:
        call(cuda, "cuInit", ctypes.c_uint(0))
        count = integer(cuda, "cuDeviceGetCount")
    except CallError as error:
        return {"error": error.args, "cuda": version}
    return {"cuda": version, "devices": [describe(cuda, index) for index in range(count)]}


if __name__ == "__main__":
    answer(ask)
