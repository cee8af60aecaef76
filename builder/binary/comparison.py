"""The difference of two sources: the GPUs that each runs on, library by library, and the bytes of code.

A library of one is paired with that of the same name in the other; else of the same file name, wherever it
lies; else of the same file name without its version and without the hash that auditwheel puts behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from builder.binary.coverage import Support
from builder.binary.fatbin_format import Kind
from builder.binary.library import Inspected
from builder.binary.library_names import without_hash
from builder.binary.verdict import Verdict, fits, gpus_of, together, verdicts
from builder.gpu.architectures import Arch, Capability
from builder.gpu.table import Gpu

_NOWHERE = Verdict(Support.NONE)


class Effect(Enum):
    """The ways in which support of a GPU differs; lost and won are from running to not running, and back."""

    LOST = "lost"
    WORSE = "worse"
    WON = "won"
    BETTER = "better"
    SAME = "same"


@dataclass(frozen=True)
class SupportChange:
    """How something runs on one GPU, in the old source and in the new one."""

    old: Verdict
    new: Verdict

    @property
    def effect(self) -> Effect:
        """What became of it."""
        order = list(Support)
        before, now = order.index(self.old.support), order.index(self.new.support)
        ran, runs = (index <= order.index(Support.JIT) for index in (before, now))
        if ran != runs:
            return Effect.LOST if ran else Effect.WON
        return Effect.SAME if before == now else Effect.WORSE if before < now else Effect.BETTER

    @property
    def doubtful(self) -> bool:
        """Whether either rests on little."""
        return bool(self.old.doubt or self.new.doubt)


@dataclass(frozen=True)
class Pair:
    """One library in the old and in the new source; ``None`` where one has it not."""

    old: Inspected | None
    new: Inspected | None

    @property
    def name(self) -> str:
        """The name that it has now, or had."""
        return next(one.name for one in (self.new, self.old) if one)

    @property
    def sides(self) -> tuple[tuple[Inspected, ...], tuple[Inspected, ...]]:
        """Old and new, each as the libraries that are there."""
        return ((self.old,) if self.old else ()), ((self.new,) if self.new else ())

    @property
    def has_code(self) -> bool:
        """Whether either holds device code."""
        return any(one.coverage for side in self.sides for one in side)

    @property
    def unread(self) -> bool:
        """Whether either cannot be read."""
        return any(one.problem for side in self.sides for one in side)

    def changes(self, gpus: Iterable[Gpu]) -> Mapping[Capability, SupportChange]:
        """How it runs on each of ``gpus``; nothing to run is not at all."""
        old, new = (verdicts(one) if one else {} for one in (self.old, self.new))
        return {
            gpu.device: SupportChange(old.get(gpu.device, _NOWHERE), new.get(gpu.device, _NOWHERE))
            for gpu in gpus
        }


@dataclass(frozen=True)
class Comparison:
    """All that differs in what two sources run on."""

    gpus: tuple[Gpu, ...]
    """Those that are told of: in machines that both are made for."""
    changes: Mapping[Capability, SupportChange]
    """All libraries of a source together; empty where neither can run anywhere."""
    pairs: tuple[Pair, ...]
    """The new source's libraries in their order, then those that are gone."""


def compare(old: Sequence[Inspected], new: Sequence[Inspected]) -> Comparison:
    """Compute the difference from ``old`` to ``new``."""
    gpus = tuple(gpu for gpu in gpus_of([*old, *new]) if all(_is_for(gpu, side) for side in (old, new)))
    before, now = (together(side, gpus) for side in (old, new))
    changes = {
        gpu.device: SupportChange(before.get(gpu.device, _NOWHERE), now.get(gpu.device, _NOWHERE))
        for gpu in gpus
    }
    return Comparison(gpus, changes if before or now else {}, _pairs(old, new))


def _is_for(gpu: Gpu, libraries: Iterable[Inspected]) -> bool:
    known = [item for item in libraries if item.runnable]
    return not known or any(fits(item, gpu) for item in known)


def _pairs(old: Sequence[Inspected], new: Sequence[Inspected]) -> tuple[Pair, ...]:
    partners: dict[str, Inspected] = {}
    """By the new library's name."""
    for key in (_name, _file_name, _stem):
        taken = {item.name for item in partners.values()}
        mine = _unique((item for item in old if item.name not in taken), key)
        theirs = _unique((item for item in new if item.name not in partners), key)
        partners.update((item.name, mine[name]) for name, item in theirs.items() if name in mine)
    taken = {item.name for item in partners.values()}
    gone = (Pair(item, None) for item in old if item.name not in taken)
    return (*(Pair(partners.get(item.name), item) for item in new), *gone)


def _unique(libraries: Iterable[Inspected], key: Callable[[str], str]) -> Mapping[str, Inspected]:
    """The libraries by their key, those alone whose key no other has."""
    found: dict[str, list[Inspected]] = {}
    for item in libraries:
        found.setdefault(key(item.name), []).append(item)
    return {name: items[0] for name, items in found.items() if len(items) == 1}


def _name(name: str) -> str:
    return name


def _file_name(name: str) -> str:
    return name.rpartition("/")[2]


def _stem(name: str) -> str:
    return without_hash(_file_name(name).partition(".")[0])


Code = tuple[Kind, Arch]


def code_sizes(libraries: Iterable[Inspected]) -> Mapping[Code, int]:
    """Bytes of code in all the libraries by what it is for, as they are stored."""
    sizes: Counter[Code] = Counter()
    for item in libraries:
        for kind, arches in (item.coverage.sizes if item.coverage else {}).items():
            sizes.update({(kind, arch): size for arch, size in arches.items()})
    return {code: sizes[code] for code in sorted_code(sizes)}


def sorted_code(found: Iterable[Code]) -> Sequence[Code]:
    """SASS first, and of each kind the oldest architecture."""
    return sorted(found, key=lambda code: (list(Kind).index(code[0]), code[1]))
