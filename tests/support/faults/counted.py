"""Count of the cases in a module of fault tests, independent of the selection for a run."""

from __future__ import annotations

from collections import Counter

import pytest


def cases_of(request: pytest.FixtureRequest) -> Counter[str]:
    """Return the number of cases of each test function in the module of the requesting test.

    The function collects the module again, so that ``-k`` and xdist's distribution do not change the counts.
    """
    module = request.node.getparent(pytest.Module)
    assert module is not None
    return Counter(item.originalname for item in module.collect() if isinstance(item, pytest.Function))
