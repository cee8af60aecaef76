"""The grid of a package on virtual cards: how its code and the self-test's models ran on each.

``disagreements`` compares a card with the coverage and with ``select``.

``<package>.cards.json`` beside a package holds all rows; release notes and docs/cards.md are made of it.
Schema: docs/schemas/cards.schema.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from builder.binary.coverage import LibraryCoverage
from builder.errors import SchemaError
from builder.findings.finding import Code, Finding
from builder.formats.json_values import from_json, parse_json, to_json
from builder.formats.manifest import Manifest
from builder.formats.missing_kernels import NO_KERNEL_FOUND, MissingKernels, failed
from builder.formats.package_names import stem
from builder.gpu.architectures import Capability
from builder.gpu.table import MODELS
from builder.selection.reasons import RUNS

FORMAT = 1

SUFFIX = ".cards.json"

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"

_WIDTH = 200


@dataclass(frozen=True)
class LibraryOnCard:
    """The device code of one library on one card, by containers."""

    path: str
    support: str
    """``native``, ``jit``, ``partial`` or ``none``, from its bytes."""
    native: int
    jit: int
    refused: Mapping[str, int]
    """Containers by the number of CUDA's error."""
    registered: bool
    """Whether it was loaded and the virtual card resolved its containers; else read from its bytes."""

    @property
    def total(self) -> int:
        """All its containers that hold something to run."""
        return self.native + self.jit + sum(self.refused.values())


@dataclass(frozen=True)
class ModelOnCard:
    """One model, opened and run with kernels that compute nothing."""

    name: str
    nodes: Mapping[str, int]
    """Nodes by execution provider; none where it was not opened."""
    launches: int
    """Kernels, and calls into NVIDIA's libraries that launch some."""
    refused: Mapping[str, int]
    """Different kernels that the driver would not load, by the number of CUDA's error."""
    error: str
    """What opening or running it failed with, or nothing."""


@dataclass(frozen=True)
class CardRow:
    """A package on one card."""

    capability: str
    support: str
    """What the package's coverage says."""
    chosen: str | None
    """How ``select`` says that it runs there, ``native`` or ``jit``; ``None`` where it does not choose it."""
    libraries: tuple[LibraryOnCard, ...]
    models: tuple[ModelOnCard, ...]


@dataclass(frozen=True)
class Grid:
    """All of ``<package>.cards.json``; fields stand in the file's order."""

    format: int
    package: str
    """File name of the archive."""
    sha256: str
    """Of the archive: the rows speak of these bytes and no others."""
    variant: str
    onnxruntime: str
    profile: str | None
    driver: str
    """The driver that every card claimed to have."""
    cards: tuple[CardRow, ...]


def grid_name(archive: str) -> str:
    """File name of the grid that lies beside the archive of this file name, or beside its parts."""
    return stem(archive) + SUFFIX


def grid_of(manifest: Manifest, archive: str, sha256: str, driver: str, cards: Sequence[CardRow]) -> Grid:
    """The grid of the package with this manifest, whose archive has this file name and these bytes."""
    return Grid(
        format=FORMAT,
        package=archive,
        sha256=sha256,
        variant=manifest.variant,
        onnxruntime=manifest.onnxruntime.version,
        profile=manifest.onnxruntime.profile,
        driver=driver,
        cards=tuple(cards),
    )


def dumps(grid: Grid) -> str:
    """The file's text."""
    return json.dumps(to_json(grid), indent=2) + "\n"


def loads(text: str | bytes, where: str) -> Grid:
    """Read a grid; ``where`` names its file in errors.

    Raises ``ParseError`` (no JSON) or ``SchemaError`` (a format we do not know, a wrong key).
    """
    value = parse_json(text, where, "./run verify --card all makes it again.")
    found = value.get("format") if isinstance(value, dict) else None
    if found != FORMAT:
        raise SchemaError(
            f"{where} has format {found!r}, not {FORMAT}. ./run verify --card all makes it again."
        )
    return from_json(Grid, value, where)


def from_bytes(library: LibraryCoverage, capability: str) -> LibraryOnCard:
    """A library that is not loaded: NVIDIA's, whose runtime is inside it."""
    device = Capability.parse(capability)
    tally = library.tally[device]
    refused = {"209": tally.none} if tally.none else {}
    support = library.support[device].value
    return LibraryOnCard(library.path, support, tally.native, tally.jit, refused, registered=False)


def disagreements(
    package: str, row: CardRow, coverage: Sequence[LibraryCoverage], cannot_run: Sequence[MissingKernels]
) -> Iterator[Finding]:
    """V001 to V003: where virtual card, coverage and ``select`` do not say the same."""
    where = f"{package} on {row.capability}"
    by_path = {library.path: library for library in coverage}
    for library in row.libraries:
        if library.registered:
            yield from _compare(where, library, by_path[library.path], Capability.parse(row.capability))
    if row.chosen != (row.support if row.support in RUNS else None):
        yield Finding(
            Code.V003,
            where,
            "the selection and the coverage disagree",
            wanted=row.support,
            got=row.chosen or "not chosen",
        )
    for model in row.models if row.chosen else ():
        if (model.error or model.refused) and failed(model.error, cannot_run) is None:
            yield Finding(
                Code.V002,
                where,
                f"{model.name} does not run there",
                wanted=f"what {row.chosen} promises: every kernel found",
                got=outcome(model),
            )


