"""Which devices ONNX Runtime launches kernels on, read from patterns in its C++ sources.

Three patterns are known, each with the units that it decides on:

- ``is_supported(const cudaDeviceProp&)`` of a folder, whose comparisons of ``major`` and ``minor`` are
  understood: all units of the folder;
- a chain ``if (sm >= 80) run_sm80(...) else if (sm >= 75) ...``: the unit of its folder with that number;
- a chain ``if (sm_ >= 70 && sm_ < 75) ... else if ...`` over CUTLASS's architectures: the units that include
  the header.

Where nothing matches, nothing is known, and every unit is compiled for the whole list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import eq, ge, gt, le, lt
from posixpath import basename, commonprefix, dirname

from builder.facts.gpu.architectures import Arch
from builder.facts.gpu.table import KNOWN_SM
from builder.facts.ort.configured import SourceLine
from builder.facts.ort.source_tree import BELOW, SourceTree

_UNTIL_CUB_2 = re.compile(r"\bcub::(?:Max|Min|Sum)\b")
"""What CUDA 13's CUB lacks (``cub/thread/thread_operators.cuh`` of its 3.0.1)."""

_ASKS_VERSION = re.compile(r"\bCUDA(?:RT)?_VERSION\s*>=\s*1[23]\d{3}\b")

NEWEST = 999
"""Stands for all newer devices."""

_SUPPORTED = re.compile(
    r"\bbool is_supported\(const cudaDeviceProp& \w+[^)]*\)\s*\{(?P<body>.*?)^\}", re.DOTALL | re.MULTILINE
)

_MAJOR = re.compile(
    r"\.major\s*(?P<one>[=<>]=|[<>])\s*(?P<major>\d+)(?:\s*&&\s*\w+\.minor\s*(?P<two>[=<>]=|[<>])\s*(?P<minor>\d+))?"
)

_STEP = re.compile(r"\bif\s*\(\s*sm\s*>=\s*(?P<sm>\d+)\s*\)\s*\{?\s*(?P<name>\w+?)_sm(?P=sm)\s*\(")

_RANGE = re.compile(
    r"\bif\s*\(\s*sm_\s*>=\s*(?P<first>\d+)(?:\s*&&\s*sm_\s*<\s*(?P<below>\d+))?\s*\)\s*\{"
    r"\s*\w+<[^;{}]*cutlass::arch::Sm(?P=first)\b[^{}]*\}(?P<after>\s*else\b(?:\s*\{[^{}]*\})?)?"
)

_GUARD = re.compile(r"\s*#\s*if\s+(?:defined\s*\(?\s*)?(?P<name>\w+)")

_KERNEL = re.compile(r'__global__|<<<|#\s*include\s*(?:"[^"]*\.cuh"|[<"](?:cutlass|cute|cub|thrust)/)')

_FRONT_END = re.compile(r"#\s*include\s*<cudnn_frontend")

NEEDS_TURING = "/qordered_ops/"
"""Part of the path of operators that need sm_75: what they compare below does not matter."""

_ARCH_TEST = re.compile(r"__CUDA_ARCH__\s*(?:[<>]=?|==)\s*(\d{3,4})\b")
"""A comparison of the architecture that device code is compiled for."""

_NAMES = {
    "memory efficient attention": "memory-efficient attention",
    "moe gemm kernels": "mixture of experts",
}
"""What units are called whose functions have another name."""

_ONE_PTX = ("flash attention", "lean attention")
"""Units whose PTX for all architectures from the oldest on is the same. nvcc 12.4's differs only in
``.target``: of all 32 units of flash attention for 80 and 89, of head size 32 also for 90, of both of lean
attention for 80, 86, 89 and 90 (docs/decisions/0009-pieces.md)."""

_SERVED: Mapping[str, Mapping[int, int]] = {"flash attention": {86: 80}}
"""Shared SASS of flash attention: SASS for 8.0 runs on 8.6 (CUDA C++ Programming Guide, "Binary
Compatibility") and is made from the same PTX. FlashAttention's own wheels have no other SASS for 8.x
(setup.py of Dao-AILab/flash-attention at 0029136)."""

