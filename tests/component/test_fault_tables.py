"""Test of the tables of faults: no case has left them, whatever selection of tests runs."""

from pathlib import Path

import pytest

from tests.support.tables import table


@pytest.mark.parametrize(("path", "cases"), table("fault-tables.txt"))
def test_no_fault_has_left_the_tables(request: pytest.FixtureRequest, path: str, cases: str) -> None:
    module = pytest.Module.from_parent(request.session, path=Path(__file__).parent / path)
    found = [item for item in module.collect() if isinstance(item, pytest.Function)]
    assert sum("[" in item.name for item in found) >= int(cases)
