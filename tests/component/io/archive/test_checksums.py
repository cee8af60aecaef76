"""Tests of ``SHA256SUMS``: files are merged line by line, and ``sha256sum`` itself accepts the result."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from builder.contents.integrity import parse_checksums, read_checksums, update_checksums
from builder.errors import ParseError

A, B = "a" * 64, "b" * 64


def test_checksums_are_merged_sorted_dropped_and_accepted_by_sha256sum(tmp_path: Path) -> None:
    for name in ("b.tar.zst", "a.tar.zst", "gone.tar.zst"):
        (tmp_path / name).write_text(name)
        update_checksums(tmp_path, put={name: hashlib.sha256(name.encode()).hexdigest()})
    update_checksums(tmp_path, put={}, drop=("gone.tar.zst",))
    checked = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=True, text=True
    )
    assert checked.stdout == "a.tar.zst: OK\nb.tar.zst: OK\n"
    assert set(read_checksums(tmp_path)) == {"a.tar.zst", "b.tar.zst"}


def test_a_checksum_file_somebody_broke_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  a\nnonsense\n")
    with pytest.raises(ParseError, match=r"SHA256SUMS: line 2"):
        update_checksums(tmp_path, put={})


def test_checksums_are_read_as_sha256sum_writes_them() -> None:
    assert parse_checksums(f"{A}  a\n{B}  with blanks\n{A} *bin\n") == {"a": A, "with blanks": B, "bin": A}


@pytest.mark.parametrize("line", ["", "a", f"{A} a", f"{A[:-1]}  a", f"{A.upper()}  a", f"{A}  "])
def test_a_line_that_is_none_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_checksums(f"{A}  ok\n{line}\n")
