"""Tests of the verdict on libraries that run together, and of its doubts where evidence is weak."""

from dataclasses import replace

import pytest

from builder.binary.coverage import Support
from builder.binary.file_kinds import FileKind
from builder.binary.library import Inspected, read_library
from builder.binary.verdict import Verdict, alternatives, gpus_of, together, verdicts
from builder.contents.sentences import notes, parts_notes
from builder.facts.gpu.architectures import Arch, Capability
from tests.support import present
from tests.support.factories.binaries import LTOIR, PTX, SASS, A, container, elf, image, patched, sass
from tests.support.factories.libraries import coverage
from tests.support.messages import Told

BLACKWELL, AMPERE, OLD = Capability(12, 0), Capability(8, 0), Capability(5, 2)


def _read(name: str, code: bytes, *needed: str, section: str = ".nv_fatbin", machine: int = 62) -> Inspected:
    found = read_library(name, patched(elf({section: code}, needed=needed), 18, "<H", machine))
    return Inspected(name, present(found.coverage), machine=found.machine, needed=needed)


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
    assert (found.support, found.doubt) == (Support.NATIVE, "that holds for 2 of 4 alternatives")


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
    assert (native.support, native.doubt) == (Support.NATIVE, "that holds for 2 of 3 alternatives")
    assert native.because == (CUDA_128.name, CUDA_130.name)
    assert (jit.support, jit.doubt) == (Support.JIT, "that holds for 1 of 3 alternatives")
    assert (some.support, some.doubt) == (Support.NATIVE, "that holds for 2 of 3 alternatives")
    beside = _read("b/libcore.so", sass(80))
    assert together([CUDA_118, CUDA_128, CUDA_130, beside])[BLACKWELL].support is Support.NONE


def test_each_question_mark_of_alternatives_has_its_reason_in_a_note(told: Told) -> None:
    alike = replace(CUDA_118, name="b/libbits_cuda120.so")
    many = [replace(CUDA_118, name=f"b/libbits_cuda{number}.so") for number in range(110, 119)]
    for libraries in ([CUDA_118, CUDA_128, CUDA_130], [CUDA_118, alike], many):
        told("\n".join(map(": ".join, parts_notes(libraries, 2))))


def test_code_for_exact_architectures_takes_nothing_from_the_rest() -> None:
    """vLLM has kernels for 9.0 alone in a library of their own, next to the library for all GPUs."""
    core = _read("v/_C.abi3.so", sass(80, 90, 120))
    hopper = _read("v/_flashmla_C.abi3.so", container(image(SASS, 90, A)))
    assert together([core, hopper])[AMPERE].support is Support.NATIVE
    assert together([hopper])[AMPERE].support is Support.NONE


FEW = coverage(containers=350, mixed={"5.2": (1, 0, 349)}, specialised=True)

STUBS = container(image(SASS, 70, payload=900), image(SASS, 80, payload=900 * 17))

DOUBTS = {
    "next to no container": (Inspected("libcusparseLt.so.0", FEW), OLD),
    "nothing linked it": (_read("libx.so", sass(80), section="__nv_relfatbin"), OLD),
    "nothing linked two": (_read("libx.so", sass(80) * 2, section="__nv_relfatbin"), OLD),
    "LTO IR": (_read("libx.so", sass(80) + container(image(LTOIR, 50))), OLD),
    "NVIDIA's code": (_read("libtorch_cuda.so", sass(70, 80) * 8 + sass(80) * 2), Capability(7, 0)),
    "stubs": (_read("libx.so", STUBS * 2 + sass(70, 80)), Capability(7, 0)),
}
"""cuSPARSELt 0.8 has 1 of 350 containers for 5.2 (NVIDIA: 8.0 and newer). torch 1.13.1 contains cuBLAS, whose
containers have one architecture each, besides its own containers."""


@pytest.mark.parametrize("doubt", DOUBTS)
def test_weak_evidence_is_doubtful(doubt: str, told: Told) -> None:
    reason = _doubt(*DOUBTS[doubt])
    assert reason
    told(reason)


CUFFT = coverage(containers=12802, mixed={"8.0": (155, 0, 12647)}, specialised=True)
"""cuFFT 11.4 has 1.2 % for 8.7."""

