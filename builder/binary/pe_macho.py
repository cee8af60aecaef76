"""Reader of libraries for Windows, macOS and ARM: their headers, and two marks in the host library.

Such a library cannot be loaded here, so the checks prove little. Each file is a 64-bit dynamic library for
its platform's processor. The host library holds the version of its wheel and the name of a library that its
execution provider uses. Sources: Microsoft's "PE Format", Apple's ``mach-o/loader.h``, ``elf.h``; the marks
were found in the official wheels of 1.23.0 and 1.23.2.
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
"""The signature, machine and characteristics of the COFF header, the optional header's magic number."""

_PE_SIGNATURE, _PE_X64, _PE_DLL, _PE32_PLUS = 0x4550, 0x8664, 0x2000, 0x20B

_MACHO = "<II4xI"
"""Magic number, processor, kind of file."""

_MACHO_64, _MACHO_ARM64, _MACHO_DYLIB = 0xFEEDFACF, 0x0100000C, 6

_ELF = "<IBB10xHH"
"""Magic number, class, byte order; kind of file, processor."""

_ELF_ARM64 = (0x464C457F, 2, 1, 3, 183)
"""64 bits, little-endian, ET_DYN, EM_AARCH64."""

LINKS = {DIRECTML: b"DirectML.dll", COREML: b"/System/Library/Frameworks/CoreML.framework/"}
"""The library that a host library with this execution provider loads, as its bytes name it."""


@dataclass(frozen=True)
class ForeignLibrary:
    """One library that is not for Linux on x86-64: the facts from its header, and its marks."""

    path: str
    source: str
    """``Member.source``."""
    platform: str | None
    """The platform in its header; ``None`` for anything but a 64-bit dynamic library of a known platform."""
    links: frozenset[str]
    """The execution providers whose mark (``LINKS``) the library's bytes contain."""
    versions: frozenset[str]
    """The strings between zero bytes that look like a version of ONNX Runtime."""


def read_foreign(path: str, source: str, buffer: Buffer) -> ForeignLibrary:
    """Read a library's header and search all its bytes for the marks. Never raises."""
    whole = memoryview(buffer)
    return ForeignLibrary(
        path=path,
        source=source,
        platform=_platform(buffer),
        links=frozenset(provider for provider, link in LINKS.items() if re.search(re.escape(link), whole)),
        versions=frozenset(match[1].decode() for match in ORT_STRING.finditer(whole)),
    )


def _platform(buffer: Buffer) -> str | None:
    if _numbers(_ELF, buffer, 0) == _ELF_ARM64:
        return LINUX_ARM64
    if _numbers(_MACHO, buffer, 0) == (_MACHO_64, _MACHO_ARM64, _MACHO_DYLIB):
        return MACOS
    place = _numbers("<I", buffer, _PE_AT) if bytes(buffer[:2]) == _DOS else ()
    if header := _numbers(_PE, buffer, *place) if place else ():
        signature, machine, characteristics, magic = header
        if (signature, machine, magic) == (_PE_SIGNATURE, _PE_X64, _PE32_PLUS) and characteristics & _PE_DLL:
            return WINDOWS
    return None


def _numbers(form: str, buffer: Buffer, at: int) -> tuple[int, ...]:
    """Return the numbers of the struct ``form`` at offset ``at``; none where the buffer is too short."""
    whole = at + struct.calcsize(form) <= len(buffer)
    return struct.unpack_from(form, buffer, at) if whole else ()
