"""Tests of the news in release notes, from two indexes written by hand."""

from dataclasses import replace

import pytest

from builder.formats.index import Index, build_index
from builder.formats.manifest import Driver, ModelRule
from builder.formats.stored_file import StoredFile
from builder.publish.notes import changes
from tests.support.factories.releases import manifest
from tests.support.messages import Told

OLD = build_index("v1", [(manifest("legacy"), StoredFile("l.tar.zst", 1_400_000_000, "a" * 64))], [])

PACKAGE = OLD.packages[0]


def after(**changed: object) -> Index:
    """Return an index of the same package with other bytes and the given changes."""
    package = replace(PACKAGE, **{"sha256": "b" * 64, **changed})  # type: ignore[arg-type]
    return replace(OLD, packages=(package,))


@pytest.mark.parametrize("index", [OLD, after(), after(size=1_413_000_000)], ids=["same", "bytes", "size"])
def test_the_same_content_is_no_news(index: Index) -> None:
    """Neither are other bytes, nor a size that hardly changed."""
    assert changes(OLD, index) == ()


@pytest.mark.parametrize(
    "index",
    [
        after(onnxruntime=replace(PACKAGE.onnxruntime, version="1.24.0")),
        after(onnxruntime=replace(PACKAGE.onnxruntime, profile="lean")),
        after(onnxruntime=replace(PACKAGE.onnxruntime, profile=None, origin="wheel")),
        after(size=1_500_000_000),
        after(driver=Driver("550.54.14", None)),
        after(capabilities={**PACKAGE.capabilities, "12.0": "jit", "12.1": "jit", "5.0": "none"}),
        after(layout="thin", file="l-thin.tar.gz"),
        replace(OLD, models=(ModelRule(model="x", device="cpu"),)),
    ],
    ids=["version", "profile", "origin", "size", "driver", "cards", "layout", "models"],
)
def test_each_kind_of_change_is_a_sentence(told: Told, index: Index) -> None:
    told("\n".join(changes(OLD, index)))
