"""Imitation of an older C library: symbol versions that a library defines get another name."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path

from builder.binary.elf_headers import ElfError, Section, is_elf, read_sections

_VERDEF, _VERNEED = 0x6FFFFFFD, 0x6FFFFFFE


def elf_hash(name: bytes) -> int:
    """Return the System V ABI's hash, which the loader compares before it compares the names of versions."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def without(data: bytes, versions: Sequence[str]) -> bytes:
    """Return the file with ``versions`` renamed among those that it defines and those that it needs.

    ``GLIBC_2.36`` becomes ``hidden2.36``. Both lists change, so that the libraries of a system still fit each
    other. A file that is not a library with such versions is returned unchanged.
    """
    if not is_elf(data):
        return data
    try:
        sections = read_sections(data)
    except ElfError:
        return data  # such as an object, or a library for i386
    changed = bytearray(data)
    for version in versions:
        _rename(changed, sections, version.encode())
    return bytes(changed)


def hide(tar: Path, older: Path, versions: Sequence[str]) -> None:
    """Write the file system of ``tar`` without these versions to the tar ``older``."""
    with tarfile.open(tar) as source, tarfile.open(older, "w", format=tarfile.PAX_FORMAT) as made:
        for member in source:
            file = source.extractfile(member) if member.isfile() else None
            if file is None:
                made.addfile(member)
                continue
            data = without(file.read(), versions)
            made.addfile(member, io.BytesIO(data))


def _rename(changed: bytearray, sections: Sequence[Section], old: bytes) -> None:
    new = b"hidden" + old[len(b"hidden") :]
    assert len(new) == len(old)
    for section in sections:
        if section.kind in {_VERDEF, _VERNEED}:
            end = section.offset + section.size
            body = bytes(changed[section.offset : end])
            swapped = body.replace(struct.pack("<I", elf_hash(old)), struct.pack("<I", elf_hash(new)))
            if swapped != body:
                changed[section.offset : end] = swapped
                _rename_text(changed, sections[section.link], old, new)


def _rename_text(changed: bytearray, strings: Section, old: bytes, new: bytes) -> None:
    end = strings.offset + strings.size
    table = bytes(changed[strings.offset : end])
    changed[strings.offset : end] = table.replace(b"\0" + old + b"\0", b"\0" + new + b"\0")
