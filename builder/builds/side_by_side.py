"""Tasks that run at once and fail together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from builder.errors import BuilderError, VariantsFailedError

T = TypeVar("T")


def side_by_side(builds: Mapping[str, Callable[[], T]], interrupt: Callable[[], None]) -> list[T]:
    """Run builds, or other tasks, at once by name, and return their results in order.

    Each task runs to its end before a failure is raised. ``interrupt`` ends their child processes when the
    user presses Ctrl-C. Raises ``VariantsFailedError`` with every failure, or the exception of a bug. A
    single task runs in this thread, where Ctrl-C ends it at once.
    """
    if len(builds) == 1:
        return [build() for build in builds.values()]
    with ThreadPoolExecutor(max_workers=len(builds)) as pool:
        futures = {name: pool.submit(build) for name, build in builds.items()}
        try:
            wait(futures.values())
        except KeyboardInterrupt:
            interrupt()
            raise
    failures: dict[str, BuilderError] = {}
    for name, future in futures.items():
        error = future.exception()
        if isinstance(error, BuilderError):
            failures[name] = error
        elif error is not None:
            raise error
    if failures:
        raise VariantsFailedError(failures)
    return [future.result() for future in futures.values()]
