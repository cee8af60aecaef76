"""The version a library carries in its own bytes. Nothing is guessed: without a mark there is no version.

What was found in ONNX Runtime 1.21.0, 1.23.2 and 1.31.1 (official, and 1.21.0 compiled here), in cuDNN 9.10.2
and 9.28.0 and in NVRTC 12.9:

- ``libonnxruntime.so.1`` defines the symbol version ``VERS_1.23.2``.
- ORT's CUDA provider holds ``1.23.2`` alone between zero bytes in ``.rodata``, and no other string like it.
- ORT's bridge and TensorRT provider hold no version.
- cuDNN's graph, ops and adv libraries export the number ``0x090A02`` as ``cudnn_graph_version`` and the like.
  Its other libraries export none: theirs lies unnamed among other numbers, if at all.
- ``libnvrtc.so.12`` holds the name of the library it opens, ``libnvrtc-builtins.so.12.9``, in ``.rodata``.
"""

from __future__ import annotations

import re
import struct
from typing import Callable, Iterator, Optional, Pattern, Sequence, Tuple

from builder.core.elf import Buffer, Elf, ElfError, Section
from builder.core.elf_sections import names_in, only, strings_of

_ORT_SYMBOLS = re.compile(r"VERS_(\d+\.\d+\.\d+)")
_ORT_STRING = re.compile(rb"\0(1\.\d{1,4}\.\d{1,4})(?=\0)")
"""ORT has been 1.x since 2019; 3.21.12 would be protobuf's."""
_NVRTC_STRING = re.compile(rb"\0libnvrtc-builtins\.so\.(\d{1,4}\.\d{1,4})(?=\0)")
_CUDNN_SYMBOL = re.compile(r"cudnn_\w+_version")

_RODATA = ".rodata"
_DYNSYM = 11
_SYMBOL_SIZE = 24
_OBJECT, _INT_SIZE = 1, 4
_MOST_SYMBOLS = 1 << 20


def stamped_version(buffer: Buffer, name: str, elf: Elf) -> Optional[str]:
    """The version in the bytes of the library of this file name, or ``None``. Raises ``ElfError``.

    ORT's and cuDNN's has three numbers, NVRTC's two.
    """
    for beginning, read in _MARKS:
        if name.startswith(beginning):
            return read(buffer, elf)
    return None


def _of_onnxruntime(buffer: Buffer, elf: Elf) -> Optional[str]:
    defined = [match[1] for match in map(_ORT_SYMBOLS.fullmatch, elf.defines) if match]
    return defined[0] if defined else _lone_string(buffer, elf, _ORT_STRING)


def _of_nvrtc(buffer: Buffer, elf: Elf) -> Optional[str]:
    return _lone_string(buffer, elf, _NVRTC_STRING)


def _of_cudnn(buffer: Buffer, elf: Elf) -> Optional[str]:
    numbers = {
        number for name, number in _exported_numbers(buffer, elf.sections) if _CUDNN_SYMBOL.fullmatch(name)
    }
    if len(numbers) != 1:
        return None
    (number,) = numbers
    return f"{number >> 16}.{number >> 8 & 0xFF}.{number & 0xFF}" if number else None


def _lone_string(buffer: Buffer, elf: Elf, pattern: Pattern[bytes]) -> Optional[str]:
    """The one string in ``.rodata`` that matches; ``None`` where there are several."""
    section = _rodata(elf.sections)
    if section is None:
        return None
    found: Optional[bytes] = None
    for match in pattern.finditer(buffer, section.offset, section.offset + section.size):
        if found not in (None, match[1]):
            return None
        found = match[1]
    return found.decode("ascii") if found else None


def _rodata(sections: Sequence[Section]) -> Optional[Section]:
    """A linker makes one at most; thousands over the same bytes would be searched thousands of times."""
    found = [section for section in sections if section.name == _RODATA and section.in_file]
    if len(found) > 1:
        raise ElfError(f"two sections named {_RODATA}", found[1].offset)
    return found[0] if found else None


def _exported_numbers(buffer: Buffer, sections: Sequence[Section]) -> Iterator[Tuple[str, int]]:
    """Name and value of each object of four bytes that the library exports."""
    table = only(sections, _DYNSYM)
    if table is None:
        return
    strings = strings_of(sections, table)
    count = table.size // _SYMBOL_SIZE
    if count > _MOST_SYMBOLS:
        raise ElfError(f"{count:,} dynamic symbols", table.offset)
    entries = bytes(buffer[table.offset : table.offset + count * _SYMBOL_SIZE])
    numbers = [
        (name, sections[index], address)
        for name, info, _other, index, address, size in struct.iter_unpack("<IBBHQQ", entries)
        if (info & 0xF, size) == (_OBJECT, _INT_SIZE) and 0 < index < len(sections)
    ]
    names = names_in(buffer, strings, (name for name, _section, _address in numbers))
    for name, (_offset, section, address) in zip(names, numbers):
        yield name, _number_at(buffer, section, address)


def _number_at(buffer: Buffer, section: Section, address: int) -> int:
    place = address - section.address
    if not section.in_file or not 0 <= place <= section.size - _INT_SIZE:
        return 0  # in .bss, or outside its section as in a library that was stripped badly
    (number,) = struct.unpack_from("<I", buffer, section.offset + place)
    return int(number)


_MARKS: Tuple[Tuple[str, Callable[[Buffer, Elf], Optional[str]]], ...] = (
    ("libonnxruntime", _of_onnxruntime),
    ("libcudnn", _of_cudnn),
    ("libnvrtc.", _of_nvrtc),
)
