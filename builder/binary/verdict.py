"""This module judges how the libraries of one source run together on each GPU, and where that is doubtful.

The support of an ortpacks package is the worst of its libraries' (``coverage.combine``). In other wheels and
folders, some libraries are alternatives, of which one is loaded: no library needs them by name, and their
names differ in a number only (bitsandbytes has one for each CUDA). Other libraries are only loaded on the
GPUs that they hold code for: libraries with suffixed SASS only (vLLM's kernels for Hopper), and bare images.
Such libraries do not worsen the result. A gap in a small library alone is doubtful, because a program may
load the library for some work or on some GPUs only, as Paddle does with its flash attention.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from builder.binary.coverage import (
    ContainerTally,
    LibraryCoverage,
    Support,
    columns,
    is_specialised,
    worst,
)
from builder.binary.file_kinds import FileKind
from builder.binary.library import Inspected
from builder.binary.library_names import stem_of
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.table import Gpu
from builder.formats.text import grouped

X86_64 = "x86-64"

_X86 = (X86_64, "x86")

_FEW = 100
"""Native support is doubtful if fewer than one in 100 containers of a specialised library are native.

Measured: 3 % of cuBLASLt 12.9 serve 5.0, 1.2 % of cuFFT 11.4 serve 8.7. In cuSPARSELt 0.8, which NVIDIA makes
for 8.0 and newer, 1 of 350 serves 5.2.
"""

_MANY = 10
"""NVIDIA's code may be linked in if more than a tenth of the containers, not all, hold one architecture."""

_MAKER, _SMALL = "libnvrtc", 50
"""A library that needs NVRTC and has fewer than 50 containers may compile most of its code at run time. ORT's
provider has some 150 containers."""

_SMALL_PART = 5
"""A library with less than a fifth of all containers may be loaded for some work or on some GPUs only.

Measured: 39 of 711 in Paddle 2.6, whose flash attention is for 8.x; 1 of 79 in Transformer Engine 2.20, whose
NCCL is for 9.0 and newer; 65 of 500 in torch 2.14, whose linear algebra is not for 7.5.
"""

_BARE = (FileKind.CUBIN, FileKind.PTX)

_NUMBER, _WORD = re.compile(r"\d+"), re.compile(r"[_.-]")


@dataclass(frozen=True)
class Verdict:
    """The support of one GPU by one or several libraries."""

    support: Support
    doubt: str = ""
    """The reason why the real support may differ; empty without doubt."""
    because: tuple[str, ...] = ()
    """Names of the libraries that determine the support."""
    joint_doubt: str = field(default="", compare=False)
    """The doubt that arises from several libraries only: alternatives differ, or a small one decides."""

    def document(self) -> dict[str, object]:
        """Return the JSON form: support, confidence, and the reason for a doubt."""
        confidence = "low" if self.doubt else "high"
        return {"support": self.support.value, "confidence": confidence, "reason": self.doubt or None}


def _doubt(item: Inspected, coverage: LibraryCoverage, device: Capability, support: Support) -> str:
    """Return why a library's support of a GPU may differ from its containers' tally; empty without doubt."""
    tally = coverage.tally[device]
    if coverage.picked and device not in coverage.picked_for and not tally.none:
        return f"{coverage.picked:,} containers that are picked by device have nothing for it"
    if support is Support.JIT:
        return ""
    if support is Support.NATIVE:
        if coverage.specialised and tally.native * _FEW < tally.total:
            return f"code for it is in {tally.native:,} of {tally.total:,} containers, and in no other"
        if not coverage.specialised and 2 * tally.stubs > tally.total:
            return f"{tally.stubs:,} of {tally.total:,} containers hold next to nothing for it: stubs"
        return ""
    return _doubt_of_gap(item, coverage, tally)


