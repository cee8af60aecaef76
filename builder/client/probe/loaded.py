"""The libraries of ONNX Runtime, CUDA and cuDNN that a process has loaded, and from where."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from typing import Iterator, Tuple

_OF_INTEREST = re.compile(
    r"(?:lib)?(?:onnxruntime|cudnn|cublas|cudart|cufft|curand|nvrtc|nvinfer)[\w.-]*\.(?:so[.\d]*|dll)"
)
"""Names of the libraries that a session on CUDA uses."""

_MOST_MODULES = 4096
_MOST_LETTERS = 1024


def loaded_libraries() -> Tuple[str, ...]:
    """Return the paths of this process's libraries, sorted; empty where the system does not tell."""
    paths = _windows_modules() if sys.platform == "win32" else mapped_files(Path("/proc/self/maps"))
    return tuple(sorted({path for path in paths if _OF_INTEREST.fullmatch(re.split(r"[/\\]", path)[-1])}))


def mapped_files(maps: Path) -> Iterator[str]:
    """Yield the files in a process's ``maps``. The sixth field of a line is a path (proc_pid_maps(5))."""
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) > 5 and fields[5].startswith("/"):  # noqa: PLR2004 the fields of that page
            yield fields[5].removesuffix(" (deleted)")


def _windows_modules() -> Iterator[str]:
    kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore] # Windows has it
    handles, needed = (ctypes.c_void_p * _MOST_MODULES)(), ctypes.c_ulong()
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    process = ctypes.c_void_p(kernel.GetCurrentProcess())
    kernel.K32EnumProcessModules(process, handles, ctypes.sizeof(handles), ctypes.byref(needed))
    for handle in handles[: needed.value // ctypes.sizeof(ctypes.c_void_p)]:
        path = ctypes.create_unicode_buffer(_MOST_LETTERS)
        if kernel.GetModuleFileNameW(ctypes.c_void_p(handle), path, _MOST_LETTERS):
            yield path.value
