"""Tests of the evaluator of GitHub's expressions. Expected values are of GitHub's page "Evaluate expressions
in workflows and actions", and of its ``@actions/expressions`` 0.3.61 where the page is silent."""

from __future__ import annotations

import pytest

from tests.support.workflows.expressions import ExpressionError, evaluate, filled, holds

CONTEXTS = {
    "inputs": {"base": "redist", "dry_run": False, "empty": "", "none": None},
    "matrix": {"variant": "legacy", "sm": ["50", "52"]},
    "steps": {"attest": {"outputs": {"bundle-path": "/tmp/bundle"}}},
    "env": {"DRY_RUN": "true"},
}


def status(*, good: bool) -> dict[str, object]:
    return {
        "success": lambda: good,
        "failure": lambda: not good,
        "always": lambda: True,
        "cancelled": lambda: False,
    }


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("inputs.base || 'nvidia'", "redist"),
        ("inputs.empty || 'nvidia'", "nvidia"),
        ("inputs.missing || 'nvidia'", "nvidia"),
        ("inputs.missing.further", None),
        ("(inputs.profile || 'full') != 'full' && '--allow-lean' || ''", ""),
        ("(inputs.base || 'full') != 'full' && '--allow-lean' || ''", "--allow-lean"),
        ("inputs.empty && '--allow-partial'", ""),
        ("matrix.sm[0]", "50"),
        ("matrix.sm[2]", None),
        ("matrix['variant']", "legacy"),
        ("steps.attest.outputs.bundle-path", "/tmp/bundle"),
        ("fromJSON('[\"nvidia\", 2]')", ["nvidia", 2]),
        ("!inputs.dry_run", True),
        ("!inputs.none && !inputs.empty", True),
        ("env.DRY_RUN != 'true'", False),
        ("'it''s'", "it's"),
        ("'LEGACY' == matrix.variant", True),  # "GitHub ignores case when comparing strings"
        ("true || false && false", True),
        ("null == 0", True),  # null is 0, true 1, and text a number, '' being 0
        ("true == '1'", True),
        ("'' == 0", True),
        ("'a' == 0", False),
        ("1 != 1.0", False),
        ("matrix.sm == matrix.sm", True),
    ],
)
def test_expressions_have_githubs_values(expression: str, value: object) -> None:
    assert evaluate(expression, CONTEXTS, {}) == value


@pytest.mark.parametrize(
    "expression",
    [
        "contains('ab', 'a')",
        "1 < 2",
        "matrix.*.name",
        "secrets.KEY",
        "inputs.base ||",
        "inputs.base 'x'",
        "(true",
        '"double quotes"',
        "matrix.[0]",
        "",
    ],
)
def test_what_is_not_known_is_refused(expression: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(expression, CONTEXTS, {})


def test_text_around_expressions_stays_and_one_alone_keeps_its_type() -> None:
    assert filled("store-${{ matrix.variant }}-${{ matrix.sm[0] }}", CONTEXTS, {}) == "store-legacy-50"
    assert filled("${{ inputs.none }} ${{ inputs.dry_run }}", CONTEXTS, {}) == " false"
    assert filled("${{ matrix.sm }}", CONTEXTS, {}) == ["50", "52"]
    with pytest.raises(ExpressionError):
        filled("of ${{ matrix.sm }}", CONTEXTS, {})


@pytest.mark.parametrize(
    ("condition", "after_success", "after_failure"),
    [
        ("env.DRY_RUN == 'true'", True, False),
        ("${{ !inputs.dry_run }}", True, False),
        ("failure()", False, True),
        ("always()", True, True),
        ("${{ !cancelled() && inputs.base == 'redist' }}", True, True),
        ("env.DRY_RUN", True, False),
    ],
)
def test_a_condition_asks_for_success_unless_it_names_a_status(
    condition: str, after_success: bool, after_failure: bool
) -> None:
    for good, wanted in ((True, after_success), (False, after_failure)):
        assert holds(condition, CONTEXTS, status(good=good)) is wanted  # type: ignore[arg-type]
