"""Run an ONNX model on the GPU, or on the CPU with the reason: ``python run_model.py model.onnx``."""

from __future__ import annotations

import logging
import sys

import numpy as np
from ortpacks_runtime import open_session


def main(model: str) -> None:
    logging.basicConfig(format="%(message)s")
    session = open_session(model)
    inputs = {}
    for wanted in session.inner.get_inputs():
        shape = [size if isinstance(size, int) else 1 for size in wanted.shape]
        inputs[wanted.name] = np.zeros(
            shape, dtype=np.float32 if wanted.type == "tensor(float)" else np.int64
        )
    outputs = session.run(None, inputs)
    print("\n".join(session.report.lines()))
    print("outputs:", [output.shape for output in outputs])


if __name__ == "__main__":
    main(sys.argv[1])
