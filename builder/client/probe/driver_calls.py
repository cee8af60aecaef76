"""This program queries a library of NVIDIA's driver for its GPUs and prints a line of JSON.

It runs in a child process, because a broken driver can hang, crash or hold the GPU. NVML lists the physical
GPUs, whatever ``CUDA_VISIBLE_DEVICES`` is; libcuda lists the devices that CUDA sees, after
``CUDA_VISIBLE_DEVICES`` and MIG. A value that a call does not give is ``null``, and the GPU stays listed.

Arguments: ``NVML`` or ``libcuda``, then the library names to try, in order.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from functools import partial
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type

LONGEST = 60.0
"""Seconds after which the child ends itself, in case its parent has died."""

_TEXT = 96
"""The longest text that NVML writes, in bytes with the final zero: ``NVML_DEVICE_UUID_V2_BUFFER_SIZE``."""

_CAPABILITY_MAJOR = 75
"""``CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`` in cuda.h."""

_CAPABILITY_MINOR = 76


Question = Callable[..., object]
"""A method that calls the driver and returns a value."""


class DriverError(Exception):
    """A call returned a code other than 0, or the library lacks it. ``args``: call, message, code."""


class DriverLibrary:
    """A loaded library of the driver."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Take a library that ``load`` returned."""
        self.library = library

    def call(self, name: str, *arguments: object) -> None:
        """Call a function. Raises ``DriverError`` with the library's message for the returned code."""
        if not hasattr(self.library, name):
            raise DriverError(name, "the library has no such function", None)
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise DriverError(name, self.words(code), code)

    def words(self, code: int) -> str:
        """Return the library's name or message for a code."""
        raise NotImplementedError

    def ask(self) -> Dict[str, object]:
        """Return ``{"devices": […], "cuda": 12090}``, for NVML with ``driver``.

        Where the library fails, the key ``error`` has the arguments of ``DriverError`` instead of
        ``devices``.
        """
        raise NotImplementedError


def rows(count: int, find: Question, asks: Mapping[str, Question]) -> List[Dict[str, object]]:
    """Return a row of values for each of ``count`` GPUs, by index.

    ``find(index)`` returns the GPU's handle. Each of ``asks`` is called with it and gives the value of its
    key.
    """
    return [{"index": index, **_row(known(find, index), asks)} for index in range(count)]


def _row(gpu: object, asks: Mapping[str, Question]) -> Dict[str, object]:
    return {key: None if gpu is None else known(ask, gpu) for key, ask in asks.items()}


def known(ask: Question, *arguments: object) -> object:
    """Return the result of ``ask``; ``None`` where the driver does not give one."""
    try:
        return ask(*arguments)
    except DriverError:
        return None