_CHAIN = 2
"""The least number of conditions in a chain."""


@dataclass(frozen=True)
class Launch:
    """Units whose kernels are launched on a range of devices only."""

    name: str
    path: str
    """The beginning of the paths of these units' sources below ``onnxruntime/``."""
    units: int
    """The number of units, each of which has one fatbin container."""
    first: int
    """The oldest device, by its capability without the point: ``80``."""
    last: int
    """The newest device, in the same form."""
    line: SourceLine
    """The line of ORT's source that decides it."""
    option: str = ""
    """The CMake option without which nothing is left of the units; empty if there is none."""
    ptx: Arch | None = None
    """The architecture from whose PTX the SASS for all newer ones is made, also in sets without it."""

    @property
    def source(self) -> str:
        """The line as people read it."""
        return f"{self.line.file.removeprefix(BELOW)} line {self.line.number}"

    @property
    def served(self) -> Mapping[int, int]:
        """``{86: 80}``: devices of 8.6 run the SASS for 8.0, if the set has 8.0."""
        return _SERVED.get(self.name, {}) if self.ptx else {}

    def launched(self, arches: Iterable[Arch]) -> frozenset[Arch]:
        """Return those of ``arches`` whose devices the kernels are launched on."""
        return frozenset(arch for arch in arches if self.first <= arch.number <= self.last)

    def compiled(self, arches: Iterable[Arch]) -> frozenset[Arch]:
        """Return those of ``arches`` that the units are compiled for; if none is, the lowest of ``arches``.

        A unit cannot be compiled for no architecture, and its host code is needed for linking.
        """
        whole = sorted(arches)
        plain = {arch.number for arch in whole if not arch.suffix}
        made = {
            arch for arch in self.launched(whole) if arch.suffix or self.served.get(arch.number) not in plain
        }
        return frozenset(made or whole[:1])


def launches_in(source: SourceTree, option_of: Callable[[str], str]) -> Iterator[Launch]:
    """Yield what is known of the launches in a source.

    ``option_of`` returns the CMake option without which a name is not defined; empty if there is none.
    """
    for path in source.texts:
        for launch in (*_supported(source, path), *_steps(source, path), *_ranges(source, path)):
            yield replace(launch, option=option_of(launch.option)) if launch.option else launch


def _supported(source: SourceTree, path: str) -> Iterator[Launch]:
    match = _SUPPORTED.search(source.texts[path])
    devices = _devices(match["body"]) if match else None
    if match and devices and (units := _units(source, dirname(path))):
        yield _launch(source, _words(basename(dirname(path))), units, devices, source.line(path, match))


def _devices(body: str) -> tuple[int, int] | None:
    """Return the first and last device of which one comparison holds; ``None`` if they are not understood."""
    tests = list(_MAJOR.finditer(body))
    held = [number for number in KNOWN_SM if any(_holds(test, *divmod(number, 10)) for test in tests)]
    between = [number for number in KNOWN_SM if held and held[0] <= number <= held[-1]]
    if not held or held != between or len(tests) != body.count(".major"):
        return None
    return held[0], NEWEST if held[-1] == KNOWN_SM[-1] else held[-1]


def _holds(test: re.Match[str], major: int, minor: int) -> bool:
    is_major = _COMPARED[test["one"]](major, int(test["major"]))
    return is_major and (test["two"] is None or _COMPARED[test["two"]](minor, int(test["minor"])))


_COMPARED: Mapping[str, Callable[[int, int], bool]] = {"==": eq, ">=": ge, "<=": le, ">": gt, "<": lt}


def _steps(source: SourceTree, path: str) -> Iterator[Launch]:
    steps = list(_STEP.finditer(source.texts[path]))
    numbers = [int(step["sm"]) for step in steps]
    is_chain = numbers == sorted(numbers, reverse=True) and len({step["name"] for step in steps}) == 1
    if not is_chain or len(steps) < _CHAIN:
        return
    ends = [NEWEST, *(number - 1 for number in numbers[:-1])]
    for step, number, end in reversed([*zip(steps, numbers, ends, strict=True)]):
        units = [unit for unit in _units(source, dirname(path)) if unit.endswith(f"sm{number}.cu")]
        if units:
            name = f"{_words(step['name'].removeprefix('run_'))} for sm_{number}"
            yield _launch(source, name, units, (number, end), source.line(path, step))


