"""Tests of making a CUDA unit in pieces that need no toolkit."""

import threading
from pathlib import Path

import pytest

from builder.farm.nvcc import _further_slots

UNIT = "#!/bin/sh\necho held\nexec cat\n"
"""A launcher that has a slot for every piece at once."""


def test_every_further_slot_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that nothing uses is kept from other units until the unit ends."""
    (tmp_path / "unit").write_text(UNIT)
    (tmp_path / "unit").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("UNIT_POOL", str(tmp_path))
    slots = 9
    together = threading.Barrier(slots + 1, timeout=10)
    monkeypatch.setattr("os.cpu_count", lambda: 2)

    def work() -> None:
        together.wait()

    with _further_slots("unit.cu.o", slots, work):
        work()
    assert not together.broken
