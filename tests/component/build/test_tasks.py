"""Tests of the command line: bad input gives a message and an exit code, and leaves no half-written files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from backports.zstd import compress

from tests.support.factories.archives import files
from tests.support.factories.project_copy import NO_ENGINE_MESSAGE, Place

GARBAGE = "ortpacks-other-1.21.0-cuda12.9-lean-linux-x64.tar.zst"


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--base", "ubuntu", "error: --base 'ubuntu' is none of auto, nvidia, assembled, redist.\n"),
        ("--profile", "tiny", "error: --profile 'tiny' is none of full, lean, minimal.\n"),
        ("--host", "Wheel", "error: --host 'Wheel' is none of wheel, source.\n"),
        ("--jobs", "0", "error: --jobs '0' is no number from 1 to 1024.\n"),
        (
            "--jobs",
            "9" * 5000,
            f"error: --jobs '{'9' * 5000}' is no number from 1 to 1024.\n",
        ),
        ("--jobs", "²", "error: --jobs '²' is no number from 1 to 1024.\n"),
        ("--memory", "8", "error: --memory '8' is no size. Like 20G or 6000M.\n"),
        ("--memory", "0G", "error: --memory '0G' is no size. Like 20G or 6000M.\n"),
        ("--memory", "-1G", "error: --memory '-1G' is no size. Like 20G or 6000M.\n"),
        ("--from", "gone", "error: --from 'gone' is no folder. ./run compile --into makes one.\n"),
        (
            "--compile-cache",
            "redis://:hunter2@host",
            (
                "error: --compile-cache holds a password: command lines and logs are no place for secrets. "
                "Take it out of the address: REDISCLI_AUTH takes that of Redis.\n"
            ),
        ),
        (
            "--cache",
            "type=gha,token=hunter2",
            (
                "error: --cache holds token: a command line is no place for secrets. Leave them out; buildx "
                "reads them from its environment (ACTIONS_RUNTIME_TOKEN, AWS_SECRET_ACCESS_KEY …).\n"
            ),
        ),
    ],
)
def test_a_flag_names_its_values_before_anything_is_made(
    copied: Place, tmp_path: Path, flag: str, value: str, said: str
) -> None:
    dist = tmp_path / "dist"
    assert copied.fails(2, "build", "--variant=legacy", f"--dist={dist}", f"{flag}={value}") == said
    assert not dist.exists()


@pytest.mark.parametrize("verb", ["build", "cache", "verify"])
def test_dist_may_not_be_a_file(copied: Place, tmp_path: Path, verb: str) -> None:
    file = tmp_path / "file"
    file.touch()
    said = f"error: --dist {str(file)!r} is no folder. Name another one.\n"
    assert copied.fails(2, verb, f"--dist={file}") == said


def test_rebuild_refuses_a_number_before_it_fetches(copied: Place) -> None:
    assert (
        copied.fails(2, "rebuild", "v0", "--jobs=many")
        == "error: --jobs 'many' is no number from 1 to 1024.\n"
    )


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("lock", "--check="), "check"),
        (("clean", "--dry-run", "--dist="), "dist"),
        (("inspect", "tasks.py", "--sarif="), "sarif"),
        (("inspect", "tasks.py", "--model="), "model"),
        (("mirror", "--to="), "to"),
        (("build", "--variant=legacy", "--from="), "from"),
        (("plan", "--variant=modern", "--variant="), "variant"),
        (("build", "--variant=legacy", "--compile-cache="), "compile-cache"),
    ],
)
def test_a_value_that_is_empty_is_no_default(copied: Place, words: tuple[str, ...], flag: str) -> None:
    """An unset shell variable gives an empty value.

    Defect: ``./run lock --check "$BASE"`` wrote inputs.lock.
    """
    before = (copied.folder / "inputs.lock").read_bytes()
    said = copied.fails(2, *words)
    assert said == f"error: --{flag} is empty. Give it a value, or leave it out.\n"
    assert (copied.folder / "inputs.lock").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("inspect {}", "error: {} is no URL: Invalid IPv6 URL. Write it like https://HOST/PATH.\n"),
        ("atlas --add {}", "error: {} is no URL: Invalid IPv6 URL. Write it like https://HOST/PATH.\n"),
        (
            "publish --dry-run --tag x --api {}",
            (
                "error: --api (or publish.api of variants.yaml) is '{}': the token would go there. Allowed: "
                "https://host/path without a closing slash; http:// for localhost only.\n"
            ),
        ),
    ],
)
def test_half_a_url_is_told(copied: Place, words: str, said: str) -> None:
    assert copied.fails(2, *words.format("http://[::1").split()) == said.format("http://[::1")


def test_a_mirror_is_no_address_of_another_kind(copied: Place) -> None:
    """Defect: a mirror's s3:// address made a local folder named s3:."""
    said = copied.fails(2, "mirror", "--to", "s3://me:secret@bucket/releases")
    assert said == (
        "error: --to s3://…@bucket/releases is no folder. Name the folder that the web server shows.\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        "mirror --to oci://ada:secret@host/name",
        "rebuild oci://ada:secret@host/name",
        "compile --arch 90 --into oci://ada:secret@host/name",
        "build --variant cpu --compile-cache oci://ada:secret@host/name",
    ],
)
def test_a_registry_is_refused_with_the_way_through_it(copied: Place, words: str) -> None:
    said = copied.fails(2, *words.split())
    assert said.startswith(
        "error: Addresses like oci://HOST/NAME are not supported: a registry is slow as a "
    )
    assert "Fetch a release by `oras pull HOST/NAME:TAG` and name its folder (docs/mirrors.md" in said
    assert "secret" not in said


