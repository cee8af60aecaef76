"""Reader of the rules of a source of ONNX Runtime.

Nothing here knows a version: options, minimums, what CMake makes of a list of architectures and which units
it compiles for which of them follow from evaluating the source's CMake files for one
architecture after the other; the launches from patterns in its C++ sources. What cannot be decided is a note,
and nothing is left out for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, groupby
from posixpath import basename, dirname

from builder.facts.gpu.compatibility import NVCCS, version_of
from builder.facts.gpu.table import KNOWN_SM
from builder.facts.ort.cmake_commands import ROOT, Refusal, State
from builder.facts.ort.cmake_language import SourceLine
from builder.facts.ort.cmake_values import UNKNOWN, is_name, is_open, items
from builder.facts.ort.launch_patterns import ARCH_TEST, NEWEST, launches_in, without_device_code
from builder.facts.ort.source_rules import NEEDS_TURING, Fact, Range, Rewriting, SourceRules, UnitGroup
from builder.facts.ort.source_tree import BELOW, SourceTree, whole

_TOOLS = {
    "CMAKE_CUDA_COMPILER_VERSION": "cuda",
    "CMAKE_C_COMPILER_VERSION": "gcc",
    "CMAKE_CXX_COMPILER_VERSION": "gcc",
}

_TOLD = re.compile(r"5\d|[6-9]\d|1[0-9]\d")
"""Numbers in CMake files that may be architectures."""

_ALWAYS = frozenset({"onnxruntime_USE_CUDA"})
"""Options that are ``ON`` in every build."""

_OLD_NVCCS = ("11.4", "11.8", "12.0")
"""Versions of nvcc before ``NVCCS``; an option may need one that is newer than the oldest."""


def read_rules(
    files: Mapping[str, str], listing: Collection[str], settings: Mapping[str, str], *, cuda: str = NVCCS[-2]
) -> SourceRules:
    """Return the rules of a source whose build has these options and this version of nvcc.

    ``files`` are texts by path below the source's root, those that ``is_wanted`` names; ``listing`` has the
    paths of all its files. Raises ``ParseError``.
    """
    return _Reader(SourceTree.read(files, listing), settings, cuda).rules()


_NOWHERE = ("", "")
"""Stands for a unit in no target."""

Compiled = Mapping[str, tuple[str, str]]
"""Target and CUDA_ARCHITECTURES by the path of a unit's source."""


