"""Many clients that ask a server at the same time."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable

CLIENTS, SECONDS = 200, int(os.environ.get("ORTPACKS_TEST_SECONDS", "8"))


def crowd(ask: Callable[[int], object]) -> tuple[int, list[OSError]]:
    """Let 200 clients ask for 8 seconds, or ``ORTPACKS_TEST_SECONDS``; return how often, and the failures.

    ``ask`` gets the client's number.
    """
    until = time.monotonic() + SECONDS
    answered, failed = itertools.count(), list[OSError]()

    def client(number: int) -> None:
        while time.monotonic() < until:
            try:
                ask(number)
            except OSError as error:
                failed.append(error)
            else:
                next(answered)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next(answered), failed
