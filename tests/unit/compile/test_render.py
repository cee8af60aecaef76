"""Tests of render beyond the golden files: contexts, cache mounts and keys as inputs change."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from jinja2 import FileSystemLoader

from builder.compile.explain import explain
from builder.compile.plan import _left_out_operators
from builder.compile.render import _toolchain_key, ninja_tree, render
from builder.config.build_plan import BuildPlan, Rendered
from builder.config.inputs import Input, InputKind, Lock, Pin
from builder.config.variants import ImageSystem, ImageToolkit, Origin, Project, SuiteSystem
from builder.errors import ConfigError
from builder.facts.gpu.architectures import architectures
from builder.facts.ort.configured import SourceLine
from builder.facts.ort.known_rules import rules_for
from builder.facts.ort.source import Dependency, SourceFacts
from builder.facts.ort.source_rules import Fact
from builder.finding import Code
from builder.formats.package_names import Host, Profile
from tests.support import ROOT
from tests.support.factories import packages

STAGES = {"toolchain", "source", "build", "smoke", "bare", "store"}
"""Names of stages in the Dockerfile, which ``--from`` may have besides contexts."""

IMAGE = "image:nvidia/cuda:12.9.1-devel-ubuntu22.04"

SOURCE = "git:https://github.com/microsoft/onnxruntime@v1.30.0"


@pytest.fixture
def lock(project: Project) -> Lock:
    return packages.pinned(project)


def decided(project: Project, base: str = "assembled", **changes: object) -> BuildPlan:
    version = project.bases[base].ort_version
    made = packages.plan(project=project, variant=project.variants["legacy"], base=base, ort_version=version)
    return replace(made, **changes)  # type: ignore[arg-type]


def rendered(plan: BuildPlan, lock: Lock) -> Rendered:
    return render(plan, lock, FileSystemLoader(ROOT / "templates"))


def without(lock: Lock, *keys: str) -> Lock:
    return Lock(pins={key: pin for key, pin in lock.pins.items() if key not in keys})


def repinned(lock: Lock, changes: Mapping[str, Pin]) -> Lock:
    return Lock(pins={**lock.pins, **changes})


@pytest.mark.parametrize("origin", [Origin.SOURCE, Origin.WHEEL])
def test_debs_and_sources_are_the_dockerfile_s(project: Project, lock: Lock, origin: Origin) -> None:
    made = rendered(decided(project, origin=origin), lock)
    laid = {item.spec.rpartition("/")[2] for item in (*made.debs, *made.sources)}
    assert laid == set(
        re.findall(
            r'"(?:/debs/|/sources/)?([^"/ ]+\.(?:deb|tar\.\w+))"', made.dockerfile + made.runtime_dockerfile
        )
    )


def test_the_nvidia_base_needs_of_debian_what_checks_packages(project: Project, lock: Lock) -> None:
    made = rendered(decided(project, "nvidia"), lock)
    assert set(made.debs) == {project.check.cuobjdump, project.check.headers}
    assert [item.key for item in made.sources] == [SOURCE]


@pytest.mark.parametrize(
    ("base", "gone"),
    [
        ("assembled", ["wheel:nvidia-cutlass==3.5.1.0", "wheel:onnxruntime-gpu==1.21.0"]),
        ("nvidia", [SOURCE, IMAGE, "image:ubuntu:22.04"]),
    ],
)
def test_a_lock_that_lacks_inputs_is_told(project: Project, lock: Lock, base: str, gone: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        rendered(decided(project, base), without(lock, *gone))
    assert caught.value.problems == tuple(
        f"inputs.lock has no entry {key!r}. Run ./run lock and commit the file." for key in sorted(gone)
    )


def test_a_compiled_host_library_has_its_own_licence(project: Project, lock: Lock) -> None:
    made = rendered(decided(project, host=Host.SOURCE), without(lock, "wheel:onnxruntime-gpu==1.21.0"))
    texts = "\ncp /src/onnxruntime/LICENSE /src/onnxruntime/ThirdPartyNotices.txt /out/\n"
    for wanted in (texts, " libonnxruntime.so.1.21.0;", "onnxruntime_providers_shared onnxruntime\n"):
        assert made.dockerfile.count(wanted) == 1


def test_inputs_of_the_other_base_may_be_missing(project: Project, lock: Lock) -> None:
    made = rendered(decided(project), without(lock, IMAGE, SOURCE, "image:ubuntu:22.04"))
    assert made == rendered(decided(project), lock)


@pytest.mark.parametrize("base", ["nvidia", "assembled", "redist", "assembled of CUDA 13"])
def test_each_toolchain_pin_is_in_the_key(project: Project, lock: Lock, base: str) -> None:
    base, _, other_cuda = base.partition(" of CUDA ")
    plan = decided(project.compiling_with(other_cuda) if other_cuda else project, base)
    made = rendered(plan, lock)
    inputs = {*made.contexts.values(), *made.debs, *made.sources}
    keys = {item.key for item in inputs} | ({IMAGE} if base == "nvidia" else set())
    other = Pin(sha256="1" * 64, revision="sha256:1")
    changed = {_toolchain_key(plan, repinned(lock, {key: other})) for key in keys}
    assert len(keys) > 6
    assert len(changed | {made.toolchain_key}) == len(keys) + 1


@pytest.mark.parametrize("base", ["nvidia", "assembled", "redist"])
def test_other_pins_leave_the_key_alone(project: Project, lock: Lock, base: str) -> None:
    plan = decided(project, base)
    others = ["wheel:onnxruntime-gpu==1.21.0", "wheel:onnxruntime-gpu==1.26.0", "wheel:silero-vad==6.2.3"]
    others += ["image:ubuntu:22.04"]
    if base == "assembled":  # what a git tag downloads links nvrtc
        others += ["wheel:nvidia-cuda-nvrtc-cu12==12.9.86"]
    changed = repinned(lock, {key: Pin(sha256="1" * 64) for key in others})
    assert _toolchain_key(plan, changed) == _toolchain_key(plan, lock)


def test_the_key_knows_the_bases_packages(project: Project, lock: Lock) -> None:
    base = project.bases["assembled"]
    system = replace(base.system, packages=(*base.system.packages, "mold"))
    more = replace(project, bases={**project.bases, "assembled": replace(base, system=system)})
    assert _toolchain_key(decided(more), lock) != _toolchain_key(decided(project), lock)


def test_a_build_tree_is_shared_by_nothing_that_differs(project: Project, lock: Lock) -> None:
    plan = decided(project)
    variants = [replace(plan, variant=variant) for variant in project.variants.values()]
    profiles = [replace(plan, profile=profile) for profile in (Profile.FULL, Profile.MINIMAL)]
    trees = [ninja_tree(each, "key") for each in [*variants, *profiles, replace(plan, host=Host.SOURCE)]]
    assert len({*trees, ninja_tree(plan, "another")}) == len(trees) + 1
    assert trees[0] == "ortpacks-legacy-lean-wheel-key"


def test_resolved_images_are_built_by_one_digest(project: Project, lock: Lock) -> None:
    """``variants.yaml`` names the first by a digest too."""
    digest = f"sha256:{'a' * 64}"
    image = Input(InputKind.IMAGE, f"nvidia/cuda@{digest}")
    base = project.bases["nvidia"]
    assert isinstance(base.system, ImageSystem)
    bases = {"nvidia": replace(base, system=replace(base.system, image=image))}
    pins = {key: Pin(revision=digest) for key in (image.key, "image:ubuntu:22.04")}
    made = rendered(decided(replace(project, bases=bases), "nvidia"), repinned(lock, pins))
    assert f"FROM nvidia/cuda@{digest} AS toolchain\n" in made.dockerfile
    assert f"FROM ubuntu:22.04@{digest} AS bare\n" in made.runtime_dockerfile


ARCHIVE = "https://github.com/abseil/abseil-cpp/archive/refs/tags/20240722.0.zip"

JAMMY = "https://snapshot.ubuntu.com/ubuntu/20251101T000000Z/dists/jammy/InRelease"


def test_what_orts_own_build_would_download_lies_where_its_cmake_looks(project: Project, lock: Lock) -> None:
    """The path is from ORT 1.21's external/onnxruntime_external_deps.cmake: ``mirror/`` for ``https://``."""
    pins = {SOURCE: Pin(revision="b" * 40), f"url:{ARCHIVE}": Pin(sha256="1" * 64)}
    facts = SourceFacts("1.30.0", (Dependency("abseil_cpp", "abseil_cpp", ARCHIVE, "0" * 40, 9),))
    made = rendered(decided(project, "redist"), lock.with_more(Lock(pins, {SOURCE: facts})))
    assert ARCHIVE in [item.spec for item in made.sources]
    placed = "/src/onnxruntime/mirror/github.com/abseil/abseil-cpp/archive/refs/tags/20240722.0.zip"
    assert placed in made.dockerfile


