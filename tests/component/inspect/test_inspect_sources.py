"""Tests of inspect with several sources: labels, failures by name, and no files left on the disk."""

import json
import zipfile
from pathlib import Path

import pytest

from builder.build.verbs.command_line import with_flags
from builder.errors import CheckFailedError, ValidationError
from builder.inspect.answers import require_sound
from builder.inspect.command import inspect_sources
from builder.io.wiring import Wiring
from tests.doubles.fileserver import FileServer, serve
from tests.support.factories.archives import files
from tests.support.factories.binaries import PTX, SASS, container, elf, image, sass
from tests.support.factories.project_copy import Place
from tests.support.messages import Told
from tests.support.tables import table

LIBRARY = elf({".nv_fatbin": sass(75)})

VALUED = frozenset({"--also", "--html", "--svg", "-p"})


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    """Write a library, a wheel, and a tar in which one of two libraries cannot be read; return
    their paths."""
    (tmp_path / "liba.so").write_bytes(LIBRARY)
    with zipfile.ZipFile(tmp_path / "b.whl", "w") as archive:
        archive.writestr("capi/libb.so", LIBRARY)
        archive.writestr("capi/libplain.so", elf({".text": b"code"}))
    (tmp_path / "c.tar").write_bytes(files({"libc.so": b"", "libd.so": LIBRARY}))
    return [str(tmp_path / name) for name in ("liba.so", "b.whl", "c.tar")]


def test_each_source_has_its_report_and_nothing_is_left(shop: Wiring, sources: list[str]) -> None:
    reports = inspect_sources(shop, sources)
    assert [(one.label, [item.name for item in one.libraries]) for one in reports] == [
        (sources[0], ["liba.so"]),
        (sources[1], ["capi/libb.so", "capi/libplain.so"]),
        (sources[2], ["libc.so", "libd.so"]),
    ]
    assert list(shop.dist.iterdir()) == []


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
