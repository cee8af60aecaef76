"""Tests of ``inspect --deep``: kernels, stubs and damage in text, JSON and SARIF, and the exit code."""

import json
from pathlib import Path

import pytest

from tests.support.factories.binaries import LZ4, SASS, container, elf, image
from tests.support.factories.cubins import ADDS, ptx_image, sass_image, stub, work
from tests.support.factories.project_copy import Place
from tests.support.messages import Told
from tests.support.schemas import schema

STUBBED = container(
    sass_image(52, {"foo_kernel": stub(52), "add": work(52)}),
    sass_image(80, {"foo_kernel": work(80), "add": work(80)}),
    ptx_image(80, {"foo_kernel": ADDS, "add": ADDS}),
)

DAMAGE = "A010 libcut.so: the image for sm_75 at "


@pytest.fixture
def library(tmp_path: Path) -> Path:
    file = tmp_path / "libfoo.so"
    file.write_bytes(elf({".nv_fatbin": STUBBED}))
    return file


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """Write a library with one image that is no LZ4 block; by its header the library is native on 7.5."""
    file = tmp_path / "libcut.so"
    file.write_bytes(elf({".nv_fatbin": STUBBED + container(image(SASS, 75, LZ4))}))
    return file


def test_a_stub_is_a_note_and_no_failure(copied: Place, library: Path, told: Told) -> None:
    done = copied.run("inspect", str(library), "--deep")
    assert done.returncode == 0, done.stderr
    told(done.stdout)
    assert "A013" not in copied.run("inspect", str(library)).stdout


def test_json_has_each_kernel_and_stub(copied: Place, library: Path, told: Told) -> None:
    said = json.loads(copied.run("inspect", str(library), "--deep", "--json").stdout)
    schema("inspect").validate(said)
    (item,) = said["sources"][0]["libraries"]
    told(json.dumps(item["deep"], indent=1))
    plain = json.loads(copied.run("inspect", str(library), "--json").stdout)
    assert "deep" not in plain["sources"][0]["libraries"][0]


def test_damage_fails_and_is_in_sarif(copied: Place, cut: Path, tmp_path: Path) -> None:
    assert copied.run("inspect", str(cut), "--require", "7.5", "--sarif", str(tmp_path / "a")).returncode == 6
    done = copied.run("inspect", str(cut), "--deep", "--sarif", str(tmp_path / "found.sarif"))
    assert done.returncode == 6
    assert done.stderr.splitlines()[0] == "error: images do not unpack to what their headers say"
    assert done.stderr.splitlines()[1].startswith(f"error {DAMAGE}")
    (run,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [("A010", "error"), ("A013", "note")]
