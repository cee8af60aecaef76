"""Tests of inspect's output: page and picture are written whole or not at all; stdout is a table
or only JSON."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from builder.binary.coverage import Support
from builder.binary.verdict import X86_64
from builder.console import Console
from builder.contents.supported_gpus import InspectedSource, Promise
from builder.errors import DiskError, ValidationError
from builder.facts.gpu.architectures import Capability
from builder.inspect.answers import InspectOptions, require_places
from builder.inspect.command import show
from builder.io.wiring import Wiring
from tests.support.factories.binaries import elf, sass
from tests.support.factories.libraries import BROKEN, OWN, PLAIN, PROVIDER
from tests.support.fakes.ports import FakeReporter, reported
from tests.support.schemas import schema

REPORTS = [InspectedSource("my.whl", [PROVIDER, PLAIN]), InspectedSource("other.whl", [OWN, BROKEN])]


@pytest.fixture
def out() -> io.StringIO:
    """Return the stream that stands for stdout."""
    return io.StringIO()


@pytest.fixture
def shop(tmp_path: Path, root: Path, out: io.StringIO) -> Wiring:
    made = Wiring(root, dist=tmp_path / "dist", reporter=FakeReporter())
    made.console = Console(env={}, stream=out)
    return made


def test_a_table_and_a_line_for_each_file(shop: Wiring, tmp_path: Path, out: io.StringIO) -> None:
    html, picture = tmp_path / "map.html", tmp_path / "map.svg"
    show(shop, REPORTS, InspectOptions(as_json=False), html, picture)
    assert out.getvalue().startswith("my.whl\n")
    assert reported(shop) == [f"{path}  {path.stat().st_size:,} bytes" for path in (html, picture)]
    assert html.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert picture.read_text(encoding="utf-8").startswith("<svg ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.html", "map.svg"]


def test_json_is_all_there_is_on_stdout(shop: Wiring, tmp_path: Path, out: io.StringIO) -> None:
    show(shop, REPORTS, InspectOptions(as_json=True), tmp_path / "map.html", None)
    said = json.loads(out.getvalue())
    schema("inspect").validate(said)
    assert reported(shop) == []
    assert (tmp_path / "map.html").is_file()


PROMISED = Promise("p", "", sm=("88",), capabilities={Capability(8, 8): Support.NATIVE})


@pytest.mark.parametrize(
    ("old", "new", "columns"),
    [
        (  # wheels for two kinds of machines: the GPUs of ARM machines are not compared
            InspectedSource("a", [replace(PROVIDER, machine=X86_64)]),
            InspectedSource("b", [replace(PROVIDER, machine="aarch64")]),
            19,
        ),
        (  # 8.8 is in a manifest alone: a thin package lacks the library that is for it
            InspectedSource("a", [replace(PROVIDER, machine=X86_64)]),
            InspectedSource("b", [replace(PROVIDER, machine=X86_64)], (PROMISED,)),
            14,
        ),
    ],
)
def test_pictures_of_a_difference_have_a_cell_below_each_column(
    shop: Wiring, tmp_path: Path, old: InspectedSource, new: InspectedSource, columns: int
) -> None:
    """Defect: the map of changes had fewer columns than the sources' maps, which ended in a traceback."""
    picture = tmp_path / "map.svg"
    show(shop, [old, new], InspectOptions(diff=True), tmp_path / "map.html", picture)
    rows = picture.read_text(encoding="utf-8").split('<g role="row">')
    assert {row.count('role="cell"><title>') for row in rows if "rowheader" in row} == {columns}
    silent = sum(row.count("not compared, because not both sources are for it") for row in rows)
    assert silent == 2 * (columns - 13)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (".", r" is a folder\. Name a file in it\.$"),
        ("gone/map", r"gone is no folder, so map cannot be written there\. Make it first\.$"),
        ("pipe", r"pipe is no regular file\. Name one that may be replaced\.$"),
    ],
)
def test_a_place_where_no_file_can_be_is_told(tmp_path: Path, name: str, said: str) -> None:
    path = tmp_path / name
    if name == "pipe":
        os.mkfifo(path)
    before = list(tmp_path.iterdir())
    with pytest.raises(ValidationError, match=said):
        require_places({"--html": path})
    assert list(tmp_path.iterdir()) == before


def test_one_file_under_two_names_is_one(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with pytest.raises(ValidationError, match=r"--html and --svg both name .*map\. Give each a file"):
        require_places({"--html": tmp_path / "map", "--svg": tmp_path / "sub/../map"})


@pytest.mark.parametrize("name", ["libx.so", "x.whl", "x.tar.gz"])
def test_what_may_be_inspected_is_not_replaced(tmp_path: Path, name: str) -> None:
    """Defect: ``inspect --html a.so b.so``, which a shell makes of ``--html *.so``, wrote a page
    over a.so."""
    path = tmp_path / name
    if name == "libx.so":
        path.write_bytes(elf({".nv_fatbin": sass(75)}))
    elif name == "x.whl":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("a", "")
    else:
        path.write_bytes(gzip.compress(b""))
    with pytest.raises(ValidationError, match=f"{name} is a library or an archive, and would be replaced"):
        require_places({"--html": path})


def test_a_file_that_cannot_be_written_is_told_by_name(
    shop: Wiring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(
        DiskError, match=r"map\.html cannot be written: Permission denied\. Fix its owner or mode"
    ):
        show(shop, REPORTS, InspectOptions(as_json=False), tmp_path / "map.html", None)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_too_long_for_the_disk_is_told(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="File name too long"):
        require_places({"--html": tmp_path / (300 * "x")})
