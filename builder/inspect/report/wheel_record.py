"""The record of one wheel, a row of the atlas: a small JSON file with facts from the wheel's bytes.

The support of single libraries is not stored. It is computed from the facts, so it is known for later GPUs
too. ``verdicts`` is stored although it is no fact: it is the support of each GPU by the rules at the time of
writing, so that a change of the rules shows in a diff.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from builder.binary.coverage import (
    Counts,
    DeviceCode,
    HeldCode,
    LibraryCoverage,
    counts_of,
    coverage_of,
    is_specialised,
)
from builder.binary.fatbin_format import Kind
from builder.binary.file_kinds import FileKind
from builder.binary.library import Inspected
from builder.binary.verdict import together
from builder.contents.supported_gpus import InspectedSource, unit_facts, unit_set_of
from builder.errors import SchemaError, ValidationError
from builder.facts.gpu.architectures import Arch
from builder.files.digest import Digest
from builder.finding import Code
from builder.formats.json_values import read_document, to_json
from builder.formats.manifest import UnitFacts

FORMAT = 1

_ADVICE = "Read the wheel again: ./run atlas --add NAME==VERSION"

_SYSTEMS = (
    ("win", "Windows"),
    ("macosx", "macOS"),
    ("manylinux", "Linux"),
    ("musllinux", "Linux"),
    ("linux", "Linux"),
)

_MACHINES = (("x86_64", "x86-64"), ("amd64", "x86-64"), ("aarch64", "aarch64"), ("arm64", "aarch64"))


@dataclass(frozen=True)
class SecondReading:
    """A comparison with the counts of another reader of the same files."""

    reader: str
    """The other reader's name and version."""
    libraries: int
    """Number of libraries that both readers read."""
    images: int
    """Number of images, or of other things that ``reader`` counts, that were compared."""
    explained: tuple[str, ...] = ()
    """Differences with a known reason, which each text states."""
    unexplained: tuple[str, ...] = ()


@dataclass(frozen=True)
class WheelRecord:
    """The facts on one wheel, in the file's order."""

    format: int
    filename: str
    sha256: str
    size: int
    """The wheel's bytes."""
    date: str
    commit: str | None
    """The commit of the reader; ``None`` where it is not known, or the reader's files differ from it."""
    milliseconds: int
    """Time for opening the wheel and reading all its libraries."""
    peak_mib: int
    """Peak memory of the reading process in MiB."""
    verdicts: Mapping[str, str]
    """Support by capability, like ``native``; doubtful support ends in ``?``."""
    compared: tuple[SecondReading, ...]
    without_code: tuple[str, ...]
    """Names of the libraries without device code."""
    libraries: tuple[LibraryFacts, ...]

    @property
    def name(self) -> str:
        """The project's name: ``onnxruntime-gpu``."""
        return str(parse_wheel_filename(self.filename)[0])

    @property
    def version(self) -> Version:
        """The wheel's version."""
        return parse_wheel_filename(self.filename)[1]

    @property
    def platform(self) -> str:
        """The platform of the wheel's tag: ``Linux x86-64``; ``any machine`` for another tag."""
        tag = max(tag.platform for tag in parse_wheel_filename(self.filename)[3])
        system = next((name for word, name in _SYSTEMS if tag.startswith(word)), "any machine")
        return " ".join([system, *(name for word, name in _MACHINES if tag.endswith(word))])

    @property
    def label(self) -> str:
        """Name, version and platform."""
        return f"{self.name} {self.version}, {self.platform}"

    def source(self) -> InspectedSource:
        """Return the wheel as a source of ``inspect``. Raises ``ValueError`` as ``library_of`` does."""
        plain = (Inspected(name=name) for name in self.without_code)
        libraries = (*map(library_of, self.libraries), *plain)
        return InspectedSource(self.label, tuple(sorted(libraries, key=lambda item: item.name)))


def record_of(
    filename: str,
    digest: Digest,
    libraries: Sequence[Inspected],
    *,
    date: str,
    commit: str | None,
    seconds: float,
    peak_mib: int,
) -> WheelRecord:
    """Return the record of a wheel. Raises ``ValidationError`` if ``filename`` is no wheel's."""
    require_wheel(filename)
    kept = [item for item in libraries if item.coverage or item.problem or item.raw]
    return WheelRecord(
        format=FORMAT,
        filename=filename,
        sha256=digest.sha256,
        size=digest.size,
        date=date,
        commit=commit,
        milliseconds=round(seconds * 1000),
        peak_mib=peak_mib,
        verdicts=verdicts_of(libraries),
        compared=(),
        without_code=tuple(item.name for item in libraries if item not in kept),
        libraries=tuple(map(facts_of, kept)),
    )


def require_wheel(filename: str) -> None:
    """Raise ``ValidationError`` for a file name that is no wheel's."""
    try:
        parse_wheel_filename(filename)
    except InvalidWheelFilename as error:
        raise ValidationError(
            f"{filename!r} is not the name of a wheel", advice="Like demo-1.0-py3-none-any.whl."
        ) from error


def verdicts_of(libraries: Sequence[Inspected]) -> Mapping[str, str]:
    """Return ``WheelRecord.verdicts`` for ``libraries``, by the current rules."""
    by_device = together(libraries)
    return {
        str(device): f"{verdict.support.value}{'?' * bool(verdict.doubt)}"
        for device, verdict in by_device.items()
    }


