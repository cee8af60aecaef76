"""Reader of the rules of a source of ONNX Runtime.

Nothing here knows a version: options, minimums, what CMake makes of a list of architectures and which units
it compiles for which of them follow from what CMake itself makes of the source, for one architecture,
compiler and option after the other; the launches from patterns in its C++ sources. What cannot be decided is
a note, and nothing is left out for it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, groupby
from posixpath import basename, dirname

from builder.facts.gpu.compatibility import NVCCS, dotted, version_of
from builder.facts.gpu.table import KNOWN_SM, LAST_12
from builder.facts.ort.configured import LIST, Call, Configure, Configured, Trace
from builder.facts.ort.launch_patterns import (
    NEWEST,
    launches_in,
    needs_cub_2,
    thresholds_in,
    without_device_code,
)
from builder.facts.ort.source_rules import Fact, Range, Rewriting, SourceRules, UnitGroup
from builder.facts.ort.source_tree import BELOW, SourceTree

_CUDA = ("CMAKE_CUDA_COMPILER_VERSION",)

_GCC = ("CMAKE_C_COMPILER_VERSION", "CMAKE_CXX_COMPILER_VERSION")

_TOLD = re.compile(r"5\d|[6-9]\d|1[0-9]\d")
"""Numbers in CMake files that may be architectures."""

_ALWAYS: Mapping[str, str] = {"onnxruntime_USE_CUDA": "ON"}
"""Options of every build."""


def read_rules(
    source: SourceTree, configure: Configure, settings: Mapping[str, str], *, cuda: str = NVCCS[-2]
) -> SourceRules:
    """Return the rules of a source whose build has these options and this version of nvcc.

    Raises ``ParseError``.
    """
    return _Reader(source, configure, settings, cuda).rules()


_NOWHERE = ("", "")
"""Stands for a unit in no target."""

Compiled = Mapping[str, tuple[str, str]]
"""Target and CUDA_ARCHITECTURES by the path of a unit's source."""


