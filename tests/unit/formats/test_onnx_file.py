"""Tests of reading ONNX files, and of other files; the models are made by onnx."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from builder.errors import BuilderError, IntegrityError, ValidationError
from builder.formats.onnx_file import External, OnnxFile, read_onnx
from tests.support.messages import Refused, Told

OUTPUT = helper.make_tensor_value_info("o", TensorProto.FLOAT, [1])


def made(folder: Path, *, external: bool = False) -> Path:
    """Return the file of a model whose weights are in it, or in ``w.bin`` beside it."""
    weights = numpy_helper.from_array(np.ones(1000, np.float32), "w")
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1000])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1000])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [value], [result], [weights])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=external, location="w.bin", size_threshold=10)
    return path


def branching(
    folder: Path,
    branch: onnx.GraphProto,
    functions: Sequence[onnx.FunctionProto] = (),
    opsets: Sequence[onnx.OperatorSetIdProto] = (),
) -> Path:
    """Return the file of a model with one node If, whose branches are ``branch``."""
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph([node], "g", [condition], [helper.make_tensor_value_info("y", 1, [1])])
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, functions=functions, opset_imports=opsets or None), path)
    return path


def referring(folder: Path, field: str, value: str) -> Path:
    """Return a model with external data, one field of whose reference has another value."""
    path = made(folder, external=True)
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == field:
            entry.value = value
    path.write_bytes(model.SerializeToString())
    return path


def test_operators_of_branches_and_functions_are_read_and_functions_are_none(tmp_path: Path) -> None:
    ours, theirs = ("mine.Own", "Own"), ("com.example", "Theirs")
    nodes = [helper.make_node(name, ["x"], ["o"], domain=domain) for domain, name in (ours, theirs)]
    branch = helper.make_graph(nodes, "b", [], [OUTPUT])
    opsets = [helper.make_opsetid(domain, 1) for domain in ("", ours[0], theirs[0])]
    body = [helper.make_node("Relu", ["a"], ["b"])]
    function = helper.make_function(*ours, ["a"], ["b"], body, opsets)
    path = branching(tmp_path, branch, [function], opsets)
    assert read_onnx(path).operators == {"ai.onnx": ("If", "Relu"), "com.example": ("Theirs",)}


def test_a_domain_that_only_a_function_imports_has_that_function_s_opset(tmp_path: Path) -> None:
    node = helper.make_node("Gelu", ["a"], ["b"], domain="com.microsoft")
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    function = helper.make_function("mine", "Own", ["a"], ["b"], [node], imports)
    branch = helper.make_graph([helper.make_node("Own", ["c"], ["o"], domain="mine")], "b", [], [OUTPUT])
    path = branching(
        tmp_path, branch, [function], [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    )
    assert read_onnx(path).opsets == {"ai.onnx": 17, "mine": 1, "com.microsoft": 1}


def test_a_model_of_onnx_runtime_s_own_format_is_taken(tmp_path: Path) -> None:
    """ONNX Runtime itself writes it."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(made(tmp_path)), options, providers=["CPUExecutionProvider"])
    assert read_onnx(tmp_path / "model.ort") == OnnxFile({}, {}, ())


def test_external_data_is_read_and_has_to_be_there_whole(tmp_path: Path, told: Told) -> None:
    path = made(tmp_path, external=True)
    found = read_onnx(path)
    assert (found.opsets, found.operators) == ({"ai.onnx": 17, "com.microsoft": 1}, {"ai.onnx": ("Add",)})
    assert found.external == (External("w", "w.bin", 4000),)
    (tmp_path / "w.bin").write_bytes(bytes(3999))
    with pytest.raises(IntegrityError) as cut:
        read_onnx(path)
    told(cut.value)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ValidationError) as gone:
        read_onnx(path)
    told(gone.value)


def test_external_data_of_a_branch_is_found(tmp_path: Path) -> None:
    tensor = TensorProto(name="inner", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="gone.bin")
    branch = helper.make_graph([helper.make_node("Identity", ["inner"], ["o"])], "b", [], [OUTPUT], [tensor])
    with pytest.raises(ValidationError, match=r"'inner' lie in 'gone\.bin'"):
        read_onnx(branching(tmp_path, branch))


@pytest.mark.parametrize("kept", [3, 100, 2000, -1])
def test_a_model_cut_short_is_told_from_what_is_none(tmp_path: Path, kept: int) -> None:
    path = made(tmp_path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(IntegrityError, match=r"is an ONNX model cut short.* Fetch it again"):
        read_onnx(path)


@pytest.mark.parametrize(
    "data",
    [
        b"hello world\n" * 9,
        b"PK\x03\x04" + bytes(99),
        b"<!DOCTYPE html>",
        b"version https://git-lfs.github.com/",
    ],
    ids=["text", "zip", "page", "pointer"],
)
def test_other_files_are_no_models(tmp_path: Path, data: bytes, refused: Refused) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    with refused(ValidationError):
        read_onnx(tmp_path / "m.onnx")


@pytest.mark.parametrize("name", ["gone", "empty", "folder", "pi\npe", "n" * 4000])
def test_what_is_no_file_with_bytes_is_a_message_and_no_wait(tmp_path: Path, name: str, told: Told) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pi\npe")
    with pytest.raises(IntegrityError if name == "empty" else ValidationError) as caught:
        read_onnx(tmp_path / name)
    told(str(caught.value).replace("n" * 4000, "n…"))


@pytest.mark.parametrize(
    ("field", "value"),
    [("location", "n" * 4000), ("location", "a\0b\n"), ("location", "."), ("offset", "9" * 19)],
    ids=["a long name", "a name with zeros", "this folder", "an offset"],
)
def test_references_may_be_anything(tmp_path: Path, field: str, value: str, told: Told) -> None:
    with pytest.raises((ValidationError, IntegrityError)) as caught:
        read_onnx(referring(tmp_path, field, value))
    told(caught.value)


def test_an_offset_that_is_no_number_says_nothing_of_the_size(tmp_path: Path) -> None:
    path = referring(tmp_path, "offset", "²")
    assert read_onnx(path).external == (External("w", "w.bin", None),)


def test_graphs_in_graphs_have_no_depth_that_is_too_much(tmp_path: Path) -> None:
    """The depth exceeds Python's recursion limit; ONNX Runtime refuses such a model itself."""
    graph = b""
    for _ in range(5000):
        for key in (b"\x32", b"\x2a", b"\x0a"):  # AttributeProto.g, NodeProto.attribute, GraphProto.node
            graph = key + _varint(len(graph)) + graph
    path = tmp_path / "deep.onnx"
    path.write_bytes(b"\x08\x08\x3a" + _varint(len(graph)) + graph)
    assert read_onnx(path).external == ()


def _varint(number: int) -> bytes:
    groups = [number >> at & 0x7F for at in range(0, max(1, number.bit_length()), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def test_any_bytes_are_a_message(tmp_path: Path) -> None:
    whole = made(tmp_path).read_bytes()
    path = tmp_path / "m.onnx"
    chance = np.random.default_rng(13)
    for _ in range(500):
        data = bytearray(whole[:200])
        data[chance.integers(200)] = chance.integers(256)
        path.write_bytes(bytes(data))
        with pytest.raises(BuilderError):
            read_onnx(path)
