"""Seeds of fuzzing: whole files, with the offsets of the headers and numbers that readers use."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tests.support.factories.archives_of_objects import ar, as_object
from tests.support.factories.binaries import (
    BLACKWELL,
    LTOIR,
    LZ4,
    PTX,
    SASS,
    UNDEFINED,
    ZSTD,
    A,
    F,
    Row,
    container,
    elf,
    empty_cubin,
    image,
    joined,
    linked,
    relocatable,
    sass,
)
from tests.support.factories.cubins import ADDS, RETURNS, cubin, ptx_image, sass_image, stub, work
from tests.support.factories.pe import linked_pe, pe

_ELF = ((16, 2), (18, 2), (32, 8), (40, 8), (54, 2), (56, 2), (58, 2), (60, 2), (62, 2))
_SEGMENT = ((0, 4), (4, 4), (8, 8), (32, 8), (40, 8), (48, 8))
_SECTION = ((0, 4), (4, 4), (8, 8), (24, 8), (32, 8), (40, 4), (44, 4))
_CONTAINER = ((0, 4), (4, 2), (6, 2), (8, 8))
_IMAGE = ((0, 2), (2, 2), (4, 4), (8, 8), (16, 4), (28, 4), (40, 8), (56, 8))
_PE = ((4, 2), (6, 2), (20, 2), (24, 2), (48, 8), (132, 4), (136, 4), (144, 4), (240, 4))
"""Fields of a PE header: machine, sections, optional header's size and magic number, base, directories."""

_PE_SECTION = ((0, 8), (8, 4), (12, 4), (16, 4), (20, 4), (36, 4))
_MAGIC = bytes.fromhex("50ed55ba01001000")
_WORDS = {6: 8, 7: 4, 11: 4, 0x6FFFFFFD: 4, 0x6FFFFFFE: 4, 0x6FFFFFFF: 2}
"""Bytes of a word by section type: dynamic, notes, symbols, versions defined, needed and of symbols."""

Field = tuple[int, int]
"""Offset and width in bytes of a number or header."""


