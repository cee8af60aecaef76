"""Many clients that ask a server at the same time."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable

CLIENTS = 200

ENOUGH, LONGEST = 3 * CLIENTS, 8.0
"""Number of answers after which no client asks again, and seconds after which none does either."""


def crowd(ask: Callable[[int], object]) -> tuple[int, list[OSError]]:
    """Let 200 clients ask until they have enough answers; return how many they got, and the failures.

    With ``ORTPACKS_TEST_SECONDS`` they ask for this time, whatever they have got. ``ask`` gets the client's
    number.
    """
    asked_for = os.environ.get("ORTPACKS_TEST_SECONDS")
    enough, seconds = (math.inf, float(asked_for)) if asked_for else (ENOUGH, LONGEST)
    until = time.monotonic() + seconds
    answered, failed = list[int](), list[OSError]()

    def client(number: int) -> None:
        while time.monotonic() < until and len(answered) < enough:
            try:
                ask(number)
            except OSError as error:
                failed.append(error)
            else:
                answered.append(number)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(answered), failed
