"""Processes that begin as forks of one that has all modules: a new Python would need ten times as long."""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from builder.client.probe.processes import ProcessAnswer, Work, worker

FORK = multiprocessing.get_context("forkserver")
"""The context of these processes, which have one server."""

FORK.set_forkserver_preload(["tests.support.preloaded"])


def begin_anew(argv: Sequence[str], env: Mapping[str, str], stdout: Path, stderr: Path) -> None:
    """Give this process the arguments, the environment and the outputs of a program that has just begun."""
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # it was asked for in another environment
    sys.argv = list(argv)
    for number, place in enumerate((stdout, stderr), start=1):
        os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)


def forked_pip(env: Mapping[str, str]) -> Work:
    """Return what ``worker`` returns, for the real pip, whose modules are loaded when its process begins."""
    real = worker(env)

    def work(argv: Sequence[str], folder: Path) -> ProcessAnswer:
        if argv[0] != sys.executable:
            return real(argv, folder)
        with tempfile.TemporaryDirectory() as said:
            outputs = Path(said, "stdout"), Path(said, "stderr")
            here = {**env, "TMPDIR": str(folder)}
            process = FORK.Process(target=_interpret, args=(list(argv), here, *outputs))
            process.start()
            process.join()
            assert process.exitcode is not None
            return ProcessAnswer(process.exitcode, *(place.read_text() for place in outputs))

    return work


def _interpret(argv: Sequence[str], env: Mapping[str, str], stdout: Path, stderr: Path) -> None:
    _, flag, program, *arguments = argv
    assert flag == "-c"
    begin_anew([flag, *arguments], env, stdout, stderr)
    exec(program, {"__name__": "__main__"})  # noqa: S102 the client's own program
