"""Run an ONNX model on the GPU, or on the CPU with the reason: ``python run_model.py model.onnx``."""

from __future__ import annotations

import logging
import sys

from ortpacks_runtime import open_session


def main(model: str) -> None:
    logging.basicConfig(format="%(message)s")
    session = open_session(model)
    inputs = session.example_inputs()
    outputs = session.run(None, inputs)
    print("\n".join(session.report.lines()))
    print("outputs:", [output.shape for output in outputs])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python run_model.py MODEL.onnx")
    main(sys.argv[1])
