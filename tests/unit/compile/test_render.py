"""Tests of render beyond the golden files: contexts, cache mounts and keys as inputs change."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from jinja2 import FileSystemLoader

from builder.compile.render import render
from builder.config.build_plan import BuildPlan, Rendered
from builder.config.inputs import Input, InputKind, Lock, Pin
from builder.config.variants import ImageSystem, ImageToolkit, Origin, Project, SuiteSystem
from builder.errors import ConfigError
from builder.facts.gpu.architectures import Arch
from builder.formats.package_names import Host, Profile
from tests.support import ROOT
from tests.support.factories import packages

STAGES = {"toolchain", "source", "build", "smoke", "bare", "store"}
"""Names of stages in the Dockerfile, which ``--from`` may have besides contexts."""

IMAGE = "image:nvidia/cuda:12.9.1-devel-ubuntu22.04"

SOURCE = "git:https://github.com/microsoft/onnxruntime@v1.23.2"


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


@pytest.mark.parametrize("base", ["nvidia", "assembled", "redist"])
@pytest.mark.parametrize("origin", [Origin.SOURCE, Origin.WHEEL])
def test_contexts_are_exactly_those_the_stages_read(
    project: Project, lock: Lock, base: str, origin: Origin
) -> None:
    profile = Profile.FULL if origin is Origin.SOURCE else None
    made = rendered(decided(project, base, origin=origin, profile=profile), lock)
    read = set(re.findall(r"(?:--|,)from=([\w-]+)", made.dockerfile)) - STAGES
    assert set(made.contexts) == read


@pytest.mark.parametrize("base", ["nvidia", "assembled", "redist"])
def test_no_context_is_read_by_two_stages(project: Project, lock: Lock, base: str) -> None:
    """BuildKit would send the files again in each build: 2.3 GB, 9 s of a build that compiles nothing."""
    stages = rendered(decided(project, base), lock).dockerfile.split("\nFROM ")
    read = [set(re.findall(r"(?:--|,)from=([\w-]+)", stage)) - STAGES for stage in stages]
    assert len(set().union(*read)) == sum(map(len, read)) > 6


@pytest.mark.parametrize("origin", [Origin.SOURCE, Origin.WHEEL])
def test_debs_and_sources_are_exactly_those_the_dockerfile_names(
    project: Project, lock: Lock, origin: Origin
) -> None:
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
    assert made.runtime_dockerfile.count("nvidia/cuda") == 0, "4 GB for one file of C"


def test_a_lock_that_lacks_inputs_is_told_before_anything_is_built(project: Project, lock: Lock) -> None:
    gone = ("wheel:nvidia-cutlass==3.5.1.0", "wheel:nvidia-cuda-nvrtc-cu12==12.9.86")
    with pytest.raises(ConfigError) as caught:
        rendered(decided(project), without(lock, *gone))
    assert caught.value.exit_code == 2
    assert caught.value.problems == tuple(
        f"inputs.lock has no entry {key!r}. Run ./run lock and commit the file." for key in sorted(gone)
    )


@pytest.mark.parametrize("key", [IMAGE, SOURCE, "image:ubuntu:22.04", "wheel:onnxruntime-gpu==1.21.0"])
def test_an_input_of_the_other_kinds_is_missed_too(project: Project, lock: Lock, key: str) -> None:
    plan = decided(project, "assembled" if "1.21.0" in key else "nvidia")
    with pytest.raises(ConfigError, match=re.escape(key)):
        rendered(plan, without(lock, key))


def test_a_compiled_host_library_needs_no_wheel_and_brings_its_own_licence(
    project: Project, lock: Lock
) -> None:
    made = rendered(decided(project, host=Host.SOURCE), without(lock, "wheel:onnxruntime-gpu==1.21.0"))
    texts = "\ncp /src/onnxruntime/LICENSE /src/onnxruntime/ThirdPartyNotices.txt /out/\n"
    assert texts in made.dockerfile
    assert texts not in rendered(decided(project), lock).dockerfile


def test_inputs_of_the_other_base_may_be_missing(project: Project, lock: Lock) -> None:
    made = rendered(decided(project), without(lock, IMAGE, SOURCE, "image:ubuntu:22.04"))
    assert made == rendered(decided(project), lock)


@pytest.mark.parametrize("base", ["nvidia", "assembled", "redist"])
def test_each_toolchain_pin_is_in_the_key(project: Project, lock: Lock, base: str) -> None:
    plan = decided(project, base)
    made = rendered(plan, lock)
    inputs = {*made.contexts.values(), *made.debs, *made.sources}
    keys = {item.key for item in inputs} | ({IMAGE} if base == "nvidia" else set())
    changed = {
        key: rendered(plan, repinned(lock, {key: Pin(sha256="1" * 64, revision="sha256:1")})).toolchain_key
        for key in keys
    }
    assert len(keys) > 6
    assert made.toolchain_key not in changed.values()
    assert len(set(changed.values())) == len(keys)


@pytest.mark.parametrize("base", ["nvidia", "assembled", "redist"])
def test_other_pins_leave_the_key_alone(project: Project, lock: Lock, base: str) -> None:
    plan = decided(project, base)
    others = ["wheel:onnxruntime-gpu==1.21.0", "wheel:onnxruntime-gpu==1.23.2", "wheel:silero-vad==6.2.3"]
    others += ["image:ubuntu:22.04"]
    if base == "assembled":  # what a git tag downloads links nvrtc
        others += ["wheel:nvidia-cuda-nvrtc-cu12==12.9.86"]
    changed = repinned(lock, {key: Pin(sha256="1" * 64) for key in others})
    assert rendered(plan, changed).toolchain_key == rendered(plan, lock).toolchain_key


def test_the_key_knows_the_bases_packages(project: Project, lock: Lock) -> None:
    base = project.bases["assembled"]
    system = replace(base.system, packages=(*base.system.packages, "mold"))
    more = replace(project, bases={**project.bases, "assembled": replace(base, system=system)})
    assert rendered(decided(more), lock).toolchain_key != rendered(decided(project), lock).toolchain_key


def cache_mounts(text: str) -> list[str]:
    return re.findall(r"type=cache,id=([\w.-]+)", text)


def test_a_build_tree_is_shared_by_nothing_that_differs(project: Project, lock: Lock) -> None:
    plan = decided(project)
    variants = [replace(plan, variant=variant) for variant in project.variants.values()]
    profiles = [replace(plan, profile=profile) for profile in (Profile.FULL, Profile.MINIMAL)]
    host = replace(plan, host=Host.SOURCE)
    trees = [cache_mounts(rendered(each, lock).dockerfile)[2] for each in [*variants, *profiles, host]]
    newer = repinned(lock, {"wheel:cmake==3.31.6": Pin(sha256="1" * 64)})
    trees.append(cache_mounts(rendered(plan, newer).dockerfile)[2])
    assert len(set(trees)) == len(trees)
    assert trees[0] == f"ortpacks-legacy-lean-wheel-{rendered(plan, lock).toolchain_key}"


@pytest.mark.parametrize("base", ["nvidia", "assembled", "redist"])
def test_each_argument_of_a_step_has_a_value(project: Project, lock: Lock, base: str) -> None:
    """Steps run under ``sh -u``, and BuildKit omits an argument that has neither default nor value."""
    text = rendered(decided(project, base), lock).dockerfile
    assert '/bin/sh", "-euc' in text
    arguments = re.findall(r"^ARG (.*)$", text, re.MULTILINE)
    assert len(arguments) == 4
    assert [one for one in arguments if "=" not in one] == []


def test_ccache_and_pool_are_one_for_all_and_the_build_locks_its_tree(project: Project, lock: Lock) -> None:
    text = rendered(decided(project), lock).dockerfile
    assert cache_mounts(text)[:2] == ["ortpacks-ccache", "ortpacks-pool"]
    assert re.search(r"id=ortpacks-legacy-lean-wheel-\w{8}\$AHEAD,target=/build,sharing=locked", text)


def test_units_for_the_whole_set_have_the_ptx_of_the_variants_too(project: Project, lock: Lock) -> None:
    """A set of architectures that ``modern`` and ``latest`` have finds lean attention's PTX in ccache."""
    plan = decided(project, profile=Profile.FULL)
    sm = (Arch(8, 0), Arch(8, 6), Arch(8, 9))
    text = rendered(replace(plan, variant=replace(plan.variant, sm=sm)), lock).dockerfile
    rows = dict(re.findall(r"^(contrib_ops/\S+)\t(.*)$", text, re.MULTILINE))
    lean = next(codes for path, codes in rows.items() if path.endswith("lean_fwd_"))
    assert lean == "sm_80 sm_86:compute_80 sm_89:compute_80\t1.5"