@dataclass(frozen=True)
class _Reader:
    source: SourceTree
    configure: Configure
    settings: Mapping[str, str]
    cuda: str
    notes: list[str] = field(default_factory=list)

    def rules(self) -> SourceRules:
        groups, units = self._groups()
        found = sorted(launches_in(self.source, self._option_of), key=lambda launch: not launch.option)
        counts = [sum(unit.startswith(launch.path) for unit in units) for launch in found]
        launches = [
            replace(launch, units=count) for launch, count in zip(found, counts, strict=True) if count
        ]
        if not launches:
            self.notes.append("no launch condition was found in a form that is known: no unit is left out")
        demands = dict(self._oldest(_CUDA))
        minimums = {"cuda": demands.pop("", None), "gcc": dict(self._oldest(_GCC)).get("")}
        said = "CMake goes on without {}, which it does not find"
        self.notes.extend(map(said.format, self._whole.missing))
        return SourceRules(
            version=self.source.version,
            minimums={name: fact for name, fact in minimums.items() if fact} | dict(self._standards()),
            options=self._options,
            demands=demands,
            rewriting=self._rewriting(),
            groups=groups,
            units=_by_folder(units),
            launches=tuple(launches),
            without_device_code=tuple(without_device_code(self.source)),
            linked=self._linked(),
            thresholds=thresholds_in(self.source),
            notes=tuple(dict.fromkeys(self.notes)),
            newest_cuda=Fact(dotted(LAST_12), line) if (line := needs_cub_2(self.source)) else None,
        )

    def _made(self, listed: str | None, trace: Trace = Trace.VALUES, /, **more: str) -> Configured:
        """Return what CMake makes for a list of architectures; ``None``: for none."""
        given = {} if listed is None else {LIST: listed}
        return self.configure({_CUDA[0]: self.cuda, **self.settings, **given, **more}, trace)

    @cached_property
    def _plain(self) -> Configured:
        """What CMake makes with the source's own defaults."""
        return self.configure({_CUDA[0]: self.cuda, **_ALWAYS}, Trace.VALUES)

    @cached_property
    def _whole(self) -> Configured:
        """What CMake makes for all architectures."""
        return self._made(";".join(f"{number}-real" for number in self._numbers))

    def _oldest(self, tools: Sequence[str], off: tuple[str, ...] = ()) -> Iterator[tuple[str, Fact]]:
        """Yield the oldest version of tools with which nothing is refused, with the line that refuses older.

        First under the names of the options that need a newer one than the rest, then under an empty name.
        ``off``: options that are left out.
        """
        versions = sorted({"1", "99", *self.source.versions}, key=_rank)

        def made(version: str, *more: str) -> Configured:
            given = {**dict.fromkeys(tools, version), **dict.fromkeys((*off, *more), "OFF")}
            return self._made("75-real", **given)

        always = made(versions[-1]).refused
        place = bisect_left(versions, True, key=lambda version: made(version).refused <= always)
        if not place:
            return
        older = made(versions[place - 1])
        refuses = next(call for call in older.refusals if call.line not in always)
        near = self._options_before(older, refuses)
        option = _needed(near, lambda off: refuses.line in made(versions[place - 1], *off).refused)
        yield option, Fact(versions[place], refuses.line)
        if option:
            yield from self._oldest(tools, (*off, option))

    def _options_before(self, made: Configured, call: Call) -> Sequence[str]:
        """Return the options that conditions before a command name, the nearest first."""
        conditions = (one for one in made.before(call) if one.name in {"if", "elseif"})
        words = (word for one in conditions for word in one.words if word in self._options)
        return [word for word in dict.fromkeys(words) if word not in _ALWAYS]

    def _option_of(self, definition: str) -> str:
        """Return the option without which CMake defines no such name; empty if there is none."""

        def defining(made: Configured) -> Sequence[Call]:
            wanted = f"-D{definition}"
            return [call for call in made.calls if any(one.partition("=")[0] == wanted for one in call.words)]

        calls = defining(self._whole)
        near = self._options_before(self._whole, calls[0]) if calls else ()
        return _needed(near, lambda off: bool(defining(self._made("75-real", **dict.fromkeys(off, "OFF")))))

    def _standards(self) -> Iterator[tuple[str, Fact]]:
        asked = [call for call in self._plain.calls if call.name == "cmake_minimum_required"]
        for call in asked[:1]:
            yield "cmake", Fact(call.words[1], call.line)
        standard = self._whole.values["CMAKE_CXX_STANDARD"]
        if line := self._whole.set_at("CMAKE_CXX_STANDARD"):
            yield "cxx", Fact(standard, line)

    @cached_property
    def _options(self) -> Mapping[str, Fact]:
        options: dict[str, Fact] = {}
        for call in (*self._plain.calls, *self._made(None).calls):
            words = call.words
            if call.name in {"option", "cmake_dependent_option"}:
                options.setdefault(words[0], Fact((words[2:3] or ("OFF",))[0], call.line))
            elif call.name == "set" and "CACHE" in words:
                options.setdefault(words[0], Fact(";".join(words[1 : words.index("CACHE")]), call.line))
        return options

    @cached_property
    def _numbers(self) -> Sequence[int]:
        """All numbers of architectures that are probed: the known ones, and others that the files name."""
        calls = (call for call in self._plain.calls if "cuda" in call.line.file)
        texts = (text for call in calls for word in call.words if "-" not in word for text in word.split(";"))
        return sorted({*KNOWN_SM, *(int(text) for text in texts if _TOLD.fullmatch(text))})

    def _rewriting(self) -> Rewriting:
        entries = [f"{number}-real" for number in self._numbers]
        listed = self._whole.values[LIST].split(";")
        line = self._whole.set_at(LIST)
        if line is None or (listed == entries and self._made("75").values[LIST] == "75"):
            return Rewriting()
        refused = {
            suffix: Fact("".join(call.words[1:]), call.line)
            for suffix in "af"
            for call in self._made(f"100{suffix}-real").refusals
            if call.line not in self._whole.refused
        }
        becomes = zip(self._numbers, listed, strict=False)
        accelerated = tuple(number for number, entry in becomes if entry == f"{number}a-real")
        return Rewriting(line, accelerated, refused)

    def _compiled(self, numbers: Iterable[int], **more: str) -> tuple[Compiled, str]:
        """Return the targets of all CUDA units for a set, and what CMake made of the set."""
        made = self._made(";".join(f"{number}-real" for number in numbers), Trace.NOTHING, **more)
        compiled = {
            source.removeprefix(BELOW): (name, target.architectures)
            for name, target in made.targets.items()
            for source in target.sources
            if source.endswith(".cu") and source.startswith(BELOW)
        }
        return compiled, made.values[LIST]

    def _groups(self) -> tuple[tuple[UnitGroup, ...], Sequence[str]]:
        """Return the groups, and the paths of all units.

        Of a group's ranges the newest wins. A group that does not explain every set is none: its units count
        as compiled for the whole list.
        """
        singles = {number: self._compiled([number]) for number in self._numbers}
        made = {unit for compiled, _ in singles.values() for unit in compiled}
        units = sorted(made, key=lambda unit: (dirname(unit), unit))
        columns = {unit: _column(unit, singles.values()) for unit in units}
        ways = [*zip(*columns.values(), strict=True)]
        near = tuple(self._numbers[ways.index(way)] for way in dict.fromkeys(ways))
        for number in near:
            undecided = self._undecided(number, singles[number][0])
            columns |= dict.fromkeys(undecided, (_NOWHERE,) * len(singles))
        sets = (*combinations(near, 2), near) if len(near) > 1 else ()
        several = {numbers: self._compiled(numbers)[0] for numbers in sets}
        groups: list[UnitGroup] = []
        for column in dict.fromkeys(columns.values()):
            if len(set(column)) == 1 and not column[0][1]:
                continue
            members = [unit for unit in units if columns[unit] == column]
            won = {numbers: compiled.get(members[0], _NOWHERE)[0] for numbers, compiled in several.items()}
            ranges = _ranges(self._numbers, column)
            paths = tuple(_prefixes(members, [unit for unit in units if columns[unit] != column]))
            target = ranges[0].target
            line = self._made(f"{ranges[0].first}-real").made_at(target)
            part = target.rpartition("_cuda_")[2].removeprefix("plugin").strip("_").replace("_", " ")
            name = part or basename(dirname(members[0]))
            group = UnitGroup(name, len(members), paths, ranges, line)
            unexplained = list(_disagreements(group, won))
            self.notes.extend(unexplained)
            groups += [] if unexplained else [group]
        groups.sort(key=lambda group: (group.name, group.paths))
        return tuple(groups), units

    def _undecided(self, number: int, compiled: Compiled) -> Iterator[str]:
        """Yield the units whose target for an architecture depends on what programs answer, with a note."""
        other, _ = self._compiled([number], READER_ANSWER="OFF")
        for unit in sorted({**compiled, **other}):
            if compiled.get(unit) != other.get(unit):
                target, _ = compiled.get(unit) or other[unit]
                self.notes.append(
                    f"{target}: its units count as compiled for the whole list, since for sm_{number} they "
                    "depend on what a program answers, or on what a machine has"
                )
                yield unit

    def _linked(self) -> tuple[str, ...]:
        made = self._whole.targets.items()
        with_units = {name for name, target in made if any(one.endswith(".cu") for one in target.sources)}
        links = (call.words for call in self._whole.calls if call.name == "target_link_libraries")
        names = {word for words in links if words[0] in with_units for word in words}
        return tuple(sorted(name for name in names if name.startswith(("CUDA::", "CUDNN::"))))