@pytest.mark.parametrize("words", ["--missing --refresh", "--check assembled --refresh"])
def test_lock_does_one_thing(copied: Place, words: str) -> None:
    said = copied.fails(2, "lock", *words.split())
    assert said == "error: --refresh, --missing and --check ask for different things. Give one of them.\n"


@pytest.mark.parametrize("number", ["x", "0", "-3", "²", "1.5"])
def test_a_threshold_is_a_number(copied: Place, number: str) -> None:
    said = copied.fails(2, "root", f"--threshold={number}")
    assert said == f"error: --threshold '{number}': a whole number above 0 is wanted.\n"


NO_ARCHITECTURE = "is not an architecture like 86, 8.6, sm_86 or 90a. With commas between: 75,86,90a.\n"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "error: compile needs --arch and --into. Like --arch 90 --into store.\n"),
        (("--arch=70",), "error: compile needs --arch and --into. Like --arch 90 --into store.\n"),
        (("--arch=70,", "--into=s"), f"error: --arch: '' {NO_ARCHITECTURE}"),
    ],
)
def test_compile_says_what_it_needs(copied: Place, flags: tuple[str, ...], said: str) -> None:
    assert copied.fails(2, "compile", "--variant", "legacy", *flags) == said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ("--arch=91",),
            2,
            "error: --arch: no variant of --all is compiled for 91. In variants.yaml legacy has 50, ",
        ),
        (
            ("--arch=91,91", "--all"),
            2,
            "error: --arch: no variant of --all is compiled for 91. In variants.yaml legacy has 50, ",
        ),
        (
            ("--arch=91", "--variant=latest"),
            2,
            "error: --arch: latest is not compiled for 91. It has 89, 90, ",
        ),
        (("--arch=90",), 4, NO_ENGINE_MESSAGE),
        (("--arch=90", "--memory=1G"), 4, NO_ENGINE_MESSAGE),
    ],
)
def test_a_compile_that_is_refused_leaves_no_folder(
    place: Place, words: tuple[str, ...], code: int, said: str
) -> None:
    """Defect: the folder of ``--into`` was made before ``--arch`` was looked at."""
    flags = ("--base=assembled", "--origin=source", "--into=store", "--compile-cache=shared")
    assert place.fails(code, "compile", *words, *flags).startswith(said)
    assert place.made() <= {"dist", "cache"}


