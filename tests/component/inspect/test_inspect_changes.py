"""Tests of inspect --diff and --sizes: GPUs lost and won between two sources, and bytes of code."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import written
from tests.support.factories.binaries import PTX, SASS, container, elf, image, sass
from tests.support.factories.project_copy import Place
from tests.support.messages import Told
from tests.support.schemas import schema

OLD = elf({".nv_fatbin": container(image(SASS, 60), image(SASS, 75, payload=56), image(PTX, 75))})

NEW = elf({".nv_fatbin": container(image(SASS, 75), image(SASS, 90))})


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    """Write an old and a new folder of libraries and return their paths."""
    old = {"libgpu.so.1": OLD, "libgone.so": sass_library(60, 75), "libplain.so": elf()}
    new = {"capi/libgpu.so.2": NEW, "capi/libplain.so": elf()}
    return str(written(tmp_path / "old", old)), str(written(tmp_path / "new", new))


def sass_library(*arches: int) -> bytes:
    return elf({".nv_fatbin": sass(*arches)})


def test_the_first_line_says_what_was_lost_and_won(copied: Place, two: tuple[str, str], told: Told) -> None:
    done = copied.run("inspect", *two, "--diff")
    assert (done.returncode, done.stderr) == (0, "")
    told(done.stdout)


def test_what_one_library_lost_is_told_where_the_worst_of_all_hides_it(copied: Place, tmp_path: Path) -> None:
    """This happened in torch 2.8: a second library of 2.4 ran on few GPUs, so the package as a
    whole lost none."""
    other = {"libother.so": sass_library(75)}
    old = written(tmp_path / "old", {"libmain.so": sass_library(60, 75), **other})
    new = written(tmp_path / "new", {"libmain.so": sass_library(75), **other})
    done = copied.run("inspect", str(old), str(new), "--diff")
    assert done.stdout.splitlines()[0] == "By itself libmain.so lost Pascal (6.0, 6.1)."


def test_json_is_as_its_schema_says(copied: Place, two: tuple[str, str], told: Told) -> None:
    said: dict[str, Any] = json.loads(copied.run("inspect", *two, "--diff", "--json").stdout)
    schema("inspect-diff").validate(said)
    assert (said["old"], said["new"], said["packages"]) == (*two, None)
    told(json.dumps(said["capabilities"]["6.0"], indent=1))
    gpu, _plain, gone = said["libraries"]
    assert (gpu["old"]["name"], gpu["new"]["name"]) == ("libgpu.so.1", "capi/libgpu.so.2")
    told(json.dumps(gpu["bytes"], indent=1))
    assert gpu["size"] == {"old": len(OLD), "new": len(NEW)}
    assert gone["new"] is None
    said["capabilities"]["6.0"]["effect"] = "vanished"
    assert not schema("inspect-diff").is_valid(said)


def test_the_page_begins_with_what_changed(copied: Place, two: tuple[str, str], tmp_path: Path) -> None:
    page, picture = tmp_path / "map.html", tmp_path / "map.svg"
    done = copied.run("inspect", *two, "--diff", "--html", str(page), "--svg", str(picture))
    assert done.returncode == 0
    for text, end in ((page.read_text(), '"'), (picture.read_text(), "<")):
        assert "N→." in text
        assert "Lost Pascal (6.0, 6.1): natively before, not at all now." in text
        assert f"6.0 (Pascal: Tesla P100, Quadro GP100): natively before, not at all now.{end}" in text


def test_what_cannot_be_read_is_told_and_fails(copied: Place, two: tuple[str, str], told: Told) -> None:
    (Path(two[1]) / "capi/libgpu.so.2").write_bytes(NEW[:100])
    done = copied.run("inspect", *two, "--diff", "--json")
    assert done.returncode == 6
    said = json.loads(done.stdout)
    schema("inspect-diff").validate(said)
    gpu = said["libraries"][0]
    assert (gpu["capabilities"], gpu["bytes"], gpu["size"]["new"]) == ({}, {}, 0)
    shown = copied.run("inspect", *two, "--diff").stdout
    assert "all that can be read" in shown
    assert "SASS 75" not in shown.partition("libgone.so\n")[0], "its bytes are known on one side alone"
    (Path(two[0]) / "libgone.so").unlink()
    told(said["sentence"])
    told(copied.run("inspect", *two, "--diff").stdout)


def test_sizes_of_one_thing(copied: Place, two: tuple[str, str], told: Told) -> None:
    """By hand: images of 24, 56 and 24 bytes in libgpu.so.1, and of 20 and 20 in libgone.so."""
    _, sizes = copied.run("inspect", two[0], "--sizes").stdout.split("bytes of device code")
    told(sizes)