def _doubt_of_gap(item: Inspected, coverage: LibraryCoverage, tally: ContainerTally) -> str:
    """Return why a library may run on a GPU for which containers of it have no code."""
    if coverage.unlinked:
        hold = "container holds" if coverage.unlinked == 1 else "containers hold"
        return f"{coverage.unlinked:,} {hold} relocatable code that no device link in the file took"
    makers = [name for name in item.needed if stem_of(name) == _MAKER]
    if makers and tally.total < _SMALL:
        return f"it needs {', '.join(makers)}, by which code is made while it runs"
    if coverage.ltoir:
        return "it holds LTO IR, which is linked for a GPU while it runs"
    judged = _judged_containers(item)
    gaps = not coverage.specialised and bool(tally.native or tally.jit)
    if gaps and coverage.single * _MANY > judged > coverage.single:
        one_each = f"{coverage.single:,} of {judged:,} containers hold one architecture each"
        return f"{one_each}, as NVIDIA's own libraries do, which choose by device: they may be linked in"
    return ""


def verdicts(item: Inspected) -> Mapping[Capability, Verdict]:
    """Return one library's verdict for each capability; empty where the library has nothing to run."""
    coverage = item.runnable
    if coverage is None:
        return {}
    return {
        device: Verdict(support, _doubt(item, coverage, device, support), (item.name,))
        for device, support in coverage.support.items()
    }


def alternatives(items: Iterable[Inspected]) -> tuple[tuple[Inspected, ...], ...]:
    """Return the groups of libraries of which a program loads one.

    Their names differ in a number only, or in a word, and then each is for GPUs of its own. All libraries of
    one stem are in the same group, such as one for each Python. Objects are never alternatives: all of them
    are linked into one library.
    """
    known = [item for item in items if item.runnable and item.kind is not FileKind.OBJECT]
    needed = {name for item in known for name in item.needed}
    free = [item for item in known if not needed.intersection((item.name.rpartition("/")[2], item.soname))]
    groups: list[list[Inspected]] = []
    for family in grouped((_family(item), item) for item in free).values():
        partner = next((group for group in groups if _by_capability(group, family)), None)
        if partner is None:
            groups.append(list(family))
        else:
            partner += family
    return tuple(tuple(group) for group in groups if len({_stem(item.name) for item in group}) > 1)


def _family(item: Inspected) -> str:
    """Return a library's name without numbers: that of one for another CUDA is the same."""
    return _NUMBER.sub("#", _stem(item.name))


def _by_capability(some: Sequence[Inspected], others: Sequence[Inspected]) -> bool:
    """Return whether two families are for different GPUs: one's name has a word more, and no code is in both.

    Where some code is in both, they are if they are made from the same units: for several numbers there is
    one of each, and both have as many containers. bitsandbytes has ``…_cuda118.so`` for 7.5 and newer, and
    ``…_cuda118_nocublaslt.so`` for older GPUs, or for all.
    """
    one, other = sorted((_WORD.split(_family(group[0])) for group in (some, others)), key=len)
    held = [{arch.number for item in group for arch in _sass(item)} for group in (some, others)]
    if not all(held) or len(one) == len(other) or other[: len(one)] != one:
        return False
    if held[0].isdisjoint(held[1]):
        return True
    units, same = ({_numbers(item): _containers(item) for item in group} for group in (some, others))
    pairs = units.keys() & same.keys()
    return held[0] != held[1] and len(pairs) > 1 and all(units[number] == same[number] for number in pairs)


def _numbers(item: Inspected) -> tuple[str, ...]:
    return tuple(_NUMBER.findall(_stem(item.name)))


def _containers(item: Inspected) -> int:
    return item.runnable.containers if item.runnable else 0


def _sass(item: Inspected) -> tuple[Arch, ...]:
    return item.runnable.sass if item.runnable else ()


