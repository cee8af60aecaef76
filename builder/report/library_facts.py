"""JSON form of the facts that were read of a library: counts, and the code that its containers hold.

Support is not stored but computed again from these facts, so that it is also known for later GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from builder.binary.coverage import DeviceCode, HeldCode, LibraryCoverage, coverage_of, is_specialised
from builder.binary.fatbin_format import Kind
from builder.binary.kinds.file_kinds import FileKind
from builder.binary.library import Inspected
from builder.findings.finding import Code
from builder.gpu.architectures import Arch
from builder.onnxruntime.units import UnitSet

Counts = Mapping[str, Mapping[str, int]]
"""Numbers by kind of image and architecture: ``{"sass": {"90a": 184}}``."""


@dataclass(frozen=True)
class HeldFacts:
    """``HeldCode`` with architectures as text, ``75 80 90a``, and the number of containers that hold it."""

    containers: int
    sass: str = ""
    ptx: str = ""
    stubs: str = ""
    linked: bool = False


@dataclass(frozen=True)
class UnitFacts:
    """``UnitSet`` with architectures as text."""

    name: str
    sass: str
    units: int | None = None
    launched: tuple[int, ...] | None = None


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


def counts_of(kinds: Mapping[Kind, Mapping[Arch, int]]) -> Counts:
    """Return numbers by kind and architecture with JSON's types, architectures sorted."""
    return {
        kind.value: {str(arch): count for arch, count in sorted(arches.items())}
        for kind, arches in kinds.items()
    }


def _code_of(coverage: LibraryCoverage) -> CodeFacts:
    inputs = ((code, 1) for code in coverage.held_by_inputs)
    return CodeFacts(
        sections=dict(coverage.sections),
        images={section: counts_of(kinds) for section, kinds in coverage.images.items()},
        bytes=counts_of(coverage.sizes),
        held=tuple(_held(code, count) for code, count in sorted(coverage.held.items(), key=_order)),
        inputs=tuple(_held(code, count) for code, count in sorted(inputs, key=_order)),
        units=tuple(
            UnitFacts(one.name, _words(one.sass), one.units, one.launched) for one in coverage.unit_sets
        ),
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
            held={_held_code(one): one.containers for one in facts.held},
            held_by_inputs=frozenset(map(_held_code, facts.inputs)),
            unit_sets=tuple(map(_unit_set, facts.units)),
        )
    )


def _order(entry: tuple[HeldCode, int]) -> tuple[int, list[Arch], list[Arch], bool]:
    code, count = entry
    return -count, sorted(code.sass), sorted(code.ptx), code.linked


def _held(code: HeldCode, count: int) -> HeldFacts:
    return HeldFacts(count, _words(code.sass), _words(code.ptx), _words(code.stubs), code.linked)


def _held_code(facts: HeldFacts) -> HeldCode:
    return HeldCode(_arches(facts.sass), _arches(facts.ptx), facts.linked, _arches(facts.stubs))


def _unit_set(facts: UnitFacts) -> UnitSet:
    launched = (facts.launched[0], facts.launched[1]) if facts.launched else None
    return UnitSet(facts.name, _arches(facts.sass), facts.units, launched)


def _words(arches: Iterable[Arch]) -> str:
    return " ".join(map(str, sorted(arches)))


def _arches(words: str) -> frozenset[Arch]:
    return frozenset(map(Arch.parse, words.split()))


def _kinds(counts: Counts) -> Mapping[Kind, Mapping[Arch, int]]:
    return {
        Kind(kind): {Arch.parse(arch): count for arch, count in arches.items()}
        for kind, arches in counts.items()
    }