SURE = {
    "enough containers": (Inspected("libcusparseLt.so.0", CUFFT), AMPERE),
    "few of many": (_read("libx.so", sass(70, 80) * 20 + sass(80)), Capability(7, 0)),
    "one of ten": (_read("libx.so", sass(70, 80) * 9 + sass(80)), Capability(7, 0)),
    "both have one": (_read("libx.so", sass(70) * 2 + sass(80) * 2), Capability(7, 0)),
    "stubs for another": (_read("libx.so", STUBS * 2 + sass(70, 80)), AMPERE),
    "one stub of two": (_read("libx.so", STUBS + sass(70, 80)), Capability(7, 0)),
    # ORT's provider for 8.9 and newer has some units for 9.0 alone, and no code for 8.0
    "nothing for it": (_read("libx.so", sass(89, 90) * 3 + sass(90)), AMPERE),
}


@pytest.mark.parametrize("evidence", SURE)
def test_other_evidence_is_not(evidence: str) -> None:
    assert _doubt(*SURE[evidence]) == ""


@pytest.mark.parametrize(("containers", "doubtful"), [(1, True), (49, True), (50, False)])
def test_what_may_be_made_at_run_time_is_doubtful(containers: int, doubtful: bool) -> None:
    item = _read("libx.so", sass(80) * containers, "libnvrtc.so.12", "libc.so.6", "libnvrtc.so.11.2")
    reason = "it needs libnvrtc.so.12, libnvrtc.so.11.2, by which code is made while it runs"
    assert _doubt(item, OLD) == (reason if doubtful else "")
    assert _doubt(item, AMPERE) == ""


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
    assert Arch(8, 7) in present(x86.coverage).sass


def test_alternatives_by_capability_are_for_one_gpu_each() -> None:
    """bitsandbytes 0.41.3 has libraries with cuBLASLt for 7.5 and newer, and without it for older GPUs."""
    new = [_read(f"b/libbits_cuda{one}.so", sass(75, 80)) for one in (117, 118)]
    old = [_read(f"b/libbits_cuda{one}_nolt.so", sass(52, 70)) for one in (117, 118)]
    (group,) = alternatives([*new, *old])
    assert [item.name for item in group] == [item.name for item in (*new, *old)]
    found = together(group)
    assert [(found[on].support, found[on].doubt) for on in (OLD, AMPERE)] == [(Support.NATIVE, "")] * 2
    (pair,) = alternatives([new[0], old[0]])
    assert pair == (new[0], old[0])
    both = replace(old[0], coverage=new[0].coverage)
    assert alternatives([new[0], both]) == (), "code for the same GPUs"


def test_alternatives_by_capability_may_share_code_where_each_is_made_from_the_same_units() -> None:
    """Defect: the real wheel of bitsandbytes 0.41.3, whose libraries share 8.x, was none for Maxwell."""
    new = [_read(f"b/libbits_cuda{one}.so", sass(75, 80) * 3) for one in (117, 118)]
    old = [_read(f"b/libbits_cuda{one}_nolt.so", sass(52, 75, 80) * 3) for one in (117, 118)]
    older = _read("b/libbits_cuda102_nolt.so", sass(52) * 2)
    assert [len(group) for group in alternatives([*new, *old, older])] == [5], "0.37.0 has one without a pair"
    found = together([*new, *old])
    assert [(found[on].support, found[on].doubt) for on in (OLD, AMPERE)] == [(Support.NATIVE, "")] * 2
    others = [_read(f"b/libbits_cuda{one}_extra.so", sass(52, 75, 80)) for one in (117, 118)]
    assert [len(group) for group in alternatives([*new, *others])] == [2, 2], "of other units"
    assert together([*new, *others])[OLD].support is Support.NONE
    assert alternatives([new[0], old[0]]) == (), "one pair alone may be a library and its addition"
    same = [replace(old[at], coverage=one.coverage) for at, one in enumerate(new)]
    assert [len(group) for group in alternatives([*new, *same])] == [2, 2], "for the same GPUs"


def test_of_alternatives_by_capability_the_one_without_doubt_is_told() -> None:
    new = [_read(f"b/libbits_cuda{one}.so", sass(75, 80) * 3) for one in (117, 118)]
    old = [_read("b/libbits_cuda117_nolt.so", sass(52, 75) * 3)]
    old += [_read("b/libbits_cuda118_nolt.so", sass(52, 75, 80) * 3)]
    assert together([*old, *new])[AMPERE].doubt == ""


STATIC = sass(35) * 4 + sass(52) * 4 + sass(70) * 4 + sass(80) * 4
"""Containers of cuDNN and cuBLAS as they are linked in: each is for one architecture."""


