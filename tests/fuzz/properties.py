"""Properties of the readers that hold for any bytes; a broken one raises an exception."""

import re
import struct
import zlib
from collections.abc import Callable, Sequence
from itertools import islice

from builder.binary.coverage import cover
from builder.binary.deep import read_payloads
from builder.binary.elf import Elf, read_elf
from builder.binary.elf_headers import FormatError
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Container, Kind
from builder.binary.file_kinds import FileKind
from builder.binary.library import read_library
from builder.finding import Code

_JOINED, _MAGIC = 0x100, struct.pack("<I", 0xBA55ED50)

_DIGITS = re.compile(r"0x[0-9a-f]+|[\d,]+|(?<=section ).*?(?= ends| holds| names| overlaps|$)")

LIBRARIES = ("lib/libonnxruntime_providers_cuda.so", "lib/libcudnn_ops.so.9", "lib/libnvrtc.so.12")
"""Names of libraries, for each of which the reader finds the version in another way."""


def outcome(data: bytes) -> str:
    """Return the readers' results without numbers and names, so that equal results mean similar files."""
    return "; ".join(_answer(read, data) for read in (_containers, _elf, _library, _deep))


def _answer(read: Callable[[bytes], str], data: bytes) -> str:
    try:
        return read(data)
    except FormatError as error:
        return _refusal(error)


def _refusal(error: FormatError) -> str:
    assert error.offset >= 0
    assert str(error).endswith(f"(at offset {error.offset:#x})")
    return f"{type(error).__name__} {_DIGITS.sub('#', str(error))}"


def _containers(data: bytes) -> str:
    containers = read_containers(data)
    _check_containers(data, containers)
    _check_cover(containers)
    return f"{min(len(containers), 9)} containers"


def _elf(data: bytes) -> str:
    found = read_elf(data)
    _check_elf(data, found)
    return f"{min(len(found.needed), 3)} needed"


def _library(data: bytes) -> str:
    """Read the file as a whole library, under a name of ``LIBRARIES`` that its CRC selects."""
    found = read_library(LIBRARIES[zlib.crc32(data) % len(LIBRARIES)], data)
    assert found.elf is None or found.kind in {FileKind.LIBRARY, FileKind.OBJECT}
    assert found.dll is None or found.kind is FileKind.DLL
    assert found.embedded_version is None or re.fullmatch(r"\d+\.\d+(\.\d+)?", found.embedded_version)
    assert found.problem is None or not found.containers
    if found.problem is None:
        _check_containers(data, found.containers)
        return f"whole, {'a' if found.embedded_version else 'no'} version"
    assert found.problem.code in {Code.E001, Code.A004}
    return found.problem.code.name


def _deep(data: bytes) -> str:
    """Unpack all images; each one must be counted as read, unread, damaged or of a skipped kind."""
    containers = read_containers(data)
    kept, found = read_payloads(data, containers)
    images = sum(len(container.images) for container in containers)
    left = sum(image.kind in {Kind.LTOIR, Kind.OTHER} for one in containers for image in one.images)
    assert found.images + found.unread + len(found.damages) + left == images
    assert sum(len(container.images) for container in kept) + len(found.damages) <= images
    assert len(found.names) <= sum(found.kernels.values())
    assert all(stub.on and stub.whole for stub in found.stubs)
    whys = {_DIGITS.sub("#", damage.why) for damage in found.damages[:3]}
    return f"{min(len(found.names), 3)} kernels, {len(found.stubs)} stubs, {sorted(whys)}"


def _check_containers(data: bytes, containers: Sequence[Container]) -> None:
    """Assert that containers lie in the file in order and without overlap, and images so in containers."""
    past = 0
    for container in containers:
        if not data.startswith(_MAGIC, container.offset):
            assert len(container.images) == 1  # a bare cubin has no container
            continue
        assert container.offset >= past
        magic, size = struct.unpack_from("<I4xQ", data, container.offset)
        past = container.offset + 16 + size
        assert (magic, size > 0, past <= len(data)) == (0xBA55ED50, True, True)
        at = container.offset + 16
        images = iter(container.images)
        while at < past and any(data[at:past]):
            kind, header, payload = struct.unpack_from("<H2xIQ", data, at)
            if payload == 0:  # a driver skips it
                at += header
                continue
            joined = struct.unpack_from("<I", data, at + 64)[0] if kind == _JOINED else 0
            places = [image.offset for image in islice(images, joined or 1)]
            assert places == sorted(places)
            assert all(at + 72 <= place < at + header for place in places) if joined else places == [at]
            at += header + payload
        assert (at <= past, any(data[at:past]), next(images, None)) == (True, False, None)
        assert all(image.size >= 0 and image.unpacked_size >= 0 for image in container.images)


def _check_cover(containers: Sequence[Container]) -> None:
    for specialised in (True, False):
        found = cover("lib/demo.so", containers, specialised=specialised)
        assert (found is None) == (not containers)
        if found is not None:
            assert sum(found.sections.values()) == found.containers == len(containers)
            for tally in found.tally.values():
                aside = found.nothing_to_run + found.link_inputs + found.picked
                assert tally.native + tally.jit + tally.none + aside == found.containers


def _check_elf(data: bytes, found: Elf) -> None:
    for section in found.sections:
        assert not section.in_file or section.offset + section.size <= len(data)
    assert all(len(name) <= 65_536 for name in found.needed)
