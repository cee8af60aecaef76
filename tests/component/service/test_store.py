"""Tests of the store alone: a call is kept whole or not at all, and damage is reported."""

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import apsw
import numpy as np
import orjson
import pytest
import sqlite_vec
from ortpacks_service.store import Entry, Store, StoreError

EAST, NORTH = np.array([1, 0], np.float32), np.array([0, 1], np.float32)


def test_what_cannot_be_kept_whole_is_not_kept_at_all(tmp_path: Path) -> None:
    store = Store(tmp_path, "m", 2)
    rows = np.array([EAST, NORTH])
    assert store.add([Entry("a"), Entry("b")], rows) == [1, 2]
    with pytest.raises(StoreError, match="Check the folder that --data names"):
        store.add([Entry("c"), Entry("d")], np.zeros((2, 3), np.float32))
    assert store.add([Entry("e")], rows[:1]) == [3]
    assert sorted(one["text"] for one in store.search(EAST, 9, int)) == ["a", "b", "e"]


def test_a_vector_of_zeros_costs_no_search(tmp_path: Path) -> None:
    store = Store(tmp_path, "m", 2)
    store.add([Entry("east"), Entry("nowhere"), Entry("north")], np.array([EAST, 0 * EAST, NORTH]))
    assert [one["text"] for one in store.search(EAST, 9, int)] == ["east", "north"]


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
    assert Store(tmp_path, "m", 2).search(EAST, 1, int) == []


def test_a_store_that_another_process_is_making_is_waited_for(tmp_path: Path) -> None:
    """SQLite itself does not wait before it switches a new file to a write-ahead log."""
    other = apsw.Connection(str(tmp_path / "store.sqlite"))
    other.execute("begin immediate")
    with ThreadPoolExecutor(1) as threads:
        adding = threads.submit(lambda: Store(tmp_path, "m", 2).add([Entry("x")], EAST[None]))
        wait([adding], 0.1)
        other.execute("commit")
        assert adding.result() == [1]


def test_a_store_of_the_first_version_keeps_its_texts_and_gets_keys(tmp_path: Path) -> None:
    """The statements are those of the service up to November 2026."""
    first = apsw.Connection(str(tmp_path / "store.sqlite"))
    first.enable_load_extension(True)
    first.load_extension(sqlite_vec.loadable_path())
    first.execute("""
        create table made (model text not null, dimensions integer not null);
        create table texts (id integer primary key, text text not null);
        create virtual table vectors using vec0(embedding float[2] distance_metric=cosine);
        insert into made values ('m', 2);
        insert into texts (text) values ('east'), ('north');
    """)
    for number, vector in ((1, EAST), (2, NORTH)):
        packed = sqlite_vec.serialize_float32(vector)
        first.execute("insert into vectors (rowid, embedding) values (?, ?)", (number, packed))
    first.close()
    for store in (Store(tmp_path, "m", 2), Store(tmp_path, "m", 2)):
        assert store.texts(0, 9, int) == [{"id": 1, "text": "east"}, {"id": 2, "text": "north"}]
        assert [one["text"] for one in store.search(NORTH, 9, int)] == ["north", "east"]
    store = Store(tmp_path, "m", 2)
    assert store.delete([2], []) == [2]
    assert store.add([Entry("south", "s", '{"pole":true}')], -NORTH[None]) == [3], "2 is given to no other"
    assert orjson.loads(orjson.dumps(Store(tmp_path, "m", 2).search(-NORTH, 1, int))) == [
        {"id": 3, "text": "south", "key": "s", "metadata": {"pole": True}, "score": 1}
    ]


def test_a_key_names_one_text_whatever_is_sent_again(tmp_path: Path) -> None:
    store = Store(tmp_path, "m", 2)
    rows = np.array([EAST, NORTH])
    assert store.add([Entry("a", "k"), Entry("b")], rows) == [1, 2]
    assert store.add([Entry("a", "k")], rows[:1]) == [1]
    assert store.add([Entry("c", "k")], NORTH[None]) == [1]
    assert {one["id"]: one["text"] for one in store.search(EAST, 9, int)} == {1: "c", 2: "b"}
    assert store.delete([7], ["k", "l"]) == [1]
    assert (
        [one["id"] for one in store.texts(0, 9, int)]
        == [one["id"] for one in store.search(EAST, 9, int)]
        == [2]
    )
