"""Tests of ./run atlas: it reads a wheel given by path, URL or name, keeps a record, and makes a
page of all."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.doubles.fileserver import FileServer, serve
from tests.doubles.wheels import Wheel
from tests.support.factories.project_copy import Place
from tests.support.factories.wheel_records import library_bytes, unit
from tests.support.tables import table

NAME = "demo_gpu-1.0-py3-none-manylinux_2_28_x86_64.whl"

RECORD = f"docs/atlas/{NAME.removesuffix('.whl')}.json"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    libraries = {"demo/libdemo.so": library_bytes(unit("75 80", "80"))}
    made = Wheel("demo-gpu", "1.0", libraries, platform="manylinux_2_28_x86_64")
    path = tmp_path / "wheels" / made.file
    path.parent.mkdir()
    path.write_bytes(made.content)
    return path


def test_a_wheel_is_read_kept_and_shown(place: Place, wheel: Path) -> None:
    done = place.run("atlas", "--add", str(wheel))
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads((place.folder / RECORD).read_text(encoding="utf-8"))
    assert (record["filename"], record["verdicts"]["7.5"], record["verdicts"]["9.0"]) == (
        NAME,
        "native",
        "jit",
    )
    assert f"{RECORD}  " in done.stdout
    assert "1 wheel of 1 project" in done.stdout
    (shown,) = json.loads((place.folder / "dist/atlas.json").read_text(encoding="utf-8"))["wheels"]
    assert shown["sha256"] == record["sha256"]
    assert record["sha256"] in (place.folder / "dist/atlas.html").read_text(encoding="utf-8")


def test_pip_brings_one_that_is_named(place: Place, wheel: Path) -> None:
    place.env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent), "PIP_CONFIG_FILE": "/dev/null"}
    done = place.run("atlas", "--add", "demo-gpu==1.0")
    assert done.returncode == 0
    assert (place.folder / RECORD).is_file()
    assert not list((place.folder / "dist").glob("*.part*")), "what pip brought is gone"


@pytest.mark.parametrize(("fragment", "code"), [("", 0), ("#sha256={}", 0), ("#sha256=" + 64 * "0", 7)])
def test_a_url_is_fetched_and_held_to_its_hash(place: Place, wheel: Path, fragment: str, code: int) -> None:
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with serve(FileServer({wheel.name: wheel.read_bytes()})) as server:
        done = place.run("atlas", "--add", f"{server.url}/{wheel.name}{fragment.format(sha256)}")
    assert done.returncode == code
    assert (place.folder / RECORD).is_file() == (code == 0)
    assert (f"got {sha256}" in done.stderr) == (code != 0)


@pytest.mark.parametrize(("what", "code", "said"), table("inspect/atlas.txt"))
def test_what_cannot_be_had_is_told(copied: Place, wheel: Path, what: str, code: str, said: str) -> None:
    here = Place(copied.folder)
    here.env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent), "PIP_CONFIG_FILE": "/dev/null"}
    assert said in here.fails(int(code), "atlas", "--add", what)
    assert not (copied.folder / "docs/atlas").exists()


def test_without_a_record_it_says_how_to_make_one(place: Place) -> None:
    done = place.run("atlas")
    assert done.returncode == 3
    assert "./run atlas --add NAME==VERSION" in done.stderr


def test_a_record_whose_judgement_changed_is_written_anew(place: Place, wheel: Path) -> None:
    place.run("atlas", "--add", str(wheel))
    file = place.folder / RECORD
    right = file.read_text(encoding="utf-8")
    file.write_text(right.replace('"7.5": "native"', '"7.5": "none"'), encoding="utf-8")
    done = place.run("atlas")
    assert done.returncode == 0
    assert f"{RECORD}: 7.5 was none, is native" in done.stdout
    assert file.read_text(encoding="utf-8") == right
