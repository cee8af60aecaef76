"""Tests of wheels: pip brings the locked one, and each unpacked file is the one of RECORD."""

import os
import re
import sys
from functools import partial
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest

from builder.config.inputs import Input, Pin
from builder.errors import BuilderError, CommandError, ConfigError, DiskError, IntegrityError, TransferError
from builder.io.process import Completed, ProcessRunner
from builder.io.store import Source
from builder.io.wheel import download_wheel, tag_arguments, unpack_wheel
from tests.support.factories.archives import zipped
from tests.support.fakes.ports import FakeRunner
from tests.support.messages import Refused, Told
from tests.support.tables import data_text

HELLO = "sha256=WJG1tSLV3whtD_CxEPvZ0hu0_HFjrzTQgoai6Eb2vgM"
"""RECORD's digest of "hello" and a newline: ``printf 'hello\\n' | openssl dgst -sha256 -binary | basenc
--base64url`` without the padding."""


RECORD = "p-1.dist-info/RECORD"


def make(folder: Path, files: dict[str, bytes], lines: str, modes: dict[str, int] | None = None) -> Path:
    """Write a wheel whose RECORD has these lines and its own."""
    path = folder / "p-1-py3-none-any.whl"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, data in {**files, RECORD: f"{lines}{RECORD},,\n".encode()}.items():
            info = ZipInfo(name)
            info.external_attr = (modes or {}).get(name, 0o644) << 16
            archive.writestr(info, data, ZIP_DEFLATED)
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    files = {"p/a.txt": b"hello\n", "p/bin/tool": b"hello\n"}
    lines = f"p/a.txt,{HELLO},6\np/bin/tool,{HELLO},6\n"
    return make(tmp_path, files, lines, {"p/bin/tool": 0o100755})


def tree_names(tree: Path) -> list[str]:
    return sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file())


OUTSIDE = ("../evil", "/evil", "p/../../evil", "p\\..\\evil")


def refusal(wheel: Path) -> str:
    """Return the message on a wheel of which nothing is left when it is unpacked."""
    with pytest.raises(IntegrityError) as caught:
        unpack_wheel(wheel, wheel.with_name("tree"))
    assert list(wheel.parent.iterdir()) == [wheel]
    return str(caught.value)


def test_a_tree_is_whole_when_it_has_a_name(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[list[str]] = []
    monkeypatch.setattr(os, "sync", lambda: synced.append(tree_names(tmp_path)))
    tree = tmp_path / "tree"
    unpack_wheel(good, tree)
    assert tree_names(tree) == [RECORD, "p/a.txt", "p/bin/tool"]
    assert (tree / "p/a.txt").read_bytes() == b"hello\n"
    assert [(tree / name).stat().st_mode & 0o777 for name in ("p/a.txt", "p/bin/tool")] == [0o644, 0o755]
    ((_, *files),) = synced
    scratch = Path(files[0]).parts[0]
    assert re.fullmatch(rf"tree\.part-{os.getpid()}-[0-9a-f]{{8}}", scratch)
    assert files == [f"{scratch}/tree/{name}" for name in tree_names(tree)]


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        ({"p/a": b"hullo\n"}, f"p/a,{HELLO},6\n"),
        ({"p/a": b"hello\n", "p/b": b"x"}, f"p/a,{HELLO},6\n"),
        ({"p/a": b"hello\n"}, f"p/a,{HELLO},6\np/b,{HELLO},6\n"),
        ({"p/a": b"hello\n"}, "p/a,md5=abcd,6\n"),
        ({"p/a": b"hello\n"}, "p/a,sha256=short,6\n"),
        ({"p/a": b"hello\n", "q-1.dist-info/RECORD": b""}, f"p/a,{HELLO},6\n"),
        *(({name: b"hello\n"}, f"{name},{HELLO},6\n") for name in OUTSIDE),
    ],
)
def test_record_and_files_must_agree(tmp_path: Path, told: Told, files: dict[str, bytes], lines: str) -> None:
    told(refusal(make(tmp_path, files, lines)))


@pytest.mark.parametrize(("keep", "more"), [(0, 0), (10, 0), (200, 0), (-30, 0), (38, 42)])
def test_a_truncated_wheel_and_one_with_rotten_bytes(good: Path, keep: int, more: int) -> None:
    data = good.read_bytes()
    good.write_bytes(data[:keep] + (b"\xff\xff\xff\xff" + data[more:] if more else b""))
    assert "is damaged" in refusal(good)


def test_a_link_becomes_a_plain_file(tmp_path: Path) -> None:
    wheel = make(tmp_path, {"p/link": b"hello\n"}, f"p/link,{HELLO},6\n", {"p/link": 0o120777})
    unpack_wheel(wheel, tmp_path / "tree")
    assert not (tmp_path / "tree/p/link").is_symlink()


def test_the_same_name_twice(tmp_path: Path) -> None:
    wheel = make(tmp_path, {"p/a": b"hello\n"}, f"p/a,{HELLO},6\n")
    with ZipFile(wheel, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("p/a", b"other")
    assert "p/a is there twice" in refusal(wheel)


def test_pip_is_asked_for_exactly_the_locked_file(told: Told, refused: Refused) -> None:
    """Names are those of the index; tags follow PEP 425 and PEP 600."""
    for filename in data_text("formats/wheel-names.txt").split():
        told(" ".join(tag_arguments(filename)))
    with refused(ConfigError):
        tag_arguments("cudnn.zip")


NAMES = [f"gpu_thing-1.0-{tags}.whl" for tags in data_text("formats/wheel-tags.txt").split()]

ITEM = Input.wheel("gpu-thing==1.0")


def pin(name: str) -> Pin:
    return Pin(filename=name, size=1, sha256="0" * 64)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    metadata = "Metadata-Version: 2.1\nName: gpu-thing\nVersion: 1.0\nRequires-Dist: absent\n"
    for name in NAMES:
        tags = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {name}\n"
        texts = {"METADATA": metadata, "WHEEL": tags, "RECORD": ""}
        files = {f"gpu_thing-1.0.dist-info/{file}": text.encode() for file, text in texts.items()}
        (folder / name).write_bytes(zipped(files))
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
        *(("linux-x64", pin(NAMES[number]), NAMES[number]) for number in (5, 7)),
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


FULL = ("ERROR: Could not install packages: [Errno 28] No space left on device",)


@pytest.mark.parametrize(
    ("answer", "error"),
    [(CommandError("pip failed", tail=FULL), DiskError), (Completed(0, "", ""), TransferError)],
    ids=["full disk", "no wheel"],
)
def test_what_pip_leaves_without_a_wheel_is_told(
    tmp_path: Path, refused: Refused, answer: Completed | BuilderError, error: type[BuilderError]
) -> None:
    with refused(error):
        download_wheel(FakeRunner(answers={sys.executable: answer}), ITEM, pin(NAMES[6]), tmp_path)
