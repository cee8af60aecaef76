"""Factories of unpacked official wheels without CUDA, whose libraries are true headers and a few bytes.

Headers are written by hand from Microsoft's "PE Format" and Apple's ``mach-o/loader.h``. The lists of files
are those of ``unzip -l`` for the real wheels of ONNX Runtime 1.21, 1.24 and 1.30.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.factories.binaries import elf
from tests.support.factories.packages import lay_wheel
from tests.support.tables import data_text

WHEELS: Mapping[str, Sequence[str]] = json.loads(data_text("formats/wheels-without-cuda.json"))
"""Names of the files in ``onnxruntime/capi`` by the wheel's spec."""

COREML = b"/System/Library/Frameworks/CoreML.framework/Versions/A/CoreML\0"


def dll(*texts: bytes, machine: int = 0x8664, characteristics: int = 0x2022) -> bytes:
    """Return the headers of a Windows DLL, followed by texts."""
    dos = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x80)
    coff = struct.pack("<HHIIIHH", machine, 6, 0, 0, 0, 240, characteristics)
    headers = dos.ljust(0x80, b"\0") + b"PE\0\0" + coff + struct.pack("<H", 0x20B)
    return headers + bytes(238) + b"\0".join((b"", *texts, b""))


def dylib(*texts: bytes, processor: int = 0x0100000C, kind: int = 6, magic: int = 0xFEEDFACF) -> bytes:
    """Return the header of a macOS dynamic library, followed by texts."""
    return struct.pack("<IIIIIIII", magic, processor, 0, kind, 0, 0, 0, 0) + b"\0".join((b"", *texts, b""))


def arm64(library: bytes, kind: int = 3) -> bytes:
    """Return the ELF file with the machine aarch64 (183 in ``elf.h``) and the type ``kind``."""
    return library[:16] + struct.pack("<HH", kind, 183) + library[20:]


def content(name: str) -> bytes:
    """Return the bytes of the library ``name`` of a wheel."""
    if name.endswith((".dll", ".pyd")):
        return dll(b"1.24.4", b"DirectML.dll") if name == "onnxruntime.dll" else dll(name.encode())
    if name.endswith(".dylib"):
        return dylib(b"1.30.0", COREML)
    soname = "libonnxruntime.so.1" if name.endswith(".so.1.21.0") else name
    needs = {"libc.so.6": ["GLIBC_2.27"], "libstdc++.so.6": ["GLIBCXX_3.4.22"]}
    return elf({".text": name.encode()}, soname=soname, needed=list(needs), versions=needs)


def lay(folder: Path) -> None:
    """Write every wheel of ``WHEELS``, unpacked, into ``folder/<spec>``, each with its ``RECORD``."""
    for spec, names in WHEELS.items():
        files = {f"onnxruntime/capi/{name}": content(name) for name in names}
        if spec.endswith("@linux-arm64"):
            files = dict.fromkeys(files, arm64(elf({".rodata": b"\0001.21.0\0"})))
        files |= {
            f"onnxruntime/{name}": f"{spec} {name}\n".encode()
            for name in ("LICENSE", "ThirdPartyNotices.txt")
        }
        name = spec.partition("@")[0].replace("-", "_").replace("==", "-")
        lay_wheel(folder / spec, f"{name}.dist-info", files)
