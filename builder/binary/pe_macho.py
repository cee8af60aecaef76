"""Libraries for Windows, macOS and ARM: what their first bytes say, and two marks in the host library.

No loader can be asked here, so what is proved is little, and is said plainly: each file is a 64-bit dynamic
library for its platform's processor, the host library carries the version of its wheel and names what its
execution provider is made of. Sources: Microsoft's "PE Format", Apple's ``mach-o/loader.h``, ``elf.h``; the
marks were found in the official wheels of 1.23.0 and 1.23.2.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from builder.binary.elf_headers import Buffer
from builder.binary.embedded import ORT_STRING
from builder.formats.package_names import COREML, DIRECTML, LINUX_ARM64, MACOS, WINDOWS

_DOS, _PE_AT = b"MZ", 0x3C

_PE = "<IH16xHH"
"""Signature; of the COFF header the machine and the characteristics; the optional header's magic number."""

_PE_SIGNATURE, _PE_X64, _PE_DLL, _PE32_PLUS = 0x4550, 0x8664, 0x2000, 0x20B

_MACHO = "<II4xI"
"""Magic number, processor, kind of file."""

_MACHO_64, _MACHO_ARM64, _MACHO_DYLIB = 0xFEEDFACF, 0x0100000C, 6

_ELF = "<IBB10xHH"
"""Magic number, class, byte order; kind of file, processor."""

_ELF_ARM64 = (0x464C457F, 2, 1, 3, 183)
"""64 bits, little-endian, ET_DYN, EM_AARCH64."""

LINKS = {DIRECTML: b"DirectML.dll", COREML: b"/System/Library/Frameworks/CoreML.framework/"}
"""What a host library loads that has this provider in it, as the name stands in its bytes."""


@dataclass(frozen=True)
class ForeignLibrary:
    """The header and the marks of one library that is not for Linux on x86-64."""

    path: str
    source: str
    """``Member.source``."""
    platform: str | None
    """The platform that its header names; ``None`` for anything but a dynamic library of one we know."""
    links: frozenset[str]
    """The execution providers whose mark stands in its bytes."""
    versions: frozenset[str]
    """What stands alone between zero bytes and looks like a version of ONNX Runtime."""


def read_foreign(path: str, source: str, buffer: Buffer) -> ForeignLibrary:
    """Look at a library's header and search all of it for the marks. Never raises."""
    whole = memoryview(buffer)
    return ForeignLibrary(
        path=path,
        source=source,
        platform=_platform(buffer),
        links=frozenset(provider for provider, link in LINKS.items() if re.search(re.escape(link), whole)),
        versions=frozenset(match[1].decode() for match in ORT_STRING.finditer(whole)),
    )


def _platform(buffer: Buffer) -> str | None:
    if _is_dll(buffer):
        return WINDOWS
    if _is_dylib(buffer):
        return MACOS
    return LINUX_ARM64 if _numbers(_ELF, buffer, 0) == _ELF_ARM64 else None


def _is_dll(buffer: Buffer) -> bool:
    place = _numbers("<I", buffer, _PE_AT) if bytes(buffer[:2]) == _DOS else ()
    header = _numbers(_PE, buffer, *place) if place else ()
    if not header:
        return False
    signature, machine, characteristics, magic = header
    x64 = (signature, machine, magic) == (_PE_SIGNATURE, _PE_X64, _PE32_PLUS)
    return x64 and bool(characteristics & _PE_DLL)


def _is_dylib(buffer: Buffer) -> bool:
    return _numbers(_MACHO, buffer, 0) == (_MACHO_64, _MACHO_ARM64, _MACHO_DYLIB)


def _numbers(form: str, buffer: Buffer, at: int) -> tuple[int, ...]:
    """The numbers there; none where the buffer ends before."""
    whole = at + struct.calcsize(form) <= len(buffer)
    return struct.unpack_from(form, buffer, at) if whole else ()
