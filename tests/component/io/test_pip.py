"""Tests with real pip and a folder of wheels: pip brings the locked file, whatever else the index lists."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import pytest

from builder.config.inputs import Input, Pin
from builder.errors import CommandError, DiskError, TransferError
from builder.io.process import Completed, ProcessRunner
from builder.io.store import Source
from builder.io.wheel import download_wheel
from tests.support.fakes.ports import FakeRunner

NAMES = [
    f"gpu_thing-1.0-{tags}.whl"
    for tags in (
        "cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64",
        "cp311-cp311-manylinux_2_39_x86_64",
        "cp311-cp311-manylinux_2_28_aarch64",
        "cp312-cp312-manylinux_2_28_x86_64",
        "cp311-cp311-win_amd64",
        "py3-none-manylinux2014_x86_64",
        "py3-none-any",
        "cp311-cp311-macosx_11_0_arm64",
        "cp311-cp311-macosx_13_0_arm64",
        "cp311-cp311-macosx_15_0_arm64",
        "cp311-cp311-macosx_13_0_x86_64",
    )
]

ITEM = Input.wheel("gpu-thing==1.0")


def pin(name: str) -> Pin:
    return Pin(filename=name, size=1, sha256="0" * 64)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    metadata = "".join(
        f"{line}\n"
        for line in ("Metadata-Version: 2.1", "Name: gpu-thing", "Version: 1.0", "Requires-Dist: absent")
    )
    for name in NAMES:
        tags = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {name}\n"
        with ZipFile(folder / name, "w") as archive:
            for file, text in (("METADATA", metadata), ("WHEEL", tags), ("RECORD", "")):
                archive.writestr(f"gpu_thing-1.0.dist-info/{file}", text)
    return folder


@pytest.fixture
def source(index: Path) -> Source:
    env = {
        "PATH": os.environ["PATH"],
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
    }
    return partial(download_wheel, ProcessRunner(env))


@pytest.mark.parametrize(
    ("platform", "pinned", "name"),
    [
        *(("linux-x64", pin(NAMES[number]), NAMES[number]) for number in (0, 5, 7)),
        ("linux-x64", None, NAMES[0]),  # glibc 2.35
        ("linux-arm64", None, NAMES[2]),
        ("win-x64", None, NAMES[4]),
        ("macos-arm64", None, NAMES[8]),
    ],
)
def test_the_locked_file_arrives_or_else_the_first_choice_that_fits(
    source: Source, tmp_path: Path, platform: str, pinned: Pin | None, name: str
) -> None:
    assert source(Input.wheel("gpu-thing==1.0", platform), pinned, tmp_path).name == name


def test_what_a_killed_run_left_is_removed(source: Source, tmp_path: Path) -> None:
    (tmp_path / "pip-0").mkdir()
    (tmp_path / "pip-0/half.whl").write_bytes(b"half")
    source(ITEM, pin(NAMES[6]), tmp_path)
    assert [path.name for path in tmp_path.rglob("*.whl")] == [NAMES[6]]


def test_a_version_that_is_not_there(source: Source, tmp_path: Path) -> None:
    with pytest.raises(TransferError, match=r"wheel:gpu-thing==9: pip could not fetch it") as caught:
        source(Input.wheel("gpu-thing==9"), None, tmp_path)
    assert "No matching distribution found for gpu-thing==9" in str(caught.value)


def test_a_full_disk_is_named_as_such(tmp_path: Path) -> None:
    said = ("ERROR: Could not install packages: [Errno 28] No space left on device",)
    runner = FakeRunner(answers={sys.executable: CommandError("pip failed", tail=said)})
    with pytest.raises(DiskError, match=r"gpu-thing==1\.0: the disk is full\. Free space"):
        download_wheel(runner, ITEM, pin(NAMES[6]), tmp_path)


def test_no_wheel_is_a_failure(tmp_path: Path) -> None:
    runner = FakeRunner(answers={sys.executable: Completed(code=0, stdout="", stderr="")})
    with pytest.raises(TransferError, match="left no wheel"):
        download_wheel(runner, ITEM, pin(NAMES[6]), tmp_path)