@dataclass(frozen=True)
class _Reader:
    source: SourceTree
    settings: Mapping[str, str]
    cuda: str
    notes: list[str] = field(default_factory=list)

    def rules(self) -> SourceRules:
        unbound = self._state("75-real", cuda=None)
        groups, units = self._groups()
        launches = sorted(launches_in(self.source), key=lambda launch: not launch.option)
        if not launches:
            self.notes.append("no launch condition was found in a form that is known: no unit is left out")
        return SourceRules(
            version=self.source.version,
            minimums=dict(self._minimums(unbound)),
            options=dict(self._options()),
            demands=dict(self._demands()),
            rewriting=self._rewriting(),
            groups=groups,
            units=_by_folder(units),
            launches=tuple(launches),
            without_device_code=tuple(without_device_code(self.source)),
            linked=self._linked(unbound),
            thresholds=dict(self._thresholds()),
            defaults=dict(self._defaults()),
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _state(self, architectures: str | None, cuda: str | None = "") -> State:
        return self.source.configured(architectures, self.cuda if cuda == "" else cuda, self.settings)

    def _minimums(self, unbound: State) -> Iterator[tuple[str, Fact]]:
        for refusal in sorted(unbound.refusals, key=lambda one: version_of(_version(one.minimum[1]))):
            is_general = not self._asked(refusal)
            if is_general and refusal.minimum[0] in _TOOLS and _version(refusal.minimum[1]) != "0":
                yield _TOOLS[refusal.minimum[0]], Fact(refusal.minimum[1], whole(refusal.line))
        for command in self.source.scripts.get("CMakeLists.txt", ()):
            words = [argument.text for argument in command.arguments]
            if command.name == "cmake_minimum_required" and words[1:]:
                yield "cmake", Fact(words[1], whole(command.place))
        standard = unbound.value("CMAKE_CXX_STANDARD")
        if standard and not is_open(standard):
            yield "cxx", Fact(standard, whole(unbound.set_at["CMAKE_CXX_STANDARD"]))

    def _options(self) -> Iterator[tuple[str, Fact]]:
        for command in self.source.commands:
            words = [argument.text for argument in command.arguments]
            if not words or not is_name(words[0]):
                continue
            if command.name in {"option", "cmake_dependent_option"}:
                yield words[0], Fact((words[2:3] or ["OFF"])[0], whole(command.place))
            elif command.name == "set" and "CACHE" in words:
                yield words[0], Fact(";".join(words[1 : words.index("CACHE")]), whole(command.place))

    def _asked(self, refusal: Refusal) -> set[str]:
        """Return the options that the conditions of a refusal name, without those of every build."""
        return {word for word in refusal.condition if word in self._known} - _ALWAYS

    @cached_property
    def _known(self) -> Collection[str]:
        return frozenset(name for name, _ in self._options())

    def _demands(self) -> Iterator[tuple[str, Fact]]:
        settings = dict.fromkeys(_ALWAYS, "ON")
        refused: dict[str, tuple[str, Refusal]] = {}
        for cuda in sorted((*_OLD_NVCCS, *NVCCS), key=version_of):
            for refusal in self.source.configured("80-real", cuda, settings).refusals:
                names = self._asked(refusal)
                if refusal.is_certain and len(names) == 1:
                    refused[names.pop()] = (cuda, refusal)
        for name, (last, refusal) in refused.items():
            least = next((cuda for cuda in NVCCS if version_of(cuda) > version_of(last)), None)
            if least:
                yield name, Fact(least, whole(refusal.line))

    @cached_property
    def _numbers(self) -> Sequence[int]:
        """All numbers of architectures that are probed: the known ones, and others that the files name."""
        commands = (command for command in self.source.commands if "cuda" in command.file)
        words = (argument.text for command in commands for argument in command.arguments)
        told = {
            int(word) for text in words if "-" not in text for word in items(text) if _TOLD.fullmatch(word)
        }
        return sorted({*KNOWN_SM, *told})

    def _rewriting(self) -> Rewriting:
        entries = [f"{number}-real" for number in self._numbers]
        state = self._state(";".join(entries))
        listed = state.value("CMAKE_CUDA_ARCHITECTURES").split(";")
        plain = self._state("75").value("CMAKE_CUDA_ARCHITECTURES")
        if is_open("".join(listed)) or is_open(plain):
            self.notes.append("what CMake makes of CMAKE_CUDA_ARCHITECTURES could not be decided")
            return Rewriting()
        if listed == entries and plain == "75":
            return Rewriting()
        refused = {}
        known = {refusal.line for refusal in state.refusals}
        for suffix in "af":
            for refusal in self._state(f"100{suffix}-real").refusals:
                if refusal.is_certain and refusal.line not in known:
                    refused[suffix] = Fact(refusal.text, whole(refusal.line))
        accelerated = [
            number
            for number, becomes in zip(self._numbers, listed, strict=False)
            if becomes == f"{number}a-real"
        ]
        return Rewriting(whole(state.set_at["CMAKE_CUDA_ARCHITECTURES"]), tuple(accelerated), refused)

    def _compiled(self, numbers: Iterable[int]) -> tuple[Compiled, State]:
        """Return the targets of all CUDA units for a set, and what CMake made."""
        state = self._state(";".join(f"{number}-real" for number in numbers))
        listed = state.value("CMAKE_CUDA_ARCHITECTURES")
        compiled: dict[str, tuple[str, str]] = {}
        for target in state.made.values():
            own = "" if target.architectures == listed else target.architectures
            sure, possible = (
                [
                    source
                    for source in sources
                    if source.endswith(".cu") and source.startswith(f"{ROOT}/{BELOW}")
                ]
                for sources in (target.sources, target.possible)
            )
            is_cut = "cuda" in target.name and UNKNOWN in (*target.sources, *target.possible)
            if possible or is_cut or (sure and is_open(own)):
                what = "sources" if possible or is_cut else "architectures"
                self.notes.append(
                    f"{target.name} ({whole(target.line)}): its {what} could not be decided: its units count "
                    "as compiled for the whole list"
                )
                own = ""
            compiled |= {
                unit.removeprefix(f"{ROOT}/{BELOW}"): (target.name, own) for unit in (*sure, *possible)
            }
        return compiled, state

    def _groups(self) -> tuple[tuple[UnitGroup, ...], Sequence[str]]:
        """Return the groups, and the paths of all units.

        A group that does not explain every set is none: its units count as compiled for the whole list.
        """
        singles = {number: self._compiled([number]) for number in self._numbers}
        made = {unit for compiled, _ in singles.values() for unit in compiled}
        units = sorted(made, key=lambda unit: (dirname(unit), unit))
        listed = [state.value("CMAKE_CUDA_ARCHITECTURES") for _, state in singles.values()]
        columns = {
            unit: _settled([one[0].get(unit, _NOWHERE) for one in singles.values()], listed) for unit in units
        }
        pairs = self._pairs(list(columns.values()))
        lines = {name: made.line for _, state in singles.values() for name, made in state.made.items()}
        groups: list[UnitGroup] = []
        for column in dict.fromkeys(columns.values()):
            if len(set(column)) == 1 and not column[0][1]:
                continue
            members = [unit for unit in units if columns[unit] == column]
            won = {numbers: compiled.get(members[0], _NOWHERE) for numbers, compiled in pairs.items()}
            ranges = _by_rank(_ranges(self._numbers, column), won)
            paths = tuple(_prefixes(members, [unit for unit in units if columns[unit] != column]))
            line = whole(lines[ranges[0].target])
            name = ranges[0].target.rpartition("_cuda_")[2].replace("_", " ")
            group = UnitGroup(name, len(members), paths, ranges, line)
            unexplained = list(_disagreements(group, won))
            self.notes.extend(unexplained)
            groups += [] if unexplained else [group]
        groups.sort(key=lambda group: (group.name, group.paths))
        return tuple(groups), units

    def _pairs(self, columns: Sequence[Sequence[tuple[str, str]]]) -> Mapping[tuple[int, ...], Compiled]:
        """Return what is compiled for each two architectures that are treated in other ways, and for all.

        ``columns``: for each unit its target by architecture.
        """
        ways = [tuple(column[place] for column in columns) for place in range(len(self._numbers))]
        near = tuple(self._numbers[ways.index(way)] for way in dict.fromkeys(ways))
        sets = (*combinations(near, 2), near) if len(near) > 1 else ()
        return {numbers: self._compiled(numbers)[0] for numbers in sets}

    def _linked(self, state: State) -> tuple[str, ...]:
        targets = state.made.values()
        provider = max(
            targets, key=lambda made: sum(one.endswith(".cu") for one in made.sources), default=None
        )
        names = {
            name for name in (provider.linked if provider else ()) if name.startswith(("CUDA::", "CUDNN::"))
        }
        return tuple(sorted(names))

    def _thresholds(self) -> Iterator[tuple[str, SourceLine]]:
        found: dict[int, SourceLine] = {}
        for path, text in sorted(
            self.source.texts.items(), key=lambda item: (NEEDS_TURING in item[0], item[0])
        ):
            for match in ARCH_TEST.finditer(text):
                line = SourceLine(f"{BELOW}{path}", text.count("\n", 0, match.start()) + 1)
                found.setdefault(int(match[1]), line)
        yield from ((str(number), line) for number, line in sorted(found.items()))

    def _defaults(self) -> Iterator[tuple[str, Fact]]:
        for cuda in NVCCS:
            state = self._state(None, cuda)
            listed = state.value("CMAKE_CUDA_ARCHITECTURES")
            if listed and not is_open(listed):
                yield cuda, Fact(listed, whole(state.set_at["CMAKE_CUDA_ARCHITECTURES"]))


def _by_folder(units: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    named = groupby(units, key=dirname)
    return {folder: tuple(basename(unit).removesuffix(".cu") for unit in held) for folder, held in named}


def _settled(column: Sequence[tuple[str, str]], listed: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return a unit's targets with the one entry that a target is compiled for, where it is the set's too."""
    alone = {target: own for target, own in column if own}
    return tuple(
        (target, alone[target]) if alone.get(target) == text else (target, own)
        for (target, own), text in zip(column, listed, strict=True)
    )


def _by_rank(ranges: Sequence[Range], won: Mapping[tuple[int, ...], tuple[str, str]]) -> tuple[Range, ...]:
    """Return ranges so that each comes before those over which it wins: ``won`` has the target by set."""

    def losses(mine: Range) -> int:
        rivals = [other for other in ranges if other.target != mine.target]
        return sum(
            target == other.target
            for other in rivals
            for numbers, (target, _) in won.items()
            if len(numbers) == 2 and _is_between(numbers, mine, other)  # noqa: PLR2004
        )

    return tuple(sorted(ranges, key=losses))


def _is_between(numbers: Sequence[int], one: Range, other: Range) -> bool:
    """Return whether of two numbers one is in a range and the other in another one."""
    first, second = numbers
    return (first in one and second in other) or (second in one and first in other)


def _disagreements(group: UnitGroup, sets: Mapping[tuple[int, ...], tuple[str, str]]) -> Iterator[str]:
    """Yield a note for each set of architectures for which CMake does something else than the group says."""
    for numbers, (target, _) in sets.items():
        decides = group.range_of(numbers)
        if target != (decides.target if decides else ""):
            found = f"for {' '.join(map(str, numbers))}, CMake compiles it in {target or 'no target'}"
            yield f"{group.name} counts as compiled for the whole list: {found}"


def _ranges(numbers: Sequence[int], column: Sequence[tuple[str, str]]) -> tuple[Range, ...]:
    """Return the ranges of numbers with the same target, the newest first; without those of no target."""
    ranges = []
    for (target, alone), same in groupby(zip(column, numbers, strict=True), key=lambda pair: pair[0]):
        held = [number for _, number in same]
        last = NEWEST if held[-1] == numbers[-1] else numbers[numbers.index(held[-1]) + 1] - 1
        if target:
            ranges.append(Range(held[0], last, target, alone))
    return tuple(reversed(ranges))


def _prefixes(members: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """Yield the shortest beginnings of the members' paths that no other path has; ends at a word's end."""
    rest = list(members)
    while rest:
        path = rest[0]
        ends = [match.end() for marks in ("/", "[_.]") for match in re.finditer(marks, path)]
        prefix = next(
            (path[:end] for end in ends if not any(other.startswith(path[:end]) for other in others)), path
        )
        yield prefix
        rest = [one for one in rest if not one.startswith(prefix)]


def _version(text: str) -> str:
    return text if re.fullmatch(r"\d+(\.\d+)*", text) else "0"