def test_unresolved_names_stand_as_they_are(project: Project, lock: Lock) -> None:
    made = rendered(decided(project, "nvidia"), lock)
    assert "FROM nvidia/cuda:12.9.1-devel-ubuntu22.04 AS toolchain\n" in made.dockerfile
    assert "FROM ubuntu:22.04 AS bare\n" in made.runtime_dockerfile


def test_resolved_images_are_built_by_digest(project: Project, lock: Lock) -> None:
    digest = f"sha256:{'a' * 64}"
    pins = {IMAGE: digest, "image:ubuntu:22.04": digest}
    made = rendered(
        decided(project, "nvidia"), repinned(lock, {key: Pin(revision=to) for key, to in pins.items()})
    )
    assert f"FROM nvidia/cuda:12.9.1-devel-ubuntu22.04@{digest} AS toolchain\n" in made.dockerfile
    assert f"FROM ubuntu:22.04@{digest} AS bare\n" in made.runtime_dockerfile


def test_an_image_that_is_named_by_its_digest_keeps_one_digest(project: Project, lock: Lock) -> None:
    digest = f"sha256:{'a' * 64}"
    image = Input(InputKind.IMAGE, f"nvidia/cuda@{digest}")
    base = project.bases["nvidia"]
    assert isinstance(base.system, ImageSystem)
    bases = {"nvidia": replace(base, system=replace(base.system, image=image))}
    plan = decided(replace(project, bases=bases), "nvidia")
    made = rendered(plan, repinned(lock, {image.key: Pin(revision=digest)}))
    assert f"FROM nvidia/cuda@{digest} AS toolchain\n" in made.dockerfile


