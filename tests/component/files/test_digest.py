"""Tests of the digest that another thread computes: it is that of hashlib, whatever the chunks are."""

import hashlib
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from builder.files.digest import Digest, RunningDigest, write_new

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
    with ThreadPoolExecutor(1) as pool:
        gate = threading.Event()
        pool.submit(gate.wait)
        running, taken = RunningDigest(pool), []

        def feed() -> None:
            for number in range(100):
                running.update(bytes(1000))
                taken.append(number)

        feeder = threading.Thread(target=feed)
        feeder.start()
        time.sleep(0.1)
        held = len(taken)
        gate.set()
        feeder.join(10)
    assert 0 < held <= 20
    assert running.digest == Digest(100_000, hashlib.sha256(bytes(100_000)).hexdigest())


def test_a_file_is_written_with_its_digest(tmp_path: Path) -> None:
    chunks = (DATA[start : start + 9_999] for start in range(0, len(DATA), 9_999))
    assert write_new(chunks, tmp_path / "file", 0o644) == WHOLE
    assert (tmp_path / "file").read_bytes() == DATA
