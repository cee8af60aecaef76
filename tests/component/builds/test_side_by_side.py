"""Tests of variants that are built in parallel: each one is built to its end, and every failure
is reported."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.builds.side_by_side import side_by_side
from builder.errors import CheckFailedError, CommandError, TransferError, VariantsFailedError

FAR = 10
"""Seconds after which a build that waits for another one fails."""


def fails(error: Exception) -> Callable[[], Path]:
    def road() -> Path:
        raise error

    return road


def walk(*roads: Callable[[], Path], interrupt: Callable[[], None] = lambda: None) -> list[Path]:
    names = ("legacy", "modern", "latest")
    return side_by_side(dict(zip(names, roads, strict=False)), interrupt)


def arrives(name: str) -> Callable[[], Path]:
    return lambda: Path(name)


def test_packages_come_back_in_the_order_asked_for() -> None:
    later = threading.Event()

    def first() -> Path:
        assert later.wait(FAR)
        return Path("first")

    def second() -> Path:
        later.set()
        return Path("second")

    assert walk(first, second) == [Path("first"), Path("second")]


def test_a_road_goes_to_its_end_although_another_fails() -> None:
    failed = threading.Event()
    arrived: list[str] = []

    def failing() -> Path:
        failed.set()
        raise CommandError("nvcc exited with 1")

    def slow() -> Path:
        assert failed.wait(FAR)
        arrived.append("modern")
        return Path("modern")

    with pytest.raises(VariantsFailedError, match="legacy: nvcc exited with 1"):
        walk(failing, slow)
    assert arrived == ["modern"]


def test_one_failure_is_told_under_its_variants_name() -> None:
    error = CheckFailedError("1 error", ["error A001"])
    with pytest.raises(VariantsFailedError) as caught:
        walk(arrives("legacy"), fails(error))
    assert caught.value.failures == {"modern": error}
    assert caught.value.exit_code == 6
    assert str(caught.value) == "modern: 1 error\nerror A001"


def test_a_single_road_is_walked_here_and_its_failure_needs_no_name() -> None:
    walked: list[threading.Thread] = []

    def failing() -> Path:
        walked.append(threading.current_thread())
        raise CommandError("nvcc exited with 1")

    with pytest.raises(CommandError) as caught:
        walk(failing)
    assert str(caught.value) == "nvcc exited with 1"
    assert walked == [threading.main_thread()]


def test_several_failures_are_told_together_with_the_first_ones_exit_code() -> None:
    first, second = TransferError("offline"), CheckFailedError("1 error", ["error A001"])
    with pytest.raises(VariantsFailedError) as caught:
        walk(fails(first), arrives("latest"), fails(second))
    assert list(caught.value.failures.values()) == [first, second]
    assert caught.value.exit_code == 10
    assert str(caught.value) == "legacy: offline\n\nlatest: 1 error\nerror A001"


@pytest.mark.parametrize("bug_first", [True, False])
def test_a_bug_is_not_hidden_behind_a_message(bug_first: bool) -> None:
    bug, told = ZeroDivisionError("a bug of ours"), CommandError("nvcc exited with 1")
    failures = (bug, told) if bug_first else (told, bug)
    with pytest.raises(ZeroDivisionError, match="a bug of ours"):
        walk(*(fails(error) for error in failures))


def test_a_road_that_is_interrupted_interrupts() -> None:
    def interrupted() -> Path:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        walk(interrupted, arrives("modern"))


def test_ctrl_c_ends_what_the_roads_run_and_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    ended: list[str] = []

    def compiling() -> Path:
        assert told.wait(FAR)
        ended.append("legacy")
        raise KeyboardInterrupt

    def pressed(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("builder.builds.side_by_side.wait", pressed)
    with pytest.raises(KeyboardInterrupt):
        walk(compiling, arrives("modern"), interrupt=told.set)
    assert ended == ["legacy"]
