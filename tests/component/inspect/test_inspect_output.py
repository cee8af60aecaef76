"""Tests of inspect's output: page and picture are written whole or not at all; stdout is a table
or only JSON."""

import gzip
import io
import os
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
from tests.support.factories.archives import zipped
from tests.support.factories.binaries import elf, sass
from tests.support.factories.libraries import BROKEN, OWN, PLAIN, PROVIDER
from tests.support.fakes.ports import reported
from tests.support.messages import Refused

REPORTS = [InspectedSource("my.whl", [PROVIDER, PLAIN]), InspectedSource("other.whl", [OWN, BROKEN])]


@pytest.fixture
def out(shop: Wiring) -> io.StringIO:
    """Return the stream that stands for stdout."""
    shop.console = Console(env={}, stream=(stream := io.StringIO()))
    return stream


def test_a_table_and_a_line_for_each_file(shop: Wiring, tmp_path: Path, out: io.StringIO) -> None:
    html, picture = tmp_path / "map.html", tmp_path / "map.svg"
    show(shop, REPORTS, InspectOptions(as_json=False), html, picture)
    assert out.getvalue().startswith("my.whl\n")
    assert reported(shop) == [f"{path}  {path.stat().st_size:,} bytes" for path in (html, picture)]
    assert html.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert picture.read_text(encoding="utf-8").startswith("<svg ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.html", "map.svg"]


PROMISED = Promise("p", "", sm=("88",), capabilities={Capability(8, 8): Support.NATIVE})


ON_X86 = replace(PROVIDER, machine=X86_64)


@pytest.mark.parametrize(
    ("new", "columns"),
    [
        # wheels for two kinds of machines: the GPUs of ARM machines are not compared
        (InspectedSource("b", [replace(PROVIDER, machine="aarch64")]), 19),
        # 8.8 is in a manifest alone: a thin package lacks the library that is for it
        (InspectedSource("b", [ON_X86], (PROMISED,)), 14),
    ],
)
def test_pictures_of_a_difference_have_a_cell_below_each_column(
    shop: Wiring, tmp_path: Path, new: InspectedSource, columns: int
) -> None:
    """Defect: the map of changes had fewer columns than the sources' maps, which ended in a traceback."""
    picture = tmp_path / "map.svg"
    show(
        shop, [InspectedSource("a", [ON_X86]), new], InspectOptions(diff=True), tmp_path / "map.html", picture
    )
    rows = picture.read_text(encoding="utf-8").split('<g role="row">')
    assert {row.count('role="cell"><title>') for row in rows if "rowheader" in row} == {columns}
    silent = sum(row.count("not compared, because not both sources are for it") for row in rows)
    assert silent == 2 * (columns - 13)


@pytest.mark.parametrize("name", [".", "gone/map", "pipe", 300 * "x"])
def test_a_place_where_no_file_can_be_is_told(tmp_path: Path, name: str, refused: Refused) -> None:
    os.mkfifo(tmp_path / "pipe")
    with refused(DiskError if len(name) > 255 else ValidationError):
        require_places({"--html": tmp_path / name})
    assert list(tmp_path.iterdir()) == [tmp_path / "pipe"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("libx.so", elf({".nv_fatbin": sass(75)})),
        ("x.whl", zipped({"a": b""})),
        ("x.tar.gz", gzip.compress(b"", mtime=0)),
    ],
)
def test_what_may_be_inspected_is_not_replaced(tmp_path: Path, name: str, data: bytes) -> None:
    """Defect: ``inspect --html a.so b.so``, which a shell makes of ``--html *.so``, wrote a page
    over a.so."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValidationError, match=f"{name} is a library or an archive, and would be replaced"):
        require_places({"--html": tmp_path / name})
