"""Readers of a library's version and of the names of the libraries that it opens at run time, from its bytes.

No version is guessed: a library without a version in its bytes has none here. Versions were found as follows
in ONNX Runtime 1.21.0, 1.23.2 and 1.31.1 (official, and 1.21.0 compiled here), in cuDNN 9.10.2 and 9.28.0 and
in NVRTC 12.9:

- ``libonnxruntime.so.1`` defines the symbol version ``VERS_1.23.2``.
- ORT's CUDA provider holds ``1.23.2`` alone between zero bytes in ``.rodata``, and no other string like it.
- ORT's bridge and TensorRT provider hold no version.
- cuDNN's graph, ops and adv libraries export the number ``0x090A02`` as ``cudnn_graph_version`` and the like.
  The other libraries of cuDNN export no version.
- ``libnvrtc.so.12`` holds the name of the library that it opens, ``libnvrtc-builtins.so.12.9``, in
  ``.rodata``.

No NEEDED entry names a library that is opened at run time. Only cuDNN's and NVRTC's data is searched: a
library name in their ``.rodata``, alone between zero bytes, is an argument of ``dlopen``. Names as found in
the wheels for CUDA 12.9:

- cuDNN 9.10.2: ``libcudnn.so.9`` names adv, cnn, graph and ops; its graph library engines_precompiled,
  engines_runtime_compiled, heuristic and ``libnvrtc.so.%d``; engines_precompiled ``libnvrtc.so.12``.
- cuDNN 9.28.0: the main library names ext too, and graph engines_tensor_ir; ext ``libnvrtc.so.`` and
  ``libnvrtc-builtins.so.``, to which it adds the number.
- NVRTC 12.9: ``libnvrtc-builtins.so.12.9``.

cuDNN names its own parts without their number. Names of ``libcuda`` are left out because the host provides
the driver, and so is ``libnvrtc.so``, which cuDNN 9.10 tries second and no run-time wheel holds.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from re import Match, Pattern

from builder.binary.elf import DYNSYM, Elf, symbol_entries
from builder.binary.elf_headers import (
    Buffer,
    FormatError,
    Section,
    names_in,
    single_section,
    stretches,
    strings_of,
)
from builder.binary.library_names import is_provider
from builder.binary.pe import Pe

_ORT_SYMBOLS = re.compile(r"VERS_(\d+\.\d+\.\d+)")

ORT_STRING = re.compile(rb"\0(1\.\d{1,4}\.\d{1,4})(?=\0)")
"""A version of ORT, alone between zero bytes. ORT is 1.x since 2019; ``3.21.12`` would be protobuf's."""

_NVRTC_STRING = re.compile(rb"\0libnvrtc-builtins\.so\.(\d{1,4}\.\d{1,4})(?=\0)")

_CUDNN_SYMBOL = re.compile(r"cudnn_\w+_version")

_OBJECT, _INT_SIZE = 1, 4

_RODATA, _RDATA = ".rodata", ".rdata"
"""Names of the section with constants, in a library for Linux and in a DLL."""

_LONGEST = 128
"""Most bytes that a pattern of this module matches, the zero bytes around a name included."""


def embedded_version(buffer: Buffer, name: str, library: Elf | Pe) -> str | None:
    """Return the version in the bytes of the library with this file name; ``None`` where there is none.

    A version of ORT or cuDNN has three numbers, one of NVRTC two. Raises ``FormatError`` for a damaged file.
    """
    if isinstance(library, Pe):
        return _lone_string(buffer, library.sections, _RDATA, ORT_STRING) if is_provider(name) else None
    if name.startswith("libonnxruntime"):
        return version_of_symbols(library) or _lone_string(buffer, library.sections, _RODATA, ORT_STRING)
    if name.startswith("libnvrtc."):
        return _lone_string(buffer, library.sections, _RODATA, _NVRTC_STRING)
    return _of_cudnn(buffer, library) if name.startswith("libcudnn") else None


