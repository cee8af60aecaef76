"""Several variants at once: each goes to its end, and an interrupt ends them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from builder.errors import BuilderError

T = TypeVar("T")


def side_by_side(roads: Mapping[str, Callable[[], T]], interrupt: Callable[[], None]) -> list[T]:
    """Walk the roads, by variant name, at once; every one goes to its end before a failure is raised.

    ``interrupt`` ends what they run when the user presses Ctrl-C. Raises the first failure's class with the
    messages of all, each under its variant's name. A single road is walked in this thread, where Ctrl-C ends
    it at once.
    """
    if len(roads) == 1:
        return [road() for road in roads.values()]
    with ThreadPoolExecutor(max_workers=len(roads)) as pool:
        walks = {name: pool.submit(road) for name, road in roads.items()}
        try:
            wait(walks.values())
        except KeyboardInterrupt:
            interrupt()
            raise
    failures = {name: error for name, walk in walks.items() if (error := walk.exception()) is not None}
    if failures:
        raise _together(failures)
    return [walk.result() for walk in walks.values()]


def _together(failures: Mapping[str, BaseException]) -> BaseException:
    unknown = [error for error in failures.values() if not isinstance(error, BuilderError)]
    if unknown:
        return unknown[0]
    first = next(iter(failures.values()))
    first.args = ("\n\n".join(f"{name}: {error}" for name, error in failures.items()),)
    return first