class CudaLibrary(DriverLibrary):
    """libcuda, whose functions write their result through the first argument."""

    def words(self, code: int) -> str:
        """Return the name of a code, ``CUDA_ERROR_NO_DEVICE``, unless the library is older than the code."""
        text = ctypes.c_char_p()
        if hasattr(self.library, "cuGetErrorName"):
            self.library.cuGetErrorName(code, ctypes.byref(text))
        return (text.value or b"an error without a name").decode(errors="replace")

    def ask(self) -> Dict[str, object]:
        """Return the devices in CUDA's order and the newest CUDA version that the driver supports."""
        version = known(self._integer, "cuDriverGetVersion")
        try:
            self.call("cuInit", ctypes.c_uint(0))
            count = self._integer("cuDeviceGetCount")
        except DriverError as error:
            return {"error": error.args, "cuda": version}
        asks = {
            "name": self._name,
            "uuid": self._uuid,
            "capability": self._capability,
            "memory_mib": self._memory,
        }
        return {"cuda": version, "devices": rows(count, self._device, asks)}

    def _integer(self, name: str, *arguments: object) -> int:
        value = ctypes.c_int()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def _device(self, index: int) -> ctypes.c_int:
        return ctypes.c_int(self._integer("cuDeviceGet", ctypes.c_int(index)))

    def _name(self, device: ctypes.c_int) -> str:
        """Return the device's name, ``NVIDIA H200``. A MIG instance's name ends with its profile."""
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, ctypes.c_int(len(name)), device)
        return name.value.decode(errors="replace")

    def _capability(self, device: ctypes.c_int) -> str:
        major = self._integer("cuDeviceGetAttribute", ctypes.c_int(_CAPABILITY_MAJOR), device)
        minor = self._integer("cuDeviceGetAttribute", ctypes.c_int(_CAPABILITY_MINOR), device)
        return f"{major}.{minor}"

    def _memory(self, device: ctypes.c_int) -> int:
        """Return the device's memory in MiB; for unified memory, the system's."""
        memory = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        return memory.value // 2**20

    def _uuid(self, device: ctypes.c_int) -> str:
        """Return ``GPU-…``, also for a MIG instance, whose name starts with ``MIG-`` elsewhere.

        ``cuDeviceGetUuid_v2`` (drivers since CUDA 11.4) gives a MIG instance's UUID, ``cuDeviceGetUuid`` that
        of its GPU.
        """
        raw = (ctypes.c_ubyte * 16)()
        name = "cuDeviceGetUuid_v2" if hasattr(self.library, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
        self.call(name, ctypes.byref(raw), device)
        digits = bytes(raw).hex()
        return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class NvmlLibrary(DriverLibrary):
    """NVML, whose functions write their result through the last argument."""

    def words(self, code: int) -> str:
        """Return NVML's message for a code."""
        self.library.nvmlErrorString.restype = ctypes.c_char_p
        return (self.library.nvmlErrorString(code) or b"an error").decode(errors="replace")

    def ask(self) -> Dict[str, object]:
        """Return the GPUs by PCI address with their MIG instances, the driver version and its newest CUDA."""
        try:
            self.call("nvmlInit_v2")
            count = self._integer("nvmlDeviceGetCount_v2")
        except DriverError as error:
            return {"error": error.args}
        asks: Dict[str, Question] = {
            "name": partial(self._text, "nvmlDeviceGetName"),
            "uuid": partial(self._text, "nvmlDeviceGetUUID"),
            "capability": self._capability,
            "memory_mib": self._memory,
            "free_mib": self._free,
            "instances": self._instances,
        }
        return {
            "driver": known(self._text, "nvmlSystemGetDriverVersion"),
            "cuda": known(self._integer, "nvmlSystemGetCudaDriverVersion_v2"),
            "devices": rows(count, self._gpu, asks),
        }

    def _text(self, name: str, *arguments: object) -> str:
        buffer = ctypes.create_string_buffer(_TEXT)
        self.call(name, *arguments, buffer, ctypes.c_uint(_TEXT))
        return buffer.value.decode(errors="replace")

    def _integer(self, name: str, *arguments: object) -> int:
        value = ctypes.c_int()
        self.call(name, *arguments, ctypes.byref(value))
        return value.value

    def _handle(self, name: str, *arguments: object) -> ctypes.c_void_p:
        value = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(value))
        return value

    def _gpu(self, index: int) -> ctypes.c_void_p:
        return self._handle("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index))

    def _capability(self, gpu: ctypes.c_void_p) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvmlDeviceGetCudaComputeCapability", gpu, ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def _memory(self, gpu: ctypes.c_void_p) -> Optional[int]:
        """Return the GPU's memory in MiB; ``None`` where NVML gives 0.

        For unified memory the call fails.
        """
        return self._total_and_free(gpu)[0] or None

    def _free(self, gpu: ctypes.c_void_p) -> Optional[int]:
        """Return the free memory in MiB; ``None`` where NVML gives 0 for the whole memory."""
        total, free = self._total_and_free(gpu)
        return free if total else None

    def _total_and_free(self, gpu: ctypes.c_void_p) -> Tuple[int, int]:
        total_free_used = (ctypes.c_ulonglong * 3)()
        self.call("nvmlDeviceGetMemoryInfo", gpu, ctypes.byref(total_free_used))
        return total_free_used[0] // 2**20, total_free_used[1] // 2**20

    def _instances(self, gpu: ctypes.c_void_p) -> Optional[List[Dict[str, object]]]:
        """Return the MIG instances; ``None`` where MIG is off."""
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        self.call("nvmlDeviceGetMigMode", gpu, ctypes.byref(current), ctypes.byref(pending))
        if not current.value:
            return None
        slots = known(self._integer, "nvmlDeviceGetMaxMigDeviceCount", gpu)
        by_slot = "nvmlDeviceGetMigDeviceHandleByIndex"
        instances = [
            known(self._handle, by_slot, gpu, ctypes.c_uint(slot))
            for slot in range(slots if isinstance(slots, int) else 0)
        ]
        uuid = partial(self._text, "nvmlDeviceGetUUID")
        asks: Dict[str, Question] = {"uuid": uuid, "memory_mib": self._memory}
        return [_row(instance, asks) for instance in instances if instance is not None]


DRIVERS: Mapping[str, Type[DriverLibrary]] = {"NVML": NvmlLibrary, "libcuda": CudaLibrary}


def load(names: Sequence[str]) -> ctypes.CDLL:
    """Return the first library of ``names`` that is found.

    Raises ``FileNotFoundError`` where none is found, ``OSError`` where the library cannot be loaded.
    """
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:  # noqa: PERF203 a handful of names
            if not absent(name, str(error)):
                raise OSError(str(error)) from error
    raise FileNotFoundError(f"none of {', '.join(names)} is there")


def absent(name: str, reason: str) -> bool:
    """Return whether the loader did not find ``name`` itself; false where it lacks a dependency."""
    about = name in reason and "needed by" not in reason
    return about and ("No such file" in reason or "Could not find module" in reason)


def answer(library: str, names: Sequence[str]) -> Dict[str, object]:
    """Return the library's answer, or the reason for none: ``missing``, ``unloadable``, ``error``."""
    try:
        loaded = load(names)
    except FileNotFoundError as error:
        return {"missing": str(error)}
    except OSError as error:
        return {"unloadable": str(error)}
    return DRIVERS[library](loaded).ask()


def main(library: str, *names: str, longest: float = LONGEST) -> None:
    """Print the answer on a line of its own."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, longest)
    print(f"\n{json.dumps(answer(library, names))}")  # noqa: T201 the parent reads that line


if __name__ == "__main__":
    main(*sys.argv[1:])