@dataclass(frozen=True)
class Seed:
    """A whole file that mutations begin with."""

    data: bytes

    @cached_property
    def headers(self) -> tuple[Field, ...]:
        """The headers of sections, containers and images; without any, the first half of the file."""
        sections = ((at, 64) for at in _section_headers(self.data))
        containers = ((at, 16) for at in _containers(self.data))
        images = ((at, 64) for at in _images(self.data))
        tables = ((at, 40) for at in _pe_sections(self.data))
        return (*sections, *containers, *images, *tables) or ((0, len(self.data) // 2),)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The numbers in headers and tables; without any, all words of eight bytes."""
        return (
            *(_ELF if self.data.startswith(b"\x7fELF") else ()),
            *_below(_program_headers(self.data), _SEGMENT),
            *_below(_section_headers(self.data), _SECTION),
            *_below(_containers(self.data), _CONTAINER),
            *_below(_images(self.data), _IMAGE),
            *_words(self.data),
            *_below(_pe_headers(self.data), _PE),
            *_below(_pe_sections(self.data), _PE_SECTION),
        ) or tuple((at, 8) for at in range(0, len(self.data) - 8, 8))


def synthetic() -> tuple[Seed, ...]:
    """Return seeds of the factories, which follow published formats: fatbins, libraries and other kinds."""
    packs = container(
        image(SASS, 60),
        image(SASS, 90, A | LZ4, payload=40, packed=33),
        image(SASS, 120, F | BLACKWELL | ZSTD, header=96),
        image(PTX, 90, LZ4, header=80),
        image(LTOIR, 50, 0x10000 | LZ4),
    )
    listed, hidden = sass(50, 60) + bytes(24) + packs, bytes(8) + sass(70) + b"\x01" * 48 + packs
    library = elf(
        {".text": _MAGIC * 3, ".nv_fatbin": listed, "__nv_relfatbin": sass(80), ".ldata": hidden},
        soname="libdemo.so.1",
        needed=("libcudart.so.12", "libc.so.6"),
        runpath="$ORIGIN",
        versions={"libc.so.6": ("GLIBC_2.17", "GLIBC_2.9"), "libstdc++.so.6": ("GLIBCXX_3.4.9",)},
    )
    plain = (
        elf({".data": hidden + container(joined(image(SASS, 80), image(SASS, 90)))}),
        elf(needed=("libc.so.6",)),
        relocatable(sass(80), packs, sass(90)),
    )
    stamped = _stamped()
    crowded = (_crowded(plain[0]), _crowded(stamped[0]))
    whole = (packs, listed, library, *plain, *stamped, *crowded, _with_symbols(), *_other_kinds(listed))
    return tuple(map(Seed, whole))


def _other_kinds(code: bytes) -> tuple[bytes, ...]:
    """Return DLLs, an object, a static library, cubins, PTX and containers of kernels."""
    unit = as_object(elf({".nv_fatbin": code, "__nv_relfatbin": sass(80)}))
    sections = {".text": _MAGIC * 3, ".nv_fatbin": code, ".data": bytes(8) + sass(70)}
    dll = pe(sections, soname="demo.dll", needed=("cudart64_12.dll",), delayed=("cudnn64_9.dll",))
    ptx = b"// made\n.version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry scale() { ret; }\n"
    members = {"a.o": unit, "a_name_that_is_long.o": unit, "k.ptx": ptx, "odd": bytes(8) + sass(50)}
    forwarding = pe(sections, soname="demo.dll", forwards=("cudnn_ops64_9.cudnnCreate", "b.#1"))
    kernels = container(
        sass_image(52, {"scale": stub(52), "add": work(52)}),
        sass_image(80, {"scale": work(80), "add": work(80)}),
        ptx_image(80, {"scale": ADDS, "add": RETURNS}),
    )
    whole = joined(sass_image(52, {"scale": stub(52)}), sass_image(80, {"scale": work(80)}))
    bare = cubin(80, {"scale": work(80)}, ["helper"])
    raw = as_object(elf({".rodata.a": bare + ptx, ".nv_fatbin": kernels}))
    known = dll, linked_pe(sass(80), sass(80)), unit, ar(members), empty_cubin(80)[64:], ptx
    return (*known, forwarding, kernels + container(whole), bare, ar({"raw.o": raw}))


def _with_symbols() -> bytes:
    """Return a provider that exports a symbol and needs two, one of them with a version."""
    rows = (Row("GetProvider"), Row("cublasCreate_v2", UNDEFINED, 2), Row("Provider_GetHost", UNDEFINED))
    return linked(*rows, needed=("libcublas.so.12",), asked={"libcublas.so.12": {2: "libcublas.so.12"}})


def _stamped() -> tuple[bytes, ...]:
    """Return libraries with a version, one for each way in which the reader finds versions."""
    numbers = {"cudnn_ops_version": (".rodata", 4), "cudnn_ops_infer_version": (".rodata", 8)}
    return (
        elf({".rodata": b"\x00Delete\x001.23.2\x00\x001.23.2\x00", ".nv_fatbin": sass(60)}),
        elf({".rodata": struct.pack("<III", 7, 0x090A02, 0x090A02)}, symbols=numbers),
        elf({".rodata": b"\x00libnvrtc-builtins.so.12.9\x00"}),
        elf(defines=("libonnxruntime.so.1", "VERS_1.23.2")),
    )


def _crowded(library: bytes) -> bytes:
    """Return the library with 30 further headers for the bytes of each section of plain data."""
    headers = [library[at : at + 64] for at in _section_headers(library)]
    more = [header for header in headers if header[4:8] == b"\1\0\0\0"] * 30
    count = struct.pack("<H", len(headers) + len(more))
    return library[:60] + count + library[62:] + b"".join(more)


def _below(offsets: Iterable[int], fields: Iterable[Field]) -> Iterator[Field]:
    yield from ((at + offset, width) for at in offsets for offset, width in fields)


def _program_headers(data: bytes) -> range:
    if not data.startswith(b"\x7fELF"):
        return range(0)
    (table,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    return range(table, table + count * 56, 56)


def _section_headers(data: bytes) -> range:
    if not data.startswith(b"\x7fELF"):
        return range(0)
    (table,), (count,) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<H", data, 60)
    return range(table, table + count * 64, 64)


def _pe_headers(data: bytes) -> tuple[int, ...]:
    return struct.unpack_from("<I", data, 60) if data.startswith(b"MZ") else ()


def _pe_sections(data: bytes) -> Iterator[int]:
    for at in _pe_headers(data):
        count, size = struct.unpack_from("<6xH12xH", data, at)
        yield from range(at + 24 + size, at + 24 + size + 40 * count, 40)


def _containers(data: bytes) -> Iterator[int]:
    """Yield the offsets of containers; a magic number that another one follows has no size and is skipped."""
    at = data.find(_MAGIC)
    while at >= 0:
        if data[at + 8 : at + 16] != _MAGIC and at + 16 <= len(data):
            yield at
        at = data.find(_MAGIC, at + 8)


def _images(data: bytes) -> Iterator[int]:
    for start in _containers(data):
        at, end = start + 16, start + 16 + int(struct.unpack_from("<Q", data, start + 8)[0])
        while at < end <= len(data):
            yield at
            at += sum(struct.unpack_from("<4xIQ", data, at))


def _words(data: bytes) -> Iterator[Field]:
    for header in _section_headers(data):
        kind, start, size = struct.unpack_from("<4xI16xQQ", data, header)
        width = _WORDS.get(kind)
        if width:
            yield from ((at, width) for at in range(start, start + size, width))