def version_of_symbols(library: Elf | Pe) -> str | None:
    """Return the version of ORT of a library's symbols; ``None`` where they have none, as in DLLs."""
    names = library.defines if isinstance(library, Elf) else ()
    return next((match[1] for match in map(_ORT_SYMBOLS.fullmatch, names) if match), None)


def oldest_host(buffer: Buffer, library: Elf | Pe) -> str | None:
    """Return the oldest version of ORT whose host registers a plug-in; ``None`` where the bytes have none.

    A plug-in has that version as a constant and compares it with the host's (``cuda_plugin_ep.cc``); beside
    it there may be the plug-in's own version, which is not older.
    """
    section = _constants(library.sections, _RDATA if isinstance(library, Pe) else _RODATA)
    found = {match[1].decode() for match in _matches(ORT_STRING, buffer, section)} if section else set()
    return min(found, key=lambda text: [int(part) for part in text.split(".")], default=None)


def _of_cudnn(buffer: Buffer, elf: Elf) -> str | None:
    exported = _exported_numbers(buffer, elf.sections)
    numbers = {number for name, number in exported if number and _CUDNN_SYMBOL.fullmatch(name)}
    if len(numbers) != 1:
        return None
    (number,) = numbers
    return f"{number >> 16}.{number >> 8 & 0xFF}.{number & 0xFF}"


def _lone_string(
    buffer: Buffer, sections: Sequence[Section], constants: str, pattern: Pattern[bytes]
) -> str | None:
    """Return the string in the constants that matches; ``None`` where none or different ones match."""
    section = _constants(sections, constants)
    if section is None:
        return None
    text: bytes | None = None
    for match in _matches(pattern, buffer, section):
        if text not in (None, match[1]):
            return None
        text = match[1]
    return text.decode() if text else None


def _matches(pattern: Pattern[bytes], buffer: Buffer, section: Section) -> Iterator[Match[bytes]]:
    """Yield the matches in a section; a match at the border of two stretches may be yielded twice."""
    end = section.offset + section.size
    for places in stretches(buffer, section.offset, end):
        begin = max(section.offset, places.start - 1)  # the zero byte before a name is part of the match
        yield from pattern.finditer(buffer, begin, min(end, places.stop + _LONGEST))


def _constants(sections: Sequence[Section], name: str) -> Section | None:
    """Return the section of this name; ``None`` where there is none. Raises ``FormatError`` for several.

    A linker makes one at most. Thousands of sections over the same bytes would all be searched.
    """
    named = [section for section in sections if section.name == name and section.in_file]
    if len(named) > 1:
        raise FormatError(f"two sections named {name}", named[1].offset)
    return named[0] if named else None


def _exported_numbers(buffer: Buffer, sections: Sequence[Section]) -> Iterator[tuple[str, int]]:
    """Yield the name and value of each data symbol of four bytes; 0 where the file holds no value."""
    table = single_section(sections, DYNSYM)
    if table is None:
        return
    numbers = [
        (name, sections[index], address)
        for name, info, _other, index, address, size in symbol_entries(buffer, table)
        if (info & 0xF, size) == (_OBJECT, _INT_SIZE) and index < len(sections)
    ]
    names = names_in(buffer, strings_of(sections, table), (name for name, _section, _address in numbers))
    for name, section, address in numbers:
        yield names[name], _number_at(buffer, section, address)


def _number_at(buffer: Buffer, section: Section, address: int) -> int:
    place = address - section.address
    if not section.in_file or not 0 <= place <= section.size - _INT_SIZE:
        return 0  # undefined, in .bss, or outside its section as in a library that was stripped badly
    (number,) = struct.unpack_from("<I", buffer, section.offset + place)
    return int(number)


_NAME = re.compile(
    rb"lib(?:cudnn_\w{1,80}\.so|nvrtc\.so\.(?:%d|\d{1,4})?|nvrtc-builtins\.so\.(?:\d{1,4}\.\d{1,4})?)\0"
)

_NAME_OF_DLL = re.compile(rb"(?:cudnn_\w{1,80}|nvrtc[\w-]{1,80})\.dll\0")