def test_an_application_s_own_containers_are_judged_and_those_of_linked_libraries_named(told: Told) -> None:
    """mxnet-cu80 1.5.0 and torch 1.13.1 have cuDNN and cuBLAS inside, whose code chooses by device."""
    item = _read("libmxnet.so", sass(52, 70, 80) * 20 + STATIC)
    assert [verdicts(item)[on] for on in (OLD, AMPERE)] == [
        Verdict(Support.NATIVE, because=("libmxnet.so",)) for _ in range(2)
    ]
    found = verdicts(item)[Capability(6, 1)]
    assert (found.support, found.doubt) == (Support.NONE, "")
    lost = verdicts(_read("libx.so", sass(52, 75, 80) * 20 + STATIC))[TURING]
    assert (lost.support, bool(lost.doubt)) == (Support.NATIVE, False), "7.0's code runs on 7.5"
    without = _read("liby.so", sass(52, 61, 80) * 20 + sass(52) * 8 + sass(80) * 8)
    other = verdicts(without)[Capability(6, 1)]
    assert (other.support, bool(other.doubt)) == (Support.NATIVE, True)
    told("\n".join(notes(without)))


def test_ptx_of_the_newest_alone_is_a_linked_library_s_too() -> None:
    """Defect: torch 1.13.1 has 75 containers of cuFFT with PTX of 8.6 alone: "in part" on older GPUs."""
    linked = sass(50) * 4 + sass(70) * 4 + sass(80) * 4 + container(image(PTX, 86)) * 3
    item = _read("libtorch_cuda_cpp.so", sass(50, 70, 80) * 3 + linked)
    found = verdicts(item)
    assert [found[on].support for on in (OLD, AMPERE, Capability(8, 9))] == [Support.NATIVE] * 3
    few = _read("libmxnet.so", sass(52, 61) * 100 + sass(35) * 7 + sass(61) * 2)
    assert verdicts(few)[OLD].support is Support.NATIVE, "cuDNN's nine of 109 in mxnet-cu80 1.5.0's measure"
    assert found[Capability(9, 0)].support is Support.NONE
    one_gpu = _read("libx.so", sass(80) * 9 + container(image(PTX, 80)) * 3)
    assert verdicts(one_gpu)[AMPERE].support is Support.JIT
    assert verdicts(one_gpu)[OLD].support is Support.NONE, "8.0's own containers, all judged"


def test_a_library_that_picks_its_code_by_device_is_known_by_its_containers() -> None:
    """onnxruntime-ep-nv-tensorrt-rtx has tensorrt_rtx_*.dll, most of whose containers are for one GPU."""
    item = _read("libnobody_knows.so", sass(75) * 4 + sass(80) * 4 + sass(86, 89) * 4)
    assert present(item.coverage).specialised
    support = [verdicts(item)[on].support for on in (TURING, AMPERE, OLD)]
    assert support == [Support.NATIVE, Support.NATIVE, Support.NONE]


def test_containers_of_nvidia_s_libraries_make_no_answer_of_the_rest_doubtful() -> None:
    """A package's provider has 184 containers, cuFFT beside it 24,454."""
    provider = _read("lib/libonnxruntime_providers_cuda.so", sass(80, 90) * 10)
    cufft = _read("lib/libcufft.so.11", (sass(75) + sass(80)) * 60)
    found = together([provider, cufft])
    assert [(found[on].support, found[on].doubt) for on in (TURING, AMPERE)] == [
        (Support.NONE, ""),
        (Support.NATIVE, ""),
    ]


TURING = Capability(7, 5)


def test_what_a_small_library_alone_lacks_is_doubtful(told: Told) -> None:
    """Paddle 2.6 runs on 7.5, but its flash attention (39 of 711 containers) has code for 8.0 and
    8.6 alone."""
    phi = _read("paddle/libs/libphi.so", sass(75, 80) * 40)
    flash = _read("paddle/libs/libflashattn.so", sass(80) * 4)
    found = together([phi, flash])[TURING]
    assert (found.support, found.because) == (Support.NONE, (flash.name,))
    told(found.doubt)
    assert together([phi, flash])[AMPERE].doubt == ""
    assert together([phi, _read("libflashattn.so", sass(80) * 10)])[TURING].doubt == "", "10 of 50"
    assert together([_read("libphi.so", sass(80) * 40), flash])[TURING].doubt == "", "all of it"


def test_what_a_small_library_of_nvidia_s_lacks_is_no_doubt() -> None:
    """libcudnn_ops is small, but all of cuDNN needs it."""
    engines = _read("libcudnn_engines_precompiled.so.9", sass(75, 80) * 40)
    assert together([engines, _read("libcudnn_ops.so.9", sass(80))])[TURING].doubt == ""


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


def _bare(name: str, arch: str) -> Inspected:
    text = f".version 8.8\n.target sm_{arch}\n.address_size 64\n.visible .entry f() {{ ret; }}\n".encode()
    reading = read_library(name, text)
    assert reading.kind is FileKind.PTX
    return Inspected(name, reading.coverage, kind=reading.kind)
