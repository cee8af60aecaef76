"""This module reads one library: its data for the loader and the driver, its version, or its fault.

``Reading`` is all that was read of one file, ``Library`` the part that the rules on a package use,
``Inspected`` the part that ``inspect`` shows. Functions that compare versions, given as text, are here too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from builder.binary.bare_images import RawCode, find_raw
from builder.binary.coverage import LibraryCoverage, cover, is_specialised
from builder.binary.deep import DeepReading, read_payloads, unregistered
from builder.binary.elf import Elf, read_elf
from builder.binary.elf_headers import Buffer, FormatError, machine_of
from builder.binary.embedded import (
    archive_behind,
    dlopened_names,
    embedded_version,
    oldest_host,
    static_libraries,
    version_of_symbols,
)
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Container, FatbinError, Kind
from builder.binary.file_kinds import HEAD, FileKind, kind_of, read_members
from builder.binary.library_names import NVIDIA, is_provider
from builder.binary.pe import Pe, read_exports, read_pe
from builder.facts.ort.units import UnitSet, observed_unit_sets
from builder.finding import Code, Finding, Severity
from builder.formats.package_names import PackageForm


@dataclass(frozen=True)
class Library:
    """One library of a package: its path inside, its vendor, and its data for the dynamic loader."""

    path: str
    vendor: str
    elf: Elf
    source: str = ""
    """``Member.source``: a wheel's key, or another text where the wheel is unknown."""
    embedded_version: str | None = None
    """The version in the library's bytes (``binary.embedded``)."""
    dlopens: tuple[str, ...] = ()
    """The names of libraries that this one opens at run time, from its bytes (``binary.embedded``)."""
    link: str | None = None
    """The target of a symbolic link; ``None`` for a file."""

    @property
    def name(self) -> str:
        """The library's file name, by which the loader finds it."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def search(self) -> str | None:
        """The folders where the loader searches for the library's dependencies: RUNPATH, else RPATH."""
        return self.elf.rpath if self.elf.runpath is None else self.elf.runpath

    @property
    def version(self) -> str | None:
        """The version in the library's bytes, else in its wheel's name; ``None`` where neither has one."""
        return self.embedded_version or wheel_version(self.source)

    @property
    def severity(self) -> Severity:
        """The severity of a fault that NVIDIA's files may have: a warning there, an error elsewhere."""
        return Severity.WARNING if self.vendor == NVIDIA else Severity.ERROR


@dataclass(frozen=True)
class Reading:
    """The data read of one file, up to the first fault in it."""

    path: str
    """The path under which the file is reported; its last part is the library's name."""
    elf: Elf | None = None
    """``None`` for a file that is no ELF library or object, or is damaged."""
    dll: Pe | None = None
    embedded_version: str | None = None
    """The version in the file's bytes; ``None`` where they hold none."""
    dlopens: tuple[str, ...] = ()
    """The names of libraries that the file opens at run time, from its bytes."""
    containers: tuple[Container, ...] = ()
    coverage: LibraryCoverage | None = None
    """``None`` for a file without device code, or when the device code cannot be read."""
    kind: FileKind = FileKind.LIBRARY
    machine: str = ""
    """The processor that the file (the first object of an archive) is for; empty where it is unknown."""
    raw: RawCode = field(default_factory=dict)
    """Code outside of containers; empty for specialised libraries."""
    deep: DeepReading | None = None
    """The contents of the unpacked images; ``None`` unless a deep reading was asked for and found images."""
    behind: str = ""
    """The kind of archive that lies behind the file's sections (``embedded.archive_behind``)."""
    linked_in: tuple[str, ...] = ()
    """NVIDIA's libraries that are linked in (``embedded.static_libraries``)."""
    form: PackageForm | None = None
    """What ORT's CUDA provider is by its exports; ``None`` for another library, or with neither's exports."""
    oldest_host: str | None = None
    """The oldest host of a plug-in (``embedded.oldest_host``)."""
    problem: Finding | None = None
    """E001 for a damaged ELF or PE file or archive, A004 for damaged device code."""

    @property
    def loaded(self) -> Elf | Pe | None:
        """The ELF file or DLL; ``None`` for a file that is neither."""
        return self.elf or self.dll


def read_library(path: str, buffer: Buffer, *, symbols: bool = True, deep: bool = False) -> Reading:
    """Read a file's bytes, with its dynamic symbols if ``symbols``, and unpack its images if ``deep``.

    Never raises: faults are in ``Reading.problem`` and ``Reading.deep``.
    """
    name = path.rpartition("/")[2]
    reading = Reading(path=path, kind=kind_of(bytes(buffer[:HEAD])) or FileKind.LIBRARY)
    try:
        if reading.kind in {FileKind.LIBRARY, FileKind.OBJECT}:
            reading = replace(reading, elf=read_elf(buffer, symbols=symbols or is_provider(path)))
        elif reading.kind is FileKind.DLL:
            reading = replace(reading, dll=read_pe(buffer))
        if library := reading.loaded:
            version, opened = embedded_version(buffer, name, library), dlopened_names(buffer, name, library)
            reading = replace(reading, machine=library.machine, embedded_version=version, dlopens=opened)
            if is_provider(path):
                reading = _with_form(reading, buffer, library)
            reading = replace(reading, behind=archive_behind(buffer, library.sections))
        elif reading.kind is FileKind.ARCHIVE:
            reading = replace(reading, machine=_machine_of_objects(buffer))
        return _with_code(reading, buffer, deep=deep)
    except FatbinError as error:
        return replace(reading, problem=Finding(code=Code.A004, path=path, message=str(error)))
    except FormatError as error:
        return replace(unreadable(path, str(error)), kind=reading.kind)


