"""Verdicts on answers, by the rules of onnx's own runner of backend tests."""

from collections.abc import Sequence

import numpy as np

from tests.answers.values import Array, Value

RELATIVE, ABSOLUTE = 1e-3, 1e-7
"""Tolerances of onnx 1.17.0, ``onnx/backend/test/loader/__init__.py``; no test of ``KINDS`` has others."""

PASSED, WRONG = "passed", "wrong answer"


def judge(got: Sequence[Value], expected: Sequence[Value]) -> str:
    """Return ``PASSED``, or the kind of difference in words that do not depend on the numbers."""
    if len(got) != len(expected):
        return f"{WRONG}: {len(got)} values"
    found = [_differs(mine, wanted) for mine, wanted in zip(got, expected, strict=True)]
    return next((f"{WRONG}: {what}" for what in found if what), PASSED)


def _differs(got: Value, wanted: Value) -> str:
    if got is None or wanted is None:
        return "" if got is wanted else "optional"
    if isinstance(got, list) or isinstance(wanted, list):
        if not isinstance(got, list) or not isinstance(wanted, list):
            return "kind"
        return judge(got, wanted).removeprefix(PASSED).removeprefix(f"{WRONG}: ")
    return _tensor_differs(got, wanted)


def _tensor_differs(got: Array, wanted: Array) -> str:
    if got.shape != wanted.shape:
        return "shape"
    if got.dtype != wanted.dtype:
        return "type"
    if got.dtype == object:
        return "" if _texts(got) == _texts(wanted) else "strings"
    close = np.allclose(_plain(got), _plain(wanted), rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
    return "" if close else "numbers"


def _texts(array: Array) -> list[str]:
    return [text.decode() if isinstance(text, bytes) else str(text) for text in array.ravel().tolist()]


def _plain(array: Array) -> Array:
    """Return an array that numpy can compare: types of ml_dtypes (bfloat16, float8, int4) become float32."""
    return array if array.dtype.isbuiltin else array.astype(np.float32)
