"""Tests of comparing a release with its local files, and of the steps that make them equal."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.files.digest import LocalFile
from builder.publish.assets import Asset, AssetStatus, compare, converge, is_complete, matches, render_table
from tests.support.messages import Told

A, B = "a" * 64, "b" * 64


def local(name: str, size: int = 10, sha256: str = A) -> LocalFile:
    return LocalFile(Path("dist") / name, size, sha256)


def remote(name: str, size: int = 10, digest: str | None = f"sha256:{A}", state: str = "uploaded") -> Asset:
    return Asset(name, size, digest, state, id=1)


@pytest.mark.parametrize(
    ("asset", "status"),
    [
        (remote("x"), AssetStatus.EQUAL),
        (remote("x", digest=None), AssetStatus.DIFFERS),
        (remote("x", digest=f"sha256:{B}"), AssetStatus.DIFFERS),
        (remote("x", size=9), AssetStatus.DIFFERS),
        (remote("x", size=9, digest=None), AssetStatus.DIFFERS),
        (remote("x", state="starter"), AssetStatus.BROKEN),
        (remote("x", state="open"), AssetStatus.BROKEN),
        (remote("y"), AssetStatus.MISSING),
    ],
)
def test_how_one_file_stands(asset: Asset, status: AssetStatus) -> None:
    rows = {row.name: row.status for row in compare([local("x")], [asset])}
    assert rows["x"] is status


def test_right_bytes_that_are_not_uploaded_yet_do_not_count() -> None:
    assert matches(remote("x"), local("x"))
    assert not matches(remote("x", state="open"), local("x"))


def test_equal_sides_need_no_step() -> None:
    rows = compare([local("x")], [remote("x")])
    assert is_complete(rows)
    assert converge(rows) == ([], [])


def test_each_gap_gets_its_steps_and_a_row_with_its_mark(told: Told) -> None:
    files = [local("package.tar.zst", 1_234_567), local("new", 5), local("differs"), local("half")]
    assets = [
        remote("package.tar.zst", 1_234_567),
        remote("differs", digest=f"sha256:{B}"),
        remote("half", size=0, digest=None, state="starter"),
        remote("extra"),
    ]
    rows = compare(files, assets)
    told("\n".join(render_table(rows)))
    deletes, uploads = converge(rows)
    told("\n".join(f"{asset.name}: {reason}" for asset, reason in deletes))
    assert [asset.name for asset, _ in deletes] == ["differs", "extra", "half"]
    assert [file.name for file in uploads] == ["differs", "half", "new"]


def test_checksums_signature_and_index_go_up_last() -> None:
    names = ["index.json", "targets.json", "zebra.tar.zst", "SHA256SUMS", "ant.tar.zst", "ortpacks.pyz"]
    last = ["ant.tar.zst", "ortpacks.pyz", "zebra.tar.zst", "SHA256SUMS", "targets.json", "index.json"]
    _, uploads = converge(compare([local(name) for name in names], []))
    assert [file.name for file in uploads] == last


_names = st.sampled_from(["a", "b", "c", "index.json", "SHA256SUMS"])

_files = st.dictionaries(_names, st.tuples(st.sampled_from([1, 2]), st.sampled_from([A, B])))

_assets = st.dictionaries(
    _names,
    st.tuples(
        st.sampled_from([1, 2]),
        st.sampled_from([f"sha256:{A}", f"sha256:{B}", None]),
        st.sampled_from(["uploaded", "starter"]),
    ),
)


@given(files=_files, assets=_assets)
def test_doing_the_steps_always_makes_both_sides_equal(
    files: dict[str, tuple[int, str]], assets: dict[str, tuple[int, str | None, str]]
) -> None:
    here = [local(name, *value) for name, value in files.items()]
    there = {name: remote(name, *value) for name, value in assets.items()}
    deletes, uploads = converge(compare(here, there.values()))
    for asset, _ in deletes:
        del there[asset.name]
    for file in uploads:
        assert file.name not in there, "an upload over an existing name is a 422"
        there[file.name] = remote(file.name, file.size, file.digest)
    assert is_complete(compare(here, there.values()))
    assert set(there) == set(files)
