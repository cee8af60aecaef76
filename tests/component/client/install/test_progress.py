"""Tests of the progress line of downloads."""

from __future__ import annotations

import io
import itertools
from http.client import HTTPMessage, HTTPResponse
from pathlib import Path
from typing import cast
from urllib.response import addinfourl

import pytest

from builder.client.output import Meter, duration, progress_line
from builder.files.download import WantedFile, fetch
from builder.files.http_client import Web

MIB = 2**20


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s"), (4800, "1 h 20 min")],
)
def test_durations_are_read_at_a_glance(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("done", "since", "seconds", "line"),
    [
        (60, 60, 30, " 60 % of 100.0 MiB, 2.0 MiB/s, 20 s left"),  # the other 40 MiB take 20 s
        (60, 10, 10, " 60 % of 100.0 MiB, 1.0 MiB/s, 40 s left"),  # 50 MiB were there before
        (100, 100, 50, "100 % of 100.0 MiB, 2.0 MiB/s in 50 s"),
        (1, 1, 1, "  1 % of 100.0 MiB"),  # no rate before it has settled
    ],
)
def test_rate_and_time_left_by_hand(done: int, since: int, seconds: int, line: str) -> None:
    assert progress_line(done * MIB, 100 * MIB, since * MIB, seconds) == line


def test_a_download_of_unknown_size_has_no_percentage_and_ends_its_line(tmp_path: Path) -> None:
    """A server that sends chunks gives no length, and an unsigned release no size of its client."""
    assert progress_line(60 * MIB, 0, 60 * MIB, 30) == "60.0 MiB, 2.0 MiB/s in 30 s"
    written: list[str] = []
    body = cast("HTTPResponse", addinfourl(io.BytesIO(b"x" * MIB), HTTPMessage(), "", 200))
    meter = Meter(written.append, lambda: 0.0, lambda: 80)
    web = Web(open=lambda url, headers: body, sleep=lambda seconds: None, progress=meter)
    fetch(WantedFile("http://mirror/ortpacks.pyz"), tmp_path / "part", web)
    assert written[0].strip() == "0.1 MiB", "the first 128 KiB"
    assert written[-1].strip(" \r") == "100 % of 1.0 MiB".ljust(79) + "\n"


def test_a_line_five_times_a_second_at_most_and_always_the_last() -> None:
    written: list[str] = []
    clock = itertools.count(0.0, 0.01)
    meter = Meter(written.append, lambda: next(clock), lambda: 80)
    for done in range(1, 101):
        meter(done * MIB, 100 * MIB)
    assert len(written) == 6, "at 0.0, 0.2, 0.4, 0.6 and 0.8 s, and at the end"
    assert written[-1].startswith("\r100 %")
    assert written[-1].endswith("\n")


@pytest.mark.parametrize("columns", [0, 20, 300])
def test_a_line_is_as_wide_as_the_terminal(columns: int) -> None:
    """A wider line would wrap, and each update would start a new line."""
    written: list[str] = []
    Meter(written.append, lambda: 0.0, lambda: columns)(MIB, 3000 * MIB)
    assert len(written[0]) == len("\r") + max(columns - 1, 1)
    assert "\r  0 % of 2.93 GiB".startswith(written[0].rstrip())


def test_the_next_file_begins_anew() -> None:
    written: list[str] = []
    now = [0.0]
    meter = Meter(written.append, lambda: now[0], lambda: 80)
    meter(10 * MIB, 10 * MIB)
    now[0] = 1000.0
    meter(MIB, 20 * MIB)
    now[0] = 1010.0
    meter(11 * MIB, 20 * MIB)
    assert "1.0 MiB/s, 9 s left" in written[-1]
