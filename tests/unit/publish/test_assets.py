"""Tests of comparing a release with its local files, and of the steps that make them equal."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from builder.files.digest import LocalFile
from builder.publish.assets import Asset, compare, converge, is_complete, render_table
from tests.support.messages import Told

A, B = "a" * 64, "b" * 64


def local(name: str, size: int = 10, sha256: str = A) -> LocalFile:
    return LocalFile(Path("dist") / name, size, sha256)


def remote(name: str, size: int = 10, digest: str | None = f"sha256:{A}", state: str = "uploaded") -> Asset:
    return Asset(name, size, digest, state, id=1)


def test_each_gap_gets_its_steps_and_a_row_with_its_mark(told: Told) -> None:
    small = [local(name) for name in ("new", "differs", "half", "shorter", "unstated")]
    assets = [
        remote("package.tar.zst", 1_234_567),
        remote("differs", digest=f"sha256:{B}"),
        remote("half", state="starter"),
        remote("shorter", size=9),
        remote("unstated", digest=None),
        remote("extra"),
    ]
    rows = compare([local("package.tar.zst", 1_234_567), *small], assets)
    told("\n".join(render_table(rows)))
    deletes, uploads = converge(rows)
    assert [asset.name for asset, _ in deletes] == ["differs", "extra", "half", "shorter", "unstated"]
    assert [file.name for file in uploads] == ["differs", "half", "new", "shorter", "unstated"]


_names = st.sampled_from(["a", "b", "index.json", "SHA256SUMS"])

_sizes, _digests = st.sampled_from([1, 2]), st.sampled_from([A, B])

_files = st.dictionaries(_names, st.tuples(_sizes, _digests))

_states = st.sampled_from(["uploaded", "starter"])

_assets = st.dictionaries(_names, st.tuples(_sizes, _digests.map("sha256:{}".format) | st.none(), _states))


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
