"""Tests of the values of a good file, and of the variants that a command line selects from it."""

import re
from pprint import pformat

import pytest

from builder.config.load import load_project, pick_variants
from builder.errors import BuilderError, CompatibilityError, NothingToDoError, ValidationError
from tests.support.messages import Refused, Told
from tests.unit.config.config_cases import PATCHES, SAMPLE, changed


def test_a_good_file_becomes_values(told: Told) -> None:
    """A provider becomes a variant of a wheel for its platform, and a set has one order."""
    project = load_project(SAMPLE, "v.yaml")
    told(pformat(project, width=110, sort_dicts=False))
    assert project.bases["assembled"].toolkit.ptxas == "12.9.86"


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
    text = changed(
        ("    onnxruntime: 1.21.0\n", f"    onnxruntime: 1.21.0\n    {PATCHES}"),
        ("    onnxruntime: 1.23.2\n", "    onnxruntime: 1.23.2\n    patches: [c]\n"),
    )
    project = load_project(text, "v.yaml")
    assert project.bases["assembled"].patches == ("b.patch", "ours/a.patch")
    assert project.bases["nvidia"].patches == ("c",)
    assert project.patches == ("c", "b.patch", "ours/a.patch")


def test_variants_are_picked_by_name_or_all() -> None:
    project = load_project(SAMPLE, "v.yaml")
    legacy, latest = project.variants["legacy"], project.variants["latest"]
    cpu, coreml = project.providers["cpu"], project.providers["coreml"]
    assert pick_variants(project, [], all_=True) == (legacy, latest, cpu, coreml)
    assert pick_variants(project, ["latest"], all_=True) == (legacy, latest, cpu, coreml)
    assert pick_variants(project, ["coreml", "legacy"], all_=False) == (coreml, legacy)
    assert pick_variants(project, ["latest", "legacy", "latest"], all_=False) == (latest, legacy)


def test_a_variant_may_be_a_plugin_in_a_folder_of_its_own() -> None:
    text = changed(("  legacy:\n", "  legacy:\n    form: plugin\n"))
    variants = load_project(text, "v.yaml").variants
    assert (variants["legacy"].is_plugin, variants["legacy"].folder) == (True, "legacy-plugin")
    assert (variants["latest"].is_plugin, variants["latest"].folder) == (False, "latest")
    with pytest.raises(CompatibilityError, match=r"legacy\.form.*with this platform"):
        load_project(text.replace("form: plugin\n", "form: plugin\n    platform: linux-arm64\n"), "v.yaml")
    with pytest.raises(ValidationError, match="-plugin at the end"):
        load_project(changed(("  legacy:\n", "  legacy-plugin:\n")), "v.yaml")


@pytest.mark.parametrize(
    ("names", "kind"), [(["legcy", "latest", "x"], ValidationError), ([], NothingToDoError)]
)
def test_unknown_variants_are_told(refused: Refused, names: list[str], kind: type[BuilderError]) -> None:
    with refused(kind):
        pick_variants(load_project(SAMPLE, "v.yaml"), names, all_=False)
