"""One library: what its bytes tell the loader and the driver, its version, or why it cannot be read.

``Reading`` is what one file holds, ``Library`` is a library as the rules over a whole package see it,
``Inspected`` what ``inspect`` shows of it. Versions are compared as text here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from builder.binary.coverage import LibraryCoverage, cover, is_specialised
from builder.binary.elf import Elf, read_elf
from builder.binary.elf_headers import Buffer, ElfError
from builder.binary.embedded import dlopened_names, embedded_version
from builder.binary.fatbin import is_fatbin, read_containers
from builder.binary.fatbin_format import Container, FatbinError, Kind
from builder.binary.library_names import NVIDIA, PROVIDER
from builder.findings.finding import Code, Finding, Severity
from builder.onnxruntime.units import UnitSet, kinds_found


@dataclass(frozen=True)
class Library:
    """One library of a package: its path inside, whose it is, and what it asks of the loader."""

    path: str
    vendor: str
    elf: Elf
    source: str = ""
    """``Member.source``; anything that is no wheel's key where it is not known."""
    embedded_version: str | None = None
    """The version in its bytes (``binary.embedded``)."""
    dlopens: tuple[str, ...] = ()
    """The names in its bytes of what it opens at run time (``binary.embedded``)."""
    link: str | None = None
    """What it leads to, where it is a link and no file."""

    @property
    def name(self) -> str:
        """The library's file name, by which the loader finds it."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def search(self) -> str | None:
        """The folders where the loader looks for what it needs: RUNPATH, else RPATH."""
        return self.elf.rpath if self.elf.runpath is None else self.elf.runpath

    @property
    def version(self) -> str | None:
        """The version in the library's bytes, else in its wheel's name; ``None`` where neither has one."""
        return self.embedded_version or wheel_version(self.source)

    @property
    def severity(self) -> Severity:
        """Severity of a fault that NVIDIA's files may have, because they may not be changed."""
        return Severity.WARNING if self.vendor == NVIDIA else Severity.ERROR


@dataclass(frozen=True)
class Reading:
    """Everything read of one file, up to the first thing that is wrong with it."""

    path: str
    """As it is called in what is shown; its last part is the library's name."""
    elf: Elf | None = None
    """``None`` for a file that is no whole ELF file, and for a bare fatbin."""
    embedded_version: str | None = None
    """The version in its bytes, where they hold one."""
    dlopens: tuple[str, ...] = ()
    """The names in its bytes of what it opens at run time."""
    containers: tuple[Container, ...] = ()
    coverage: LibraryCoverage | None = None
    """``None`` without device code, or when it cannot be read."""
    bare: bool = False
    """A fatbin by itself, as ``nvcc --fatbin`` writes it."""
    problem: Finding | None = None
    """E001 for a file that is no whole ELF file, A004 for device code that is not whole."""


def read_library(path: str, buffer: Buffer, *, symbols: bool = True) -> Reading:
    """Read a file's bytes, ``symbols`` or not. Never raises: what is wrong is ``Reading.problem``."""
    reading = Reading(path=path)
    try:
        if is_fatbin(buffer):
            reading = replace(reading, bare=True)
            return _with_code(reading, buffer)
        elf = read_elf(buffer, symbols=symbols)
        name = path.rpartition("/")[2]
        reading = replace(reading, elf=elf, embedded_version=embedded_version(buffer, name, elf))
        reading = replace(reading, dlopens=dlopened_names(buffer, name, elf))
        return _with_code(reading, buffer)
    except FatbinError as error:
        return replace(reading, problem=Finding(code=Code.A004, path=path, message=str(error)))
    except ElfError as error:
        return unreadable(path, str(error))


def unreadable(path: str, why: str) -> Reading:
    """A file that is no library."""
    return Reading(path=path, problem=Finding(code=Code.E001, path=path, message=why))


def _kinds(reading: Reading, containers: tuple[Container, ...]) -> tuple[UnitSet, ...]:
    """The sets that units of ORT's provider were compiled for, where they differ in its version."""
    if reading.path.rpartition("/")[2] != PROVIDER or reading.embedded_version is None:
        return ()
    return kinds_found((container.arches(Kind.SASS) for container in containers), reading.embedded_version)


def _with_code(reading: Reading, buffer: Buffer) -> Reading:
    containers = read_containers(buffer)
    kinds = _kinds(reading, containers)
    coverage = cover(reading.path, containers, specialised=is_specialised(reading.path), kinds=kinds)
    return replace(reading, containers=containers, coverage=coverage)


@dataclass(frozen=True)
class Inspected:
    """One library as ``inspect`` shows it: its coverage, or the reason why it cannot be read."""

    name: str
    coverage: LibraryCoverage | None = None
    """``None`` without device code, or when it cannot be read."""
    problem: str = ""
    code: Code | None = None
    """Of ``problem``."""
    bare: bool = False
    """A fatbin by itself, as ``nvcc --fatbin`` writes it: no library, so no section and no SONAME."""
    size: int = 0
    """The file's bytes."""
    machine: str = ""
    """``x86-64`` or ``aarch64``; empty where it is no library."""
    soname: str | None = None
    needed: tuple[str, ...] = ()

    @property
    def runnable(self) -> LibraryCoverage | None:
        """The coverage, if the library holds anything to run."""
        return self.coverage if self.coverage and self.coverage.runnable else None


_WHEEL_VERSION = re.compile(r"==(\d+\.\d+\.\d+)(?:\D|$)")


def numbers(version: str) -> tuple[int, ...]:
    """``(2, 35)`` of ``2.35``: what versions are compared by."""
    return tuple(int(part) for part in version.split("."))


def highest(versions: Iterable[str | None]) -> str | None:
    """The newest one; ``None`` where there is none."""
    return max((version for version in versions if version), key=numbers, default=None)


def wheel_version(source: str) -> str | None:
    """``9.10.2`` of ``wheel:nvidia-cudnn-cu12==9.10.2.21``; ``None`` where the source is no wheel."""
    match = _WHEEL_VERSION.search(source)
    return match[1] if match else None


def check_one_version(code: Code, what: str, versions: Mapping[str, str | None]) -> Iterator[Finding]:
    """``code`` where the libraries of ``what`` differ, and as a warning, those whose version nothing tells.

    ``versions``: by member path; ``None`` where it cannot be told. One library alone always agrees. The
    finding is about a library of the version that fewest have.
    """
    if len(versions) <= 1:
        return
    found_versions = sorted({version for version in versions.values() if version}, key=numbers)
    if len(found_versions) > 1:
        rarest = min(found_versions, key=lambda version: len(_paths(versions, version)))
        yield Finding(
            code=code,
            path=_paths(versions, rarest)[0],
            message=f"{what} of {len(found_versions)} versions are mixed in this package",
            wanted=f"all of {what} from one release",
            got="; ".join(f"{version}: {', '.join(_paths(versions, version))}" for version in found_versions),
        )
    silent = _paths(versions, None)
    if silent:
        yield Finding(
            code=code,
            path=silent[0],
            message=f"nothing tells the version of {len(silent)} of {what}: it is not in their bytes, and no "
            "manifest names their wheel",
            wanted=f"a package with its manifest, to compare all of {what}",
            got=", ".join(silent),
            severity=Severity.WARNING,
        )


def _paths(versions: Mapping[str, str | None], wanted: str | None) -> list[str]:
    return [path for path, version in versions.items() if version == wanted]


@dataclass(frozen=True)
class HostNeeds:
    """The newest symbol versions that any library of a package asks of its host; ``None`` for none."""

    glibc: str | None
    glibcxx: str | None
