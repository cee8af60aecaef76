"""Tests of the store alone: a call is kept whole or not at all, and damage is reported."""

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import apsw
import numpy as np
import pytest
from ortpacks_service.store import Store, StoreError

EAST, NORTH = np.array([1, 0], np.float32), np.array([0, 1], np.float32)


def test_what_cannot_be_kept_whole_is_not_kept_at_all(tmp_path: Path) -> None:
    store = Store(tmp_path, "m", 2)
    rows = np.array([EAST, NORTH])
    assert store.add(["a", "b"], rows) == [1, 2]
    with pytest.raises(StoreError, match="Check the folder that --data names"):
        store.add(["c", "d"], np.zeros((2, 3), np.float32))
    assert store.add(["e"], rows[:1]) == [3]
    assert sorted(one["text"] for one in store.search(EAST, 9)) == ["a", "b", "e"]


def test_a_vector_of_zeros_costs_no_search(tmp_path: Path) -> None:
    store = Store(tmp_path, "m", 2)
    store.add(["east", "nowhere", "north"], np.array([EAST, 0 * EAST, NORTH]))
    assert [one["text"] for one in store.search(EAST, 9)] == ["east", "north"]


@pytest.mark.parametrize(
    "damaged", [b"no database at all, but some text" * 40, b"SQLite format 3\0" + bytes(40)]
)
def test_a_damaged_file_is_told_and_left_alone(tmp_path: Path, damaged: bytes) -> None:
    file = tmp_path / "store.sqlite"
    file.write_bytes(damaged)
    with pytest.raises(StoreError, match=r"store\.sqlite: "):
        Store(tmp_path, "m", 2)
    assert file.read_bytes() == damaged


def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").touch()
    assert Store(tmp_path, "m", 2).search(EAST, 1) == []


def test_a_store_that_another_process_is_making_is_waited_for(tmp_path: Path) -> None:
    """SQLite itself does not wait before it switches a new file to a write-ahead log."""
    other = apsw.Connection(str(tmp_path / "store.sqlite"))
    other.execute("begin immediate")
    with ThreadPoolExecutor(1) as threads:
        adding = threads.submit(lambda: Store(tmp_path, "m", 2).add(["x"], EAST[None]))
        wait([adding], 0.1)
        other.execute("commit")
        assert adding.result() == [1]