def _ranges(source: SourceTree, path: str) -> Iterator[Launch]:
    chain: list[re.Match[str]] = []
    for match in _RANGE.finditer(source.texts[path]):
        if chain and int(match["first"]) != int(chain[-1]["below"] or 0):
            chain = []
        chain.append(match)
    throws = bool(chain) and "THROW" in (chain[-1]["after"] or "")
    if len(chain) < _CHAIN or (chain[-1]["below"] and not throws):
        return
    last = int(chain[-1]["below"]) - 1 if chain[-1]["below"] else NEWEST
    units = [unit for unit, text in source.units.items() if f'#include "{path}"' in text]
    if units:
        name = _words(basename(path).removesuffix("_template.h"))
        yield _launch(source, name, units, (int(chain[0]["first"]), last), source.line(path, chain[0]))


def _launch(
    source: SourceTree, name: str, units: Sequence[str], devices: tuple[int, int], line: SourceLine
) -> Launch:
    first, last = devices
    words = next((name.replace(old, new) for old, new in _NAMES.items() if old in name), name)
    here = {path: text for path, text in source.texts.items() if dirname(path) == dirname(units[0])}
    newest = max(map(int, thresholds_in(replace(source, texts=here))), default=0)
    is_shared = words in _ONE_PTX and newest <= first * 10
    ptx = Arch(*divmod(first, 10)) if is_shared else None
    return Launch(words, _shared_path(units), len(units), first, last, line, _guard_of(source, units), ptx)


def _shared_path(units: Sequence[str]) -> str:
    """Return what the paths of the units begin with, up to the end of a word."""
    shared = commonprefix(units)
    return shared if len(units) == 1 else shared[: max(map(shared.rfind, "_/")) + 1]


def thresholds_in(source: SourceTree) -> Mapping[str, SourceLine]:
    """Return the values that ``__CUDA_ARCH__`` is compared with, each with a line (``SourceRules``)."""
    found: dict[int, SourceLine] = {}
    for path in sorted(source.texts, key=lambda path: NEEDS_TURING in path):
        for match in _ARCH_TEST.finditer(source.texts[path]):
            found.setdefault(int(match[1]), source.line(path, match))
    return {str(number): line for number, line in sorted(found.items())}


def needs_cub_2(source: SourceTree) -> SourceLine | None:
    """Return the line that asks for what CUB has up to CUDA 12, in a file that asks for no version."""
    for path, text in source.texts.items():
        asked = _UNTIL_CUB_2.search(text)
        if asked and not _ASKS_VERSION.search(text):
            return source.line(path, asked)
    return None


def without_device_code(source: SourceTree) -> list[str]:
    """Return the units without a kernel that include cuDNN's front end, a header of the host alone."""
    return [
        path for path, text in source.units.items() if _FRONT_END.search(text) and not _KERNEL.search(text)
    ]


def _units(source: SourceTree, folder: str) -> list[str]:
    """Return the units of a folder, without those that include cuDNN's front end."""
    return [
        path for path, text in source.units.items() if dirname(path) == folder and not _FRONT_END.search(text)
    ]


def _guard_of(source: SourceTree, units: Sequence[str]) -> str:
    """Return the name that encloses exactly these units, or some of them; empty if there is none."""
    guards = {_guard(source.texts[unit]) for unit in units}
    if len(guards) != 1 or not (guard := guards.pop()):
        return ""
    guarded = {path for path, text in source.units.items() if _guard(text) == guard}
    return guard if guarded <= {*units} else ""


def _guard(text: str) -> str:
    """Return the name that encloses a whole file; empty if there is none."""
    match = _GUARD.match(text)
    return match["name"] if match and text.rstrip().endswith("#endif") else ""


def _words(name: str) -> str:
    return name.strip("_").replace("_", " ")
