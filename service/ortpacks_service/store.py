"""This module stores texts and their vectors on disk, and finds the nearest ones.

It uses SQLite with sqlite-vec.

SQLite comes with apsw, since the ``sqlite3`` of many Pythons (macOS', pyenv's) loads no extension.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import apsw
import numpy as np
import orjson
import sqlite_vec
from numpy.typing import NDArray

_FILE = "store.sqlite"

_BUSY_MS = 5000
"""The most milliseconds that a write waits for another process's write."""

_SCHEMA = """create table if not exists made (model text not null, dimensions integer not null);
create virtual table if not exists vectors using vec0(embedding float[{}] distance_metric=cosine);"""

_TEXTS = """create table {} (id integer primary key autoincrement, text text not null,
key text unique, metadata text);"""
"""``autoincrement`` gives the number of a deleted text to no other. ``metadata`` is JSON."""

_MOVED = """insert into newer (id, text) select id, text from texts;
drop table texts; alter table newer rename to texts;"""

_VERSION = 1
"""The store's ``user_version``. Stores of version 0 have texts and their numbers only."""


class StoreError(RuntimeError):
    """A store cannot be opened, read or written."""


Grow = Callable[[int], object]
"""What takes bytes of memory into account, and raises if there are too many."""


@dataclass(frozen=True)
class Entry:
    """A text to store."""

    text: str
    key: str | None = None
    """The client's own name for the text."""
    metadata: str | None = None
    """The JSON of an object that is returned with the text."""


class Store:
    """The texts of ``/add``. When ``add`` returns, its texts are on disk, whatever happens to the process."""

    def __init__(self, folder: Path, model: str, dimensions: int) -> None:
        """Open the store, or create it.

        Raises ``StoreError``, also for a store of another model's vectors.
        """
        self._file = folder / _FILE
        self._lock = Lock()
        with self._locked():
            folder.mkdir(parents=True, exist_ok=True)
            self._database = apsw.Connection(str(self._file))
            self._database.set_busy_timeout(_BUSY_MS)
            self._database.enable_load_extension(True)
            self._database.load_extension(sqlite_vec.loadable_path())
            self._database.enable_load_extension(False)
            self._write_ahead()
            self._database.execute("pragma synchronous = full")
            with self._database:
                self._database.execute(_SCHEMA.format(dimensions))
                self._upgrade()
                made = self._database.execute("select model, dimensions from made").get
                if made is None:
                    made = (model, dimensions)
                    self._database.execute("insert into made values (?, ?)", made)
        if made != (model, dimensions):
            there, here = (f"{name} with {count} dimensions" for name, count in (made, (model, dimensions)))
            do = "Name another folder with --data."
            raise StoreError(f"{self._file} has vectors of {there}, the service runs {here}. {do}")

    def _write_ahead(self) -> None:
        """Switch the file to a write-ahead log.

        SQLite does not wait for another process that does the same.
        """
        until = time.monotonic() + _BUSY_MS / 1000
        while time.monotonic() < until:
            with suppress(apsw.BusyError):
                self._database.execute("pragma journal_mode = wal")
                return
            time.sleep(0.01)
        raise StoreError(f"{self._file}: another process has it locked. End that, or name another --data.")

    def _upgrade(self) -> None:
        """Give a new store its table of texts, and one of an older version the columns that it lacks."""
        if self._database.pragma("user_version") >= _VERSION:
            return
        if self._database.execute("select 1 from sqlite_schema where name = 'texts'").get:
            self._database.execute(_TEXTS.format("newer") + _MOVED)
        else:
            self._database.execute(_TEXTS.format("texts"))
        self._database.pragma("user_version", _VERSION)

    def add(self, entries: Sequence[Entry], vectors: NDArray[np.float32]) -> list[int]:
        """Store texts and their vectors and return their numbers.

        A text with a key replaces that with the same key, and has its number. Raises ``StoreError``, and then
        stores none.
        """
        with self._locked(), self._database:
            numbers = [self._put(entry, vector) for entry, vector in zip(entries, vectors, strict=True)]
        return numbers  # noqa: RET504 - the commit comes before the return

    def _put(self, entry: Entry, vector: NDArray[np.float32]) -> int:
        number: Any = self._database.execute(
            "insert into texts (text, key, metadata) values (?, ?, ?) on conflict (key) do update set "
            "text = excluded.text, metadata = excluded.metadata returning id",
            (entry.text, entry.key, entry.metadata),
        ).get
        packed = sqlite_vec.serialize_float32(vector)
        self._database.execute("delete from vectors where rowid = ?", (number,))
        self._database.execute("insert into vectors (rowid, embedding) values (?, ?)", (number, packed))
        return int(number)

    def delete(self, ids: Sequence[int], keys: Sequence[str]) -> list[int]:
        """Delete the texts with these numbers or keys, and return the numbers of those that were there."""
        with self._locked(), self._database:
            deleted: list[Any] = [
                number
                for column, values in (("id", ids), ("key", keys))
                for value in values
                for (number,) in self._database.execute(
                    f"delete from texts where {column} = ? returning id",  # noqa: S608 - one of two names
                    (value,),
                ).fetchall()
            ]
            for number in deleted:
                self._database.execute("delete from vectors where rowid = ?", (number,))
        return deleted

    def texts(self, after: int, count: int, grow: Grow) -> list[dict[str, Any]]:
        """Return at most ``count`` texts with numbers above ``after``, in their order."""
        where = "from texts where id > ? order by id limit ?"
        return [found for found, _ in self._read(f"null {where}", (after, count), grow)]

    def search(self, vector: NDArray[np.float32], count: int, grow: Grow) -> list[dict[str, Any]]:
        """Return the ``count`` nearest texts, nearest first, each with the cosine of its angle as score.

        A vector of zeros, which stores may have from before these were refused, has no distance.
        """
        where = (
            "distance from vectors join texts on texts.id = vectors.rowid where embedding match ? and k = ? "
            "order by distance"
        )
        rows = self._read(where, (sqlite_vec.serialize_float32(vector), count), grow)
        return [{**found, "score": 1 - float(away)} for found, away in rows if away is not None]

    def _read(self, rest: str, values: tuple[Any, ...], grow: Grow) -> list[tuple[dict[str, Any], Any]]:
        """Return texts, each with one more column. ``grow`` gets the memory that each and its JSON take."""
        found = []
        with self._locked():
            for *row, more in self._database.execute(f"select id, text, key, metadata, {rest}", values):
                grow(2 * sum(map(sys.getsizeof, row)))
                found.append((_described(*row), more))
        return found

    def require_room(self) -> None:
        """Raise ``StoreError`` if the store cannot be written."""
        with self._locked(), self._database:
            self._database.pragma("user_version", _VERSION)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one caller in at a time, and raise errors of SQLite and the disk as ``StoreError``."""
        try:
            with self._lock:
                yield
        except (apsw.Error, OSError) as error:
            raise StoreError(f"{self._file}: {error}. Check the folder that --data names.") from error


def _described(number: int, text: str, key: str | None, metadata: str | None) -> dict[str, Any]:
    """Return a text for ``orjson``; what it was not given is left out."""
    given = {"id": number, "text": text, "key": key, "metadata": metadata and orjson.Fragment(metadata)}
    return {name: value for name, value in given.items() if value is not None}
