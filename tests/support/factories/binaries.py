"""Factories of small fatbins and ELF libraries, written by hand, and a check of what their readers refuse.

Sources: the System V ABI; for symbol versions the Linux Standard Base, "Symbol Versioning"; for wrappers of
fatbins NVIDIA's ``fatbinary_section.h``.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pytest
from backports.zstd import compress

from builder.binary.elf_headers import FormatError, read_sections

SASS, PTX, LTOIR = 2, 1, 8

RW, RWX = 6, 7

_ALLOC_EXECINSTR = 0x6

LZ4, ZSTD, A, F, BLACKWELL = 0x2000, 0x8000, 0x100000, 0x200000, 0x1000000


def image(
    kind: int,
    arch: int,
    flags: int = 0,
    *,
    payload: int = 24,
    packed: int = 20,
    header: int = 64,
    isa: tuple[int, int] = (1, 7),
) -> bytes:
    """Return an image with ``payload`` bytes of padding as its content.

    ``header``: size of its header, 64 to 184 bytes in real files. ``isa``: version of PTX, major and minor.
    """
    head = struct.pack(
        "<HHIQIIHHIIIQQQ",
        *(kind, 0x0101, header, payload, packed if flags & (LZ4 | ZSTD) else 0, 0, *reversed(isa), arch),
        *(0, 0, flags | 0x11, 0, 4096 if flags & (LZ4 | ZSTD) else 0),
    )
    return head.ljust(header, b"\x40") + b"\xcc" * payload


def image_of(kind: int, arch: int, stored: bytes, flags: int = 0) -> bytes:
    """Return an image whose stored content is ``stored``, already compressed as ``flags`` say."""
    return image(kind, arch, flags, payload=len(stored), packed=len(stored))[:64] + stored


def empty_cubin(arch: int) -> bytes:
    """Return the image of a unit without kernels: a cubin without a section ``.text.<kernel>``."""
    return image_of(SASS, arch, b"\x7fELF" + bytes(60) + b"\0.shstrtab\0.strtab\0.symtab\0.nv.info\0")


def joined(*images: bytes, each: int = 64) -> bytes:
    """Return one image that joins images of ``image_of``, in the form of CUDA 13.5's ``fatbinary -concat``.

    ``each``: bytes of an entry in the table of the joined image, 64 for cubins and 80 for PTX.
    """
    table, whole = b"", b""
    for one in images:
        table += (one[:4] + struct.pack("<I", len(whole)) + one[8:64]).ljust(each, b"\0")
        whole += one[64:]
    stored = compress(whole)
    header = 64 + 8 + len(table)
    head = image(0x100, 0, ZSTD, payload=len(stored), packed=len(stored), header=header)[:64]
    return head + struct.pack("<II", len(images), len(table) + 8) + table + stored


def container(*images: bytes) -> bytes:
    body = b"".join(images)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def sass(*arches: int) -> bytes:
    """Return a container with SASS for each of ``arches``."""
    return container(*(image(SASS, arch, LZ4) for arch in arches))


def elf(
    sections: Mapping[str, bytes] | None = None,
    *,
    soname: str | None = None,
    needed: Sequence[str] = (),
    runpath: str | None = None,
    rpath: str | None = None,
    versions: Mapping[str, Sequence[str]] | None = None,
    defines: Sequence[str] = (),
    symbols: Mapping[str, tuple[str, int]] | None = None,
    stack: int | None = RW,
) -> bytes:
    """Return an x86-64 shared library with these sections and this dynamic section, and without code.

    ``versions``: symbol versions that the library needs, by library. ``defines``: symbol versions that the
    library defines. ``symbols``: objects of four bytes by name, each with its section and its offset there.
    ``stack``: the flags of ``PT_GNU_STACK``; ``None`` for a library without this segment.
    """
    strings = _Strings()
    dynamic = _dynamic([*((1, name) for name in needed), (14, soname), (15, rpath), (29, runpath)], strings)
    asked = {library: [(2, name) for name in names] for library, names in (versions or {}).items()}
    verneed = _verneed(asked, strings)
    plan = [("", 0, b"", 0), (".dynstr", 3, strings.blob, 0), (".dynamic", 6, dynamic, 1)]
    plan += [(".gnu.version_r", 0x6FFFFFFE, verneed, 1)] if versions else []
    plan += (
        [(".gnu.version_d", 0x6FFFFFFD, _verdef([*enumerate(defines, start=1)], strings), 1)]
        if defines
        else []
    )
    own = list(sections or {})
    table = _symbols(symbols or {}, own, len(plan) + 1, strings)
    plan += [(".dynsym", 11, table, 1)] if symbols else []
    plan[1] = (".dynstr", 3, strings.blob, 0)
    plan += [(name, 1, data, 0) for name, data in (sections or {}).items()]
    plan += [(".bss", 8, b"", 0)]
    return _file(plan, stack)


def relocatable(linked: bytes, *inputs: bytes, beside: bytes | None = None, relocated: bool = True) -> bytes:
    """Return a library with relocatable code, ``inputs``, its device link, ``linked``, and one other unit.

    ``.nvFatBinSegment`` has a wrapper of version 1 for each input and one of version 2 for the device link
    (NVIDIA's ``fatbinary_section.h``). ``beside``: the container of the other unit. ``relocated``: the
    pointer of the last wrapper is zero and has a relocation, as GNU's linker writes it.
    """
    places = {"__nv_relfatbin": 0x10000, ".nv_fatbin": 0x20000, ".nvFatBinSegment": 0x30000}
    beside = sass(50) if beside is None else beside
    pointer = places[".nv_fatbin"] + len(beside)
    wrappers = b"".join(_WRAPPER.pack(_WRAPPER_MAGIC, 1, places["__nv_relfatbin"], 0) for _ in inputs)
    here = places[".nvFatBinSegment"] + len(wrappers) + 8
    wrappers += _WRAPPER.pack(_WRAPPER_MAGIC, 2, 0 if relocated else pointer, 0)
    relocations = struct.pack("<QQq", here + 24, 8, 1) + struct.pack("<QQq", here, 8, pointer)
    library = bytearray(
        elf(
            {
                "__nv_relfatbin": b"".join(inputs),
                ".nv_fatbin": beside + linked,
                ".nvFatBinSegment": wrappers,
                ".rela.dyn": relocations if relocated else b"",
            }
        )
    )
    (table,) = struct.unpack_from("<Q", library, 40)
    ours = [at for at in range(table, len(library), 64) if library[at + 4 : at + 8] == b"\1\0\0\0"]
    for at, place in zip(ours, places.values(), strict=False):
        struct.pack_into("<Q", library, at + 16, place)
    struct.pack_into("<I", library, ours[-1] + 4, 4)
    return bytes(library)


_WRAPPER, _WRAPPER_MAGIC = struct.Struct("<IIQQ"), 0x466243B1

LOCAL, GLOBAL, WEAK, UNIQUE = 0, 1, 2, 10
DEFAULT, INTERNAL, HIDDEN, PROTECTED = 0, 1, 2, 3
HERE, UNDEFINED, ABSOLUTE = 2, 0, 0xFFF1
NOT_DEFAULT = 0x8000
"""Bit in the version index of a symbol ``name@VERSION``, which is not the default version of its name."""


@dataclass(frozen=True)
class Row:
    """A row of ``.dynsym``. ``version`` is its entry in ``.gnu.version``: 1 for no version, else an index."""

    name: str
    section: int = HERE
    version: int = 1
    binding: int = GLOBAL
    visibility: int = DEFAULT


def linked(
    *rows: Row,
    needed: Sequence[str] = (),
    runpath: str | None = None,
    asked: Mapping[str, Mapping[int, str]] | None = None,
    defined: Mapping[int, str] | None = None,
    versions: bool = True,
) -> bytes:
    """Return a library with dynamic symbols, written from the System V ABI's chapter "Symbol Table".

    ``asked``: needed versions by library and index. ``defined``: the library's own versions by index.
    ``versions``: whether the library has a section ``.gnu.version``.
    """
    strings = _Strings()
    dynamic = _dynamic([*((1, name) for name in needed), (29, runpath)], strings)
    symbols = bytes(24) + b"".join(_symbol(row, strings) for row in rows)
    indices = struct.pack(f"<{len(rows) + 1}H", 0, *(row.version for row in rows))
    plan = [(".dynsym", 11, symbols, 1), (".dynamic", 6, dynamic, 1)]
    plan += [(".gnu.version", 0x6FFFFFFF, indices, 2)] if versions else []
    if asked:
        by_library = {library: sorted(names.items()) for library, names in asked.items()}
        plan += [(".gnu.version_r", 0x6FFFFFFE, _verneed(by_library, strings), 1)]
    plan += [(".gnu.version_d", 0x6FFFFFFD, _verdef(sorted(defined.items()), strings), 1)] if defined else []
    return _file([("", 0, b"", 0), (".dynstr", 3, strings.blob, 0), *plan], RW)


class _Strings:
    def __init__(self) -> None:
        self.blob = b"\0"

    def add(self, text: str) -> int:
        self.blob += text.encode() + b"\0"
        return len(self.blob) - len(text) - 1


def _dynamic(entries: Iterable[tuple[int, str | None]], strings: _Strings) -> bytes:
    """Return the bytes of ``.dynamic`` for these tags and texts; ``None`` leaves a tag out."""
    tags = [(tag, strings.add(text)) for tag, text in entries if text is not None]
    return b"".join(struct.pack("<qQ", *tag) for tag in [*tags, (0, 0)])


def _verneed(asked: Mapping[str, Sequence[tuple[int, str]]], strings: _Strings) -> bytes:
    """Return the bytes of ``.gnu.version_r`` for needed versions by library, each an index and a name."""
    blob, left = b"", len(asked)
    for library, versions in asked.items():
        left -= 1
        following = 16 + 16 * len(versions) if left else 0
        blob += struct.pack("<HHIII", 1, len(versions), strings.add(library), 16, following)
        for place, (index, name) in enumerate(versions, start=1):
            step = 16 if place < len(versions) else 0
            blob += struct.pack("<IHHII", 0, 0, index, strings.add(name), step)
    return blob


def _verdef(defined: Sequence[tuple[int, str]], strings: _Strings) -> bytes:
    """Return the bytes of ``.gnu.version_d`` for versions by index; index 1 is the library's own name."""
    blob = b""
    for place, (index, name) in enumerate(defined, start=1):
        following = 28 if place < len(defined) else 0
        blob += struct.pack("<HHHHIII", 1, int(index == 1), index, 1, 0, 20, following)
        blob += struct.pack("<II", strings.add(name), 0)
    return blob


def _symbols(
    symbols: Mapping[str, tuple[str, int]], own: Sequence[str], first: int, strings: _Strings
) -> bytes:
    """Return the bytes of ``.dynsym``; ``first`` is the index of the first section of ``own``."""
    entries = (
        struct.pack("<IBBHQQ", strings.add(name), 0x11, 0, first + own.index(section), place, 4)
        for name, (section, place) in symbols.items()
    )
    return bytes(24) + b"".join(entries)


def _symbol(row: Row, strings: _Strings) -> bytes:
    info, value = row.binding << 4 | 2, 0x1000 if row.section else 0
    return struct.pack("<IBBHQQ", strings.add(row.name), info, row.visibility, row.section, value, 8)


def _file(plan: Sequence[tuple[str, int, bytes, int]], stack: int | None) -> bytes:
    """Return the file: ELF header, sections, section names, program headers, section headers.

    An entry of ``plan`` is a section's name, type, bytes and ``sh_link``.
    """
    names = _Strings()
    body, headers = b"", b""
    for name, kind, data, link in plan:
        body += b"\0" * (-len(body) % 8)
        offset = 64 + len(body) if kind else 0
        size = 1 << 40 if kind == 8 else len(data)
        where = names.add(name) if name else 0
        flags = _ALLOC_EXECINSTR if name == ".text" else 0
        headers += struct.pack("<IIQQQQIIQQ", where, kind, flags, 0, offset, size, link, 1, 8, 0)
        body += data
    where = names.add(".shstrtab")
    headers += struct.pack("<IIQQQQIIQQ", where, 3, 0, 0, 64 + len(body), len(names.blob), 0, 0, 1, 0)
    body += names.blob
    segments = b"" if stack is None else struct.pack("<IIQQQQQQ", 0x6474E551, stack, 0, 0, 0, 0, 0, 16)
    program = 64 + len(body)
    body += segments
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    count = len(plan) + 1
    head = struct.pack("<HHIQQQI", 3, 62, 1, 0, program, 64 + len(body), 0)
    head += struct.pack("<HHHHHH", 64, 56, len(segments) // 56, 64, count, count - 1)
    return ident + head + body + headers


def header_of(library: bytes, name: str) -> int:
    """Return the offset of the header of an ELF file's section."""
    (table,) = struct.unpack_from("<Q", library, 40)
    return int(table) + 64 * [section.name for section in read_sections(library)].index(name)


def patched(data: bytes, place: int, form: str, *values: int) -> bytes:
    """Return ``data`` with ``values`` at offset ``place``, in the form that ``struct`` defines."""
    changed = bytearray(data)
    struct.pack_into(form, changed, place, *values)
    return bytes(changed)


def assert_refused(
    read: Callable[[bytes], object], error: type[FormatError], data: bytes, message: str, offset: int
) -> None:
    """Assert that ``read`` refuses ``data`` with this error, and that its text ends with the offset."""
    with pytest.raises(error) as caught:
        read(data)
    found = str(caught.value), caught.value.offset
    assert found == (f"{message} (at offset {offset:#x})", offset), found