def _needed(options: Sequence[str], is_still: Callable[[Sequence[str]], bool]) -> str:
    """Return the option without which something is not any more; empty if all may be off."""
    return "" if is_still(options) else next((name for name in options if not is_still([name])), "")


def _rank(version: str) -> tuple[tuple[int, ...], int]:
    """Return the rank of a version; of those that are the same, the longest text is the first."""
    return version_of(f"{version}.0.0")[:3], -len(version)


def _by_folder(units: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    named = groupby(units, key=dirname)
    return {folder: tuple(basename(unit).removesuffix(".cu") for unit in held) for folder, held in named}


def _column(unit: str, singles: Iterable[tuple[Compiled, str]]) -> tuple[tuple[str, str], ...]:
    """Return a unit's target for each architecture, and the entry that it is compiled for in its place.

    ``singles`` have the targets for one architecture each, and what CMake made of it. The entry is empty
    where it is the architecture's own.
    """
    made = [(compiled.get(unit, _NOWHERE), listed) for compiled, listed in singles]
    alone = {target for target, listed in made if target[1] != listed}
    return tuple(target if target in alone else (target[0], "") for target, _ in made)


def _disagreements(group: UnitGroup, won: Mapping[tuple[int, ...], str]) -> Iterator[str]:
    """Yield a note for each set of architectures for which CMake does something else than the group says."""
    for numbers, target in won.items():
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
