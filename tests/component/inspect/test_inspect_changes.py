"""Tests of inspect --diff and --sizes: GPUs lost and won between two sources, and bytes of code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.factories.binaries import PTX, SASS, container, elf, empty_cubin, image, sass
from tests.support.factories.project_copy import Place
from tests.support.schemas import schema

OLD = elf({".nv_fatbin": container(image(SASS, 60), image(SASS, 75, payload=56), image(PTX, 75))})

NEW = elf({".nv_fatbin": container(image(SASS, 75), image(SASS, 90))})


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    """Write an old and a new folder of libraries and return their paths."""
    for folder, contents in {
        "old": {"libgpu.so.1": OLD, "libgone.so": sass_library(60, 75), "libplain.so": elf()},
        "new": {"capi/libgpu.so.2": NEW, "capi/libplain.so": elf()},
    }.items():
        for name, data in contents.items():
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_bytes(data)
    return str(tmp_path / "old"), str(tmp_path / "new")


def sass_library(*arches: int) -> bytes:
    return elf({".nv_fatbin": sass(*arches)})


def test_the_first_line_says_what_was_lost_and_won(copied: Place, two: tuple[str, str]) -> None:
    done = copied.run("inspect", *two, "--diff")
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert " ".join(" ".join(said[:3]).split()).startswith(
        "Lost Pascal (6.0, 6.1): natively before, not at all now. Won Hopper (9.0): not at all before, "
        "natively now. By itself libgpu.so.2 lost Ampere (8.0, 8.6), Ada (8.9) and "
        "Blackwell (10.0, 10.3, 12.0)."
    )
    table = {
        line.split()[0]: line.split()[1:] for line in said if line.startswith(("lib", "capi")) and "→" in line
    }
    columns = next(line for line in said if line.startswith("library")).split()[1:]
    cells = dict(zip(columns, table["capi/libgpu.so.2"], strict=False))
    assert (cells["6.0"], cells["7.5"], cells["8.0"], cells["9.0"]) == ("N→.", "N", "j→.", "j→N")
    assert "capi/libgpu.so.2: was libgpu.so.1." in said
    assert "libgone.so: is gone." in said
    assert "  SASS 75                         56              24              -32" in said


def test_what_one_library_lost_is_told_where_the_worst_of_all_hides_it(copied: Place, tmp_path: Path) -> None:
    """This happened in torch 2.8: a second library of 2.4 ran on few GPUs, so the package as a
    whole lost none."""
    for folder, arches in (("old", (60, 75)), ("new", (75,))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "libmain.so").write_bytes(sass_library(*arches))
        (tmp_path / folder / "libother.so").write_bytes(sass_library(75))
    done = copied.run("inspect", str(tmp_path / "old"), str(tmp_path / "new"), "--diff")
    assert done.stdout.splitlines()[0] == "By itself libmain.so lost Pascal (6.0, 6.1)."


def test_json_is_as_its_schema_says(copied: Place, two: tuple[str, str]) -> None:
    done = copied.run("inspect", *two, "--diff", "--json")
    said: dict[str, Any] = json.loads(done.stdout)
    schema("inspect-diff").validate(said)
    assert (said["old"], said["new"], said["packages"]) == (*two, None)
    assert said["capabilities"]["6.0"] == {
        "effect": "lost",
        "old": {"support": "native", "confidence": "high", "reason": None},
        "new": {"support": "none", "confidence": "high", "reason": None},
    }
    gpu, _plain, gone = said["libraries"]
    assert (gpu["old"]["name"], gpu["new"]["name"]) == ("libgpu.so.1", "capi/libgpu.so.2")
    assert gpu["bytes"] == {
        "sass": {"60": {"old": 24, "new": 0}, "75": {"old": 56, "new": 24}, "90": {"old": 0, "new": 24}},
        "ptx": {"75": {"old": 24, "new": 0}},
    }
    assert gpu["size"] == {"old": len(OLD), "new": len(NEW)}
    assert gone["new"] is None
    said["capabilities"]["6.0"]["effect"] = "vanished"
    assert not schema("inspect-diff").is_valid(said)


def test_the_page_begins_with_what_changed(copied: Place, two: tuple[str, str], tmp_path: Path) -> None:
    page, picture = tmp_path / "map.html", tmp_path / "map.svg"
    done = copied.run("inspect", *two, "--diff", "--html", str(page), "--svg", str(picture))
    assert done.returncode == 0
    for text in (page.read_text(), picture.read_text()):
        assert "N→." in text
        assert "Lost Pascal (6.0, 6.1): natively before, not at all now." in text
        assert "6.0 (Pascal: Tesla P100, Quadro GP100): natively before, not at all now.<" in text


def test_a_library_without_a_kernel_has_no_cells(copied: Place, two: tuple[str, str]) -> None:
    for folder in two:
        (Path(folder) / "libidle.so").write_bytes(elf({".nv_fatbin": container(empty_cubin(75))}))
    (line,) = (
        line for line in copied.run("inspect", *two, "--diff").stdout.splitlines() if "nothing to run" in line
    )
    assert line.split() == ["libidle.so", *["nothing", "to", "run", "in", "its", "device", "code"]]


def test_the_same_thing_twice_says_so(copied: Place, two: tuple[str, str]) -> None:
    done = copied.run("inspect", two[0], two[0], "--diff")
    assert done.stdout.splitlines()[0] == "Runs on the same GPUs as before, in the same way."
    table = [line for line in done.stdout.splitlines() if line.startswith(("lib", "all"))]
    assert len(table) >= 4
    assert "→" not in "".join(table)


def test_what_cannot_be_read_is_told_and_fails(copied: Place, two: tuple[str, str]) -> None:
    (Path(two[1]) / "capi/libgpu.so.2").write_bytes(NEW[:100])
    done = copied.run("inspect", *two, "--diff", "--json")
    assert done.returncode == 6
    said = json.loads(done.stdout)
    schema("inspect-diff").validate(said)
    assert said["sentence"].endswith("But 1 library cannot be read: what changed there is not known.")
    gpu = said["libraries"][0]
    assert (gpu["capabilities"], gpu["bytes"], gpu["size"]["new"]) == ({}, {}, 0)
    shown = copied.run("inspect", *two, "--diff").stdout
    assert "all that can be read" in shown
    assert "SASS 75" not in shown.partition("libgone.so\n")[0], "its bytes are known on one side alone"
    (Path(two[0]) / "libgone.so").unlink()
    assert copied.run("inspect", *two, "--diff").stdout.startswith(
        "What can be read of both holds no device code that a GPU could run. But 1 library cannot be read: "
    )


def test_two_are_compared_and_no_other_number(copied: Place, two: tuple[str, str]) -> None:
    assert copied.fails(2, "inspect", *two, two[0], "--diff") == (
        "error: --diff compares two sources, and 3 are named. "
        "Name the old one and the new one: inspect OLD NEW --diff\n"
    )


def test_sizes_of_one_thing(copied: Place, two: tuple[str, str]) -> None:
    said = copied.run("inspect", two[0], "--sizes").stdout.splitlines()
    at = said.index(f"libgpu.so.1  {len(OLD):,} bytes")
    assert [line.split()[:3] for line in said[at + 1 : at + 4]] == [
        ["SASS", "60", "24"],
        ["SASS", "75", "56"],
        ["PTX", "75", "24"],
    ]
    assert said[at + 2].split()[3] == f"{56 / len(OLD):.1%}"
    at = said.index(f"all libraries  {len(OLD) + len(sass_library(60, 75)) + len(elf()):,} bytes")
    assert [line.split()[:3] for line in said[at + 1 :]] == [
        ["SASS", "60", "44"],
        ["SASS", "75", "76"],
        ["PTX", "75", "24"],
    ]
