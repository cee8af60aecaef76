"""The line that moves while something is fetched."""

from __future__ import annotations

import itertools
from threading import Event

import pytest

from builder.client.install.obtain import Meter, ProgressTally, duration, spelled
from builder.errors import TransferError

MIB = 2**20


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s"), (4800, "1 h 20 min")],
)
def test_durations_are_read_at_a_glance(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_rate_and_time_left_by_hand() -> None:
    """60 MiB in 30 s are 2 MiB/s; the other 40 of 100 MiB take 20 s."""
    assert spelled(60 * MIB, 100 * MIB, 60 * MIB, 30) == " 60 % of 100.0 MiB, 2.0 MiB/s, 20 s left"


def test_what_was_there_before_does_not_count_for_the_rate() -> None:
    """10 MiB in 10 s, the other 50 came yesterday."""
    assert spelled(60 * MIB, 100 * MIB, 10 * MIB, 10) == " 60 % of 100.0 MiB, 1.0 MiB/s, 40 s left"


def test_the_end_says_how_long_it_took() -> None:
    assert spelled(100 * MIB, 100 * MIB, 100 * MIB, 50) == "100 % of 100.0 MiB, 2.0 MiB/s in 50 s"


def test_no_rate_before_it_has_settled() -> None:
    assert spelled(MIB, 100 * MIB, MIB, 1) == "  1 % of 100.0 MiB"


def test_a_line_five_times_a_second_at_most_and_always_the_last() -> None:
    written: list[str] = []
    clock = itertools.count(0.0, 0.01)
    meter = Meter(written.append, lambda: next(clock))
    for done in range(1, 101):
        meter(done * MIB, 100 * MIB)
    assert len(written) == 6, "at 0.0, 0.2, 0.4, 0.6 and 0.8 s, and at the end"
    assert written[-1].startswith("\r100 %")
    assert written[-1].endswith("\n")


def test_the_next_file_begins_anew() -> None:
    written: list[str] = []
    now = [0.0]
    meter = Meter(written.append, lambda: now[0])
    meter(10 * MIB, 10 * MIB)
    now[0] = 1000.0
    meter(MIB, 20 * MIB)
    now[0] = 1010.0
    meter(11 * MIB, 20 * MIB)
    assert "1.0 MiB/s, 9 s left" in written[-1]


def test_what_arrives_side_by_side_is_added_up_and_stops_together() -> None:
    told: list[tuple[int, int]] = []
    stop = Event()
    tally = ProgressTally(lambda done, total: told.append((done, total)), 300, stop)
    first, second = tally.of(0), tally.of(1)
    first(100, 150)
    second(30, 150)
    first(150, 150)
    assert told == [(100, 300), (130, 300), (180, 300)]
    stop.set()
    with pytest.raises(TransferError, match="another part"):
        second(60, 150)


def test_a_pause_ends_when_all_stop() -> None:
    stop = Event()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            stop.set()

    ProgressTally(lambda done, total: None, 1, stop).pausing(sleep)(60.0)
    assert slept == [1.0, 1.0, 1.0]
