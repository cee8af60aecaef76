"""What the scripts that ask a native library share: loading it, calling it, and one line of JSON.

A script runs in a process of its own, because a driver's library can hang, crash or hold the GPU.
"""

import ctypes
import json
import signal
import sys
from collections.abc import Callable

LONGEST = 60
"""Seconds after which a script ends by itself, should the process that asked be gone."""


class CallError(Exception):
    """A call returned a code other than 0, or the library lacks it. ``args``: call, the code's name, code."""


def load(names: "list[str]") -> "ctypes.CDLL":
    """The first that is there; ``FileNotFoundError`` when none is, ``OSError`` when it cannot be loaded."""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:  # noqa: PERF203 a handful of names
            if not absent(name, str(error)):
                raise OSError(str(error)) from error
    raise FileNotFoundError(f"none of {', '.join(names)} is there")


def absent(name: str, reason: str) -> bool:
    """Whether the loader did not find ``name`` itself, and not something that it needs."""
    about = name in reason and "needed by" not in reason
    return about and ("No such file" in reason or "Could not find module" in reason)


def known(ask: "Callable[..., object]", *arguments: object) -> object:
    """What ``ask`` returns; ``None`` where the library does not say."""
    try:
        return ask(*arguments)
    except CallError:
        return None


def answer(ask: "Callable[[ctypes.CDLL], dict[str, object]]") -> None:
    """Print what ``ask`` says of the first library among the arguments that is there.

    A line of JSON; ``{"missing": why}`` and ``{"unloadable": why}`` where no library could be asked.
    """
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        said = ask(load(sys.argv[1:]))
    except FileNotFoundError as error:
        said = {"missing": str(error)}
    except OSError as error:
        said = {"unloadable": str(error)}
    print(f"\n{json.dumps(said)}")  # noqa: T201 the parent reads that line
