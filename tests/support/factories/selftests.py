"""Output of a self-test's container, copied from real runs, and a bench whose models are not run."""

import json
from pathlib import Path

from builder.io.docker.engine import DockerEngine
from builder.prove.selftest import SelftestBench, SelftestTrial, Tensor
from tests.support.tables import data_text

NO_DRIVER = (
    "cuda_call.cc:129 ... CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version"
)

TRIALS = (
    SelftestTrial("silero_vad", Path("silero.onnx"), (Tensor("sr", "i64", (), bytes(8)),)),
    SelftestTrial("magika", Path("magika.onnx"), (Tensor("bytes", "i32", (1, 2), bytes(8)),)),
)

OUTPUTS = {"output": [0.5], "stateN": [0.25, -0.75]}

LISTING = data_text("rules/ldd-of-a-package.txt")
"""Output of glibc 2.36's ldd; the project's own bridge has no dependencies."""


def answer(**changes: object) -> str:
    """Return the smoke program's line on a machine without a driver; ``changes`` replace entries."""
    good = {
        "version": "1.21.0",
        "providers": ["CUDAExecutionProvider", "CPUExecutionProvider"],
        "cuda": {"ok": False, "message": NO_DRIVER},
        "provider": "cpu",
        "outputs": OUTPUTS,
    }
    return json.dumps({**good, **changes}) + "\n"


def printed(**changes: object) -> str:
    """Return the output of a package's container for ``bench``: of a good package without ``changes``."""
    return f"{LISTING}smoke\n{answer(**changes) * len(TRIALS)}"


def bench(engine: DockerEngine) -> SelftestBench:
    """Return a bench on ``engine`` for which the stock outputs of any model are ``OUTPUTS``."""
    return SelftestBench(
        engine=engine,
        image="ortpacks/bare",
        script=Path("selftest.sh"),
        smoke=Path("smoke"),
        trials=TRIALS,
        stock_outputs=lambda model, inputs: OUTPUTS,
    )