_MOST = 64
"""Most names that are read from a library; real libraries have five."""


_OPENING = (
    ("libcudnn", _RODATA, _NAME),
    ("libnvrtc.", _RODATA, _NAME),
    ("cudnn", _RDATA, _NAME_OF_DLL),
    ("nvrtc", _RDATA, _NAME_OF_DLL),
)
"""How the file name of a library that opens others begins, its section of constants, and the names in it."""


def dlopened_names(buffer: Buffer, name: str, library: Elf | Pe) -> tuple[str, ...]:
    """Return the names of libraries that the library with this file name opens at run time, sorted.

    The names are as in the bytes, without the library's own. Raises ``FormatError`` for two sections of
    constants.
    """
    for beginning, constants, pattern in _OPENING:
        if name.startswith(beginning) and (section := _constants(library.sections, constants)):
            in_data = _names_in_data(pattern, buffer, section)
            return tuple(opened for opened in in_data if opened not in {name, library.soname})
    return ()


def _names_in_data(pattern: Pattern[bytes], buffer: Buffer, section: Section) -> tuple[str, ...]:
    names: set[str] = set()
    for match in _matches(pattern, buffer, section):
        if match.start() == section.offset or buffer[match.start() - 1] == 0:  # as in cuDNN 9.10's graph
            names.add(match[0][:-1].decode())
        if len(names) == _MOST:
            break
    return tuple(sorted(names))


_STATIC = {
    "cuDNN": (b"\0cudnnCreate\0", "cudnn"),
    "cuBLAS": (b"\0cublasCreate_v2\0", "cublas"),
    "cuFFT": (b"\0cufftPlanMany\0", "cufft"),
    "cuSPARSE": (b"\0cusparseCreate\0", "cusparse"),
    "cuSOLVER": (b"\0cusolverDnCreate\0", "cusolver"),
}
"""A function of each library, and what its file's name has: who needs no such file has it linked in."""


def static_libraries(buffer: Buffer, needed: Sequence[str]) -> tuple[str, ...]:
    """Return NVIDIA's libraries that are linked in, by names of functions; none in a stripped file."""
    others = [name.lower() for name in needed]
    missing = {name: row[0] for name, row in _STATIC.items() if not any(row[1] in other for other in others)}
    return tuple(name for name, function in missing.items() if _has(buffer, function))


def _has(buffer: Buffer, function: bytes) -> bool:
    pieces = stretches(buffer, 0, len(buffer))
    return any(buffer.find(function, part.start, part.stop + len(function)) != -1 for part in pieces)


_ARCHIVES = {
    b"PK\x03\x04": "a zip",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"hsqs": "a squashfs image",
    b"Rar!": "a RAR archive",
    b"MSCF": "a cabinet",
    b"\xfd7zXZ\0": "an xz stream",
    b"\xef\xbe\xad\xdeNull": "an installer's archive",
    b"PK\x05\x06": "a zip",
}
"""The first bytes of archives that self-extracting programs carry; the last is the end of a zip."""

_PYINSTALLER = b"MEI\x0c\x0b\x0a\x0b\x0e"
"""The end of PyInstaller's archive, which lies behind a program for Windows and in a section of one for Linux
(PyInstaller's ``archive/writers.py``)."""

_NEAR = 1 << 13
"""Bytes behind the last section in which an archive begins: an ELF file's table of sections is before it."""


def archive_behind(buffer: Buffer, sections: Sequence[Section]) -> str:
    """Return the kind of archive behind a file's last section; empty where there is none."""
    if _PYINSTALLER in bytes(buffer[max(0, len(buffer) - _NEAR) :]):
        return "an archive of PyInstaller"
    end = max((section.offset + section.size for section in sections if section.in_file), default=len(buffer))
    first, last = bytes(buffer[end : end + _NEAR]), bytes(buffer[max(end, len(buffer) - _NEAR) :])
    return next((kind for magic, kind in _ARCHIVES.items() if magic in first or magic in last), "")