def _compare(
    where: str, seen: LibraryOnCard, library: LibraryCoverage, device: Capability
) -> Iterator[Finding]:
    """V001. A container with nothing to run may count as any; one not meant for the device may be refused."""
    tally = library.tally[device]
    refused = sum(seen.refused.values())
    if (
        seen.total != library.containers
        or not tally.native <= seen.native <= tally.native + library.nothing_to_run
        or not tally.jit <= seen.jit <= tally.jit + library.nothing_to_run
        or refused < tally.none
    ):
        yield Finding(
            Code.V001,
            where,
            f"{library.path}: the driver takes other code of its containers than the coverage says",
            wanted=f"{tally.native} native, {tally.jit} JIT, {tally.none} with nothing that runs, "
            f"{library.nothing_to_run} idle, {library.containers} in all",
            got=f"{seen.native} native, {seen.jit} JIT, {refused} refused, {seen.total} in all",
        )


def lines(row: CardRow) -> Iterator[str]:
    """One card for people: how its code runs, then each model."""
    chosen = f"select takes it as {row.chosen}" if row.chosen else "select does not take it"
    yield f"{row.capability}: {row.support}, {chosen}"
    for library in row.libraries:
        if library.registered:
            yield f"  {library.path}: {code_of(library)} of {library.total} containers"
    yield f"  NVIDIA's libraries, by their bytes: {_worst(row.libraries)}"
    for model in row.models:
        yield f"  {model.name}: {outcome(model)}"


def code_of(library: LibraryOnCard) -> str:
    """Containers by what the driver takes of them."""
    counts = [f"{library.native} native"] if library.native else []
    counts += [f"{library.jit} JIT"] if library.jit else []
    counts += [f"{count} refused (error {error})" for error, count in sorted(library.refused.items())]
    return ", ".join(counts) or "none"


def outcome(model: ModelOnCard) -> str:
    """One line on a model: its nodes and launches, or the reason why it failed."""
    refused = "".join(
        f"; {count} kernels refused with error {error}" for error, count in model.refused.items()
    )
    if model.error:
        return f"fails: {_reason(model.error)}{refused}"
    nodes = ", ".join(
        f"{count} nodes on {name.replace('ExecutionProvider', '')}"
        for name, count in sorted(model.nodes.items(), reverse=True)
    )
    return f"{nodes}; {model.launches} launches{refused}"


def _reason(error: str) -> str:
    """The end of ORT's message: functions' signatures come first and the reason last."""
    text = " ".join(error.rpartition("Status Message:")[2].split())
    return text if len(text) <= _WIDTH else f"…{text[-_WIDTH:]}"


def page(grids: Sequence[Grid]) -> str:
    """docs/cards.md: a table for each package."""
    parts = (f"## {stem(grid.package)}\n\nOn driver {grid.driver}.\n\n{table(grid)}" for grid in grids)
    return "\n".join([_HEAD, *parts])


def table(grid: Grid) -> str:
    """Markdown: a row for each card."""
    names = list(dict.fromkeys(model.name for card in grid.cards for model in card.models))
    head = ["card", "compute capability", "the provider's containers", "NVIDIA's libraries", "select", *names]
    rows = [head, ["---"] * len(head)]
    rows += [_row(card, names) for card in grid.cards]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(card: CardRow, names: Sequence[str]) -> list[str]:
    cards = {str(model.device): model.cards for model in MODELS}
    models = {model.name: model for model in card.models}
    own = [code_of(library) for library in card.libraries if library.registered]
    return [
        cards.get(card.capability, ""),
        card.capability,
        "; ".join(own) or "not loaded",
        _worst(card.libraries),
        card.chosen or "no",
        *(_cell(models[name]) for name in names),
    ]


def _worst(libraries: Sequence[LibraryOnCard]) -> str:
    """Support of the libraries that were not loaded, with the names of those that do not run."""
    others = [library for library in libraries if not library.registered]
    lacking: dict[str, list[str]] = {}
    for library in others:
        if library.support not in RUNS:
            lacking.setdefault(library.support, []).append(
                library.path.rpartition("/")[2].partition(".so")[0]
            )
    if not lacking:
        return "JIT" if any(library.support == "jit" for library in others) else "native"
    return "; ".join(f"{support}: {', '.join(names)}" for support, names in lacking.items())


def _cell(model: ModelOnCard) -> str:
    if model.refused:
        return f"error {', '.join(model.refused)}"
    if model.error:
        return "no kernel" if NO_KERNEL_FOUND in model.error else "fails"
    total = sum(model.nodes.values())
    return f"{model.nodes.get(CUDA, 0)} of {total} nodes on CUDA, {model.launches} launches"


_HEAD = """# Packages on virtual cards

Made by `./run verify --card all --grid docs/cards.md`: do not edit. Each package was unpacked and proved, and
opened each of the self-test's models, at ONNX Runtime's default level, on a virtual card of each capability:
a stand-in for CUDA's runtime that takes of each container what NVIDIA's driver would take
(`builder/virtualcard`). Nodes and launches are what the session did; no kernel was computed. "select" is what
the client would choose on such a machine. NVIDIA's own libraries are judged from their bytes. `./run verify`
fails where virtual card, coverage and selection do not say the same.
"""