def test_the_host_library_comes_out_only_when_it_is_compiled(project: Project, lock: Lock) -> None:
    for host, outputs in ((Host.WHEEL, 0), (Host.SOURCE, 1)):
        text = rendered(decided(project, host=host), lock).dockerfile
        assert text.count(" libonnxruntime.so.1.21.0;") == outputs
        assert text.count("onnxruntime_providers_shared onnxruntime\n") == outputs


ARCHIVE = "https://github.com/abseil/abseil-cpp/archive/refs/tags/20240722.0.zip"

JAMMY = "https://snapshot.ubuntu.com/ubuntu/20251101T000000Z/dists/jammy/InRelease"


def test_what_orts_own_build_would_download_lies_where_its_cmake_looks(project: Project, lock: Lock) -> None:
    """The paths are from ORT 1.21's external/onnxruntime_external_deps.cmake: ``mirror/`` for
    ``https://``."""
    pins = {SOURCE: Pin(revision="b" * 40, files=(ARCHIVE,)), f"url:{ARCHIVE}": Pin(sha256="1" * 64)}
    for base in ("nvidia", "redist"):
        made = rendered(decided(project, base), repinned(lock, pins))
        assert ARCHIVE in [item.spec for item in made.sources]
        placed = "/src/onnxruntime/mirror/github.com/abseil/abseil-cpp/archive/refs/tags/20240722.0.zip"
        assert placed in made.dockerfile
        assert "FETCHCONTENT_FULLY_DISCONNECTED" not in made.dockerfile, "it looks there as it would download"
        assert "\nADD http" not in made.dockerfile, "engines before 25 do not know it"


def test_apts_packages_are_of_one_archive_by_its_signed_list(project: Project, lock: Lock) -> None:
    made = rendered(decided(project, "nvidia"), repinned(lock, {f"url:{JAMMY}": Pin(sha256="1" * 64)}))
    name = "snapshot.ubuntu.com_ubuntu_20251101T000000Z_dists_jammy_InRelease"
    for text in (made.dockerfile, made.runtime_dockerfile):
        assert f'echo "{"1" * 64}  /var/lib/apt/lists/{name}" | sha256sum --check' in text
        assert text.index("apt-get update") < text.index("sha256sum --check") < text.index("apt-get install")


def test_the_three_choices_combine(project: Project, lock: Lock) -> None:
    """All combinations of rootfs, toolkit and source are rendered; Debian has no toolkit of its own."""
    systems = [project.bases[base].system for base in ("nvidia", "assembled")]
    toolkits = [project.bases[base].toolkit for base in ("nvidia", "assembled", "redist")]
    sources = [project.bases[base].source for base in ("nvidia", "assembled")]
    seen = set()
    for system, toolkit, source in itertools.product(systems, toolkits, sources):
        if isinstance(system, SuiteSystem) and isinstance(toolkit, ImageToolkit):
            continue
        base = replace(project.bases["assembled"], system=system, toolkit=toolkit, source=source)
        of = replace(project, bases={**project.bases, "assembled": base})
        made = rendered(decided(of), lock)
        read = set(re.findall(r"(?:--|,)from=([\w-]+)", made.dockerfile)) - STAGES
        assert set(made.contexts) == read
        assert made.network is not isinstance(system, SuiteSystem)
        seen.add(made.dockerfile)
    assert len(seen) == 10
