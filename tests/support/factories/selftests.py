"""What a self-test's container prints, and a bench whose models nobody runs. The lines are of real runs."""

from __future__ import annotations

import json
from pathlib import Path

from builder.pipeline.selftest import SelftestBench, SelftestTrial, Tensor
from builder.ports import Engine

NO_DRIVER = (
    "cuda_call.cc:129 ... CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version"
)

TRIALS = (
    SelftestTrial("silero_vad", Path("silero.onnx"), (Tensor("sr", "i64", (), bytes(8)),)),
    SelftestTrial("magika", Path("magika.onnx"), (Tensor("bytes", "i32", (1, 2), bytes(8)),)),
)

OUTPUTS = {"output": [0.5], "stateN": [0.25, -0.75]}

LISTING = """\
ldd /opt/p/lib/libonnxruntime.so.1
\tlinux-vdso.so.1 (0x00007fba3f87c000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007fba06c1e000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007fba3f87e000)
ldd /opt/p/lib/libonnxruntime_providers_shared.so
\tstatically linked
"""
"""By glibc 2.36's ldd; our own bridge needs nothing."""


def answer(**changes: object) -> str:
    """A line of the smoke program's on a machine without a driver."""
    good = {
        "version": "1.21.0",
        "providers": ["CUDAExecutionProvider", "CPUExecutionProvider"],
        "cuda": {"ok": False, "message": NO_DRIVER},
        "provider": "cpu",
        "outputs": OUTPUTS,
    }
    return json.dumps({**good, **changes}) + "\n"


def printed(**changes: object) -> str:
    """All that a package's container prints, for ``bench``; of a good package without ``changes``."""
    return f"{LISTING}smoke\n{answer(**changes) * len(TRIALS)}"


def bench(engine: Engine) -> SelftestBench:
    """A bench on ``engine`` for which any model gives ``OUTPUTS``."""
    return SelftestBench(
        engine=engine,
        image="ortpacks/bare",
        script=Path("selftest.sh"),
        smoke=Path("smoke"),
        trials=TRIALS,
        stock_outputs=lambda model, inputs: OUTPUTS,
    )