def test_apts_packages_are_of_one_archive_by_its_signed_list(project: Project, lock: Lock) -> None:
    made = rendered(decided(project, "nvidia"), repinned(lock, {f"url:{JAMMY}": Pin(sha256="1" * 64)}))
    name = "snapshot.ubuntu.com_ubuntu_20251101T000000Z_dists_jammy_InRelease"
    for text in (made.dockerfile, made.runtime_dockerfile):
        assert f'echo "{"1" * 64}  /var/lib/apt/lists/{name}" | sha256sum --check' in text
        assert text.index("apt-get update") < text.index("sha256sum --check") < text.index("apt-get install")


def test_the_three_choices_combine(project: Project, lock: Lock) -> None:
    """All combinations of rootfs, toolkit and source are rendered; Debian has no toolkit of its own.

    BuildKit would send a context that two stages read again in each build: 2.3 GB, 9 s.
    """
    systems = [project.bases[base].system for base in ("nvidia", "assembled")]
    toolkits = [project.bases[base].toolkit for base in ("nvidia", "assembled", "redist")]
    toolkits.append(project.compiling_with("13").bases["assembled"].toolkit)
    sources = [project.bases[base] for base in ("nvidia", "assembled")]
    seen = set()
    for system, toolkit, source in itertools.product(systems, toolkits, sources):
        if isinstance(system, SuiteSystem) and isinstance(toolkit, ImageToolkit):
            continue
        base = replace(source, system=system, toolkit=toolkit, patches=())
        of = replace(project, bases={**project.bases, "assembled": base})
        for origin, profile in ((Origin.WHEEL, None), (Origin.SOURCE, Profile.FULL)):
            made = rendered(decided(of, origin=origin, profile=profile), lock)
            stages = made.dockerfile.split("\nFROM ")
            read = [{*re.findall(r"(?:--|,)from=([\w-]+)", stage)} - STAGES for stage in stages]
            assert sorted(made.contexts) == sorted(name for names in read for name in names)
            assert made.network is not isinstance(system, SuiteSystem)
            seen.add(made.dockerfile)
    assert len(seen) >= 10


