"""What the dynamic loader reads of a library: ELF64 little-endian, nothing else.

Names and versions are found through the section headers, which no library of a package lacks; build-id and
stack through the program headers, as the loader does it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from builder.core.elf_dynamic import (
    NEEDED,
    RPATH,
    RUNPATH,
    SONAME,
    defined_versions,
    dynamic_names,
    needed_versions,
)
from builder.core.elf_program import asks_for_executable_stack, find_build_id, read_segments
from builder.core.elf_sections import LARGEST, Buffer, ElfError, Section, is_elf, read_sections
from builder.core.elf_symbols import NO_SYMBOLS, Symbols, read_symbols

__all__ = ["LARGEST", "Buffer", "Elf", "ElfError", "Section", "is_elf", "read_elf", "read_sections"]

_VERSION = re.compile(r"(GLIBC|GLIBCXX)_(\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class Elf:
    """What the loader asks of one library."""

    sections: Tuple[Section, ...]
    soname: Optional[str]
    needed: Tuple[str, ...]
    runpath: Optional[str]
    rpath: Optional[str]
    glibc: Optional[str]
    """Highest ``GLIBC_`` version it needs, ``2.17``; ``None`` when it needs none."""
    glibcxx: Optional[str]
    """Highest ``GLIBCXX_`` version it needs, ``3.4.22``."""
    defines: Tuple[str, ...] = ()
    """Symbol versions it defines, ``VERS_1.23.2``."""
    build_id: Optional[str] = None
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


def _first(tags: Dict[int, List[str]], tag: int) -> Optional[str]:
    return tags[tag][0] if tag in tags else None


def _highest(versions: Sequence[str], family: str) -> Optional[str]:
    matches = [match for match in map(_VERSION.fullmatch, versions) if match and match[1] == family]
    numbers = [tuple(int(part) for part in match[2].split(".")) for match in matches]
    return ".".join(map(str, max(numbers))) if numbers else None
