"""This module unpacks all images of a file, compares them with their headers, and finds kernels and stubs.

A cubin is an ELF file: its symbol table has the functions, and a bit of ``st_other`` marks kernels (LLVM's
``llvm/BinaryFormat/ELF.h``, ``STO_CUDA_ENTRY``). PTX is text (NVIDIA's PTX ISA, "Directives").

A compiler that has nothing to compile for an architecture (``#if __CUDA_ARCH__ >= 800`` around a body) makes
a *stub*: code that sets its stack pointer and exits, or traps, while the same container holds more code of
the kernel for another architecture. A kernel that does nothing on any architecture is *idle*. Instructions
are named as NVIDIA's nvdisasm 12.4 and 13.5 name them in NVRTC 12.9's code for every architecture from sm_50
on:

- Up to Pascal an instruction has 8 bytes, and a word of control bits precedes each three. The opcode is in
  the highest bits, the predicate in bits 16 to 19.
- From Volta on an instruction has 16 bytes. The opcode is in the lowest 12 bits, the predicate in bits 12 to
  15.

An instruction with the predicate ``@!PT`` has no effect; Volta's kernels begin with such a shuffle.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from builder.binary.bare_images import cubin_arch
from builder.binary.elf_headers import (
    Buffer,
    FormatError,
    Section,
    names_in,
    release_pages,
    section_headers,
)
from builder.binary.fatbin_format import BEGIN, HEADER, IMAGE, JOINED, Container, Image, Kind
from builder.binary.file_kinds import HEAD, PTX_HEAD
from builder.binary.payloads import Compression, NoDecoderError, PayloadError, unpack
from builder.facts.gpu.architectures import Arch

_FIRST_ROOM, _GROWTH = 1 << 30, 64
"""Most bytes to which a file's images may unpack: the larger of a fixed number and a number per byte of the
file. cuBLASLt 12.9 unpacks to four bytes per byte."""


class CodeTarget(NamedTuple):
    """The kind and the architecture of an image."""

    kind: Kind
    arch: Arch

    def __str__(self) -> str:
        return f"{'compute' if self.kind is Kind.PTX else 'sm'}_{self.arch}"

    def order(self) -> tuple[bool, Arch]:
        """Return the sort key: SASS before PTX, then by architecture."""
        return self.kind is Kind.PTX, self.arch


class Stub(NamedTuple):
    """A kernel, by its mangled name, that is a stub for the targets ``on`` in one container."""

    kernel: str
    on: tuple[CodeTarget, ...]
    whole: tuple[CodeTarget, ...]
    """The targets for which the same container holds the kernel's full code."""


class Damage(NamedTuple):
    """An image that differs from its header; ``offset`` is the header's in the file."""

    offset: int
    target: CodeTarget
    why: str
    packed: bool
    """Whether unpacking itself failed."""


class Gap(NamedTuple):
    """Kernels that a container lacks for one target and has for another; ``offset`` is the container's."""

    offset: int
    target: CodeTarget
    lacking: int
    held: int
    """The number of kernels that the container has for the target."""


@dataclass
class DeepReading:
    """The contents of all images of a file."""

    images: int = 0
    """Number of images that were unpacked and agree with their headers."""
    size: int = 0
    """Unpacked bytes of these images."""
    ltoir: int = 0
    """Number of images of LTO IR, which are not unpacked: only NVIDIA's linker reads them."""
    unread: int = 0
    """Number of images that this Python cannot unpack; their headers are trusted."""
    kernels: dict[CodeTarget, int] = field(default_factory=Counter)
    """Numbers of kernels by target; a kernel in several containers counts once for each container."""
    names: dict[str, set[CodeTarget]] = field(default_factory=dict)
    """The targets of each kernel, by its mangled name."""
    unregistered: AbstractSet[str] = frozenset()
    """Kernels whose names are not in the host's code, so that no launch finds them; empty if that was not
    read."""
    stubs: list[Stub] = field(default_factory=list)
    idle: int = 0
    """Number of kernels that do nothing on any architecture whose code is read."""
    gaps: list[Gap] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)


