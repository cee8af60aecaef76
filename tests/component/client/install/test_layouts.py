"""Tests of the choice between layouts, kinds of archive and builds, and of the update from a lean package."""

import json
from pathlib import Path

import pytest

from builder.client.install.unpack import open_tar
from builder.errors import IntegrityError, ToolMissingError
from builder.files import decompression
from builder.formats.package_names import Form
from tests.doubles.machine import Machine
from tests.doubles.release import Build, Server, libraries, name_of, serving, write_release
from tests.doubles.wheels import WHEELS, unpacked

BOTH = ("full", "thin")

FORMS = (".tar.zst", ".tar.gz")

FULL, THIN = name_of("modern"), name_of("modern", layout="thin")


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """Return the index of a release with both layouts."""
    return write_release(tmp_path / "release", layouts=BOTH, wheels=WHEELS)


@pytest.fixture
def here(machine: Machine, tmp_path: Path) -> Path:
    """Return the environment of the machine's Python, which has NVIDIA's libraries."""
    machine.environments = (unpacked(tmp_path / "site-packages", *WHEELS),)
    return tmp_path / "site-packages"


def fetched(server: Server) -> list[str]:
    return [path.lstrip("/") for path, _ in server.requests if not path.endswith("index.json")]


def test_full_where_nothing_of_nvidias_is_here(machine: Machine, both: Path) -> None:
    with serving(both.parent) as server:
        assert machine.run("install", "--index", f"{server.url}/") == 0, machine.err
        assert fetched(server) == [f"{FULL}.tar.zst"]
    assert "Layout full: not all of NVIDIA's libraries are on this machine." in machine.out


@pytest.mark.usefixtures("here")
def test_thin_where_they_are_all_here_and_full_is_not_fetched(machine: Machine, both: Path) -> None:
    with serving(both.parent) as server:
        assert machine.run("install", "--index", f"{server.url}/", "--json") == 0, machine.err
        assert fetched(server) == [f"{THIN}.tar.zst"], "once: what was fetched to decide is what is installed"
    answer = json.loads(machine.out)
    assert (answer["package"]["name"], answer["package"]["layout"]) == (THIN, "thin")
    assert answer["installed"]["why"].startswith("Layout thin: NVIDIA's libraries are on this machine")
    assert {path.name for path in machine.lib.iterdir()} >= {"libcublas.so.12", "libcudnn.so.9"}


def test_full_where_one_byte_of_one_library_differs(machine: Machine, both: Path, here: Path) -> None:
    (library,) = here.rglob("libcudnn.so.9")
    library.write_bytes(b"!" + library.read_bytes()[1:])
    assert machine.run("install", "--index", str(both)) == 0, machine.err
    assert (machine.prefix / "current").resolve().name.startswith(FULL)
    assert (machine.lib / "libcudnn.so.9").read_bytes() == libraries(WHEELS)["lib/libcudnn.so.9"]
    assert machine.litter() == []


def test_the_other_layout_of_a_package_is_linked_from_the_one_before(machine: Machine, both: Path) -> None:
    assert machine.run("install", "--index", str(both), "--layout", "full") == 0
    assert machine.run("install", "--index", str(both), "--layout", "thin") == 0, machine.err
    assert "Layout thin: as asked with --layout." in machine.out
    assert (machine.lib / "libcudnn.so.9").stat().st_nlink == 2
    assert machine.run("install", "--index", str(both)) == 0
    assert "Already installed" in machine.out, "auto is content with either"
    assert (machine.prefix / "current").resolve().name.startswith(THIN)