def test_a_source_is_repaired_for_sets_that_need_it_before_it_is_configured(
    project: Project, lock: Lock
) -> None:
    line = SourceLine("cmake/x.cmake", 7)
    names = ("gated-add-without-half-arithmetic", "no-experts-without-their-units")
    stored = replace(rules_for("1.21.0"), repairs=dict.fromkeys(names, line), linked=("CUDA::cuda_driver",))
    stored = replace(stored, minimums={"cxx": Fact("20", line)})
    plan = replace(decided(project), source_rules=stored)
    step = "RUN python3 /ortpacks/builder/farm/repair.py /src /src/repairs.json\n"
    nvrtc = "COPY --from=nvrtc nvidia/cuda_nvrtc/include/ /usr/local/cuda/include/\n"
    stub = "-Wl,-soname,libcuda.so.1 -o /usr/local/cuda/lib64/stubs/libcuda.so"
    made = rendered(plan, lock).dockerfile
    assert "\nset(CMAKE_CXX_STANDARD 20 CACHE STRING" in made
    assert made.index(names[0]) < made.index(names[1]) < made.index(step) < made.index("FROM source AS build")
    assert made.index(nvrtc) < made.index(stub) < made.index("cmake -C /src/options.cmake")
    newer = replace(plan, variant=replace(plan.variant, sm=architectures("75,80")))
    told = [text in rendered(newer, lock).dockerfile for text in (*names, step, stub)]
    assert told == [False, False, True, True]  # the step is for dependencies alone
    before = rendered(replace(decided(project), variant=newer.variant), lock).dockerfile
    assert [text in before for text in (step, stub, nvrtc, "CMAKE_CXX_STANDARD")] == [False] * 4
    said = [note for note in explain(plan).notes if "repaired" in note]
    assert [note.partition(": ")[0] for note in said] == [
        *(f"the source is repaired at cmake/x.cmake:7 ({name})" for name in names),
        "cutlass is repaired if need be (constructors-that-repeat-their-arguments)",
        "onnx is repaired if need be (group-normalization-of-opset-18)",
    ]
    mixed = replace(plan, profile=Profile.FULL, variant=replace(plan.variant, sm=architectures("70,75")))
    (finding,) = _left_out_operators(mixed)
    assert (finding.code, finding.wanted, finding.got) == (Code.C006, "sm_75 or newer for these", "sm_70")
    assert "operators that do not run there: MoE, QMoE" in finding.message
