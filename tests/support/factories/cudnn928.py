"""cuDNN 9.28, a version without support for Maxwell, Pascal and Volta, which no variant bundles."""

from __future__ import annotations

from pathlib import Path

from builder.config.inputs import Input, Lock, Pin
from builder.io.wiring import Wiring
from tests.support import ROOT

WHEEL = Input.wheel("nvidia-cudnn-cu12==9.28.0.42")

PIN = Pin(
    filename="nvidia_cudnn_cu12-9.28.0.42-py3-none-manylinux_2_27_x86_64.whl",
    sha256="9ff58b7f36dacd0a93e89f8f2957b52466889217963701daa15e577317cfa375",
    size=716538495,
)


def libraries() -> Path:
    """Return the folder of cuDNN 9.28's libraries; the first use fetches the wheel, 717 MB."""
    store = Wiring(ROOT).store(Lock(pins={WHEEL.key: PIN}))
    return store.unpack(WHEEL) / "nvidia" / "cudnn" / "lib"
