"""Several variants at once: each goes to its end, and an interrupt ends them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from builder.errors import BuilderError, VariantsFailedError

T = TypeVar("T")


def side_by_side(roads: Mapping[str, Callable[[], T]], interrupt: Callable[[], None]) -> list[T]:
    """Walk the roads, by variant name, at once; every one goes to its end before a failure is raised.

    ``interrupt`` ends what they run when the user presses Ctrl-C. Raises ``VariantsFailedError`` with every
    failure, or a bug's own exception. A single road is walked in this thread, where Ctrl-C ends
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
    failed = {name: error for name, walk in walks.items() if (error := walk.exception()) is not None}
    told = {name: error for name, error in failed.items() if isinstance(error, BuilderError)}
    for error in failed.values():
        if error not in told.values():
            raise error
    if told:
        raise VariantsFailedError(told)
    return [walk.result() for walk in walks.values()]