def test_the_matrix_is_by_package_or_by_architecture(copied: Place) -> None:
    said = copied.fails(2, "matrix", "--by", "card")
    assert said == "error: --by 'card' is not arch. Leave it out for one job a package.\n"


def test_a_broken_configuration_names_file_and_key(place: Place) -> None:
    place.edit("sm: [75, 80, 86]", "sm: [75, 80, 91]")
    told = place.fails(2, "build", "--variant", "legacy")
    assert told.startswith("error: variants.yaml:")
    assert "variants.modern.sm" in told


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("variants.yaml", "Run this in the project's folder."),
        ("inputs.lock", "`git restore inputs.lock` brings it back; `./run lock` pins every input anew."),
    ],
)
def test_a_missing_file_is_named(place: Place, name: str, advice: str) -> None:
    (place.folder / name).unlink()
    said = place.fails(2, "plan", "--variant", "legacy")
    assert said == f"error: {place.folder / name} is not there. {advice}\n"


def test_a_file_that_is_no_text_is_named(place: Place) -> None:
    file = place.folder / "variants.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    assert place.fails(2, "plan", "--variant", "legacy").startswith(f"error: {file} ")


@pytest.mark.parametrize("verb", ["publish", "verify", "client"])
def test_an_empty_dist_is_nothing_to_do(copied: Place, tmp_path: Path, verb: str) -> None:
    said = copied.fails(3, verb, "--dist", str(tmp_path))
    assert said == f"error: {tmp_path} holds no package. `./run build --all` makes them.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "verify --dist circle"),
        (11, "build --variant cpu --dist circle"),
        (3, "mirror --to circle"),
        (3, "rebuild empty --into circle"),
    ],
)
def test_links_that_lead_in_a_circle_are_told(copied: Place, tmp_path: Path, code: int, words: str) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "empty").mkdir()
    there = {name: str(tmp_path / name) for name in ("circle", "empty")}
    assert copied.fails(code, *(there.get(word, word) for word in words.split())).startswith("error: ")


@pytest.mark.parametrize("words", ["check --package", "wheel", "lock --check", "plan --variant"])
def test_a_login_in_a_wrong_place_is_not_repeated(copied: Place, words: str) -> None:
    done = copied.run(*words.split(), "https://user:s3cret@host/x")
    assert done.returncode != 0
    assert "…@host/x" in done.stderr, done.stderr
    assert "s3cret" not in done.stdout + done.stderr


def test_a_file_that_is_no_package_is_told(copied: Place, tmp_path: Path) -> None:
    (tmp_path / GARBAGE).write_bytes(b"garbage")
    said = copied.fails(7, "verify", "--package", str(tmp_path / GARBAGE), "--dist", str(tmp_path))
    assert said.startswith(f"error: {tmp_path / GARBAGE} is damaged: ")
    assert said.endswith("fetch or make it again.\n")
    assert [path.name for path in tmp_path.iterdir()] == [GARBAGE]


@pytest.mark.parametrize("name", ["my.tar.zst", "."])
def test_a_package_that_is_not_there_is_told(copied: Place, name: str) -> None:
    said = copied.fails(2, "verify", "--package", name)
    assert said == f"error: {name}: no such package. `./run build` leaves its packages in dist/.\n"


def test_an_archive_that_is_no_package_is_told_before_anything_is_planned(
    copied: Place, tmp_path: Path
) -> None:
    archive = tmp_path / "photos.tar.zst"
    archive.write_bytes(compress(files({"holiday.txt": b"sun"})))
    done = copied.run("verify", "--package", str(archive), "--dist", str(tmp_path / "dist"))
    assert done.returncode == 7
    assert done.stdout == ""
    said = f"error: {archive}: its first member is 'holiday.txt', not manifest.json: no ortpacks package. "
    assert done.stderr.startswith(f"{said}Name a package, ")
    assert not (tmp_path / "dist").exists()


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


def test_a_folder_that_takes_no_file_is_told(copied: Place, tiny: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
    said = copied.fails(11, "client", "--dist", str(tiny))
    assert said.startswith(f"error: {tiny / 'ortpacks.pyz'}")
    assert "Read-only file system" in said


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
