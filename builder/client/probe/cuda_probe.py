"""Asks libcuda for its devices and prints a line of JSON. Run as a script in a process of its own.

A child, because ``cuInit`` can hang, crash or hold the GPU; a script without imports of ours, because it is
handed to ``python -c``. It sees what CUDA sees: ``CUDA_VISIBLE_DEVICES`` and MIG are respected. What one call
does not say is ``null``, and the device stays listed.

Arguments: the library names to try, in order.
"""

import ctypes
import json
import signal
import sys
from collections.abc import Callable

LONGEST = 60
"""Seconds after which it ends by itself, should the one that asked be gone."""

CAPABILITY_MAJOR = 75

CAPABILITY_MINOR = 76


class CudaError(Exception):
    """A driver call returned a code other than 0, or is not there. ``args``: call, CUDA's name, code."""


def load(names: "list[str]") -> "ctypes.CDLL":
    """The first that is there; ``FileNotFoundError`` when none is, ``OSError`` when it cannot be loaded."""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:  # noqa: PERF203 a handful of names
            if not absent(name, str(error)):
                raise OSError(str(error)) from error
    raise FileNotFoundError(f"none of {', '.join(names)} is there")


def absent(name: str, reason: str) -> bool:
    """Whether the loader did not find ``name`` itself, and not something that it needs."""
    about = name in reason and "needed by" not in reason
    return about and ("No such file" in reason or "Could not find module" in reason)


def call(cuda: "ctypes.CDLL", name: str, *arguments: object) -> None:
    """Call and check: the error has CUDA's own name for the code."""
    if not hasattr(cuda, name):
        raise CudaError(name, "the library has no such function", None)
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        raise CudaError(name, error_name(cuda, code), code)


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


def known(ask: "Callable[..., object]", *arguments: object) -> object:
    """What ``ask`` returns; ``None`` where the driver does not say."""
    try:
        return ask(*arguments)
    except CudaError:
        return None


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
    except CudaError:
        return {"index": index, **dict.fromkeys(ASKS)}
    return {"index": index, **{key: known(ask, cuda, device) for key, ask in ASKS.items()}}


def main(names: "list[str]") -> "dict[str, object]":
    """``{"devices": […], "cuda": 12090}``, or why not: ``missing``, ``unloadable``, ``error``."""
    try:
        cuda = load(names)
    except FileNotFoundError as error:
        return {"missing": str(error)}
    except OSError as error:
        return {"unloadable": str(error)}
    version = known(integer, cuda, "cuDriverGetVersion")
    try:
        call(cuda, "cuInit", ctypes.c_uint(0))
        count = integer(cuda, "cuDeviceGetCount")
    except CudaError as error:
        return {"error": error.args, "cuda": version}
    return {"cuda": version, "devices": [describe(cuda, index) for index in range(count)]}


if __name__ == "__main__":
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, LONGEST)
    print(f"\n{json.dumps(main(sys.argv[1:]))}")  # noqa: T201 the parent reads that line
