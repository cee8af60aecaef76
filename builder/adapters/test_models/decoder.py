"""One layer of a language model as an ONNX model: grouped-query attention, other com.microsoft operators.

Exporters for language models (onnxruntime-genai's model builder among them) write ``com.microsoft`` nodes
into the file itself, in half precision. The layer here has theirs, with weights from a fixed seed: what is
tried out is whether a package has the kernels, and computes what the stock build computes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from builder.files.atomic_write import part_file

WIDTH, HEADS, SHARED, HEAD_SIZE, LENGTH, PAST, INNER = 64, 4, 2, 16, 4, 3, 128
"""Width, heads, heads of keys and values, size of a head, tokens, tokens before them, inner width."""

_MICROSOFT = "com.microsoft"

_MAX_LENGTH = 32


def decoder(folder: Path) -> Path:
    """The model, made once and kept in ``folder``: ``hidden`` (1, 4, 64) → ``output`` of the same shape."""
    made_by = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    path = folder / f"decoder-{made_by[:16]}.onnx"
    if not path.is_file():
        with part_file(path) as file:
            file.write(_model().SerializeToString(deterministic=True))
    return path


def hidden_states() -> NDArray[np.float32]:
    """An input for it."""
    return np.random.default_rng(1).standard_normal((1, LENGTH, WIDTH)).astype(np.float32)


def _model() -> onnx.ModelProto:
    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, LENGTH, WIDTH])

    graph = helper.make_graph(
        _nodes(),
        "decoder",
        [value("hidden")],
        [value("output")],
        [numpy_helper.from_array(array, name) for name, array in _weights().items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _nodes() -> list[onnx.NodeProto]:
    def microsoft(op: str, inputs: list[str], outputs: list[str], **attributes: float) -> onnx.NodeProto:
        node = helper.make_node(op, inputs, outputs, name=op, domain=_MICROSOFT)
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        return node

    return [
        helper.make_node("Cast", ["hidden"], ["half"], name="to_half", to=TensorProto.FLOAT16),
        *(helper.make_node("MatMul", ["half", f"w_{part}"], [part], name=f"to_{part}") for part in "qkv"),
        microsoft(
            "GroupQueryAttention",
            ["q", "k", "v", "past_k", "past_v", "last", "total", "cos", "sin"],
            ["attended", "present_k", "present_v"],
            num_heads=HEADS,
            kv_num_heads=SHARED,
            do_rotary=1,
        ),
        microsoft("SkipLayerNormalization", ["attended", "half", "scale", "shift"], ["normed"], epsilon=1e-5),
        helper.make_node("MatMul", ["normed", "w_up"], ["up"], name="up"),
        microsoft("BiasGelu", ["up", "b_up"], ["inner"]),
        helper.make_node("MatMul", ["inner", "w_down"], ["down"], name="down"),
        microsoft("QuickGelu", ["down"], ["quick"], alpha=1.702),
        helper.make_node("Cast", ["quick"], ["output"], name="to_float", to=TensorProto.FLOAT),
    ]


def _weights() -> dict[str, NDArray[np.generic]]:
    random = np.random.default_rng(0)

    def half(*shape: int) -> NDArray[np.float16]:
        return np.asarray(random.standard_normal(shape) / np.sqrt(shape[-1]), np.float16)

    angles = np.outer(np.arange(_MAX_LENGTH), 1e4 ** (-np.arange(HEAD_SIZE // 2) / (HEAD_SIZE // 2)))
    keys = SHARED * HEAD_SIZE
    return {
        "w_q": half(WIDTH, WIDTH),
        "w_k": half(WIDTH, keys),
        "w_v": half(WIDTH, keys),
        "past_k": half(1, SHARED, PAST, HEAD_SIZE),
        "past_v": half(1, SHARED, PAST, HEAD_SIZE),
        "last": np.array([PAST + LENGTH - 1], np.int32),
        "total": np.array(PAST + LENGTH, np.int32),
        "cos": np.cos(angles).astype(np.float16),
        "sin": np.sin(angles).astype(np.float16),
        "scale": np.ones(WIDTH, np.float16),
        "shift": np.zeros(WIDTH, np.float16),
        "w_up": half(WIDTH, INNER),
        "b_up": half(INNER),
        "w_down": half(INNER, WIDTH),
    }
