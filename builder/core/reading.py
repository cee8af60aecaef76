"""One library read whole: what the loader asks of it, its device code, its version; or why it cannot be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Tuple

from builder.core.checks import Code, Finding
from builder.core.content import PROVIDER
from builder.core.coverage import LibraryCoverage, cover, is_specialised
from builder.core.elf import Buffer, Elf, ElfError, read_elf
from builder.core.fatbin import Container, FatbinError, Kind, is_fatbin, read_containers
from builder.core.opened_names import opened_names
from builder.core.stamp import stamped_version
from builder.core.units import UnitSet, kinds_found


@dataclass(frozen=True)
class Reading:
    """What was read before anything went wrong."""

    path: str
    """As it is called in what is shown; its last part is the library's name."""
    elf: Optional[Elf] = None
    """``None`` for a file that is no whole ELF file, and for a bare fatbin."""
    stamp: Optional[str] = None
    """The version in its bytes, where they hold one."""
    opens: Tuple[str, ...] = ()
    """The names in its bytes of what it opens at run time."""
    containers: Tuple[Container, ...] = ()
    coverage: Optional[LibraryCoverage] = None
    """``None`` without device code, or when it cannot be read."""
    bare: bool = False
    """A fatbin by itself, as ``nvcc --fatbin`` writes it."""
    problem: Optional[Finding] = None
    """E001 for a file that is no whole ELF file, A004 for device code that is not whole."""


def read_library(path: str, buffer: Buffer) -> Reading:
    """Read a file's bytes; no bytes make it raise."""
    reading = Reading(path=path)
    try:
        if is_fatbin(buffer):
            reading = replace(reading, bare=True)
            return _with_code(reading, buffer)
        elf = read_elf(buffer)
        name = path.rpartition("/")[2]
        reading = replace(reading, elf=elf, stamp=stamped_version(buffer, name, elf))
        reading = replace(reading, opens=opened_names(buffer, name, elf))
        return _with_code(reading, buffer)
    except FatbinError as error:
        return replace(reading, problem=Finding(code=Code.A004, path=path, message=str(error)))
    except ElfError as error:
        return unreadable(path, str(error))


def unreadable(path: str, why: str) -> Reading:
    """A file that is no library."""
    return Reading(path=path, problem=Finding(code=Code.E001, path=path, message=why))


def _kinds(reading: Reading, containers: Tuple[Container, ...]) -> Tuple[UnitSet, ...]:
    """What the units of ORT's provider are compiled for, where its version makes differences among them."""
    if reading.path.rpartition("/")[2] != PROVIDER or reading.stamp is None:
        return ()
    return kinds_found((container.arches(Kind.SASS) for container in containers), reading.stamp)


def _with_code(reading: Reading, buffer: Buffer) -> Reading:
    containers = read_containers(buffer)
    kinds = _kinds(reading, containers)
    coverage = cover(reading.path, containers, specialised=is_specialised(reading.path), kinds=kinds)
    return replace(reading, containers=containers, coverage=coverage)
