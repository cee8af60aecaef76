"""Tests of the verdict on libraries that run together, and of its doubts where evidence is weak."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.binary.coverage import Support
from builder.binary.file_kinds import FileKind
from builder.binary.library import Inspected, read_library
from builder.binary.verdict import Verdict, alternatives, gpus_of, together, verdicts
from builder.contents.sentences import parts_notes
from builder.facts.gpu.architectures import Arch, Capability
from tests.support.factories.binaries import LTOIR, PTX, SASS, A, container, elf, image, patched, sass
from tests.support.factories.libraries import coverage

BLACKWELL, AMPERE, OLD = Capability(12, 0), Capability(8, 0), Capability(5, 2)


def _read(name: str, code: bytes, *needed: str, section: str = ".nv_fatbin", machine: int = 62) -> Inspected:
    found = read_library(name, patched(elf({section: code}, needed=needed), 18, "<H", machine))
    assert found.elf is not None, found.problem
    assert found.coverage is not None
    return Inspected(name, found.coverage, machine=found.elf.machine, needed=needed)


def _doubt(item: Inspected, device: Capability) -> str:
    return verdicts(item)[device].doubt


CUDA_118 = _read("b/libbits_cuda118.so", container(image(SASS, 80), image(PTX, 90)))
CUDA_128 = _read("b/libbits_cuda128.so", container(image(SASS, 80), image(SASS, 120)))
CUDA_130 = _read("b/libbits_cuda130.so", container(image(SASS, 120), image(PTX, 120)))


def test_alternatives_are_what_differs_in_a_number_and_nobody_needs() -> None:
    (group,) = alternatives([CUDA_118, Inspected("b/libbits_cpu.so"), CUDA_128, CUDA_130])
    assert group == (CUDA_118, CUDA_128, CUDA_130)
    needing = replace(CUDA_130, name="b/libapp.so", needed=("libbits_cuda118.so",))
    elsewhere = replace(CUDA_128, name="c/libbits_cuda128.so")
    newer = replace(CUDA_118, name="b/libbits_cuda118.so.2")
    for others in ([CUDA_128, needing], [elsewhere], [newer], [replace(CUDA_128, name="b/libbits_xpu.so")]):
        assert alternatives([CUDA_118, *others]) == ()
    below = [replace(one, name=f"a/{one.name}.1.2") for one in (CUDA_118, CUDA_128)]
    assert alternatives(below) == (tuple(below),)


def test_alternatives_for_each_python_are_in_one_group() -> None:
    """Defect: those for a second Python were judged one by one, and the worst of them denied a GPU."""
    pythons = [
        replace(one, name=one.name.replace(".so", f".cpython-{python}.so"))
        for one in (CUDA_118, CUDA_128)
        for python in ("312", "313")
    ]
    (group,) = alternatives(pythons)
    assert sorted(one.name for one in group) == sorted(one.name for one in pythons)
    found = together(pythons)[BLACKWELL]
    assert (found.support, found.doubt) == (Support.NATIVE, "so with 2 of 4 alternatives")


def test_objects_are_no_alternatives() -> None:
    """A build's ``scan1.cu.o`` and ``scan2.cu.o`` are linked together, and each must run."""
    objects = [replace(CUDA_118, name="scan1.cu.o"), replace(CUDA_130, name="scan2.cu.o")]
    loose = [replace(one, kind=FileKind.OBJECT) for one in objects]
    assert alternatives(objects) == (tuple(objects),)
    assert alternatives(loose) == ()
    assert together(loose)[AMPERE].support is Support.NONE


def test_of_alternatives_the_best_counts_and_a_doubt_says_that_not_all_are() -> None:
    found = together([CUDA_118, CUDA_128, CUDA_130])
    native, jit, some = found[BLACKWELL], found[Capability(9, 0)], found[AMPERE]
    assert (native.support, native.doubt) == (Support.NATIVE, "so with 2 of 3 alternatives")
    assert native.because == (CUDA_128.name, CUDA_130.name)
    assert (jit.support, jit.doubt) == (Support.JIT, "so with 1 of 3 alternatives")
    assert (some.support, some.doubt) == (Support.NATIVE, "so with 2 of 3 alternatives")
    beside = _read("b/libcore.so", sass(80))
    assert together([CUDA_118, CUDA_128, CUDA_130, beside])[BLACKWELL].support is Support.NONE


