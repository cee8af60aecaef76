"""Virtual cards for tests, with a runtime that this machine's compiler makes once a run."""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest

from builder.io.process import ProcessRunner
from builder.prove.virtualcard.sessions import (
    ALL,
    CardRuntime,
    CardSession,
    ModelToOpen,
    VirtualCard,
    open_models,
)
from tests.answers import pairs
from tests.answers.models import Model
from tests.answers.pairs import Pair
from tests.support import ROOT, ran

COMPILER = "gcc"
needs_compiler = pytest.mark.skipif(
    shutil.which(COMPILER) is None, reason=f"no {COMPILER} here: it compiles what stands in for a GPU"
)
CAPABILITIES = ("5.2", "8.6", "12.0")


@cache
def runtime() -> CardRuntime:
    """Compile the stand-in for CUDA's runtime by the script that the check tools' image uses."""
    folder = tempfile.mkdtemp(prefix="ortpacks-virtualcard-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = Path(folder) / "libvirtualcard.so"
    argv: list[str | Path] = ["sh", ROOT / "builder/prove/virtualcard/compile.sh", made]
    done = ran(argv)
    assert done.returncode == 0, done.stderr
    return CardRuntime(library=made, runner=ProcessRunner(os.environ))


def place(pair: Pair, model: Model, capability: str, level: int = ALL) -> CardSession:
    """Open ``model`` on a virtual card of ``capability``, and run the model if it ``runs_blind``."""
    feed = model.feed if model.runs_blind else None
    card = VirtualCard(capability=capability)
    asked = ModelToOpen(model=model.path, feed=feed, level=level)
    (opening,) = open_models(pair.library, [asked], card, runtime=runtime())
    return opening


def plain_environment(scratch: Path) -> dict[str, str]:
    """Return an environment with CUDA's libraries and a driver: the machine's, else one without a device.

    A provider of 1.21 with the contrib operators cannot be loaded without a ``libcuda.so.1``: see
    ``driver.c``.
    """
    env = pairs.environment()
    if pairs.has_driver():
        return env
    (scratch / "libcuda.so.1").symlink_to(runtime().library)
    return {**env, "LD_LIBRARY_PATH": f"{scratch}{os.pathsep}{env['LD_LIBRARY_PATH']}"}