def _stem(name: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"{folder}/{file.partition('.')[0]}"


def is_for_own_gpus(item: Inspected) -> bool:
    """Return whether a library has no PTX, and only SASS with a suffix (exact architectures, families)."""
    coverage = item.runnable
    return coverage is not None and not coverage.ptx and all(arch.suffix for arch in coverage.sass)


def together(items: Sequence[Inspected], gpus: Sequence[Gpu] | None = None) -> Mapping[Capability, Verdict]:
    """Return the verdict of all libraries of a source together for each of ``gpus`` (default: ``gpus_of``).

    Empty where no library has anything to run.
    """
    shown = gpus_of(items) if gpus is None else gpus
    parts = [[(item, verdicts(item)) for item in part] for part in _parts(items)]
    return {gpu.capability: _together(parts, gpu) for gpu in shown} if parts else {}


def _parts(items: Sequence[Inspected]) -> list[tuple[Inspected, ...]]:
    """Return the libraries that determine the result, in groups of alternatives.

    Libraries for their own GPUs only, and bare images, are parts only if there is no other part.
    """
    groups = alternatives(items)
    grouped = {item.name for group in groups for item in group}
    single = [(item,) for item in items if item.runnable and item.name not in grouped]
    general = [part for part in single if part[0].kind not in _BARE and not is_for_own_gpus(part[0])]
    return [*groups, *(general or (single if not groups else []))]


def _together(parts: Sequence[Sequence[tuple[Inspected, Mapping[Capability, Verdict]]]], gpu: Gpu) -> Verdict:
    fitting = [
        [(item, by_capability[gpu.capability]) for item, by_capability in part if fits(item, gpu)]
        for part in parts
    ]
    fitting = [part for part in fitting if part]
    each = [_best_family(part) for part in fitting]
    support = worst(one.support for one in each)
    blamed = [one for one in each if one.support is support]
    because = tuple(name for one in blamed for name in one.because)
    general = _doubt_of_parts([[item for item, _ in part] for part in fitting], because)
    doubts = dict.fromkeys(filter(None, (*(one.doubt for one in each), general)))
    joint = filter(None, (*(one.joint_doubt for one in each), general))
    return Verdict(support, "; ".join(doubts), because, "; ".join(joint))


def _doubt_of_parts(parts: Sequence[Sequence[Inspected]], because: Collection[str]) -> str:
    """Return why a verdict that the libraries ``because`` determine may not hold; empty without doubt."""
    items = [item for part in parts for item in part]
    own = [part for part in parts if not is_specialised(part[0].name)]
    if len(items) > 1 and all(item.kind in _BARE for item in items):
        return "there are bare images alone, and whatever loads them chooses among them"
    blamed = [part for part in parts if any(item.name in because for item in part)]
    if len(own) == 1 or any(len(part) > 1 or is_specialised(part[0].name) for part in blamed):
        return ""
    few, every = (sum(map(_judged_containers, some)) for some in ([part[0] for part in blamed], items))
    names = ", ".join(part[0].name.rpartition("/")[2] for part in blamed)
    share = f"it comes from {few:,} of {every:,} containers, in {names}"
    doubt = f"{share}: that may be loaded for some work or on some GPUs alone"
    return doubt if few * _SMALL_PART < every else ""


def _judged_containers(item: Inspected) -> int:
    coverage = item.runnable
    return coverage.containers - coverage.nothing_to_run - coverage.link_inputs if coverage else 0


def _best_family(part: Sequence[tuple[Inspected, Verdict]]) -> Verdict:
    """Return the best verdict of alternatives. Those for other GPUs are not loaded and raise no doubt."""
    families = grouped((_family(item), verdict) for item, verdict in part).values()
    return min(map(_best, families), key=lambda verdict: (_rank(verdict), bool(verdict.doubt)))


def _best(all_verdicts: Sequence[Verdict]) -> Verdict:
    """Return the best verdict of alternatives, doubtful where not all of them have the same support."""
    best = min(all_verdicts, key=_rank)
    alike = [verdict for verdict in all_verdicts if verdict.support is best.support]
    names = tuple(name for verdict in alike for name in verdict.because)
    if len(alike) == len(all_verdicts):
        return Verdict(best.support, best.doubt, names)
    differ = f"that holds for {len(alike)} of {len(all_verdicts)} alternatives"
    return Verdict(best.support, differ, names, differ)


def _rank(verdict: Verdict) -> int:
    return list(Support).index(verdict.support)


def fits(item: Inspected, gpu: Gpu) -> bool:
    """Return whether machines with this GPU can load the library (x86 code does not run on ARM machines)."""
    return item.machine not in _X86 or not gpu.arm


def gpus_of(items: Iterable[Inspected]) -> tuple[Gpu, ...]:
    """Return the GPUs that a report on these libraries covers: ``columns``, in machines that can load one."""
    known = [item for item in items if item.runnable]
    held = columns(item.runnable for item in known if item.runnable)
    return tuple(gpu for gpu in held if not known or any(fits(item, gpu) for item in known))