def read_payloads(
    buffer: Buffer, containers: Sequence[Container]
) -> tuple[tuple[Container, ...], DeepReading]:
    """Return ``containers`` corrected by their payloads, and the reading of these payloads.

    Removes each image that differs from its header, or that has no kernel while another image of its
    container has one. Sets ``runnable`` of the other images by the functions found in them.
    """
    reader = _Reader(buffer)
    return tuple([reader.read(container) for container in containers]), reader.found


class _Reader:
    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._room = max(_FIRST_ROOM, _GROWTH * len(buffer))
        self._blob, self._blob_at = b"", -1
        self.found = DeepReading()

    def read(self, container: Container) -> Container:
        others: list[Image] = []
        broken: set[tuple[Kind, Arch]] = set()
        read: list[tuple[Image, Functions]] = []
        for image, at, joined in _places(self._buffer, container):
            if image.kind not in _READERS:
                self.found.ltoir += image.kind is Kind.LTOIR
                others.append(image)
                continue
            damaged = len(self.found.damages)
            try:
                read += self._functions(image, at, joined=joined)
            except NoDecoderError:
                self.found.unread += 1
                others.append(image)
            if len(self.found.damages) > damaged:
                broken.add((image.kind, image.arch))
        empty = self._compare(container, read)
        kept = [
            replace(image, runnable=bool(found.kernels or found.others))
            for image, found in read
            if _target(image) not in empty
        ]
        images = tuple(sorted([*others, *kept], key=lambda image: image.offset))
        return replace(container, images=images, broken=frozenset(broken))

    def _functions(self, image: Image, at: int, *, joined: bool) -> Iterator[tuple[Image, Functions]]:
        """Yield an image with its functions; note the damage only if the image differs from its header."""
        packed = True
        try:
            self._claim(image.unpacked_size)
            data = self._joined(image, at) if joined else self._stored(image, at)
            packed = False
            functions = _READERS[image.kind](data, image.arch)
        except PayloadError as error:
            self.found.damages.append(Damage(image.offset, _target(image), str(error), packed))
            return
        self.found.images += 1
        self.found.size += len(data)
        yield image, functions

    def _stored(self, image: Image, start: int) -> bytes:
        stored = bytes(self._buffer[start : start + image.size])
        return unpack(stored, image.compression, image.unpacked_size)

    def _joined(self, image: Image, at: int) -> bytes:
        """Return one of several images that are packed as one, with the header at ``at``.

        Raises ``PayloadError`` where they unpack to fewer bytes than its own header says.
        """
        if self._blob_at != at:
            _kind, _version, header, payload, size, *_, unpacked = IMAGE.unpack_from(self._buffer, at)
            self._claim(unpacked)
            end = at + header + (payload if image.compression is Compression.NONE else size)
            stored = bytes(self._buffer[at + header : end])
            self._blob = unpack(stored, image.compression, unpacked)
            self._blob_at = at
        _kind, _version, offset, length, *_ = IMAGE.unpack_from(self._buffer, image.offset)
        joined = self._blob[offset : offset + length]
        if len(joined) != length:
            raise PayloadError(f"it ends behind what it is packed with, at {offset + length:,}")
        return joined

    def _claim(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise PayloadError("the images before it unpack to more than any library does")

    def _compare(
        self, container: Container, read: Iterable[tuple[Image, Functions]]
    ) -> frozenset[CodeTarget]:
        """Note a container's kernels, gaps and stubs; return its targets that have none of the kernels."""
        held: dict[CodeTarget, dict[str, bool | None]] = {}
        for image, found in read:
            mine = held.setdefault(_target(image), {})
            for name, stub in found.kernels.items():
                mine[name] = stub and mine.get(name, True)
        every = dict.fromkeys(name for mine in held.values() for name in mine)
        for target, mine in held.items():
            self.found.kernels[target] += len(mine)
            if len(mine) < len(every):
                self.found.gaps.append(Gap(container.offset, target, len(every) - len(mine), len(mine)))
        for name in every:
            on = {target: mine[name] for target, mine in held.items() if name in mine}
            self.found.names.setdefault(name, set()).update(on)
            self._note_stub(name, {target: stub for target, stub in on.items() if stub is not None})
        return frozenset(target for target, mine in held.items() if every and not mine)

    def _note_stub(self, name: str, on: Mapping[CodeTarget, bool]) -> None:
        if any(on.values()):
            more = tuple(sorted((target for target, stub in on.items() if not stub), key=CodeTarget.order))
            stubs = tuple(sorted((target for target, stub in on.items() if stub), key=CodeTarget.order))
            self.found.idle += not more
            self.found.stubs += [Stub(name, stubs, more)] if more else []


def _places(buffer: Buffer, container: Container) -> Iterator[tuple[Image, int, bool]]:
    """Yield each image of a container with the offset of its stored bytes, and whether it is joined.

    For images that are packed as one, the offset is that of their common header. The memory pages of an image
    are released after the caller has processed it.
    """
    if bytes(buffer[container.offset : container.offset + len(BEGIN)]) != BEGIN:
        (image,) = container.images  # a bare image
        yield image, image.offset, False
        release_pages(buffer, image.offset, image.offset + image.size)
        return
    at, images = container.offset + HEADER.size, iter(container.images)
    for image in images:
        kind, _version, header, payload, *_ = IMAGE.unpack_from(buffer, at)
        if kind == JOINED:
            (count,) = struct.unpack_from("<I", buffer, at + IMAGE.size)
            for one in (image, *islice(images, count - 1)):
                yield one, at, True
        else:
            yield image, at + header, False
        release_pages(buffer, at, at + header + payload)
        at += header + payload


def _target(image: Image) -> CodeTarget:
    return CodeTarget(image.kind, image.arch)


_MANGLED = b"_Z"

_READ_ONLY = ".rodata"


def unregistered(buffer: Buffer, sections: Sequence[Section], kernels: Iterable[str]) -> frozenset[str]:
    """Return those of ``kernels`` whose mangled names do not occur as strings in a library's read-only data.

    Names that are not mangled (``extern "C"``) are left out. Empty for a library without read-only data.
    """
    data = [section for section in sections if section.name.startswith(_READ_ONLY)]
    if not data:
        return frozenset()
    asked = {kernel for kernel in kernels if kernel.startswith(_MANGLED.decode())}
    for section in data:
        asked.difference_update(_mangled_strings(buffer, section.offset, section.offset + section.size))
    return frozenset(asked)


def _mangled_strings(buffer: Buffer, start: int, end: int) -> Iterator[str]:
    """Yield the ends of strings from their first ``_Z`` on, because a linker merges strings by their ends."""
    while (start := buffer.find(_MANGLED, start, end)) != -1:
        stop = buffer.find(b"\0", start, end)
        if stop == -1:
            return
        yield bytes(buffer[start:stop]).decode(errors="replace")
        start = stop


CUBIN = b"\x7fELF\x02\x01\x01"

_CUDA = 190

_SYMBOL = struct.Struct("<IBBHQQ")

_SYMBOLS, _FUNCTION, _KERNEL = 2, 2, 0x10
"""SHT_SYMTAB, STT_FUNC, and the bit of ``st_other`` that marks a kernel."""

_WITHOUT_BYTES = frozenset([0, 8, 0x7000_0007, 0x7000_0009, 0x7000_000A, 0x7000_0015])
"""Types of sections without bytes in the file: SHT_NULL, SHT_NOBITS, and those that cuobjdump calls
CUDA_GLOBAL, CUDA_LOCAL, CUDA_SHARED and CUDA_SHARED_RESERVED, which are the GPU's memory and stand in
relocatable cubins."""

_NAMES_FOR_A_BYTE = 8


class Functions(NamedTuple):
    """The functions in one image."""

    kernels: Mapping[str, bool | None]
    """Whether each kernel is a stub, by its mangled name; ``None`` where that is not known."""
    others: bool
    """Whether the image holds a device function that is no kernel; always false for PTX with a kernel."""


def of_cubin(data: bytes, arch: Arch) -> Functions:
    """Return the functions of a cubin whose image header names ``arch``.

    Raises ``PayloadError`` unless ``data`` is a whole cubin for an architecture of that number.
    """
    if not data.startswith(CUBIN) or data[18:20] != _CUDA.to_bytes(2, "little"):
        raise PayloadError("no cubin: it does not begin like an ELF file for CUDA")
    try:
        target = cubin_arch(data, 0, len(data))
        if target.number != arch.number:  # the suffix is often missing in a cubin's flags
            raise PayloadError(f"its cubin is for sm_{target.number}, its header says sm_{arch}")
        return _symbols(data, _sections(data), arch)
    except (FormatError, struct.error) as error:
        raise PayloadError(f"no whole cubin: {error}") from error


_Section = tuple[int, ...]
"""A section header: name, type, flags, address, offset, size, link, info, alignment, size of an entry."""


def _sections(data: bytes) -> list[_Section]:
    if not any(data[40:48]):  # no table of sections
        return []
    sections, _names = section_headers(data)
    for _name, kind, _flags, _address, offset, size, *_rest in sections:
        if kind not in _WITHOUT_BYTES and offset + size > len(data):
            raise PayloadError("no whole cubin: a section lies behind its end")
    return sections


def _symbols(data: bytes, sections: list[_Section], arch: Arch) -> Functions:
    tables = [section for section in sections if section[1] == _SYMBOLS]
    if len(tables) > 1:
        raise PayloadError("no whole cubin: two symbol tables")
    entries = [entry for table in tables for entry in _functions(data, table) if entry[3] < len(sections)]
    kernels = [entry for entry in entries if entry[2] & _KERNEL]
    if not kernels:
        return Functions({}, bool(entries))
    link = tables[0][6]
    if link >= len(sections):
        raise PayloadError("no whole cubin: its symbols have no names")
    strings = range(sections[link][4], sections[link][4] + sections[link][5])
    names = names_in(data, strings, (entry[0] for entry in kernels), most=_NAMES_FOR_A_BYTE * len(data))
    kernels_by_name = {names[entry[0]]: is_stub(_body(data, sections, entry), arch) for entry in kernels}
    return Functions(kernels_by_name, len(entries) > len(kernels))


def _functions(data: bytes, table: _Section) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Yield the symbols of defined functions: name's offset, info, other, section's index, value, size."""
    start, size = table[4], table[5] // _SYMBOL.size * _SYMBOL.size
    for entry in _SYMBOL.iter_unpack(data[start : start + size]):
        if entry[1] & 15 == _FUNCTION and entry[3]:
            yield entry


def _body(data: bytes, sections: list[_Section], entry: tuple[int, ...]) -> bytes:
    _name, _info, _other, index, value, size = entry
    section = sections[index]
    if section[1] in _WITHOUT_BYTES or value + size > section[5]:
        raise PayloadError("no whole cubin: a kernel lies outside of its section")
    return data[section[4] + value : section[4] + value + size]


_ENTRY = re.compile(rb"\.entry\s+([\w$%]+)")

_FUNC = re.compile(rb"(\.extern\s+)?\.func\b")

_COMMENT = re.compile(rb"//[^\n]*|(?s:/\*.*?(?:\*/|\Z))|\"[^\"\n]*\"")
"""A comment or a text in quotation marks. A comment without an end takes the rest, so that the search for its
end is not repeated from every later beginning."""

_IDLE = re.compile(
    rb"\{\s*(?:(?://[^\n]*\n|\.loc\s[^\n]*\n|\.pragma\s[^;\n]*;|\$\w+:|ret;|exit;|trap;|brkpt;|bra\s[^;\n]*;)\s*)*\}"
)
"""A kernel's body that only returns or traps."""

_PARAMETERS, _BODY = 1 << 14, 1 << 10
"""Most bytes between a kernel's name and its body, and most bytes of an idle body."""


def of_ptx(data: bytes, arch: Arch) -> Functions:
    """Return the functions of PTX whose image header names ``arch``.

    Raises ``PayloadError`` unless ``data`` is whole PTX for that architecture.
    """
    text = data.rstrip(b"\0")
    head = PTX_HEAD.match(text[:HEAD])
    if head is None:
        raise PayloadError("no PTX: .version and .target do not stand at its beginning")
    target = Arch.parse(head[3].decode())
    if target != arch:
        raise PayloadError(f"its PTX is for sm_{target}, its header says {arch}")
    if b"\0" in text:
        raise PayloadError("no whole PTX: zeros stand in its text")
    if not _is_paired(text) and not _is_paired(_COMMENT.sub(b"", text)):
        raise PayloadError("no whole PTX: its braces do not pair")
    kernels = {
        entry[1].decode(): _returns(text, entry.end())
        for entry in _ENTRY.finditer(text)
        if not _in_comment(text, entry.start())
    }
    others = not kernels and any(not target[1] for target in _FUNC.finditer(text))
    return Functions(kernels, others)


def _is_paired(text: bytes) -> bool:
    return text.count(b"{") == text.count(b"}")


def _in_comment(text: bytes, at: int) -> bool:
    first = max(0, at - _PARAMETERS)
    begin = max(text.rfind(b"\n", first, at), first)
    return b"//" in text[begin:at]


def _returns(text: bytes, at: int) -> bool:
    begin = text.find(b"{", at, at + _PARAMETERS)
    return begin != -1 and _IDLE.match(text, begin, begin + _BODY) is not None


_FIRST, _VOLTA = 5, 7

_GROUP, _PAIRS = struct.Struct("<8x3Q"), struct.Struct("<Q8x")
"""Code layouts: control bits and three instructions up to Pascal; an instruction and its control bits."""

_OPCODE = 0xFFF
"""Mask of the opcode in the lower half of an instruction of 16 bytes."""

_NEVER = 15
"""The predicate ``@!PT``."""

_IDLE_OLD = {0xE30, 0xE24, 0xE3A, 0x50B}
"""Opcodes up to Pascal of EXIT, BRA, BPT and NOP, in the highest 12 bits."""

_IDLE_NEW = {0x94D, 0x947, 0x95C, 0x918}
"""Opcodes from Volta on of EXIT, BRA, BPT and NOP, in the lowest 12 bits."""

_ORIN, _ORIN_BEGINS = 87, {0xC0C, 0x956, 0xF55, 0x882}
"""Opcodes of ISETP, two BMOV and UMOV, with which each kernel for Jetson Orin begins. They only change
registers."""

_STACK_OLD = (0x4C98, 0x01)
"""``MOV R1, c[0x0][…]`` up to Pascal: the highest 16 bits, and the register in the lowest 8."""

_STACK = {0xA02, 0xB82}
"""Opcodes of ``MOV`` and ``LDC``, which set the stack pointer if their register, bits 16 to 23, is R1."""

_STACK_POINTER = 1

_LONGEST = 1 << 12
"""Most bytes of a body that is examined; a compiler's stub has 256 at most."""


def is_stub(body: bytes, arch: Arch) -> bool | None:
    """Return whether a kernel's ``body`` only exits or traps; ``None`` for short code from before Maxwell."""
    if not body or len(body) > _LONGEST:
        return False
    if arch.major < _FIRST:
        return None
    form, idle = (_PAIRS, _is_idle) if arch.major >= _VOLTA else (_GROUP, _is_idle_old)
    instructions = body[: len(body) // form.size * form.size]
    begins = _ORIN_BEGINS if arch.number == _ORIN else ()
    words = (word for group in form.iter_unpack(instructions) for word in group)
    return all(idle(word) or word & _OPCODE in begins for word in words)


def _is_idle(word: int) -> bool:
    opcode = word & _OPCODE
    if opcode in _IDLE_NEW or word >> 12 & 15 == _NEVER:
        return True
    return opcode in _STACK and word >> 16 & 0xFF == _STACK_POINTER


def _is_idle_old(word: int) -> bool:
    if word >> 52 in _IDLE_OLD or word >> 16 & 15 == _NEVER:
        return True
    return (word >> 48, word & 0xFF) == _STACK_OLD


_READERS = {Kind.SASS: of_cubin, Kind.PTX: of_ptx}
