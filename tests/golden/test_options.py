"""Tests of the options for ORT's CMake, for the oldest and the newest known version, against reviewed text.

The expected files are edited by hand when a change is intended.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.config.profiles import options
from builder.facts.gpu.architectures import Arch
from builder.facts.ort.units import cmake_list, left_out
from builder.formats.package_names import Profile

LATEST = tuple(Arch.parse(number) for number in ("89", "90", "100", "120"))


@pytest.mark.parametrize("version", ["1.21.0", "1.23.2"])
def test_full_on_the_nvidia_base_is_what_was_reviewed(root: Path, version: str) -> None:
    entries = options(Profile.FULL, version, left_out(LATEST, version), cpuinfo=True)
    lines = [f"{entry.name}={entry.value}  # {entry.reason}" for entry in entries]
    text = "\n".join([f"CMAKE_CUDA_ARCHITECTURES={cmake_list(LATEST)}", *lines]) + "\n"
    assert (root / f"tests/golden/options.full.{version}.txt").read_text(encoding="utf-8") == text
