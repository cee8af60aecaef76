"""This module stores texts and their vectors on disk, and finds the nearest ones.

It uses SQLite with sqlite-vec.

SQLite comes with apsw, since the ``sqlite3`` of many Pythons (macOS', pyenv's) loads no extension.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import apsw
import numpy as np
import sqlite_vec
from numpy.typing import NDArray

_FILE = "store.sqlite"

_BUSY_MS = 5000
"""The most milliseconds that a write waits for another process's write."""

_SCHEMA = """
create table if not exists made (model text not null, dimensions integer not null);
create table if not exists texts (id integer primary key, text text not null);
create virtual table if not exists vectors using vec0(embedding float[{}] distance_metric=cosine);
"""


class StoreError(RuntimeError):
    """A store cannot be opened, read or written."""


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
                made = self._database.execute("select model, dimensions from made").get
                if made is None:
                    made = (model, dimensions)
                    self._database.execute("insert into made values (?, ?)", made)
        if made != (model, dimensions):
            raise StoreError(
                f"{self._file} has vectors of {made[0]} with {made[1]} dimensions, the service runs {model} "
                f"with {dimensions}. Name another folder with --data."
            )

    def _write_ahead(self) -> None:
        """Switch the file to a write-ahead log.

        SQLite does not wait for another process that does the same.
        """
        until = time.monotonic() + _BUSY_MS / 1000
        while not self._switched():
            if time.monotonic() > until:
                raise StoreError(
                    f"{self._file}: another process has it locked. End that, or name another --data."
                )
            time.sleep(0.01)

    def _switched(self) -> bool:
        with suppress(apsw.BusyError):
            self._database.execute("pragma journal_mode = wal")
            return True
        return False

    def add(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> list[int]:
        """Store texts and their vectors and return their numbers.

        Raises ``StoreError``, and then stores none.
        """
        with self._locked(), self._database:
            numbers = [self._insert(text, vector) for text, vector in zip(texts, vectors, strict=True)]
        return numbers  # noqa: RET504 - the commit comes before the return

    def _insert(self, text: str, vector: NDArray[np.float32]) -> int:
        self._database.execute("insert into texts (text) values (?)", (text,))
        number = self._database.last_insert_rowid()
        packed = sqlite_vec.serialize_float32(vector)
        self._database.execute("insert into vectors (rowid, embedding) values (?, ?)", (number, packed))
        return number

    def search(self, vector: NDArray[np.float32], count: int) -> list[dict[str, Any]]:
        """Return the ``count`` nearest texts, nearest first, each with the cosine of its angle as score.

        A vector of zeros, which stores may have from before these were refused, has no distance.
        """
        with self._locked():
            rows: list[tuple[Any, ...]] = self._database.execute(
                "select texts.id, texts.text, distance from vectors join texts on texts.id = vectors.rowid "
                "where embedding match ? and k = ? order by distance",
                (sqlite_vec.serialize_float32(vector), count),
            ).fetchall()
        return [
            {"id": number, "text": text, "score": 1 - float(away)}
            for number, text, away in rows
            if away is not None
        ]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one caller in at a time, and raise errors of SQLite and the disk as ``StoreError``."""
        try:
            with self._lock:
                yield
        except (apsw.Error, OSError) as error:
            raise StoreError(f"{self._file}: {error}. Check the folder that --data names.") from error
