"""Kill -9 of a command at each of its steps, in a child of the test's process."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

from tests.doubles.machine import Machine

STEPS = frozenset({"open", "os.rename", "os.symlink", "os.link", "os.mkdir", "os.remove", "os.rmdir"})
"""Audit events that change a folder; between two of them a command changes a file's content at most."""


def dies_at(step: int, place: Path, work: Callable[[], object], steps: Collection[str] = STEPS) -> bool:
    """Run ``work`` in a child that is killed before its n-th step that names ``place``.

    Returns whether it got that far.
    """
    child = os.fork()
    if child == 0:
        gc.disable()  # it would touch, and so copy, all memory of the parent
        sys.addaudithook(_killer(step, place, steps))
        status = 1
        with suppress(BaseException):
            work()
            status = 0
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, -signal.SIGKILL}
    return status != 0


def _killer(step: int, place: Path, steps: Collection[str]) -> Callable[[str, tuple[object, ...]], None]:
    left = count(step, -1)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event in steps and str(place) in str(arguments) and next(left) == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def after_each_kill(machine_of: Callable[[int], Machine], *argv: str) -> Iterator[Machine]:
    """Yield a machine after a kill at the command's first step, one after a kill at its second, and so on.

    The last one is a machine on which the command came to its end.
    """
    for step in count(1):
        machine = machine_of(step)
        died = dies_at(step, machine.prefix, partial(machine.run, *argv))
        yield machine
        if not died:
            return
