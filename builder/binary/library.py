"""One library: what its bytes tell the loader and the driver, its version, or why it cannot be read.

``Reading`` is what one file holds, ``Library`` is a library as the rules over a whole package see it,
``Inspected`` what ``inspect`` shows of it. Versions are compared as text here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from builder.binary.coverage import LibraryCoverage, cover, is_specialised
from builder.binary.elf import Elf, read_elf
from builder.binary.elf_headers import Buffer, FormatError, Section, machine_of
from builder.binary.embedded import dlopened_names, embedded_version, opened_dlls, ort_version
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Container, FatbinError, Kind
from builder.binary.kinds.file_kinds import HEAD, FileKind, kind_of
from builder.binary.kinds.pe import Pe, read_pe
from builder.binary.kinds.raw_code import RawCode, data_of, data_of_members, find_raw
from builder.binary.kinds.static_library import read_members
from builder.binary.library_names import NVIDIA, is_provider
from builder.binary.payloads.deep import DeepReading, read_payloads
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
    """``None`` for a file that is no whole ELF file."""
    dll: Pe | None = None
    embedded_version: str | None = None
    """The version in its bytes, where they hold one."""
    dlopens: tuple[str, ...] = ()
    """The names in its bytes of what it opens at run time."""
    containers: tuple[Container, ...] = ()
    coverage: LibraryCoverage | None = None
    """``None`` without device code, or when it cannot be read."""
    kind: FileKind = FileKind.LIBRARY
    machine: str = ""
    """What it is made for, where that can be told: of an archive, its first object."""
    raw: RawCode = field(default_factory=dict)
    """Code outside of containers; not of NVIDIA's libraries that choose by device."""
    deep: DeepReading | None = None
    """What its images unpack to, where somebody asked and it has any."""
    problem: Finding | None = None
    """E001 for a file that is no whole ELF or PE file, A004 for device code that is not whole."""


def read_library(path: str, buffer: Buffer, *, symbols: bool = True, deep: bool = False) -> Reading:
    """Read a file's bytes, ``symbols`` or not, and with ``deep`` unpack its images.

    Never raises: what is wrong is ``Reading.problem``, or in ``Reading.deep``.
    """
    reading = Reading(path=path, kind=kind_of(bytes(buffer[:HEAD])) or FileKind.LIBRARY)
    try:
        if reading.kind in {FileKind.LIBRARY, FileKind.OBJECT}:
            elf = read_elf(buffer, symbols=symbols)
            name = path.rpartition("/")[2]
            reading = replace(reading, elf=elf, machine=elf.machine)
            reading = replace(reading, embedded_version=embedded_version(buffer, name, elf))
            reading = replace(reading, dlopens=dlopened_names(buffer, name, elf))
        elif reading.kind is FileKind.DLL:
            dll = read_pe(buffer)
            version = ort_version(buffer, dll.sections) if is_provider(path) else None
            opened = opened_dlls(buffer, path.rpartition("/")[2], dll)
            reading = replace(reading, dll=dll, machine=dll.machine, embedded_version=version, dlopens=opened)
        elif reading.kind is FileKind.ARCHIVE:
            reading = replace(reading, machine=_machine_of_objects(buffer))
        return _with_code(reading, buffer, deep=deep)
    except FatbinError as error:
        return replace(reading, problem=Finding(code=Code.A004, path=path, message=str(error)))
    except FormatError as error:
        return replace(unreadable(path, str(error)), kind=reading.kind)


def unreadable(path: str, why: str) -> Reading:
    """A file that is no library."""
    return Reading(path=path, problem=Finding(code=Code.E001, path=path, message=why))


def _kinds(reading: Reading, containers: tuple[Container, ...]) -> tuple[UnitSet, ...]:
    """The sets that units of ORT's provider were compiled for, where they differ in its version."""
    if not is_provider(reading.path) or reading.embedded_version is None:
        return ()
    return kinds_found((container.arches(Kind.SASS) for container in containers), reading.embedded_version)


def _machine_of_objects(buffer: Buffer) -> str:
    """The machine of an archive's first object; nothing where it is for another or no ELF file."""
    for _name, start, end in read_members(buffer):
        head = bytes(buffer[start : min(end, start + HEAD)])
        if kind_of(head) is FileKind.OBJECT:
            return machine_of(head)
    return ""


def _data(reading: Reading, buffer: Buffer) -> Iterable[Section]:
    """The sections that code may lie in outside of containers."""
    if reading.kind is FileKind.ARCHIVE:
        return data_of_members(buffer)
    if reading.kind is FileKind.OBJECT and reading.elf:
        return data_of(reading.elf.sections)
    return reading.elf.sections if reading.elf else reading.dll.sections if reading.dll else ()


def _with_code(reading: Reading, buffer: Buffer, *, deep: bool) -> Reading:
    containers = read_containers(buffer)
    if deep and containers:
        containers, seen = read_payloads(buffer, containers)
        reading = replace(reading, deep=seen)
    kinds = _kinds(reading, containers)
    coverage = cover(reading.path, containers, specialised=is_specialised(reading.path), kinds=kinds)
    raw = {} if is_specialised(reading.path) else find_raw(buffer, _data(reading, buffer), containers)
    return replace(reading, containers=containers, coverage=coverage, raw=raw)


@dataclass(frozen=True)
class Inspected:
    """One library as ``inspect`` shows it: its coverage, or the reason why it cannot be read."""

    name: str
    coverage: LibraryCoverage | None = None
    """``None`` without device code, or when it cannot be read."""
    problem: str = ""
    code: Code | None = None
    """Of ``problem``."""
    size: int = 0
    """The file's bytes."""
    kind: FileKind = FileKind.LIBRARY
    machine: str = ""
    """``x86-64`` or ``aarch64``, of a DLL ``x86`` too; empty where it is no library."""
    soname: str | None = None
    needed: tuple[str, ...] = ()
    raw: RawCode = field(default_factory=dict)
    """Code outside of containers, which is counted and not judged."""
    deep: DeepReading | None = None
    """What its images unpack to, where somebody asked and it has any."""

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
