"""Tests of inspect's output for one source and several, and with ``--deep``: it is whole or not there."""

import gzip
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from builder.binary.coverage import Support
from builder.binary.verdict import X86_64
from builder.build.verbs.command_line import with_flags
from builder.console import Console
from builder.contents.supported_gpus import InspectedSource, Promise
from builder.errors import CheckFailedError, DiskError, ValidationError
from builder.facts.gpu.architectures import Capability
from builder.inspect.answers import InspectOptions, require_places, require_sound
from builder.inspect.command import inspect_sources, show
from builder.io.wiring import Wiring
from tests.doubles.fileserver import FileServer, serve
from tests.support import written
from tests.support.factories.archives import files, zipped
from tests.support.factories.binaries import LZ4, PTX, SASS, container, elf, image, sass
from tests.support.factories.cubins import ADDS, ptx_image, sass_image, stub, work
from tests.support.factories.libraries import BROKEN, OWN, PLAIN, PROVIDER
from tests.support.factories.project_copy import Place
from tests.support.fakes.ports import reported
from tests.support.messages import Refused, Told
from tests.support.schemas import schema
from tests.support.tables import table

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


LIBRARY = elf({".nv_fatbin": sass(75)})

VALUED = frozenset({"--also", "--html", "--svg", "-p"})


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    """Write a library, a wheel, and a tar in which one of two libraries cannot be read; return
    their paths."""
    wheel = zipped({"capi/libb.so": LIBRARY, "capi/libplain.so": elf({".text": b"code"})})
    contents = {"liba.so": LIBRARY, "b.whl": wheel, "c.tar": files({"libc.so": b"", "libd.so": LIBRARY})}
    written(tmp_path, contents)
    return [str(tmp_path / name) for name in contents]


def test_what_cannot_be_read_fails_by_name_and_cause(shop: Wiring, sources: list[str], told: Told) -> None:
    reports = inspect_sources(shop, sources)
    require_sound(reports[:2])
    with pytest.raises(CheckFailedError) as caught:
        require_sound(reports)
    told(caught.value)


def test_a_wrong_path_is_told_before_anything_is_fetched(shop: Wiring, tmp_path: Path) -> None:
    with serve(FileServer({})) as server:
        with pytest.raises(ValidationError, match=r"gone\.so is neither a file nor a folder\."):
            inspect_sources(shop, [f"{server.url}/a.whl", str(tmp_path / "gone.so")])
        assert server.requests == []


def test_a_password_in_a_url_is_not_in_the_report(shop: Wiring) -> None:
    with serve(FileServer({"liba.so": LIBRARY})) as server:
        url = server.url.replace("//", "//me:secret@")
        (found,) = inspect_sources(shop, [f"{url}/liba.so"])
    assert found.label == f"{server.url}/liba.so".replace("//", "//…@", 1)


def test_several_sources_by_flag_and_as_bare_words(copied: Place, sources: list[str]) -> None:
    done = copied.run("inspect", sources[0], "--also", sources[1], "--json")
    bare = copied.run("inspect", "--json", *sources[:2])
    assert (done.returncode, bare.returncode, bare.stderr) == (0, 0, "")
    assert bare.stdout == done.stdout
    assert all(name in done.stdout for name in ("liba.so", "libb.so", "libplain.so"))


@pytest.mark.parametrize(("given", "flag", "put"), table("inspect/flags.txt"))
def test_bare_words_become_flags(given: str, flag: str, put: str) -> None:
    assert list(with_flags(given.split(), VALUED, flag)) == put.split()


@pytest.mark.parametrize("name", ["liba.so", "a.whl"])
def test_a_file_that_may_not_be_read_is_not_damaged(
    copied: Place, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    file = tmp_path / name
    file.write_bytes(LIBRARY)
    opened = vars(Path)["open"]

    def refused(path: Path, *args: object, **more: object) -> object:
        if path == file:
            raise PermissionError(13, "Permission denied", str(file))
        return opened(path, *args, **more)

    monkeypatch.setattr(Path, "open", refused)
    told(copied.fails(11, "inspect", str(file)))


def test_what_must_run_where_is_held_to_it(copied: Place, tmp_path: Path, told: Told) -> None:
    (tmp_path / "liba.so").write_bytes(elf({".nv_fatbin": container(image(SASS, 75), image(PTX, 75))}))
    library = str(tmp_path / "liba.so")
    assert copied.run("inspect", library, "--require", "75,sm_86,8.8", "--jit-ok").returncode == 0
    assert copied.run("inspect", library, "--require", "7.5").returncode == 0
    done = copied.run("inspect", library, "--require", "7.5,8.6,5.2,12.1", "--json")
    assert done.returncode == 6
    assert isinstance(json.loads(done.stdout), dict)
    told(done.stderr)


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
    assert done.stderr.splitlines()[0] == "error: images are damaged, or lack the kernels of their containers"
    assert done.stderr.splitlines()[1].startswith(f"error {DAMAGE}")
    (run,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [("A010", "error"), ("A013", "note")]
