"""Tests of the verb wheel: bad input gives one sentence and an exit code, and leaves no
half-written files."""

from __future__ import annotations

from tests.support.factories.project_copy import Place


def test_a_file_that_is_no_package_is_told(copied: Place) -> None:
    name = "ortpacks-modern-1.23.2-cuda12.9-linux-x64.tar.gz"
    (copied.folder / name).write_text("garbage")
    assert copied.fails(7, "wheel", name).startswith(f"error: {name} is damaged")
    (copied.folder / "thesis.pdf").write_text("garbage")
    assert copied.fails(2, "wheel", "thesis.pdf").startswith("error: 'thesis.pdf' is not a package")
    assert not (copied.folder / "dist/wheels").exists()


def test_an_index_of_no_wheels_is_nothing_to_do(copied: Place) -> None:
    said = copied.fails(3, "wheel", "--index", "simple")
    assert said.endswith("has no wheels. ./run wheel --variant NAME makes those of a package.\n")
    assert not (copied.folder / "simple").exists()
