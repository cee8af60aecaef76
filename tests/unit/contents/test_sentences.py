"""Tests of coverage in plain words, against sentences written by hand."""

import pytest

from builder.binary.coverage import ContainerTally
from builder.binary.fatbin_format import Kind
from builder.binary.file_kinds import FileKind
from builder.binary.library import Inspected
from builder.contents.sentences import counts, notes, summary
from builder.facts.gpu.architectures import Arch
from builder.facts.gpu.table import CAPABILITIES
from tests.support.factories.libraries import BROKEN, CARDS, IDLE, OWN, PLAIN, PROVIDER, coverage
from tests.support.messages import Told
from tests.support.tables import table

EVERYTHING = " ".join(map(str, CAPABILITIES))

ONE, OTHER = (
    Inspected(f"b/libbits_cuda{cuda}.so", coverage(native=native))
    for cuda, native in ((118, "8.0 8.6"), (128, "8.0 8.6 12.0"))
)

FEW = Inspected("libcusparseLt.so.0", coverage(containers=350, mixed={"5.2": (1, 0, 349)}, specialised=True))

OUTSIDE = Inspected(
    "libx.so", raw={Kind.SASS: {Arch(7, 5): 2, Arch(10, 0, "a"): 1}, Kind.PTX: {Arch(7, 5): 1}}
)

SOURCES = {
    "each is what its worst library is": [
        PLAIN,
        Inspected("a", coverage(native=CARDS)),
        Inspected("b", coverage(native="8.0 8.6", jit="9.0", mixed={"8.9": (9, 0, 1)})),
    ],
    "generations, and Jetsons apart": [PROVIDER],
    "native everywhere": [Inspected("a", coverage(native=EVERYTHING))],
    "by JIT everywhere": [Inspected("a", coverage(jit=EVERYTHING))],
    "nowhere": [Inspected("a", coverage())],
    "of NVIDIA's own": [OWN],
    "one of two that are loaded by turns": [ONE, OTHER],
    "next to nothing": [FEW],
    "nothing": [],
    "made at run time": [Inspected("libOpenMMCUDA.so", needed=("libcuda.so.1", "libnvrtc.so.12"))],
    "something behind it": [Inspected("setup.exe", kind=FileKind.DLL, behind="a zip")],
    "most is not read": [
        Inspected("a", coverage(native=EVERYTHING), size=10),
        Inspected("lib/libtorch.so", problem="A004 an image runs past the end", size=1000),
    ],
    "what it needs has less": [
        Inspected("libpl.so", coverage(native=EVERYTHING), needed=("libcustatevec.so.1", "libc.so.6")),
        Inspected("libother.so", coverage(native=EVERYTHING)),
    ],
    "what two need has less": [
        Inspected(name, coverage(native=EVERYTHING), needed=("libcustatevec.so.1",))
        for name in ("a.so", "b.so")
    ],
    "no device code": [PLAIN],
    "nothing to run": [PLAIN, IDLE],
    "outside of containers": [OUTSIDE],
    "one unread": [PROVIDER, BROKEN],
    "two unread": [BROKEN, PLAIN, BROKEN],
    "all unread": [BROKEN, BROKEN],
}


@pytest.mark.parametrize("source", SOURCES)
def test_what_a_source_runs_on_in_a_sentence(source: str, told: Told) -> None:
    """bitsandbytes 0.45.5 runs natively on 12.0 with one of its ten libraries, one of which is loaded."""
    told(summary(SOURCES[source]))


def test_a_container_with_nothing_to_run_takes_nothing_away() -> None:
    assert summary([OWN, IDLE]) == summary([OWN])
    assert "Doubtful" not in summary([ONE])


GAPS = {"5.3": (0, 1, 3469), "6.2": (0, 1, 3469), "8.7": (0, 1, 3469), "9.0": (3400, 60, 10)}

CUFFT = coverage(
    containers=24454,
    native=EVERYTHING,
    sections={".nv_fatbin": 1, ".ldata": 24453},
    nothing_to_run=11652,
    ltoir=["50"],
    specialised=True,
)
"""The numbers were counted in cuFFT 11.4.1.4."""


def lying(sections: dict[str, int]) -> Inspected:
    return Inspected("a", coverage(native=CARDS, sections=sections))


def with_isa(*isa: int, jit: str = "9.0") -> Inspected:
    return Inspected("a", coverage(native="8.0", jit=jit, isa=isa))  # type: ignore[arg-type]


def with_zstd(soname: str, *needed: str, isa: tuple[int, int] | None = None) -> Inspected:
    return Inspected("a", coverage(zstd=True, isa=isa), soname=soname, needed=needed)


NOTED = {
    "gaps of one size share a sentence": Inspected("a", coverage(containers=3470, native="8.0", mixed=GAPS)),
    "cuFFT": Inspected("libcufft.so.11", CUFFT),
    "one idle container": IDLE,
    "outside": lying({"": 10}),
    "one elsewhere": lying({".nv_fatbin": 9, ".a": 1}),
    "some elsewhere": lying({"__nv_relfatbin": 7, ".a": 2, "": 1}),
    "in many sections": lying({".a": 1, ".b": 1, ".c\x1b[2J": 1, ".d": 1, ".e": 6}),
    "a bare fatbin": Inspected("a.fatbin", coverage(sections={"": 10}), kind=FileKind.FATBIN),
    "an unknown image and zstd": Inspected("a", coverage(unknown=1, zstd=True)),
    "unknown images": Inspected("a", coverage(unknown=1200)),
    **{f"PTX {major}.{minor}": with_isa(major, minor) for major, minor in ((8, 8), (8, 5), (8, 0), (9, 7))},
    "PTX 7.8, for 520.61.05": with_isa(7, 8),
    "PTX for no GPU": with_isa(8, 8, jit=""),
    "zstd and CUDA 12": with_zstd("libx.so", "libcudart.so.12", isa=(8, 8)),
    "zstd and CUDA 13": with_zstd("libx.so", "libcudart.so.13"),
    "zstd in a library of CUDA 13": with_zstd("libcublas.so.13"),
    "zstd and PTX of CUDA 13": with_zstd("libx.so", isa=(9, 0)),
    "outside of containers": OUTSIDE,
}


@pytest.mark.parametrize("library", NOTED)
def test_what_is_noted_of_a_library(library: str, told: Told) -> None:
    """A library of CUDA 13 needs that CUDA's driver, whatever its compression."""
    told("\n".join(notes(NOTED[library])))


def test_counts_add_up(told: Told) -> None:
    tallies = ((183, 0, 1), (0, 184, 0), (300, 7305, 4861), (0, 0, 3))
    told("\n".join(counts(ContainerTally(*tally)) for tally in tallies))


@pytest.mark.parametrize(("name", "lost"), table("libraries/stripped.txt"))
def test_a_library_that_lost_its_device_code_is_told(name: str, lost: str) -> None:
    told = ("as it is made it has device code; this copy has none",)
    assert notes(Inspected(name=name)) == (told if lost == "yes" else ())
    assert notes(Inspected(name=name, problem="cut")) == ()