def test_zstd_goes_before_gzip(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ToolMissingError("Nothing here can unpack zstd.")

    release = write_release(tmp_path / "release", forms=FORMS).parent
    only = write_release(tmp_path / "gzip", version="1.24.0", forms=FORMS[1:])
    with serving(release) as server:
        assert machine.run("install", "--index", f"{server.url}/") == 0, machine.err
        assert machine.run("uninstall") == 0, machine.err
        monkeypatch.setattr(decompression, "require_zstd", missing)
        assert machine.run("install", "--index", f"{server.url}/") == 0, machine.err
        assert fetched(server) == [f"{FULL}.tar.zst", f"{FULL}.tar.gz"]
    assert "As gzip: nothing here can unpack zstd." in machine.out
    assert machine.run("verify") == 0
    assert machine.run("install", "--index", str(only)) == 0, machine.err
    assert "As gzip" not in machine.out


@pytest.mark.parametrize("spoil", [lambda data: data[:-30], lambda data: data[:500] + b"x" + data[501:]])
def test_a_damaged_gzip_is_no_full_disk(tmp_path: Path, spoil: object) -> None:
    release = write_release(tmp_path / "release", forms=(".tar.gz",)).parent
    path = tmp_path / "damaged.tar.gz"
    path.write_bytes(spoil((release / f"{FULL}.tar.gz").read_bytes()))  # type: ignore[operator]  # a lambda
    with pytest.raises(IntegrityError, match="is damaged"), open_tar(path, Form.GZ) as stream:
        stream.read()


LEAN, LEAN_OF_BEFORE, FULL_BUILD = Build("lean"), Build("lean", format=3), Build("full")

LEAN_NAME, FULL_NAME = name_of("modern", build=LEAN), name_of("modern", "1.24.0", build=FULL_BUILD)

FAILS = "Transformer models fail at ONNX Runtime's default optimisation level"


@pytest.fixture
def before(tmp_path: Path) -> str:
    """Return the index of a release in format 3 with a package of profile lean."""
    return str(write_release(tmp_path / "before", builds=(LEAN_OF_BEFORE,)))


@pytest.fixture
def today(tmp_path: Path) -> str:
    return str(write_release(tmp_path / "today", version="1.24.0", builds=(FULL_BUILD,)))


def in_use(machine: Machine) -> str:
    return (machine.prefix / "current").resolve().name.rpartition("-")[0]


def test_a_lean_package_of_before_installs_and_says_what_fails(machine: Machine, before: str) -> None:
    said = machine.answer("install", "--index", before)
    assert in_use(machine) == LEAN_NAME
    assert [note[: len(LEAN_NAME) + 2 + len(FAILS)] for note in said["notes"]] == [f"{LEAN_NAME}: {FAILS}"]
    assert machine.run("verify") == 0, machine.err
    said = machine.answer("install", "--index", before)
    assert (said["installed"]["fresh"], said["installed"]["upgrade"]) == (False, None)
    assert FAILS in machine.answer("recommend", "--index", before)["notes"][0]


def test_it_gives_way_to_the_full_one_with_a_sentence_why(machine: Machine, before: str, today: str) -> None:
    machine.run("install", "--index", before)
    said = [machine.answer("install", "--index", today)["installed"] for _ in range(2)]
    assert said[0]["upgrade"].startswith(f"{LEAN_NAME} is replaced by {FULL_NAME}. {FAILS}")
    assert (said[1]["fresh"], said[1]["upgrade"]) == (False, None)
    assert machine.run("rollback") == 0, machine.err
    assert in_use(machine) == LEAN_NAME
    back = machine.answer("install", "--index", today)["installed"]
    assert (back["fresh"], in_use(machine)) == (False, FULL_NAME)
    assert "is replaced" in back["upgrade"]


def test_of_both_the_full_one_is_taken_and_the_lean_one_by_its_name(machine: Machine, tmp_path: Path) -> None:
    both = str(write_release(tmp_path / "both", builds=(LEAN, FULL_BUILD)))
    full = name_of("modern", build=FULL_BUILD)
    assert machine.run("install", "--index", both) == 0, machine.err
    assert in_use(machine) == full
    assert f"not {LEAN_NAME}: it has no CUDA kernels for operators that {full} runs" in machine.err
    said = machine.answer("install", "--index", both, "--variant", LEAN_NAME)
    assert in_use(machine) == LEAN_NAME
    assert (said["installed"]["upgrade"], FAILS in said["notes"][0]) == (None, True)
    assert machine.run("select", "--index", both, "--variant", f"{LEAN_NAME}x") == 2
    assert "A package's name is taken too" in machine.err


def test_a_lean_manifest_that_is_damaged_is_no_obstacle(machine: Machine, before: str, today: str) -> None:
    machine.run("install", "--index", before)
    (machine.prefix / "current" / "manifest.json").write_text("{")
    said = machine.answer("install", "--index", today)
    assert (said["installed"]["upgrade"], in_use(machine)) == (None, FULL_NAME)
