"""Test of the number of faults in publishing's tests: GitHub, kills, a mirror's folder."""

from __future__ import annotations

from tests.component.publish import (
    test_mirror_kill,
    test_publish_faults,
    test_publish_kill,
    test_signing_faults,
)
from tests.component.publish.test_mirror_faults import DAMAGE


def test_there_are_three_hundred_faults_and_more() -> None:
    counts = {
        "faults of GitHub": len(test_publish_faults.FAULTS),
        "cuts of an upload to GitHub": test_publish_faults.CUTS + test_publish_faults.CUTS // 2,
        "kills while GitHub is published to": 3 * test_publish_kill.KILLS,
        "faults while a release is signed": len(test_signing_faults.FAULTS),
        "kills of a mirror": test_mirror_kill.KILLS,
        "damages of a mirror": 2 * len(DAMAGE),
    }
    print(f"{sum(counts.values())} faults: {counts}")  # noqa: T201 - pytest -rP shows it
    assert sum(counts.values()) >= 380
