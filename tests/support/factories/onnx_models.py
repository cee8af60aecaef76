"""Factory of small ONNX models from onnx's textual syntax."""

from pathlib import Path

import onnx
import onnx.parser

MATRIX = """matrix (float[batch, 4] x) => (float[batch, 2] y)
    <float[4, 2] w = {0, 1, 2, 3, 4, 5, 6, 7}> { y = MatMul (x, w) }"""
"""The graph ``y = x @ w`` for any number of rows of four values."""


def onnx_model(graph: str, opsets: str = '"" : 13') -> onnx.ModelProto:
    """Return the model of a graph in onnx's textual syntax."""
    return onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{opsets}]> {graph}")


def write_model(path: Path, graph: str, opsets: str = '"" : 13') -> Path:
    """Write the model of a graph and its folder; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx_model(graph, opsets), path)
    return path
