"""Tests that a package's libraries answer onnx's backend tests like the official wheel of their version."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.answers import pairs
from tests.answers.card import needs_compiler, plain_environment
from tests.answers.cases import ONNX_WHEEL, find_cases
from tests.answers.models import models
from tests.answers.outputs import outputs
from tests.answers.packages import built, compiled
from tests.answers.pairs import Pair
from tests.answers.table import Table, ask_library, ask_wheel, differing, inexpressible
from tests.answers.verdict import PASSED
from tests.support.sentences import SIMILARITIES

pytestmark = [pytest.mark.thorough, needs_compiler]
CASES = 1428
"""Number of tests: model.onnx files below node, simple, pytorch-converted and pytorch-operator, by find."""


@pytest.fixture(scope="module")
def cases() -> list[Path]:
    return find_cases(pairs.store().unpack(ONNX_WHEEL))


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return plain_environment(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module", params=["fresh", *built()])
def pair(request: pytest.FixtureRequest) -> Pair:
    """Return the pair of the package that the tests build, then of each package in ``dist/``."""
    package = request.getfixturevalue("legacy_package") if request.param == "fresh" else request.param
    return compiled(package)


@pytest.fixture(scope="module")
def answers(pair: Pair, cases: list[Path], env: dict[str, str]) -> Table:
    return ask_library(pair, cases, env, "cuda")


@pytest.fixture(scope="module")
def official(cases: list[Path], env: dict[str, str]) -> Callable[[str], Table]:
    """Return a cached function from a version to the answers of its official libraries."""
    return cache(lambda version: ask_library(pairs.official(version), cases, env, "cuda"))


@pytest.fixture(scope="module")
def python(cases: list[Path], env: dict[str, str]) -> Callable[[str], Table]:
    """Return a cached function from a version to the answers of its official wheel by the Python API."""
    return cache(lambda version: ask_wheel(version, cases, env))


def test_the_same_answers_as_the_official_libraries(
    pair: Pair, answers: Table, official: Callable[[str], Table]
) -> None:
    assert len(answers) == CASES
    assert differing(answers, official(pair.ort_version)) == []


def test_the_same_answers_as_the_official_python_wheel(
    pair: Pair, answers: Table, python: Callable[[str], Table]
) -> None:
    if not pairs.python_can_import(pair.ort_version):
        pytest.skip("inputs.lock pins onnxruntime-gpu for another Python than this one")
    theirs = python(pair.ort_version)
    assert differing(answers, theirs) == []
    asked = [name for name in answers if not inexpressible(answers[name], theirs[name])]
    assert len(asked) > CASES * 0.95, "float8, bfloat16 and int4 have no way through numpy: nothing else"


def test_what_is_known_of_some_answers(answers: Table) -> None:
    """Expectations by hand from ONNX Runtime's sources, independent of any library.

    OperatorKernels.md has no BitShift of uint16, recurrent operators refuse layout 1, and ONNX Runtime's
    own list of failing tests (onnx_backend_test_series_filters.jsonc) has the last two.
    """
    assert answers["test_add"].said == PASSED
    assert answers["test_conv_with_strides_padding"].said == PASSED
    assert answers["test_dequantizelinear_int4"].said == PASSED
    assert answers["test_quantizelinear_int4"].said == PASSED
    assert answers["test_sequence_map_identity_1_sequence"].said == PASSED
    assert answers["test_lstm_batchwise"].said == "error: RUNTIME_EXCEPTION"
    assert answers["test_bitshift_left_uint16"].said == "error: NOT_IMPLEMENTED"
    assert answers["test_maxunpool_export_with_output_shape"].said == "wrong answer: numbers"
    assert answers["test_cast_FLOAT_to_STRING"].said == "wrong answer: strings"


def test_what_the_c_api_cannot_ask(answers: Table) -> None:
    """The C API can create neither an empty sequence nor an empty optional."""
    unasked = {name for name, answer in answers.items() if inexpressible(answer)}
    assert unasked == {"test_loop13_seq", "test_optional_has_element_empty_optional_input"}


def test_minilm_finds_sentences_as_alike_as_published(
    pair: Pair, env: dict[str, str], tmp_path: Path
) -> None:
    (minilm,) = (model for model in models() if model.name == "minilm")
    embedding = outputs(pair, minilm, "cpu", env, tmp_path)["embedding"].astype(np.float64)
    assert embedding @ embedding.T == pytest.approx(np.array(SIMILARITIES), abs=5e-5)


def test_a_difference_is_seen(official: Callable[[str], Table]) -> None:
    """ONNX Runtime 1.26 has more for the CPU than 1.21 (docs/OperatorKernels.md of each).

    It casts from and to 4-bit integers, and has DeformConv, and Min and Max of 8 bits. Six refusals have
    another code.
    """
    older, newer = map(official, ("1.21.0", "1.26.0"))
    differ = {line.partition(":")[0] for line in differing(older, newer)}
    is_new = re.compile(r"test_cast_.*INT4|test_(basic_)?deform_conv_|test_(min|max)_u?int8").match
    new = {name for name in older if is_new(name)}
    assert {name for name in differ if not newer[name].said.startswith("error")} == new
    assert (len(new), len(differ - new)) == (18, 6)


def test_a_crash_is_one_test_s_answer(cases: list[Path]) -> None:
    """The official provider crashes with CUDA's libraries and without a driver: see ``driver.c``."""
    if pairs.has_driver():
        pytest.skip("a driver is installed: the official provider loads")
    version = pairs.shop().project.bases["assembled"].ort_version
    said = ask_library(pairs.official(version), cases[:3], pairs.environment(), "cuda")
    assert [answer.said for answer in said.values()] == ["crashed: SIGSEGV"] * 3
