"""Tests of coverage in plain words, against sentences written by hand."""

from __future__ import annotations

import pytest

from builder.binary.coverage import ContainerTally
from builder.binary.file_kinds import FileKind
from builder.binary.library import Inspected
from builder.contents.sentences import counts, notes, summary
from builder.facts.gpu.table import CAPABILITIES
from tests.support.factories.libraries import BROKEN, CARDS, IDLE, OWN, PLAIN, PROVIDER, coverage


def test_a_source_is_what_its_worst_library_is() -> None:
    """9.0 is by JIT although both others are native, 8.9 is partial, and every Jetson is excluded."""
    wide = Inspected(name="a", coverage=coverage(native=CARDS))
    slow = Inspected(name="b", coverage=coverage(native="8.0 8.6", jit="9.0", mixed={"8.9": (9, 0, 1)}))
    assert summary([PLAIN, wide, slow]) == (
        "Runs natively on Ampere (8.0, 8.6); by JIT on Hopper (9.0); in part, with kernels missing, "
        "on Ada (8.9); not on Maxwell (5.0, 5.2), Pascal (6.0, 6.1), Volta (7.0), Turing (7.5), "
        "Blackwell (10.0, 10.3, 12.0, 12.1), Jetson Nano (5.3), TX2 (6.2), Xavier (7.2), Orin (8.7) "
        "and Thor (11.0)."
    )


def test_generations_are_named_with_their_capabilities_and_jetsons_apart() -> None:
    assert summary([PROVIDER]) == (
        "Runs natively on Pascal (6.0, 6.1), Volta (7.0), Ampere (8.0, 8.6), Ada (8.9) and Hopper (9.0); "
        "by JIT on Blackwell (10.0, 10.3, 12.0, 12.1) and Jetson Thor (11.0); "
        "in part, with kernels missing, on Turing (7.5); not on Maxwell (5.0, 5.2), "
        "Jetson Nano (5.3), TX2 (6.2), Xavier (7.2) and Orin (8.7)."
    )


def test_what_runs_everywhere_and_what_runs_nowhere() -> None:
    everything = " ".join(map(str, CAPABILITIES))
    assert summary([Inspected(name="a", coverage=coverage(native=everything))]) == (
        "Runs natively on every GPU from 5.0 to 12.1."
    )
    assert summary([Inspected(name="a", coverage=coverage(jit=everything))]) == (
        "Runs by JIT on every GPU from 5.0 to 12.1."
    )
    assert summary([Inspected(name="a", coverage=coverage())]) == (
        "Does not run as a whole on any GPU from 5.0 to 12.1."
    )


def test_a_container_with_nothing_to_run_takes_nothing_away() -> None:
    assert summary([OWN, IDLE]) == summary([OWN])
    assert summary([OWN]).startswith("Runs natively on Maxwell (5.0, 5.2), Pascal (6.0, 6.1), ")


def test_a_doubtful_gpu_is_named_as_such() -> None:
    """bitsandbytes 0.45.5 runs natively on 12.0 with one of its ten libraries, one of which is loaded."""
    old, new = (coverage(native=native) for native in ("8.0 8.6", "8.0 8.6 12.0"))
    libraries = [Inspected(name="b/libbits_cuda118.so", coverage=old)]
    assert "Doubtful" not in summary(libraries)
    libraries.append(Inspected(name="b/libbits_cuda128.so", coverage=new))
    assert summary(libraries).endswith(". Doubtful on Blackwell (12.0).")
    few = coverage(containers=350, mixed={"5.2": (1, 0, 349)}, specialised=True)
    assert summary([Inspected("libcusparseLt.so.0", few)]).endswith(". Doubtful on Maxwell (5.2).")


@pytest.mark.parametrize("libraries", [[], [PLAIN], [PLAIN, IDLE]])
def test_without_device_code_nothing_is_promised(libraries: list[Inspected]) -> None:
    assert summary(libraries) == "There is no device code here that a GPU could run."


def test_what_could_not_be_read_is_never_passed_over() -> None:
    one = " But 1 of 2 libraries cannot be read: what it holds is not known."
    two = " But 2 of 3 libraries cannot be read: what they hold is not known."
    assert summary([PROVIDER, BROKEN]) == summary([PROVIDER]) + one
    assert summary([BROKEN, PLAIN, BROKEN]) == "There is no device code here that a GPU could run." + two
    assert summary([BROKEN, BROKEN]) == "Nothing is known: none of its libraries can be read."


def test_gaps_of_one_size_share_a_sentence() -> None:
    gaps = {"5.3": (0, 1, 3469), "6.2": (0, 1, 3469), "8.7": (0, 1, 3469), "9.0": (3400, 60, 10)}
    found = Inspected(name="a", coverage=coverage(containers=3470, native="8.0", mixed=gaps))
    assert notes(found) == (
        "for 5.3, 6.2 and 8.7, 3,469 of 3,470 containers have nothing that runs",
        "for 9.0, 10 of 3,470 containers have nothing that runs",
    )


