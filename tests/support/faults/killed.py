"""Kill -9 of work in a child of the test's process at each of its steps."""

import fcntl
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


def in_a_child(work: Callable[[], object]) -> int:
    """Start ``work`` in a child of this process and return the child's number."""
    child = os.fork()
    if child == 0:
        gc.disable()  # it would touch, and so copy, all memory of the parent
        status = 1
        with suppress(BaseException):
            work()
            status = 0
        os._exit(status)
    return child


def ended(child: int) -> int:
    """Return the child's exit status, or the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def dies_at(step: int, place: Path, work: Callable[[], object], steps: Collection[str] = STEPS) -> bool:
    """Run ``work`` in a child that is killed before its n-th step that names ``place``.

    Returns whether it got that far.
    """

    def watched() -> None:
        sys.addaudithook(_at(step, place, steps, partial(os.kill, os.getpid(), signal.SIGKILL)))
        work()

    status = ended(in_a_child(watched))
    assert status in {0, -signal.SIGKILL}
    return status != 0


def _at(
    step: int, place: Path, steps: Collection[str], act: Callable[[], object]
) -> Callable[[str, tuple[object, ...]], None]:
    left = count(step, -1)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event in steps and str(place) in str(arguments) and next(left) == 1:
            act()

    return watch


def meets_at(
    step: int, place: Path, lock: Path, work: Callable[[], object], other: Callable[[], object]
) -> bool:
    """Run ``work`` in a child, and before its n-th step that names ``place`` begin ``other`` in another one.

    Where nobody holds ``lock`` at that step, the step waits for the end of ``other``. Returns whether there
    was such a step. Raises ``AssertionError`` where one of them fails.
    """
    met = place.with_name(f"met-{step}")

    def together() -> None:
        ready, go = os.pipe()

        def later() -> None:
            os.close(go)
            if os.read(ready, 1):
                other()

        child = in_a_child(later)  # now, as a fork shares the locks that are held

        def meet() -> None:
            met.touch()
            held = _held(lock)
            os.write(go, b"!")
            if not held:
                os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)

        sys.addaudithook(_at(step, place, STEPS, meet))
        work()
        os.close(go)
        assert ended(child) == 0

    assert ended(in_a_child(together)) == 0
    return met.exists()


def _held(lock: Path) -> bool:
    with suppress(FileNotFoundError), lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


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
