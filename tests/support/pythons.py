"""Python interpreters of this machine, by version."""

import os
import shutil
from functools import cache
from pathlib import Path

import pytest

from tests.support import ran


def one_of(version: str) -> str:
    """Return a Python of this version; without one the test is skipped."""
    python = _found(version)
    if python is None:
        pytest.skip(f"no python{version} here, neither on PATH nor in pyenv's versions")
    return python


@cache
def _found(version: str) -> str | None:
    """Return a Python of this version from ``PATH``, else the newest of pyenv's, or ``None``.

    The path is the program's own, not that of pyenv's shim, which needs other programs.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    theirs = sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
    candidates = (shutil.which(f"python{version}"), *map(str, reversed(theirs)))
    answers = (_itself(path, version) for path in candidates if path)
    return next((answer for answer in answers if answer), None)


def _itself(path: str, version: str) -> str | None:
    """Return the program behind ``path`` if it is a Python of this version, else ``None``."""
    argv = [path, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"]
    done = ran(argv)
    said, _, program = done.stdout.strip().partition(" ")
    return program if said == version else None
