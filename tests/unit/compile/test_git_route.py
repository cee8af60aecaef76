"""Tests of the nvidia base, which takes any ORT by its git tag: each version's options in the Dockerfile.

The table was written by hand from docs/profiles.md's sources, a row for each version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest
from jinja2 import FileSystemLoader

from builder.compile.render import render
from builder.config.build_plan import BuildPlan
from builder.config.inputs import Input, InputKind, ort_wheel
from builder.config.variants import GitSource, Origin, Project
from builder.facts.ort.units import read_list
from builder.formats.package_names import Host, Profile
from tests.support import ROOT
from tests.support.factories.packages import pinned

REPOSITORY = "https://github.com/microsoft/onnxruntime"


@dataclass(frozen=True)
class Row:
    """Options in a version's Dockerfile; ``None`` for an option that must not be in it."""

    nvcc_threads: str | None
    fpa_intb_gemm: str | None
    becomes: str
    """SASS of a provider for which 89 90 100 120 were asked."""


PLAIN, ACCELERATED = "89 90 100 120", "89 90a 100a 120a"

EXPECTED = {
    "1.21.0": Row(None, None, PLAIN),
    "1.22.0": Row("1", None, PLAIN),
    "1.23.2": Row("1", "OFF", ACCELERATED),
}

NAMES = {
    "nvcc_threads": "onnxruntime_NVCC_THREADS",
    "fpa_intb_gemm": "onnxruntime_USE_FPA_INTB_GEMM",
}

OF_PROFILE = {
    Profile.FULL: {"onnxruntime_DISABLE_CONTRIB_OPS": "OFF", "onnxruntime_USE_FLASH_ATTENTION": "ON"},
    Profile.LEAN: {"onnxruntime_DISABLE_CONTRIB_OPS": "ON", "onnxruntime_USE_FLASH_ATTENTION": "OFF"},
    Profile.MINIMAL: {"onnxruntime_DISABLE_CONTRIB_OPS": "ON", "onnxruntime_CUDA_MINIMAL": "ON"},
}


def of_version(project: Project, version: str) -> Project:
    source = Input(InputKind.GIT, f"{REPOSITORY}@v{version}")
    nvidia = replace(project.bases["nvidia"], ort_version=version, source=GitSource(source))
    released = replace(project.onnxruntime, version=version)
    return replace(project, onnxruntime=released, bases={**project.bases, "nvidia": nvidia})


def planned(project: Project, version: str, profile: Profile = Profile.FULL) -> BuildPlan:
    changed = of_version(project, version)
    return BuildPlan(
        project=changed,
        variant=changed.variants["latest"],
        base="nvidia",
        base_reason="asked for",
        origin=Origin.SOURCE,
        origin_reason="asked for",
        profile=profile,
        host=Host.WHEEL,
        ort_version=version,
        ort_wheel=ort_wheel(version),
    )


def dockerfile(plan: BuildPlan) -> str:
    templates = FileSystemLoader(ROOT / "templates")
    return render(plan, pinned(plan.project), templates).dockerfile


def cached(text: str) -> dict[str, str]:
    """Return every cache entry that the Dockerfile preloads."""
    return dict(re.findall(r'^set\((\w+) "([^"]*)" CACHE ', text, flags=re.MULTILINE))


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("version", EXPECTED)
def test_options_of_each_version_and_profile(project: Project, version: str, profile: Profile) -> None:
    found = cached(dockerfile(planned(project, version, profile)))
    row = EXPECTED[version]
    assert {field: found.get(name) for field, name in NAMES.items()} == {
        field: getattr(row, field) for field in NAMES
    }
    assert found.items() >= OF_PROFILE[profile].items()
    assert ("onnxruntime_CUDA_MINIMAL" in found) is (profile is Profile.MINIMAL)
    assert "onnxruntime_ENABLE_CPUINFO" not in found


@pytest.mark.parametrize("version", EXPECTED)
def test_the_source_is_the_versions_tag(project: Project, version: str) -> None:
    text = dockerfile(planned(project, version))
    assert text.count(f'tar -xf "/sources/onnxruntime-v{version}.tar" -C /src/onnxruntime\n') == 1
    assert not {other for other in EXPECTED if other != version and f"v{other}" in text}


@pytest.mark.parametrize("version", EXPECTED)
def test_the_list_comes_to_the_set(project: Project, version: str) -> None:
    told = cached(dockerfile(planned(project, version)))["CMAKE_CUDA_ARCHITECTURES"]
    assert told == "89-real;90-real;100-real;120-real"
    made = read_list(told, version)
    assert (" ".join(map(str, made.sass)), made.ptx) == (EXPECTED[version].becomes, ())


def test_an_unknown_version_renders_as_the_nearest_known(project: Project) -> None:
    known, unknown = (cached(dockerfile(planned(project, version))) for version in ("1.23.2", "1.40.0"))
    assert known == unknown
