"""Tests of package names: they are read back as written, and any other name is refused with the rule."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.errors import ValidationError
from builder.formats.package_names import Form, PackageName, form_of
from tests.support.tables import data_text, table


@pytest.mark.parametrize("row", table("formats/package-names.txt"), ids=lambda row: row[-1])
def test_a_name_is_written_and_read_back(row: list[str]) -> None:
    variant, ort, cuda, profile, layout, platform, text = row
    name = PackageName(variant, ort, cuda or None, profile or None, layout, platform)
    assert (name.archive(Form.ZST), name.archive(Form.GZ)) == (f"{text}.tar.zst", f"{text}.tar.gz")
    for end in ("", ".tar.zst", ".tar.gz"):
        assert PackageName.parse(f"{text}{end}") == name


def test_the_end_of_a_file_name_tells_the_form() -> None:
    name = "ortpacks-modern-1.23.2-cuda12.9-linux-x64"
    assert form_of(f"{name}.tar.gz") is Form.GZ
    with pytest.raises(ValidationError, match=r"ends in neither \.tar\.zst nor \.tar\.gz"):
        form_of(f"{name}.zip")


@pytest.mark.parametrize("text", data_text("formats/no-package-names.txt").split("\n"))
def test_anything_else_is_refused_with_the_rule(text: str) -> None:
    rule = r"ortpacks-<variant>-<ORT version>\[-cuda<X\.Y>\[.*, then \.tar\.zst or \.tar\.gz\.$"
    with pytest.raises(ValidationError, match=rule):
        PackageName.parse(text)


@pytest.mark.parametrize("variant", ["mødern", "a b", "a/b", "-x", "", "x\n"])
def test_a_name_that_a_release_host_would_rewrite_cannot_be_made(variant: str) -> None:
    with pytest.raises(ValidationError):
        PackageName(variant=variant, ort="1.23.2", cuda="12.9")


@settings(max_examples=40)
@given(
    variant=st.from_regex(r"[a-z0-9][A-Za-z0-9._+-]{0,12}", fullmatch=True),
    ort=st.from_regex(r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,2}(rc[0-9])?", fullmatch=True),
    profile=st.sampled_from([None, "lean", "minimal"]),
    layout=st.sampled_from(["full", "thin"]),
)
def test_every_name_is_read_back(variant: str, ort: str, profile: str | None, layout: str) -> None:
    name = PackageName(variant=variant, ort=ort, cuda="12.9", profile=profile, layout=layout)
    assert PackageName.parse(name.archive(Form.ZST)) == name
    assert re.fullmatch(r"[A-Za-z0-9._+-]+", name.archive(Form.ZST))
