"""Program for Windows' Python: it loads each DLL of a folder and prints error codes as a line of JSON.

A DLL's name has two codes, 0 for success: for a search of imports in its own folder and in Windows' folder,
and for a search in Windows' folder alone. Each load has a process of its own.
"""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

BESIDE, SYSTEM = 0x100, 0x800
"""Flags ``LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR`` and ``LOAD_LIBRARY_SEARCH_SYSTEM32`` of ``LoadLibraryExW``."""


def load(path: str, flags: int) -> int:
    if sys.platform == "win32":
        kernel = ctypes.CDLL("kernel32.dll", use_last_error=True)
        kernel.LoadLibraryExW.restype = ctypes.c_void_p
        if kernel.LoadLibraryExW(ctypes.c_wchar_p(path), None, ctypes.c_uint(flags)):
            return 0
        return ctypes.get_last_error()
    raise OSError


def asked(path: Path, flags: int) -> int:
    argv = [sys.executable, __file__, str(path), str(flags)]
    pipe = subprocess.PIPE
    return int(subprocess.run(argv, stdin=pipe, stdout=pipe, stderr=pipe, check=True).stdout)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(load(sys.argv[1], int(sys.argv[2])))  # noqa: T201 - the answer
    else:
        found = sorted(Path(sys.argv[1]).glob("*.dll"))
        print(json.dumps({path.name: [asked(path, BESIDE | SYSTEM), asked(path, SYSTEM)] for path in found}))  # noqa: T201