def test_each_question_mark_of_alternatives_has_its_reason_in_a_note() -> None:
    told = list(parts_notes([CUDA_118, CUDA_128, CUDA_130], 2))
    assert ("all libraries", "doubtful on 8.0, 8.6, 8.9 and 12.0: so with 2 of 3 alternatives") in told
    assert told[-1] == (
        "one of these is loaded",
        "libbits_cuda118.so, libbits_cuda128.so and libbits_cuda130.so",
    )
    assert [
        head for head, _ in parts_notes([CUDA_118, replace(CUDA_118, name="b/libbits_cuda120.so")], 2)
    ] == ["one of these is loaded"]


def test_code_for_exact_architectures_takes_nothing_from_the_rest() -> None:
    """vLLM has kernels for 9.0 alone in a library of their own, next to the library for all GPUs."""
    core = _read("v/_C.abi3.so", sass(80, 90, 120))
    hopper = _read("v/_flashmla_C.abi3.so", container(image(SASS, 90, A)))
    assert together([core, hopper])[AMPERE].support is Support.NATIVE
    assert together([hopper])[AMPERE].support is Support.NONE


def test_native_by_next_to_no_container_is_doubtful() -> None:
    """cuSPARSELt 0.8 has 1 of 350 containers for 5.2 (NVIDIA: 8.0 and newer); cuFFT 11.4 has 1.2
    % for 8.7."""
    name = "libcusparseLt.so.0"
    few = Inspected(name, coverage(containers=350, mixed={"5.2": (1, 0, 349)}, specialised=True))
    assert _doubt(few, OLD) == "code for it is in 1 of 350 containers, and in no other"
    enough = Inspected(name, coverage(containers=12802, mixed={"8.0": (155, 0, 12647)}, specialised=True))
    assert _doubt(enough, AMPERE) == ""


def test_relocatable_code_that_nothing_linked_is_doubtful() -> None:
    loose = _read("libx.so", sass(80), section="__nv_relfatbin")
    assert _doubt(loose, OLD) == "1 container holds relocatable code that no device link in the file took"
    more = _read("libx.so", sass(80) * 2, section="__nv_relfatbin")
    assert _doubt(more, OLD) == "2 containers hold relocatable code that no device link in the file took"


@pytest.mark.parametrize(("containers", "doubtful"), [(1, True), (49, True), (50, False)])
def test_what_may_be_made_at_run_time_is_doubtful_where_next_to_nothing_is_there(
    containers: int, doubtful: bool
) -> None:
    item = _read("libx.so", sass(80) * containers, "libnvrtc.so.12", "libc.so.6", "libnvrtc.so.11.2")
    reason = "it needs libnvrtc.so.12, libnvrtc.so.11.2, by which code is made while it runs"
    assert _doubt(item, OLD) == (reason if doubtful else "")
    assert _doubt(item, AMPERE) == ""


def test_lto_ir_is_linked_at_run_time() -> None:
    item = _read("libx.so", sass(80) + container(image(LTOIR, 50)))
    assert _doubt(item, OLD) == "it holds LTO IR, which is linked for a GPU while it runs"


def test_nvidia_s_code_that_is_linked_in_makes_gaps_doubtful() -> None:
    """torch 1.13.1 contains cuBLAS, whose containers have one architecture each, besides its own
    containers."""
    static = _read("libtorch_cuda.so", sass(70, 80) * 8 + sass(80) * 2)
    assert _doubt(static, Capability(7, 0)) == (
        "2 of 10 containers hold one architecture each, as NVIDIA's own libraries do, which choose by "
        "device: they may be linked in"
    )
    for few in (sass(70, 80) * 20 + sass(80), sass(70, 80) * 9 + sass(80), sass(70) * 2 + sass(80) * 2):
        assert _doubt(_read("libx.so", few), Capability(7, 0)) == ""


def test_kernels_that_are_stubs_for_a_gpu_are_doubtful() -> None:
    small, large = image(SASS, 70, payload=900), image(SASS, 80, payload=900 * 17)
    stubs = _read("libx.so", container(small, large) * 2 + sass(70, 80))
    assert _doubt(stubs, Capability(7, 0)) == "2 of 3 containers hold next to nothing for it: stubs"
    assert _doubt(stubs, AMPERE) == ""
    assert _doubt(_read("libx.so", container(small, large) + sass(70, 80)), Capability(7, 0)) == ""


