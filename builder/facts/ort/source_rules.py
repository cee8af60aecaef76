"""What a version of ONNX Runtime asks of a build and makes of it, as it was read from its source."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from builder.facts.gpu.architectures import Arch
from builder.facts.gpu.compatibility import version_of
from builder.facts.ort.configured import SourceLine
from builder.facts.ort.launch_patterns import NEEDS_TURING, Launch

_ENTRY = re.compile(r"(?P<arch>\d{2,3}[af]?)(?:-(?P<kind>real|virtual))?")


@dataclass(frozen=True)
class Fact:
    """A value with the line of the source that says it."""

    value: str
    line: SourceLine

    def __str__(self) -> str:
        return f"{self.line}: {self.value}"


@dataclass(frozen=True)
class Rewriting:
    """What CMake makes of CMAKE_CUDA_ARCHITECTURES. All empty: it is left as it is."""

    line: SourceLine | None = None
    """The line that sets the list; ``None`` if it is left as it is."""
    accelerated: tuple[int, ...] = ()
    """The numbers that get the suffix ``a``."""
    refused: Mapping[str, Fact] | None = None
    """What CMake says of an entry with a suffix that it refuses, by suffix."""


@dataclass(frozen=True)
class Range:
    """Architectures for which units are compiled in one target."""

    first: int
    last: int
    target: str
    """Empty: the units are compiled in none."""
    alone: str
    """The one entry that they are compiled for instead of these, like ``90a-real``; empty for these."""

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last


@dataclass(frozen=True)
class UnitGroup:
    """Units that CMake compiles for a part of the list.

    Of the ranges, in this order, the first with an architecture of the set decides: the units are compiled
    for the set's architectures in that range alone.
    """

    name: str
    units: int
    paths: tuple[str, ...]
    """What the paths of their sources below ``BELOW`` begin with."""
    ranges: tuple[Range, ...]
    line: SourceLine | None
    """The line that makes the target of the first range."""

    def is_below(self, beginnings: tuple[str, ...]) -> bool:
        """Return whether the paths of all its units begin with one of these."""
        return all(path.startswith(beginnings) for path in self.paths)

    def range_of(self, numbers: Collection[int]) -> Range | None:
        """Return the range that decides for a set; ``None`` if the units are compiled in no target."""
        return next((one for one in self.ranges if any(number in one for number in numbers)), None)

    def compiled(self, arches: Iterable[Arch]) -> frozenset[Arch]:
        """Return the architectures of the units' code; ``arches``: those of the units for the whole list."""
        listed = frozenset(arches)
        decides = self.range_of([arch.number for arch in listed])
        if decides is None or not decides.target:
            return frozenset()
        if decides.alone:
            return frozenset({Arch.parse(decides.alone.partition("-")[0])})
        return frozenset(arch for arch in listed if arch.number in decides)


@dataclass(frozen=True)
class Compiled:
    """The architectures of the SASS and the PTX in each unit that is compiled for the whole list."""

    sass: tuple[Arch, ...]
    ptx: tuple[Arch, ...]

    def __str__(self) -> str:
        text = " ".join(map(str, self.sass))
        return f"{text}, PTX {' '.join(map(str, self.ptx))}" if self.ptx else text


