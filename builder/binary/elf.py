"""What the dynamic loader reads of a library: ELF64 little-endian, nothing else.

Names and versions are found through the section headers, which no library of a package lacks; build-id and
stack through the program headers, as the loader does it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from builder.binary.elf_dynamic import (
    NEEDED,
    RPATH,
    RUNPATH,
    SONAME,
    defined_versions,
    dynamic_names,
    needed_versions,
)
from builder.binary.elf_frame import (
    LARGEST,
    Buffer,
    ElfError,
    Section,
    asks_for_executable_stack,
    find_build_id,
    is_elf,
    read_sections,
    read_segments,
)
from builder.binary.elf_symbols import NO_SYMBOLS, Symbols, read_symbols

__all__ = ["LARGEST", "Buffer", "Elf", "ElfError", "Section", "is_elf", "read_elf", "read_sections"]

_VERSION = re.compile(r"(GLIBC|GLIBCXX)_(\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class Elf:
    """What the loader asks of one library."""

    sections: tuple[Section, ...]
    soname: str | None
    needed: tuple[str, ...]
    runpath: str | None
    rpath: str | None
    glibc: str | None
    """Highest ``GLIBC_`` version it needs, ``2.17``; ``None`` when it needs none."""
    glibcxx: str | None
    """Highest ``GLIBCXX_`` version it needs, ``3.4.22``."""
    defines: tuple[str, ...] = ()
    """Symbol versions it defines, ``VERS_1.23.2``."""
    build_id: str | None = None
    """GNU build-id in hex."""
    executable_stack: bool = False
    """Whether loading it makes the stack executable."""
    symbols: Symbols = NO_SYMBOLS
    """What it defines for others and what it asks of them."""


def read_elf(buffer: Buffer) -> Elf:
    """Everything the loader would read. Raises ``ElfError``."""
    sections = read_sections(buffer)
    segments = read_segments(buffer)
    tags = dynamic_names(buffer, sections)
    versions = needed_versions(buffer, sections)
    return Elf(
        sections=sections,
        soname=_first(tags, SONAME),
        needed=tuple(tags.get(NEEDED, ())),
        runpath=_first(tags, RUNPATH),
        rpath=_first(tags, RPATH),
        glibc=_highest(versions, "GLIBC"),
        glibcxx=_highest(versions, "GLIBCXX"),
        defines=defined_versions(buffer, sections),
        build_id=find_build_id(buffer, segments),
        executable_stack=asks_for_executable_stack(segments),
        symbols=read_symbols(buffer, sections),
    )


def _first(tags: dict[int, list[str]], tag: int) -> str | None:
    return tags[tag][0] if tag in tags else None


def _highest(versions: Sequence[str], family: str) -> str | None:
    matches = [match for match in map(_VERSION.fullmatch, versions) if match and match[1] == family]
    numbers = [tuple(int(part) for part in match[2].split(".")) for match in matches]
    return ".".join(map(str, max(numbers))) if numbers else None
