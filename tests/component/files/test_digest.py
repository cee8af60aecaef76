"""Tests of the digest that another thread computes: it is that of hashlib, whatever the chunks are."""

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from builder.files.digest import Digest, RunningDigest

DATA = random.Random(3).randbytes(3_000_000)  # noqa: S311 any bytes do

WHOLE = Digest(len(DATA), hashlib.sha256(DATA).hexdigest())


@pytest.mark.parametrize("step", [7_001, 3_000_000])
def test_another_thread_hashes_the_same(step: int) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = RunningDigest(pool)
        for start in range(0, len(DATA), step):
            running.put(start, DATA[start : start + step])
        assert running.digest == running.digest == WHOLE


def test_a_download_that_starts_over_is_hashed_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(DATA)
    with ThreadPoolExecutor(1) as pool:
        running = RunningDigest(pool)
        for start in (*range(0, 900_000, 100_000), *range(0, 700_000, 100_000)):
            running.put(start, DATA[start : start + 100_000])
        assert running.digest == Digest(700_000, hashlib.sha256(DATA[:700_000]).hexdigest())
        assert running.rest(tmp_path / "part") == WHOLE


def test_chunks_do_not_pile_up_before_a_slow_thread() -> None:
    pool = Mock()
    running = RunningDigest(pool)
    for _ in range(100):
        running.update(b"x")
    waited_for = pool.submit.return_value.result.call_count
    assert (pool.submit.call_count, waited_for) == (25, 21), "four batches of four chunks wait"
