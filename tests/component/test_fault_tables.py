"""Test of the tables of faults: no case has left them, whatever selection of tests runs."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("path", "cases"),
    [
        ("client/install/test_faults.py", 186),
        ("client/install/test_faults_disk.py", 35),
        ("client/install/test_faults_kill.py", 58),
        ("client/install/test_faults_tar.py", 52),
        ("publish/test_mirror_faults.py", 21),
        ("publish/test_publish_faults.py", 274),
        ("publish/test_publish_kill.py", 3),
        ("publish/test_signing_faults.py", 18),
    ],
)
def test_no_fault_has_left_the_tables(request: pytest.FixtureRequest, path: str, cases: int) -> None:
    module = pytest.Module.from_parent(request.session, path=Path(__file__).parent / path)
    found = [item for item in module.collect() if isinstance(item, pytest.Function)]
    assert sum("[" in item.name for item in found) >= cases
