"""Tests of the values of a good file, and of the variants that a command line selects from it."""

import re

import pytest

from builder.config.inputs import Input, InputKind
from builder.config.load import load_project, pick_variants
from builder.config.variants import ImageSystem, Limits, Origin, Preset, TarballSource, Variant
from builder.errors import BuilderError, NothingToDoError, ValidationError
from builder.facts.gpu.architectures import Arch
from builder.finding import Severity
from builder.formats.manifest import ModelRule
from builder.formats.package_names import Form, Host, Layout, Profile
from tests.support.messages import Told
from tests.unit.config.config_cases import PATCHES, SAMPLE, changed

POOL = "pool/main/r/re2/re2_20240702.orig.tar.gz"


def test_a_good_file_becomes_values() -> None:
    project = load_project(SAMPLE, "v.yaml")
    assert project.onnxruntime.version == "1.23.2"
    assert (project.onnxruntime.origin, project.onnxruntime.host) == (Origin.AUTO, Host.WHEEL)
    assert project.onnxruntime.profile is Profile.LEAN
    nvidia, assembled = project.bases["nvidia"].system, project.bases["assembled"].source
    assert isinstance(nvidia, ImageSystem)
    assert isinstance(assembled, TarballSource)
    assert project.cuda.libraries["cublas"] == Input(InputKind.WHEEL, "nvidia-cublas-cu12==12.9.1.4")
    assert nvidia.runtime == Input(InputKind.IMAGE, "ubuntu:22.04")
    assert nvidia.packages == ("g++", "git")
    assert assembled.sources == {"re2": Input(InputKind.DEBIAN, POOL)}
    assert project.check == Limits(
        extra_sm=Severity.ERROR,
        glibc="2.35",
        glibcxx="3.4.30",
        cuobjdump=Input(InputKind.DEBIAN, "pool/n/nvidia_12.4.131_amd64.deb"),
        headers=Input(InputKind.DEBIAN, "pool/o/ort_1.21.0_amd64.deb"),
    )
    assert (project.bundle.preset, project.bundle.budget) == (Preset.FAST, 1_000_000)
    assert project.bundle.layouts == (Layout.FULL, Layout.THIN)
    assert project.bundle.forms == (Form.GZ,)
    assert project.onnxruntime.tensorrt is False
    assert project.publish.tag == "v{version}-1"
    assert project.models[1] == ModelRule(model="mid", device="gpu", vram_mib=3500, cores=4)


def test_a_provider_becomes_a_variant_of_a_wheel_for_its_platform() -> None:
    project = load_project(SAMPLE, "v.yaml")
    assert project.providers == {
        "cpu": Variant("cpu", (), (), "cpu", "linux-x64", Input(InputKind.WHEEL, "onnxruntime==1.23.2")),
        "coreml": Variant(
            "coreml",
            (),
            (),
            "coreml",
            "macos-arm64",
            Input(InputKind.WHEEL, "onnxruntime==1.23.2@macos-arm64"),
        ),
    }


def test_there_need_be_no_providers() -> None:
    text = re.sub(r"providers:\n(?:  .*\n)+", "", SAMPLE)
    assert load_project(text, "v.yaml").providers == {}
    assert load_project(text + "providers: {}\n", "v.yaml").providers == {}


def test_a_compile_cache_may_be_named() -> None:
    assert load_project(SAMPLE, "v.yaml").compile_cache == ""
    named = load_project(SAMPLE + "compile_cache: s3://bucket/ours\n", "v.yaml")
    assert named.compile_cache == "s3://bucket/ours"
    with pytest.raises(ValidationError, match=r"compile_cache.*redis://HOST"):
        load_project(SAMPLE + 'compile_cache: ""\n', "v.yaml")


def test_patches_stay_in_their_order_and_may_be_left_out() -> None:
    bases = load_project(SAMPLE, "v.yaml").bases
    assert (bases["nvidia"].patches, bases["assembled"].patches) == ((), ())
    text = changed(
        ("    onnxruntime: 1.21.0\n", f"    onnxruntime: 1.21.0\n    {PATCHES}"),
        ("    onnxruntime: 1.23.2\n", "    onnxruntime: 1.23.2\n    patches: [c]\n"),
    )
    project = load_project(text, "v.yaml")
    assert project.bases["assembled"].patches == ("b.patch", "ours/a.patch")
    assert project.bases["nvidia"].patches == ("c",)
    assert project.patches == ("c", "b.patch", "ours/a.patch")


def test_the_newer_ptxas_is_of_its_wheels_version() -> None:
    assert load_project(SAMPLE, "v.yaml").bases["assembled"].toolkit.ptxas == "12.9.86"


def test_a_set_has_one_order_however_it_is_written() -> None:
    latest = load_project(SAMPLE, "v.yaml").variants["latest"]
    assert latest.sm == (Arch(8, 9), Arch(9, 0, "a"), Arch(12, 0))


def test_variants_are_picked_by_name_or_all() -> None:
    project = load_project(SAMPLE, "v.yaml")
    legacy, latest = project.variants["legacy"], project.variants["latest"]
    cpu, coreml = project.providers["cpu"], project.providers["coreml"]
    assert pick_variants(project, [], all_=True) == (legacy, latest, cpu, coreml)
    assert pick_variants(project, ["latest"], all_=True) == (legacy, latest, cpu, coreml)
    assert pick_variants(project, ["coreml", "legacy"], all_=False) == (coreml, legacy)
    assert pick_variants(project, ["latest", "legacy", "latest"], all_=False) == (latest, legacy)


@pytest.mark.parametrize(
    ("names", "kind"), [(["legcy", "latest", "x"], ValidationError), ([], NothingToDoError)]
)
def test_unknown_variants_are_told_with_the_list(
    told: Told, names: list[str], kind: type[BuilderError]
) -> None:
    with pytest.raises(kind) as caught:
        pick_variants(load_project(SAMPLE, "v.yaml"), names, all_=False)
    told(caught.value)
