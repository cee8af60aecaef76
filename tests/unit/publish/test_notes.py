"""Tests of the news in release notes, from two indexes written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.formats.index import Index, IndexPackage, StoredArchive, build_index
from builder.formats.manifest import Driver, ModelRule
from builder.publish.notes import changes
from tests.support.factories.releases import manifest

OLD = build_index("v1", [(manifest("legacy"), StoredArchive("l.tar.zst", 1_400_000_000, "a" * 64))], [])

TITLE = "legacy (linux-x64, full, .tar.zst)"


def after(**changed: object) -> Index:
    """Return an index of the same package with other bytes and the given changes."""
    package = replace(OLD.packages[0], **{"sha256": "b" * 64, **changed})  # type: ignore[arg-type]
    return replace(OLD, packages=(package,))


def package() -> IndexPackage:
    return OLD.packages[0]


def test_the_same_bytes_are_no_news() -> None:
    assert changes(OLD, OLD) == ()


def test_other_bytes_of_the_same_content_are_no_news_either() -> None:
    assert changes(OLD, after()) == ()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"onnxruntime": replace(package().onnxruntime, version="1.24.0")},
            "ONNX Runtime 1.23.2 → 1.24.0",
        ),
        (
            {"onnxruntime": replace(package().onnxruntime, profile="lean")},
            "ONNX Runtime is compiled with the lean profile; it was compiled with the full profile",
        ),
        (
            {"onnxruntime": replace(package().onnxruntime, profile=None, origin="wheel")},
            "ONNX Runtime is the official build; it was compiled with the full profile",
        ),
        ({"size": 1_500_000_000}, "1400 MB → 1500 MB"),
        (
            {"driver": Driver("550.54.14", None)},
            "driver 525.60.13 or newer up to branch 580 → 550.54.14 or newer",
        ),
        (
            {"capabilities": {**package().capabilities, "12.0": "jit", "12.1": "jit", "5.0": "none"}},
            "native → none on compute capability 5.0|none → jit on compute capability 12.0, 12.1",
        ),
    ],
)
def test_each_kind_of_change_is_a_sentence(changed: dict[str, object], told: str) -> None:
    assert changes(OLD, after(**changed)) == tuple(f"{TITLE}: {one}." for one in told.split("|"))


def test_a_size_that_hardly_changed_is_not_told() -> None:
    assert changes(OLD, after(size=1_413_000_000)) == ()


def test_what_came_and_went() -> None:
    other = replace(package(), layout="thin", file="l-thin.tar.gz")
    assert changes(OLD, replace(OLD, packages=(other,))) == (
        "New: legacy (linux-x64, thin, .tar.gz).",
        f"Gone: {TITLE}.",
    )


def test_a_changed_model_table() -> None:
    rule = ModelRule(model="x", device="cpu")
    assert changes(OLD, replace(OLD, models=(rule,))) == ("The table of model sizes has changed.",)
