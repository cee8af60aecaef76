"""How much slower this machine is than the one for which tests have budgets of seconds."""

from __future__ import annotations

import time


def slowness() -> tuple[float, float]:
    """Return how many times longer a computation lasts here, in CPU time and on the clock; 1 at least.

    It lasts 0.05 s on the machine of the budgets. Its CPU time grows with other machines on the same cores,
    and its time on the clock with other processes too. A budget is compared with a time divided by the mean
    of the numbers before and after that.
    """
    used, began, total = time.process_time(), time.perf_counter(), 0
    for number in range(1_000_000):
        total += number
    took = time.process_time() - used, time.perf_counter() - began
    return max(1.0, took[0] / 0.05), max(1.0, took[1] / 0.05)
