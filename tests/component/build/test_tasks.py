"""Tests of the command line: bad input gives a message and an exit code, and leaves no half-written files."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
from backports.zstd import compress
from invoke.collection import Collection

import tasks
from builder.build.variant_build import VariantBuild
from builder.build.verbs import command_line
from builder.config.variants import Variant
from tests.support.factories.archives import files
from tests.support.factories.project_copy import Place
from tests.support.messages import Told
from tests.support.tables import table

GARBAGE = "ortpacks-other-1.21.0-cuda12.9-lean-linux-x64.tar.zst"


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Return a folder with a file, an empty folder and a link to itself."""
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "empty").mkdir()
    return tmp_path


def below(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


@pytest.mark.parametrize(("code", "words"), table("build/refused.txt"))
def test_what_is_refused_is_told_and_makes_nothing(
    copied: Place, odd: Path, told: Told, code: str, words: str
) -> None:
    """A value may be empty where a shell's variable is not set. ``{}`` is the folder ``odd``.

    Defects: ``./run lock --check "$BASE"`` wrote inputs.lock; a mirror's s3:// address made a folder s3:; the
    folder of ``--into`` was made before ``--arch`` was looked at.
    """
    ours = [copied.folder / name for name in ("inputs.lock", "variants.yaml")]
    before = [below(odd), [file.read_bytes() for file in ours]]
    made = copied.made() | {"dist", "cache"}
    said = copied.fails(int(code), *words.format(*[odd] * words.count("{}")).split())
    told(said.replace(str(copied.folder), "<project>"))
    assert said.startswith("error: ")
    assert "hunter2" not in said
    assert [below(odd), [file.read_bytes() for file in ours]] == before
    assert copied.made() <= made


def test_a_file_of_the_project_that_cannot_be_read_is_named(place: Place, told: Told) -> None:
    words = ("plan", "--variant", "legacy")
    (place.folder / "inputs.lock").unlink()
    told(place.fails(2, *words))
    place.edit("sm: [75, 80, 86]", "sm: [75, 80, 91]")
    told(place.fails(2, *words))
    (place.folder / "variants.yaml").write_bytes(b"\xff\xfe\x00")
    told(place.fails(2, *words))
    (place.folder / "variants.yaml").unlink()
    told(place.fails(2, *words))


@pytest.mark.parametrize(
    ("name", "content"),
    [("photos.tar.zst", compress(files({"holiday.txt": b"sun"}))), (GARBAGE, b"garbage")],
    ids=["photos", "garbage"],
)
def test_an_archive_that_is_no_package_is_told_before_anything_is_planned(
    copied: Place, tmp_path: Path, told: Told, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    done = copied.run("verify", "--package", str(tmp_path / name), "--dist", str(tmp_path / "dist"))
    assert (done.returncode, done.stdout) == (7, "")
    told(done.stderr)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_was_compiled_is_packed_again_and_nothing_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in ("build", "build_beside_others"):
        monkeypatch.setattr(VariantBuild, step, Mock(side_effect=AssertionError))
    monkeypatch.setattr(tasks, "open_caches", Mock(side_effect=AssertionError))
    monkeypatch.setattr(VariantBuild, "bundle", lambda _: (tmp_path / "packed.tar.zst",))
    for names in ("cpu",), ("cpu", "coreml"):
        chosen = [word for name in names for word in ("--variant", name)]
        words = ["./run", "build", *chosen, "--compiled", "--dist", str(tmp_path)]
        command_line.program(Collection.from_module(tasks)).run(words, exit=False)
        assert capsys.readouterr().out.count("packed.tar.zst") == len(names)


def test_each_package_is_held_to_each_variant_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[tuple[str, tuple[str, ...]]] = []

    def read(_: object, path: Path, variants: Sequence[Variant], tools_of: object) -> None:
        held.append((path.name, tuple(one.name for one in variants)))

    monkeypatch.setattr(tasks, "check_package", read)
    for flags in ([], ["--variant", "modern", "--variant", "latest"]):
        words = ["./run", "verify", "a", "b", "--read-only", *flags, "--dist", str(tmp_path)]
        command_line.program(Collection.from_module(tasks)).run(words, exit=False)
    named = [(path, (variant,)) for path in "ab" for variant in ("modern", "latest")]
    assert held == [("a", ()), ("b", ()), *named]


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 16 KiB with an empty file under a package's name, and return its folder."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], check=False, capture_output=True).returncode:
        pytest.skip("a small disk needs root and the right to mount")
    (folder / GARBAGE).touch()
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_told_and_nothing_half_made_is_left(copied: Place, tiny: Path) -> None:
    said = copied.fails(11, "client", "--dist", str(tiny))
    assert said.startswith(f"error: {tiny / 'ortpacks.pyz'}")
    assert "No space left on device" in said
    assert [path.name for path in tiny.iterdir()] == [GARBAGE]
    subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
    assert "Read-only file system" in copied.fails(11, "client", "--dist", str(tiny))


@pytest.mark.parametrize(
    ("word", "buffered"), [("matrix", {}), ("--list", {}), ("--list", {"PYTHONUNBUFFERED": "1"})]
)
def test_an_output_without_room_is_a_message(copied: Place, word: str, buffered: dict[str, str]) -> None:
    """``/dev/full`` is a device without free space.

    The console of ``matrix`` flushes each text; Invoke leaves its list to the stream's buffer.
    """
    argv = [sys.executable, "-m", "builder.build.verbs.command_line", word]  # as ./run starts it
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            argv,
            cwd=copied.folder,
            env={**copied.env, **buffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
        _, said = process.communicate(timeout=60)
    assert process.returncode == 11
    assert said == (
        "error: a file or the output: No space left on device. Free space there and run the same command "
        "again.\n"
    )
