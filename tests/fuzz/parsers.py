"""The parsers of untrusted files, each as a function of bytes that catches the parser's own errors."""

import atexit
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import mkdtemp
from zipfile import ZipFile

from builder.binary.deep import read_payloads
from builder.binary.elf import read_elf
from builder.binary.elf_headers import FormatError
from builder.binary.fatbin import read_containers
from builder.binary.file_kinds import read_members
from builder.binary.pe import read_pe
from builder.binary.pe_macho import read_foreign
from builder.contents.cuobjdump import CuobjdumpError, Listing, parse_listings
from builder.errors import BuilderError
from builder.files.decompression import packing_of
from builder.inspect.archives import Scratch, read_tar, read_zip
from tests.fuzz.seeds import synthetic
from tests.support.factories.archives import files
from tests.support.fakes.ports import FakeReporter


@dataclass(frozen=True)
class Parser:
    """A parser under test: any exception of ``read`` is a defect.

    Its corpus has the synthetic seeds that begin with one of ``begins``, and ``seeds``.
    """

    read: Callable[[bytes], object]
    begins: tuple[bytes, ...] = ()
    seeds: tuple[bytes, ...] = ()

    def corpus(self) -> tuple[bytes, ...]:
        """Return the files with which fuzzing begins."""
        kept = (seed.data for seed in synthetic() if seed.data.startswith(self.begins))
        return (*(kept if self.begins else ()), *self.seeds)


def _reader(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def refusing(data: bytes) -> object:
        with suppress(FormatError):
            return read(data)
        return None

    return refusing


def _unpacked(data: bytes) -> object:
    """Unpack all images of all containers."""
    return read_payloads(data, read_containers(data))


_ELF = b"ELF file    1: a.1.sm_75.cubin\nELF file    2: a.2.sm_90a.cubin\n"

_PTX = b"PTX file    1: a.1.sm_90.ptx\n"


def _cuobjdump(data: bytes) -> object:
    """Parse listings of cuobjdump: two bytes for exit codes, then two outputs that a zero byte separates."""
    codes = {0: 0, 1: 255, 2: 1}
    first, _, second = data[2:].decode(errors="replace").partition("\0")
    elf, ptx = (codes.get(code, code) for code in data[:2].ljust(2, b"\0"))
    with suppress(CuobjdumpError):
        return parse_listings(Listing(elf, first, ""), Listing(ptx, second, ""))
    return None


@cache
def _folder() -> Path:
    memory = Path("/dev/shm")
    folder = Path(mkdtemp(prefix="fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _archive(data: bytes) -> object:
    """Read the bytes as a zip file and as a tar file, with the archives inside."""
    file, unpacked = _folder() / "file", _folder() / "unpacked"
    file.write_bytes(data)
    readers: tuple[Callable[[], object], ...] = (
        lambda: read_zip(file, Scratch(unpacked), "it", FakeReporter()),
        lambda: read_tar(file, packing_of(data[:8]), "it", Scratch(unpacked), FakeReporter()),
    )
    for read in readers:
        shutil.rmtree(unpacked, ignore_errors=True)
        with suppress(BuilderError):
            read()
    return None


def _zip(members: Mapping[str, bytes]) -> bytes:
    made = BytesIO()
    with ZipFile(made, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return made.getvalue()


_LIBRARY = {"demo/libdemo.so": b"\x7fELF\x02\x01\x01" + bytes(60)}

_DYLIB = bytes.fromhex("cffaedfe0c00000100000000060000000100000020000000") + bytes(40) + b"VERS_1.23.2\0"

PARSERS: Mapping[str, Parser] = {
    "elf": Parser(_reader(read_elf), (b"\x7fELF",)),
    "fatbin": Parser(_reader(read_containers), (b"\x50\xed\x55\xba", b"\x7fELF")),
    "payloads": Parser(_reader(_unpacked), (b"\x50\xed\x55\xba", b"\x7fELF")),
    "pe": Parser(_reader(read_pe), (b"MZ",)),
    "macho": Parser(lambda data: read_foreign("libdemo.dylib", "", data), (b"MZ",), (_DYLIB,)),
    "ar": Parser(_reader(lambda data: (list(read_members(data)), read_containers(data))), (b"!<arch>",)),
    "ptx": Parser(_reader(read_containers), (b"// made", b".version")),
    "cuobjdump": Parser(
        _cuobjdump, (), (b"\0\0" + _ELF + b"\0" + _PTX, b"\1\1does not contain device code\0")
    ),
    "archives": Parser(_archive, (), (_zip(_LIBRARY | {"a.zip": _zip(_LIBRARY)}), files(_LIBRARY))),
}
