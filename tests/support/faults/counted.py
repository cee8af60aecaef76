"""How many cases a module of fault tests has, whatever was selected for this run."""

from __future__ import annotations

from collections import Counter

import pytest


def cases_of(request: pytest.FixtureRequest) -> Counter[str]:
    """The number of cases of each test function in the asking test's module.

    The module is collected anew: neither ``-k`` nor the share that xdist gives a worker changes the counts.
    """
    module = request.node.getparent(pytest.Module)
    assert module is not None
    return Counter(item.originalname for item in module.collect() if isinstance(item, pytest.Function))
