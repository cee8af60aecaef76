"""The grid of a package on virtual cards: how the package's code and the self-test's models ran on each card.

The grid is kept as ``<package>.cards.json`` in the package's folder; release notes and docs/cards.md are made
from it. Schema: docs/schemas/cards.schema.json. ``disagreements`` compares a card's row with the coverage and
with the answer of ``select``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from builder.binary.coverage import LibraryCoverage
from builder.client.selection.reasons import RUNS
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.compatibility import JIT
from builder.facts.gpu.table import BY_CAPABILITY
from builder.finding import Code, Finding
from builder.formats.json_values import OPTIONAL, read_document
from builder.formats.missing_kernels import NO_KERNEL_FOUND, MissingKernels, operator_without_kernel
from builder.formats.package_names import stem
from builder.formats.session_log import CUDA_PROVIDER
from builder.formats.text import grouped

FORMAT = 1

SUFFIX = ".cards.json"

_WIDTH = 200

_AGAIN = "./run verify --card all makes it again."

_REFUSED = re.compile(r"while running (\w+) node\b.*\bcompute capability\b", re.DOTALL)
"""ONNX Runtime's message for a node that does not run on a GPU, as our repairs of its source write it."""


@dataclass(frozen=True)
class LibraryOnCard:
    """Numbers of one library's containers by how they run on one card."""

    path: str
    support: str
    """``native``, ``jit``, ``partial`` or ``none``, from the library's bytes."""
    native: int
    jit: int
    refused: Mapping[str, int]
    """Numbers of refused containers by CUDA's error number."""
    registered: bool
    """Whether the library was loaded and the card resolved its containers; else its bytes were read."""

    @property
    def total(self) -> int:
        """The number of counted containers: all if ``registered``, else those with something to run."""
        return self.native + self.jit + sum(self.refused.values())


@dataclass(frozen=True)
class ModelOnCard:
    """One model on one card, opened and run with kernels that compute nothing."""

    name: str
    nodes: Mapping[str, int]
    """Numbers of nodes by execution provider; empty where the model could not be opened."""
    launches: int
    """Number of launched kernels and of calls into NVIDIA's libraries that launch kernels."""
    refused: Mapping[str, int]
    """Numbers of different kernels that a driver would not load, by CUDA's error number."""
    error: str
    """The error of opening or running the model; empty on success."""


@dataclass(frozen=True)
class CardRow:
    """The results of a package on one card."""

    capability: str
    support: str
    """The support by the package's coverage."""
    chosen: str | None
    """The support that ``select`` names, ``native`` or ``jit``; ``None`` where it rejects the package."""
    libraries: tuple[LibraryOnCard, ...]
    models: tuple[ModelOnCard, ...]
    host: str | None = field(default=None, metadata=OPTIONAL)
    """Version of the stock host that registered the package's plug-in; ``None`` for a provider."""

    @property
    def where(self) -> str:
        """The card, and the host of a plug-in: ``8.6 in onnxruntime 1.32.0``."""
        return f"{self.capability} in onnxruntime {self.host}" if self.host else self.capability


@dataclass(frozen=True)
class Grid:
    """The contents of ``<package>.cards.json``, in the file's order."""

    format: int
    package: str
    """File name of the archive."""
    sha256: str
    """The archive's sha256; the rows hold for these bytes only."""
    variant: str
    onnxruntime: str
    profile: str | None
    driver: str
    """The driver version that every card claimed."""
    cards: tuple[CardRow, ...]


def grid_name(archive: str) -> str:
    """Return the file name of the grid for an archive; the grid lies in the archive's folder."""
    return stem(archive) + SUFFIX


def loads(text: str | bytes, where: str) -> Grid:
    """Return the grid that a file's text holds; ``where`` names the file in errors.

    Raises ``ParseError`` for text that is no JSON, ``ValidationError`` for an unknown format, ``SchemaError``
    for a wrong key.
    """
    return read_document(Grid, text, where, [FORMAT], advice=_AGAIN, older=_AGAIN)


def from_bytes(library: LibraryCoverage, capability: str) -> LibraryOnCard:
    """Return the row of a library that was not loaded, from its coverage.

    NVIDIA's libraries are not loaded because they contain a CUDA runtime of their own.
    """
    device = Capability.parse(capability)
    tally = library.tally[device]
    refused = {"209": tally.none} if tally.none else {}
    support = library.support[device].value
    return LibraryOnCard(library.path, support, tally.native, tally.jit, refused, registered=False)


def disagreements(
    package: str, row: CardRow, coverage: Sequence[LibraryCoverage], cannot_run: Sequence[MissingKernels]
) -> Iterator[Finding]:
    """Yield V001 to V003 where virtual card, coverage and ``select`` disagree."""
    where = f"{package} on {row.where}"
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
        if (model.error or model.refused) and not _is_told(model.error, cannot_run):
            yield Finding(
                Code.V002,
                where,
                f"{model.name} does not run there",
                wanted=f"what {row.chosen} promises: every kernel found",
                got=outcome(model),
            )