def test_what_cuobjdump_does_not_see_and_what_nothing_runs_is_told() -> None:
    """The numbers were counted in cuFFT 11.4.1.4."""
    cufft = coverage(
        containers=24454,
        native=" ".join(map(str, CAPABILITIES)),
        sections={".nv_fatbin": 1, ".ldata": 24453},
        nothing_to_run=11652,
        ltoir=["50"],
        specialised=True,
    )
    unseen, idle = notes(Inspected(name="libcufft.so.11", coverage=cufft))
    assert unseen == "24,453 of 24,454 containers lie in .ldata, where cuobjdump does not look"
    assert idle == (
        "11,652 of 24,454 containers have nothing to run: "
        "LTO IR for a link at run time, or units without kernels"
    )
    assert notes(IDLE) == ("its only container has nothing to run: a unit without kernels",)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"": 10}, "all 10 containers lie outside of any section"),
        ({".nv_fatbin": 9, ".a": 1}, "1 of 10 containers lies in .a"),
        ({"__nv_relfatbin": 7, ".a": 2, "": 1}, "3 of 10 containers lie in .a and outside of any section"),
        (
            {".a": 1, ".b": 1, ".c\x1b[2J": 1, ".d": 1, ".e": 6},
            r"all 10 containers lie in .a, in .b, in .c\x1b[2J and in 2 more sections",
        ),
    ],
)
def test_sections_that_cuobjdump_skips(sections: dict[str, int], said: str) -> None:
    found = Inspected(name="a", coverage=coverage(native=CARDS, sections=sections))
    assert notes(found) == (f"{said}, where cuobjdump does not look",)


def test_a_bare_fatbin_has_no_sections_to_speak_of() -> None:
    assert notes(Inspected(name="a.fatbin", coverage=coverage(sections={"": 10}), kind=FileKind.FATBIN)) == ()


def test_unknown_images_and_zstd_are_told() -> None:
    assert notes(Inspected(name="a", coverage=coverage(unknown=1, zstd=True))) == (
        "1 image is of a kind that nobody knows",
        "images are packed with zstd, which needs driver 550.54.14 or newer",
    )
    assert notes(Inspected(name="a", coverage=coverage(unknown=1200))) == (
        "1,200 images are of a kind that nobody knows",
    )


@pytest.mark.parametrize(
    ("tally", "said"),
    [
        (ContainerTally(183, 0, 1), "183 of 184 containers native, 1 with nothing that runs"),
        (ContainerTally(0, 184, 0), "184 of 184 containers by JIT"),
        (
            ContainerTally(300, 7305, 4861),
            "300 of 12,466 containers native, 7,305 by JIT, 4,861 with nothing that runs",
        ),
        (ContainerTally(0, 0, 3), "3 of 3 containers with nothing that runs"),
    ],
)
def test_counts_add_up(tally: ContainerTally, said: str) -> None:
    assert counts(tally) == said


@pytest.mark.parametrize(
    ("name", "stripped"),
    [
        ("capi/libonnxruntime_providers_cuda.so", True),
        ("libcublasLt.so.12", True),
        ("lib/libcudnn_engines_precompiled.so.9", True),
        ("libcufft.so.11", True),
        ("libcudnn.so.9", False),
        ("libcudnn_graph.so.9", False),
        ("libcudnn_heuristic.so.9.10.2", False),
        ("libcudnn_engines_tensor_ir.so.9", False),
        ("libnppc.so.12", False),
        ("libonnxruntime.so", False),
        ("libcufft.so.11/other.so", False),
    ],
)
def test_a_library_that_lost_its_device_code_is_told(name: str, stripped: bool) -> None:
    """The wheels of cuDNN 9.10 and 9.28 show which libraries have no device code originally."""
    told = ("as it is made it has device code; this copy has none",)
    assert notes(Inspected(name=name)) == (told if stripped else ())
    assert notes(Inspected(name=name, problem="cut")) == ()


@pytest.mark.parametrize(
    ("isa", "said"),
    [
        ((8, 8), "its PTX is of version 8.8: JIT needs driver 575.51.03 or newer"),
        ((8, 5), "its PTX is of version 8.5: JIT needs driver 555.42.02 or newer"),
        ((8, 0), "its PTX is of version 8.0: JIT needs driver 525.60.13 or newer"),
        ((7, 8), "its PTX is of version 7.8: JIT needs no driver newer than 525.60.13"),  # 520.61.05 has it
        ((9, 7), "its PTX is of version 9.7: JIT needs a driver newer than any that is known here"),
    ],
)
def test_the_driver_that_ptx_needs(isa: tuple[int, int], said: str) -> None:
    found = Inspected(name="a", coverage=coverage(native="8.0", jit="9.0", isa=isa))
    assert notes(found) == (said,)
    assert notes(Inspected(name="a", coverage=coverage(native="8.0", isa=isa))) == ()


@pytest.mark.parametrize(
    ("soname", "needed", "isa", "driver"),
    [
        ("libx.so", ("libcudart.so.12",), (8, 8), "550.54.14"),
        ("libx.so", ("libcudart.so.13",), None, "580.65.06"),
        ("libcublas.so.13", (), None, "580.65.06"),
        ("libx.so", (), (9, 0), "580.65.06"),
    ],
)
def test_the_driver_that_zstd_needs(
    soname: str, needed: tuple[str, ...], isa: tuple[int, int] | None, driver: str
) -> None:
    """A library of CUDA 13 needs that CUDA's driver, whatever its compression."""
    found = Inspected(name="a", coverage=coverage(zstd=True, isa=isa), soname=soname, needed=needed)
    assert notes(found) == (f"images are packed with zstd, which needs driver {driver} or newer",)