_FORMS = {"GetProvider": PackageForm.PROVIDER, "CreateEpFactories": PackageForm.PLUGIN}
"""The function by which ORT enters its CUDA provider, as a part of its own build or as a plug-in.

A provider from 1.23 on has both: ``CreateEpFactories`` names its devices to the host of its own build."""


def _with_form(reading: Reading, buffer: Buffer, library: Elf | Pe) -> Reading:
    """Return the reading of ORT's CUDA provider with its form.

    A plug-in's version is that of its symbols, which ours have: the version among its constants is a host's.
    """
    if isinstance(library, Pe):
        exports = read_exports(buffer)
    else:
        exports = frozenset(symbol.name for symbol in library.symbols.exports)
    form = next((form for name, form in _FORMS.items() if name in exports), None)
    if form is not PackageForm.PLUGIN:
        return replace(reading, form=form)
    own, oldest = version_of_symbols(library), oldest_host(buffer, library)
    return replace(reading, form=form, embedded_version=own, oldest_host=oldest)


def unreadable(path: str, why: str) -> Reading:
    """Return the reading of a file that is no library, with ``why`` as the message of its finding E001."""
    return Reading(path=path, problem=Finding(code=Code.E001, path=path, message=why))


def _unit_sets(reading: Reading, containers: tuple[Container, ...]) -> tuple[UnitSet, ...]:
    """Return the sets of units of ORT's provider that its version compiles for different architectures.

    Empty for another library, and where the version compiles all units for the same architectures.
    """
    if not is_provider(reading.path) or reading.embedded_version is None:
        return ()
    return observed_unit_sets(
        (container.arches(Kind.SASS) for container in containers), reading.embedded_version
    )


def _machine_of_objects(buffer: Buffer) -> str:
    """Return the machine of an archive's first ELF object; empty where it has none."""
    for _name, kind, start, end in read_members(buffer):
        if kind is FileKind.OBJECT:
            return machine_of(bytes(buffer[start : min(end, start + HEAD)]))
    return ""


def _with_code(reading: Reading, buffer: Buffer, *, deep: bool) -> Reading:
    containers = read_containers(buffer)
    if deep and containers:
        containers, seen = read_payloads(buffer, containers)
        if reading.elf and reading.kind is FileKind.LIBRARY:
            seen.unregistered = unregistered(buffer, reading.elf.sections, seen.names)
        reading = replace(reading, deep=seen)
    unit_sets = _unit_sets(reading, containers)
    coverage = cover(reading.path, containers, specialised=is_specialised(reading.path), unit_sets=unit_sets)
    sections = reading.loaded.sections if reading.loaded else ()
    if coverage and coverage.picked and reading.loaded:
        reading = replace(reading, linked_in=static_libraries(buffer, reading.loaded.needed))
    raw = {} if is_specialised(reading.path) else find_raw(buffer, reading.kind, sections, containers)
    return replace(reading, containers=containers, coverage=coverage, raw=raw)


@dataclass(frozen=True)
class Inspected:
    """One library as ``inspect`` shows it: its coverage, or the reason why it cannot be read."""

    name: str
    coverage: LibraryCoverage | None = None
    """``None`` for a file without device code, or when the device code cannot be read."""
    problem: str = ""
    code: Code | None = None
    """The finding's code for ``problem``."""
    size: int = 0
    """The size of the file in bytes."""
    kind: FileKind = FileKind.LIBRARY
    machine: str = ""
    """``x86-64``, ``aarch64``, another ELF machine's number, for a DLL also ``x86``; empty if unknown."""
    soname: str | None = None
    needed: tuple[str, ...] = ()
    raw: RawCode = field(default_factory=dict)
    """Code outside of containers, which is counted and not judged."""
    deep: DeepReading | None = None
    """The contents of the unpacked images; ``None`` unless a deep reading was asked for and found images."""
    behind: str = ""
    """The kind of archive that lies behind the file's sections, ``a zip``; empty where none does."""
    linked_in: tuple[str, ...] = ()
    """NVIDIA's libraries whose functions the file defines itself: ``cuDNN``."""
    form: PackageForm | None = None
    """What ORT's CUDA provider is by its exports; ``None`` for another library."""
    oldest_host: str | None = None
    """The oldest version of ORT whose host registers a plug-in, from its bytes, else from a manifest."""
    release: str | None = None
    """A plug-in's own version, from the ``version.json`` beside it."""

    @property
    def runnable(self) -> LibraryCoverage | None:
        """The coverage; ``None`` where the library has nothing to run."""
        return self.coverage if self.coverage and self.coverage.runnable else None


_WHEEL_VERSION = re.compile(r"==(\d+\.\d+\.\d+)(?:\D|$)")


def wheel_version(source: str) -> str | None:
    """Return the version in a wheel's key: ``9.10.2`` of ``wheel:nvidia-cudnn-cu12==9.10.2.21``.

    Returns ``None`` where ``source`` has no ``==`` with a version.
    """
    match = _WHEEL_VERSION.search(source)
    return match[1] if match else None


@dataclass(frozen=True)
class HostNeeds:
    """The highest symbol versions that a package's libraries need from the host; ``None`` if none."""

    glibc: str | None
    glibcxx: str | None