def _is_told(error: str, cannot_run: Sequence[MissingKernels]) -> bool:
    """Return whether a model fails because of an operator that the manifest says does not run."""
    is_refused = any(_refusing(error) in entry.operators for entry in cannot_run)
    return is_refused or operator_without_kernel(error, cannot_run) is not None


def _refusing(error: str) -> str:
    """Return the operator whose own check ended a session, by ONNX Runtime's message; empty if none did."""
    match = _REFUSED.search(error)
    return match[1] if match else ""


def _compare(
    where: str, seen: LibraryOnCard, library: LibraryCoverage, device: Capability
) -> Iterator[Finding]:
    """Yield V001 where the numbers of containers differ.

    A container with nothing to run may be native, JIT or refused; one not meant for the device may be
    refused.
    """
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


def lines(row: CardRow, *, selected: bool = True) -> Iterator[str]:
    """Yield the lines for one card: its support, its libraries, its models.

    ``selected``: whether ``select`` was asked.
    """
    chosen = f", select takes it as {row.chosen}" if row.chosen else ", select does not take it"
    yield f"{row.where}: {row.support}{chosen if selected else ''}"
    for library in row.libraries:
        if library.registered:
            yield f"  {library.path}: {code_of(library)} of {library.total} containers"
    if not all(library.registered for library in row.libraries):
        yield f"  NVIDIA's libraries, by their bytes: {_worst(row.libraries)}"
    for model in row.models:
        yield f"  {model.name}: {outcome(model)}"


def code_of(library: LibraryOnCard) -> str:
    """Return the numbers of containers as text: ``184 native, 2 refused (error 209)``, or ``none``."""
    counts = [f"{library.native} native"] if library.native else []
    counts += [f"{library.jit} JIT"] if library.jit else []
    counts += [f"{count} refused (error {error})" for error, count in sorted(library.refused.items())]
    return ", ".join(counts) or "none"


def outcome(model: ModelOnCard) -> str:
    """Return one line on a model: its nodes and launches, or the reason why it failed."""
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
    """Return the last characters of ORT's message, which begins with signatures and ends with the reason."""
    text = " ".join(error.rpartition("Status Message:")[2].split())
    return text if len(text) <= _WIDTH else f"…{text[-_WIDTH:]}"


def page(grids: Sequence[Grid]) -> str:
    """Return the text of docs/cards.md, with a table for each package."""
    parts = (f"## {stem(grid.package)}\n\nOn driver {grid.driver}.\n\n{table(grid)}" for grid in grids)
    return "\n".join([_HEAD, *parts])


def table(grid: Grid) -> str:
    """Return a Markdown table with a row for each card."""
    names = list(dict.fromkeys(model.name for card in grid.cards for model in card.models))
    head = ["card", "compute capability", "the provider's containers", "NVIDIA's libraries", "select", *names]
    rows = [head, ["---"] * len(head)]
    rows += [_row(card, names) for card in grid.cards]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(card: CardRow, names: Sequence[str]) -> list[str]:
    gpu = BY_CAPABILITY.get(Capability.parse(card.capability))
    models = {model.name: model for model in card.models}
    own = [code_of(library) for library in card.libraries if library.registered]
    return [
        gpu.cards if gpu else "",
        card.where,
        "; ".join(own) or "not loaded",
        _worst(card.libraries),
        card.chosen or "no",
        *(_cell(models[name]) for name in names),
    ]


def _worst(libraries: Sequence[LibraryOnCard]) -> str:
    """Return the support of the libraries that were not loaded, with the names of those that do not run."""
    others = [library for library in libraries if not library.registered]
    lacking = grouped(
        (library.support, library.path.rpartition("/")[2].partition(".so")[0])
        for library in others
        if library.support not in RUNS
    )
    if not lacking:
        return "JIT" if any(library.support == JIT for library in others) else "native"
    return "; ".join(f"{support}: {', '.join(names)}" for support, names in lacking.items())


def _cell(model: ModelOnCard) -> str:
    if model.refused:
        return f"error {', '.join(model.refused)}"
    if model.error:
        refusing = _refusing(model.error)
        failed = f"{refusing} refuses" if refusing else "fails"
        return "no kernel" if NO_KERNEL_FOUND in model.error else failed
    total = sum(model.nodes.values())
    return f"{model.nodes.get(CUDA_PROVIDER, 0)} of {total} nodes on CUDA, {model.launches} launches"


_HEAD = """# Packages on virtual cards

Generated by `./run verify --card all --grid docs/cards.md`; do not edit. A virtual card is a replacement for
CUDA's runtime that loads from each container the image that NVIDIA's driver would load on a GPU of that
capability, and computes no kernel. Each model of the self-test was opened on it in each package; nodes and
launches are those of the session. "select" is the package that the client would choose. NVIDIA's own
libraries are judged from their bytes. `./run verify` fails where virtual card, coverage and selection differ.

## On real cards

If you have one, please [send a proof](proofs.md): it takes minutes and names neither you nor your machine.

<!-- ./run docs: proofs -->
<!-- end -->
"""
