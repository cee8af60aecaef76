"""Tests of unpacking wheels: each file is compared with RECORD, and no file is outside the tree
or incomplete."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest

from builder.errors import IntegrityError
from builder.io.wheel import unpack_wheel
from tests.support.messages import Told

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


def test_every_file_is_there_with_its_mode(good: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    unpack_wheel(good, tree)
    assert tree_names(tree) == [RECORD, "p/a.txt", "p/bin/tool"]
    assert (tree / "p/a.txt").read_bytes() == b"hello\n"
    assert stat.S_IMODE((tree / "p/bin/tool").stat().st_mode) == 0o755
    assert stat.S_IMODE((tree / "p/a.txt").stat().st_mode) == 0o644


def test_every_byte_is_on_disk_before_the_tree_has_its_name(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[list[str]] = []
    monkeypatch.setattr(os, "sync", lambda: synced.append(tree_names(tmp_path)))
    unpack_wheel(good, tmp_path / "tree")
    ((wheel, *files),) = synced
    scratch = Path(files[0]).parts[0]
    assert re.fullmatch(rf"tree\.part-{os.getpid()}-[0-9a-f]{{8}}", scratch)
    assert (wheel, files) == (
        good.name,
        [f"{scratch}/tree/{name}" for name in (RECORD, "p/a.txt", "p/bin/tool")],
    )


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


@pytest.mark.parametrize("keep", [0, 10, 200, -30])
def test_a_truncated_wheel(good: Path, keep: int) -> None:
    good.write_bytes(good.read_bytes()[:keep])
    assert "is damaged" in refusal(good)


def test_rotten_bytes_in_the_middle(good: Path) -> None:
    data = bytearray(good.read_bytes())
    data[38:42] = b"\xff\xff\xff\xff"
    good.write_bytes(data)
    assert refusal(good)


def test_a_link_becomes_a_plain_file(tmp_path: Path) -> None:
    wheel = make(tmp_path, {"p/link": b"hello\n"}, f"p/link,{HELLO},6\n", {"p/link": 0o120777})
    unpack_wheel(wheel, tmp_path / "tree")
    assert not (tmp_path / "tree/p/link").is_symlink()


def test_the_same_name_twice(tmp_path: Path) -> None:
    wheel = make(tmp_path, {"p/a": b"hello\n"}, f"p/a,{HELLO},6\n")
    with ZipFile(wheel, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("p/a", b"other")
    assert "p/a is there twice" in refusal(wheel)
