"""Tests of operator tables: ranges of opsets, text and JSON."""

import json
from pathlib import Path

from builder.facts.ort.operators import Kernels, OperatorTable, ranges, text
from builder.formats.json_values import from_json, to_json
from tests.support.schemas import schema

FLOATS = {"T": ("tensor(float)", "tensor(float16)")}


def table(*kernels: Kernels, unasked: tuple[str, ...] = ()) -> OperatorTable:
    return OperatorTable(1, "1.21.0", {"ai.onnx": 22, "com.microsoft": 1}, 99, unasked, kernels)


def kernels(operator: str, since: int = 1, until: int | None = None, domain: str = "ai.onnx") -> Kernels:
    return Kernels(domain, operator, since, until, FLOATS)


def test_definitions_with_the_same_types_are_one_range() -> None:
    some, more = {"T": ["b", "a"]}, {"T": ["a", "b", "c"]}
    found = ranges("ai.onnx", "Op", {1: None, 7: some, 13: some, 14: more, 22: None})
    assert [(item.opsets, item.types["T"]) for item in found] == [
        ("7-13", ("a", "b")),
        ("14-21", ("a", "b", "c")),
    ]


def test_a_range_ends_where_a_definition_has_no_kernel_and_begins_again() -> None:
    found = ranges("ai.onnx", "Op", {1: {"T": ["a"]}, 6: None, 9: {"T": ["a"]}})
    assert [item.opsets for item in found] == ["1-5", "9+"]


def test_an_operator_without_type_parameters_has_kernels_too() -> None:
    assert [item.opsets for item in ranges("d", "Op", {2: {}})] == ["2+"]


def test_the_json_is_read_back_and_fits_its_schema(root: Path) -> None:
    made = table(kernels("Relu", 6, 12), kernels("Relu", 13), unasked=("ai.onnx.ml:ZipMap-1",))
    value = json.loads(json.dumps(to_json(made)))
    schema("inspect-operators").validate(value)
    assert list(value) == ["format", "onnxruntime", "opsets", "asked", "unasked", "kernels"]
    assert from_json(OperatorTable, value, "kept.json") == made


def test_the_text_has_a_line_for_each_range_and_says_what_was_not_asked() -> None:
    lines = text("a.whl", table(kernels("Relu", 6, 12), unasked=("ai.onnx:X-1",))).splitlines()
    assert lines[0] == "a.whl, ONNX Runtime 1.21.0: operators with CUDA kernels"
    assert "ai.onnx, opsets up to 22: 1 operators" in lines
    assert "  Relu  6-12   T: float, float16" in lines
    assert lines[-1].endswith("ai.onnx:X-1.")


def test_why_a_kernel_is_missing_names_those_that_there_are() -> None:
    asked = table(kernels("Relu", 6, 12))
    assert asked.why_missing(["BiasGelu"]) == "no CUDA kernel for BiasGelu"
    assert asked.why_missing(["Relu"]).endswith("There are some for ai.onnx 6-12 T: float, float16")