def dumps(record: WheelRecord) -> str:
    """Return the file's JSON text, with a line for each library, so that a diff shows changed libraries."""
    fields = cast("dict[str, object]", to_json(replace(record, libraries=())))
    del fields["libraries"]
    head = "".join(f" {_line(key)}: {_line(value)},\n" for key, value in fields.items())
    libraries = ",".join(f"\n  {_line(to_json(item))}" for item in record.libraries)
    return f'{{\n{head} "libraries": [{libraries}\n ]\n}}\n'


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def loads(text: str | bytes, where: str) -> WheelRecord:
    """Return the record that a file's text holds; ``where`` names the file in errors.

    Raises ``ParseError`` for text that is no JSON, ``ValidationError`` for an unknown format, ``SchemaError``
    for a wrong key or value.
    """
    record = read_document(WheelRecord, text, where, [FORMAT], advice=_ADVICE, older=_ADVICE)
    try:
        require_wheel(record.filename)
        record.source()
    except (ValueError, ValidationError) as error:
        raise SchemaError([f"{where}: {error}. {_ADVICE}"]) from error
    return record


@dataclass(frozen=True)
class HeldFacts:
    """``HeldCode`` with architectures as text, ``75 80 90a``, and the number of containers that hold it."""

    containers: int
    sass: str = ""
    ptx: str = ""
    stubs: str = ""
    linked: bool = False


@dataclass(frozen=True)
class CodeFacts:
    """The fields of ``DeviceCode``, without those that follow from the library's name."""

    sections: Mapping[str, int]
    images: Mapping[str, Counts]
    """Numbers of images by section, kind and architecture."""
    bytes: Counts
    held: tuple[HeldFacts, ...]
    inputs: tuple[HeldFacts, ...] = ()
    units: tuple[UnitFacts, ...] = ()
    isa: tuple[int, ...] | None = None
    idle: int = 0
    link_inputs: int = 0
    unlinked: int = 0
    zstd: bool = False


@dataclass(frozen=True)
class LibraryFacts:
    """The fields of ``Inspected``, without ``deep``."""

    name: str
    size: int = 0
    kind: str = FileKind.LIBRARY.name
    machine: str = ""
    soname: str | None = None
    needed: tuple[str, ...] = ()
    problem: str = ""
    code: str | None = None
    raw: Counts = field(default_factory=dict)
    coverage: CodeFacts | None = None


def facts_of(item: Inspected) -> LibraryFacts:
    """Return the facts of a library to be stored."""
    return LibraryFacts(
        name=item.name,
        size=item.size,
        kind=item.kind.name,
        machine=item.machine,
        soname=item.soname,
        needed=item.needed,
        problem=item.problem,
        code=item.code.name if item.code else None,
        raw=counts_of(item.raw),
        coverage=_code_of(item.coverage) if item.coverage else None,
    )


def library_of(facts: LibraryFacts) -> Inspected:
    """Return the library that ``facts`` describe, judged by the current rules.

    Raises ``ValueError`` for facts with an unknown kind, code or architecture.
    """
    try:
        return Inspected(
            name=facts.name,
            coverage=_coverage(facts.name, facts.coverage) if facts.coverage else None,
            problem=facts.problem,
            code=Code[facts.code] if facts.code else None,
            size=facts.size,
            kind=FileKind[facts.kind],
            machine=facts.machine,
            soname=facts.soname,
            needed=facts.needed,
            raw=_kinds(facts.raw),
        )
    except KeyError as error:
        raise ValueError(f"{facts.name}: {error} is no kind of file and no code") from error


def _code_of(coverage: LibraryCoverage) -> CodeFacts:
    inputs = ((code, 1) for code in coverage.held_by_inputs)
    return CodeFacts(
        sections=dict(coverage.sections),
        images={section: counts_of(kinds) for section, kinds in coverage.images.items()},
        bytes=counts_of(coverage.sizes),
        held=tuple(_held(code, count) for code, count in sorted(coverage.held.items(), key=_order)),
        inputs=tuple(_held(code, count) for code, count in sorted(inputs, key=_order)),
        units=tuple(map(unit_facts, coverage.unit_sets)),
        isa=coverage.isa,
        idle=coverage.nothing_to_run,
        link_inputs=coverage.link_inputs,
        unlinked=coverage.unlinked,
        zstd=coverage.zstd,
    )


def _coverage(name: str, facts: CodeFacts) -> LibraryCoverage:
    return coverage_of(
        DeviceCode(
            path=name,
            sections=facts.sections,
            images={section: _kinds(counts) for section, counts in facts.images.items()},
            sizes=_kinds(facts.bytes),
            isa=(facts.isa[0], facts.isa[1]) if facts.isa else None,
            nothing_to_run=facts.idle,
            link_inputs=facts.link_inputs,
            unlinked=facts.unlinked,
            specialised=is_specialised(name),
            zstd=facts.zstd,
            held={_held_code(held): held.containers for held in facts.held},
            held_by_inputs=frozenset(map(_held_code, facts.inputs)),
            unit_sets=tuple(map(unit_set_of, facts.units)),
        )
    )


def _order(entry: tuple[HeldCode, int]) -> tuple[int, list[Arch], list[Arch], bool]:
    code, count = entry
    return -count, sorted(code.sass), sorted(code.ptx), code.linked


def _held(code: HeldCode, count: int) -> HeldFacts:
    return HeldFacts(count, _words(code.sass), _words(code.ptx), _words(code.stubs), code.linked)


def _held_code(facts: HeldFacts) -> HeldCode:
    return HeldCode(_arches(facts.sass), _arches(facts.ptx), facts.linked, _arches(facts.stubs))


def _words(arches: Iterable[Arch]) -> str:
    return " ".join(map(str, sorted(arches)))


def _arches(words: str) -> frozenset[Arch]:
    return frozenset(map(Arch.parse, words.split()))


def _kinds(counts: Counts) -> Mapping[Kind, Mapping[Arch, int]]:
    return {
        Kind(kind): {Arch.parse(arch): count for arch, count in arches.items()}
        for kind, arches in counts.items()
    }