@dataclass(frozen=True)
class PluginSource:
    """What a host needs to register the plug-in that a source makes."""

    version: Fact
    """The plug-in's own version."""
    oldest_host: Fact
    """The oldest version of ONNX Runtime that registers it."""
    api_version: Fact
    """``ORT_API_VERSION``."""
    contrib_schemas: Fact | None
    """sha256 over the schemas of contrib operators, which its host has too; ``None`` where there are none."""
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The operators that the provider has kernels for and a plug-in of profile full has not, by domain."""


@dataclass(frozen=True, kw_only=True)
class SourceRules:
    """What was read from a source."""

    version: str
    minimums: Mapping[str, Fact]
    """The oldest ``cuda``, ``gcc`` and ``cmake``, and the C++ standard ``cxx``."""
    options: Mapping[str, Fact]
    """The default of each option."""
    demands: Mapping[str, Fact]
    """The oldest CUDA for an option, where a source that is configured with it refuses older ones."""
    rewriting: Rewriting
    groups: tuple[UnitGroup, ...]
    """The units that are not compiled for the whole list in every set."""
    units: Mapping[str, tuple[str, ...]]
    """The names of all CUDA units, without ``.cu``, by folder below ``BELOW``."""
    launches: tuple[Launch, ...]
    without_device_code: tuple[str, ...]
    """Paths of CUDA units without a kernel."""
    linked: tuple[str, ...]
    """CMake's names of NVIDIA's libraries that the provider is linked with."""
    thresholds: Mapping[str, SourceLine]
    """Values that ``__CUDA_ARCH__`` is compared with, each with a line; if possible one that is not of
    ``NEEDS_TURING``."""
    notes: tuple[str, ...]
    """What could not be decided."""
    newest_cuda: Fact | None = None
    """The newest CUDA that compiles it, if one that is known does not."""
    stands_in: bool = False
    """Whether they are the rules of another source, which stands for this version."""
    repairs: Mapping[str, SourceLine] = field(default_factory=dict)
    """The repairs that the source needs for some sets, each with the line that needs it."""
    plugin: PluginSource | None = None
    """Read where a plug-in is to be compiled; ``None`` also for a source that makes none."""

    @property
    def standard(self) -> int:
        """The C++ standard; 0 where it was not found."""
        return int(self.minimums["cxx"].value) if "cxx" in self.minimums else 0

    def read_list(self, text: str) -> Compiled:
        """Return what units for the whole list are compiled for with this CMAKE_CUDA_ARCHITECTURES.

        Raises ``ValueError`` for an entry that is no architecture or that CMake refuses.
        """
        entries = [_entry(word) for word in text.split(";") if word]
        sass = tuple(sorted({self.rewritten(arch) for arch, kind in entries if kind != "virtual"}))
        if self.rewriting.line is None:
            return Compiled(sass, tuple(sorted({arch for arch, kind in entries if kind != "real"})))
        for arch in self.refused(arch for arch, _ in entries):
            raise ValueError(f"Unrecognized CUDA architecture: {arch}")
        return Compiled(sass, tuple(arch for arch, kind in entries if kind == "virtual")[-1:])

    def refused(self, sm: Iterable[Arch]) -> tuple[Arch, ...]:
        """Return the architectures of ``sm`` that CMake refuses."""
        return tuple(arch for arch in sm if arch.suffix in (self.rewriting.refused or {}))

    def rewritten(self, arch: Arch) -> Arch:
        """Return what CMake makes of the entry for SASS of ``arch``: 90 becomes 90a."""
        if self.rewriting.line is None:
            return arch
        return Arch(arch.major, arch.minor, "a" if arch.number in self.rewriting.accelerated else "")

    @property
    def paths(self) -> Iterator[str]:
        """The paths of all CUDA units' sources below ``BELOW``."""
        return (f"{folder}/{name}.cu" for folder, names in self.units.items() for name in names)

    def is_alike(self, older: int, newer: int) -> bool:
        """Return whether ORT's sources make no difference between two architectures."""
        return all(NEEDS_TURING in line.file for line in self.told_apart(older, newer))

    def told_apart(self, older: int, newer: int) -> tuple[SourceLine, ...]:
        """Return the lines that compare the architecture with one after ``older``, up to ``newer``."""
        return tuple(
            line for number, line in self.thresholds.items() if older * 10 < int(number) <= newer * 10
        )

    def has_default(self, option: str, value: str) -> bool:
        """Return whether this version's own source has this default for an option."""
        return not self.stands_in and self.options[option].value == value

    def impossible(self, options: Mapping[str, str], cuda: str) -> Mapping[str, Fact]:
        """Return the options that are ``ON``, by our wish or by default, and need a newer CUDA."""
        return {
            name: fact
            for name, fact in self.demands.items()
            if options.get(name, self.options[name].value) == "ON"
            and version_of(cuda) < version_of(fact.value)
        }

    @property
    def opens_libraries(self) -> bool:
        """Whether a full provider opens cuDNN, cuFFT and NVRTC at run time: CMake links it with none of them.

        NEEDED names none then, and of their names its bytes hold NVRTC's alone (pull requests 29252, 29808
        and 29705; readelf and strings of the wheels 1.21.0, 1.23.2 and 1.31.1).
        """
        return not any(name.startswith("CUDNN::") for name in self.linked)

    def unknown(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names of ONNX Runtime's own options that this source does not have."""
        return tuple(name for name in names if name.startswith("onnxruntime_") and name not in self.options)


def _entry(word: str) -> tuple[Arch, str]:
    """Return an architecture and ``real``, ``virtual`` or ``""``, which means both.

    Raises ``ValueError`` for a word that is no entry.
    """
    match = _ENTRY.fullmatch(word)
    if match is None:
        raise ValueError(f"Unrecognized CUDA architecture: {word}")
    return Arch.parse(match["arch"]), match["kind"] or ""
