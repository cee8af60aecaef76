"""Comparison of two sources, an old and a new one: the GPUs that each runs on, and the bytes of device code.

Libraries are compared in pairs. A library of the new source is paired with the old library of the same name
(its path in the source). Libraries without such a partner are paired by file name, then by file name without
version and without the hash that auditwheel appends. A name that two libraries of one source share makes no
pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from builder.binary.coverage import Support
from builder.binary.fatbin_format import Kind
from builder.binary.library import Inspected
from builder.binary.library_names import without_hash
from builder.binary.verdict import Verdict, fits, gpus_of, together, verdicts
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.table import Gpu
from builder.formats.text import grouped

_NOWHERE = Verdict(Support.NONE)


class Effect(Enum):
    """Changes of a GPU's support. Lost: native or JIT before, partial or none now; won: the reverse."""

    LOST = "lost"
    WORSE = "worse"
    WON = "won"
    BETTER = "better"
    SAME = "same"


@dataclass(frozen=True)
class SupportChange:
    """The verdicts on one GPU in the old and in the new source, for one library or for all of them."""

    old: Verdict
    new: Verdict

    @property
    def effect(self) -> Effect:
        """The direction in which the support changed."""
        order = list(Support)
        before, now = order.index(self.old.support), order.index(self.new.support)
        ran, runs = (index <= order.index(Support.JIT) for index in (before, now))
        if ran != runs:
            return Effect.LOST if ran else Effect.WON
        return Effect.SAME if before == now else Effect.WORSE if before < now else Effect.BETTER

    @property
    def doubtful(self) -> bool:
        """Whether the old or the new verdict is doubtful."""
        return bool(self.old.doubt or self.new.doubt)


@dataclass(frozen=True)
class Pair:
    """One library in the old and in the new source; ``None`` for the source that lacks the library."""

    old: Inspected | None
    new: Inspected | None

    @property
    def name(self) -> str:
        """The library's name in the new source, or in the old one where the new source lacks the library."""
        return next(side.name for side in (self.new, self.old) if side)

    @property
    def sides(self) -> tuple[tuple[Inspected, ...], tuple[Inspected, ...]]:
        """The old and the new library, each as a tuple of one, or empty where its source has none."""
        return ((self.old,) if self.old else ()), ((self.new,) if self.new else ())

    @property
    def has_code(self) -> bool:
        """Whether the old or the new library holds device code."""
        return any(library.coverage for side in self.sides for library in side)

    @property
    def unread(self) -> bool:
        """Whether the old or the new library cannot be read."""
        return any(library.problem for side in self.sides for library in side)

    def changes(self, gpus: Iterable[Gpu]) -> Mapping[Capability, SupportChange]:
        """Return the change of support for each of ``gpus``.

        The support of a library that is missing or has nothing to run is ``NONE``.
        """
        old, new = (verdicts(side) if side else {} for side in (self.old, self.new))
        return _changes(old, new, gpus)


@dataclass(frozen=True)
class Comparison:
    """The difference between the GPUs that two sources run on."""

    gpus: tuple[Gpu, ...]
    """The GPUs that are compared: those in machines that both sources are made for."""
    pairs: tuple[Pair, ...]
    """The new source's libraries in their order, then the old source's libraries without a partner."""

    @property
    def read(self) -> tuple[list[Inspected], list[Inspected]]:
        """The old and the new libraries, without the pairs in which a library cannot be read."""
        sides = [pair.sides for pair in self.pairs if not pair.unread]
        return [library for old, _ in sides for library in old], [
            library for _, new in sides for library in new
        ]

    @cached_property
    def changes(self) -> Mapping[Capability, SupportChange]:
        """Changes of support by GPU, for all ``read`` libraries together; empty if none has code to run."""
        before, now = (together(side, self.gpus) for side in self.read)
        return _changes(before, now, self.gpus) if before or now else {}


def compare(old: Sequence[Inspected], new: Sequence[Inspected]) -> Comparison:
    """Compute the difference from ``old`` to ``new``."""
    gpus = tuple(gpu for gpu in gpus_of([*old, *new]) if all(_is_for(gpu, side) for side in (old, new)))
    return Comparison(gpus, _pairs(old, new))


def _changes(
    before: Mapping[Capability, Verdict], now: Mapping[Capability, Verdict], gpus: Iterable[Gpu]
) -> Mapping[Capability, SupportChange]:
    return {
        gpu.capability: SupportChange(before.get(gpu.capability, _NOWHERE), now.get(gpu.capability, _NOWHERE))
        for gpu in gpus
    }


def _is_for(gpu: Gpu, libraries: Iterable[Inspected]) -> bool:
    known = [item for item in libraries if item.runnable]
    return not known or any(fits(item, gpu) for item in known)


def _pairs(old: Sequence[Inspected], new: Sequence[Inspected]) -> tuple[Pair, ...]:
    partners: dict[str, Inspected] = {}
    """The old libraries by the names of the new libraries that they are paired with."""
    for key in (str, _file_name, _stem):
        taken = {item.name for item in partners.values()}
        mine = _unique((item for item in old if item.name not in taken), key)
        theirs = _unique((item for item in new if item.name not in partners), key)
        partners.update((item.name, mine[name]) for name, item in theirs.items() if name in mine)
    taken = {item.name for item in partners.values()}
    gone = (Pair(item, None) for item in old if item.name not in taken)
    return (*(Pair(partners.get(item.name), item) for item in new), *gone)


def _unique(libraries: Iterable[Inspected], key: Callable[[str], str]) -> Mapping[str, Inspected]:
    """Return the libraries by their key, without those whose key another library has too."""
    by_key = grouped((key(item.name), item) for item in libraries)
    return {name: items[0] for name, items in by_key.items() if len(items) == 1}


def _file_name(name: str) -> str:
    return name.rpartition("/")[2]


def _stem(name: str) -> str:
    return without_hash(_file_name(name).partition(".")[0])


Code = tuple[Kind, Arch]


def code_sizes(libraries: Iterable[Inspected]) -> Mapping[Code, int]:
    """Return the stored bytes of device code in all ``libraries`` by kind and architecture."""
    sizes: Counter[Code] = Counter()
    for item in libraries:
        for kind, arches in (item.coverage.sizes if item.coverage else {}).items():
            sizes.update({(kind, arch): size for arch, size in arches.items()})
    return {code: sizes[code] for code in sorted_code(sizes)}


def sorted_code(codes: Iterable[Code]) -> Sequence[Code]:
    """Return ``codes`` sorted by kind, SASS first, then by architecture, oldest first."""
    return sorted(codes, key=lambda code: (list(Kind).index(code[0]), code[1]))