def test_a_library_for_x86_runs_on_no_machine_that_is_arm() -> None:
    """NVIDIA's Jetsons and GB10 are in machines with ARM processors; an H100 is in servers of both kinds."""
    x86, arm = _read("a/libx.so", sass(87, 90)), _read("b/libx.so", sass(87, 90), machine=183)
    assert [item.machine for item in (x86, arm)] == ["x86-64", "aarch64"]
    assert {str(gpu.capability) for gpu in gpus_of([arm])} - {
        str(gpu.capability) for gpu in gpus_of([x86])
    } == {*("5.3", "6.2", "7.2", "8.7", "11.0", "12.1")}
    assert Capability(8, 7) not in together([x86])
    both = together([replace(x86, name="a/liby.so"), arm])
    assert both[Capability(8, 7)].because == (arm.name,)
    assert both[Capability(9, 0)].because == ("a/liby.so", arm.name)
    assert Arch(8, 7) in (x86.coverage.sass if x86.coverage else ())


def test_what_has_nothing_to_run_has_no_verdict() -> None:
    assert verdicts(Inspected("libplain.so")) == {}
    assert together([Inspected("libplain.so")]) == {}


def test_gaps_of_a_library_that_holds_nothing_for_a_gpu_are_no_doubt() -> None:
    """ORT's provider for 8.9 and newer has some units for 9.0 alone, and no code for 8.0."""
    assert _doubt(_read("libx.so", sass(89, 90) * 3 + sass(90)), AMPERE) == ""


TURING = Capability(7, 5)


def test_what_a_small_library_alone_lacks_is_doubtful() -> None:
    """Paddle 2.6 runs on 7.5, but its flash attention (39 of 711 containers) has code for 8.0 and
    8.6 alone."""
    phi = _read("paddle/libs/libphi.so", sass(75, 80) * 40)
    flash = _read("paddle/libs/libflashattn.so", sass(80) * 4)
    found = together([phi, flash])[TURING]
    assert (found.support, found.because) == (Support.NONE, (flash.name,))
    assert found.doubt == (
        "it comes from 4 of 44 containers, in libflashattn.so: that may be loaded for some work or on some "
        "GPUs alone"
    )
    assert together([phi, flash])[AMPERE].doubt == ""
    assert together([phi, _read("libflashattn.so", sass(80) * 10)])[TURING].doubt == "", "10 of 50"
    assert together([_read("libphi.so", sass(80) * 40), flash])[TURING].doubt == "", "all of it"


def test_what_a_small_library_of_nvidia_s_lacks_is_no_doubt() -> None:
    """libcudnn_ops is small, but all of cuDNN needs it."""
    engines = _read("libcudnn_engines_precompiled.so.9", sass(75, 80) * 40)
    assert together([engines, _read("libcudnn_ops.so.9", sass(80))])[TURING].doubt == ""


def test_of_alternatives_one_doubt_is_enough() -> None:
    """One of twelve libraries has SASS for 12.0, with a twelfth of all containers."""
    old = [_read(f"b/libbits_cuda{number}.so", sass(80)) for number in range(110, 121)]
    found = together([*old, CUDA_128])[BLACKWELL]
    assert (found.support, found.doubt) == (Support.NATIVE, "so with 1 of 12 alternatives")


def test_bare_images_beside_libraries_take_nothing_from_them() -> None:
    """FlashInfer has PTX for 10.3 among its sources, and numba-cuda has some for its tests."""
    image = _bare("data/k.ptx", "103a")
    library = _read("libx.so", sass(75, 80) * 3)
    assert together([library, image])[TURING] == Verdict(Support.NATIVE, because=("libx.so",))
    assert together([image])[TURING] == Verdict(Support.NONE, because=("data/k.ptx",)), "it is all there is"
    two = together([image, _bare("data/l.ptx", "103a")])[TURING]
    assert (two.support, two.doubt) == (
        Support.NONE,
        "there are bare images alone, and whatever loads them chooses among them",
    )


def test_a_doubt_of_all_libraries_has_a_note() -> None:
    phi, flash = _read("p/libphi.so", sass(75, 80) * 40), _read("p/libflashattn.so", sass(80) * 4)
    assert dict(parts_notes([phi, flash], 2)) == {
        "all libraries": "doubtful on 7.5: it comes from 4 of 44 containers, in libflashattn.so: that may be "
        "loaded for some work or on some GPUs alone"
    }


def _bare(name: str, arch: str) -> Inspected:
    text = f".version 8.8\n.target sm_{arch}\n.address_size 64\n.visible .entry f() {{ ret; }}\n".encode()
    reading = read_library(name, text)
    assert reading.kind is FileKind.PTX
    return Inspected(name, reading.coverage, kind=reading.kind)
