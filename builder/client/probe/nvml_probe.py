"""Asks NVML for every GPU and prints a line of JSON. Run as a script in a process of its own.

It sees the physical GPUs, whatever ``CUDA_VISIBLE_DEVICES`` says. What one call does not say
is ``null``, and the GPU stays listed.

Arguments: the library names to try, in order.
"""

import ctypes
from collections.abc import Callable

from builder.client.probe.native import CallError, answer, known

TEXT = 96
"""The longest text NVML writes, with its end: ``NVML_DEVICE_UUID_V2_BUFFER_SIZE``."""


def call(nvml: "ctypes.CDLL", name: str, *arguments: object) -> None:
    """Call and check: the error has NVML's own words for the code."""
    if not hasattr(nvml, name):
        raise CallError(name, "the library has no such function", None)
    code = getattr(nvml, name)(*arguments)
    if code != 0:
        nvml.nvmlErrorString.restype = ctypes.c_char_p
        raise CallError(name, (nvml.nvmlErrorString(code) or b"an error").decode(errors="replace"), code)


def text(nvml: "ctypes.CDLL", name: str, *arguments: object) -> str:
    """A string that a call writes."""
    buffer = ctypes.create_string_buffer(TEXT)
    call(nvml, name, *arguments, buffer, ctypes.c_uint(TEXT))
    return buffer.value.decode(errors="replace")


def integer(nvml: "ctypes.CDLL", name: str, *arguments: object) -> int:
    """An int that a call writes through its last argument."""
    value = ctypes.c_int()
    call(nvml, name, *arguments, ctypes.byref(value))
    return value.value


def handle(nvml: "ctypes.CDLL", name: str, *arguments: object) -> "ctypes.c_void_p":
    """A device that a call hands out through its last argument."""
    value = ctypes.c_void_p()
    call(nvml, name, *arguments, ctypes.byref(value))
    return value


def name_of(nvml: "ctypes.CDLL", gpu: "ctypes.c_void_p") -> str:
    """``NVIDIA H200``."""
    return text(nvml, "nvmlDeviceGetName", gpu)


def uuid_of(nvml: "ctypes.CDLL", gpu: "ctypes.c_void_p") -> str:
    """``GPU-…``, or ``MIG-…`` of an instance."""
    return text(nvml, "nvmlDeviceGetUUID", gpu)


def capability_of(nvml: "ctypes.CDLL", gpu: "ctypes.c_void_p") -> str:
    """``9.0``."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    call(nvml, "nvmlDeviceGetCudaComputeCapability", gpu, ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def memory_of(nvml: "ctypes.CDLL", gpu: "ctypes.c_void_p") -> "int | None":
    """MiB; ``None`` where it says 0. Unified memory is not supported at all."""
    total_free_used = (ctypes.c_ulonglong * 3)()
    call(nvml, "nvmlDeviceGetMemoryInfo", gpu, ctypes.byref(total_free_used))
    return int(total_free_used[0]) // 2**20 or None


def instances_of(nvml: "ctypes.CDLL", gpu: "ctypes.c_void_p") -> "list[dict[str, object]] | None":
    """The MIG instances; ``None`` where MIG is off."""
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    call(nvml, "nvmlDeviceGetMigMode", gpu, ctypes.byref(current), ctypes.byref(pending))
    if not current.value:
        return None
    slots = known(integer, nvml, "nvmlDeviceGetMaxMigDeviceCount", gpu)
    found = [
        known(handle, nvml, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, ctypes.c_uint(slot))
        for slot in range(slots if isinstance(slots, int) else 0)
    ]
    return [
        {"uuid": known(uuid_of, nvml, instance), "memory_mib": known(memory_of, nvml, instance)}
        for instance in found
        if instance is not None
    ]


ASKS: "dict[str, Callable[..., object]]" = {
    "name": name_of,
    "uuid": uuid_of,
    "capability": capability_of,
    "memory_mib": memory_of,
    "instances": instances_of,
}


def describe(nvml: "ctypes.CDLL", index: int) -> "dict[str, object]":
    """One GPU as NVML numbers it, by PCI address."""
    try:
        gpu = handle(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index))
    except CallError:
        return {"index": index, **dict.fromkeys(ASKS)}
    return {"index": index, **{key: known(ask, nvml, gpu) for key, ask in ASKS.items()}}


def ask(nvml: "ctypes.CDLL") -> "dict[str, object]":
    """``{"devices": […], "driver": …, "cuda": …}``, or ``error``."""
    try:
        call(nvml, "nvmlInit_v2")
        count = integer(nvml, "nvmlDeviceGetCount_v2")
    except CallError as error:
        return {"error": error.args}
    return {
        "driver": known(text, nvml, "nvmlSystemGetDriverVersion"),
        "cuda": known(integer, nvml, "nvmlSystemGetCudaDriverVersion_v2"),
        "devices": [describe(nvml, index) for index in range(count)],
    }


if __name__ == "__main__":
    answer(ask)
