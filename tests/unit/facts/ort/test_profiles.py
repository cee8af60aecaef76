"""Tests of each profile's options by ORT version, against a table written by hand from ORT's
CMakeLists.txt."""

import pytest

from builder.config.profiles import build_targets, options
from builder.facts.gpu.architectures import Arch
from builder.facts.ort.units import left_out
from builder.formats.package_names import Host, Profile

EVERYWHERE = {
    "CMAKE_BUILD_TYPE": "Release",
    "onnxruntime_USE_CUDA": "ON",
    "onnxruntime_BUILD_SHARED_LIB": "ON",
    "onnxruntime_USE_FULL_PROTOBUF": "ON",
    "onnxruntime_BUILD_UNIT_TESTS": "OFF",
    "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    "CMAKE_INSTALL_RPATH": "$ORIGIN",
}

FULL = {  # 1.21.0's defaults for a build with CUDA on Linux: CMakeLists.txt, lines 149 and 97 to 99
    "onnxruntime_DISABLE_CONTRIB_OPS": "OFF",
    "onnxruntime_USE_FLASH_ATTENTION": "ON",
    "onnxruntime_USE_LEAN_ATTENTION": "ON",
    "onnxruntime_USE_MEMORY_EFFICIENT_ATTENTION": "ON",
}

LEAN = {
    "onnxruntime_DISABLE_CONTRIB_OPS": "ON",
    "onnxruntime_USE_FLASH_ATTENTION": "OFF",
    "onnxruntime_USE_LEAN_ATTENTION": "OFF",
    "onnxruntime_USE_MEMORY_EFFICIENT_ATTENTION": "OFF",
}

OF_PROFILE = {
    Profile.FULL: FULL,
    Profile.LEAN: LEAN,
    Profile.MINIMAL: LEAN | {"onnxruntime_CUDA_MINIMAL": "ON"},
}

SINCE_1_22 = {"onnxruntime_NVCC_THREADS": "1"}

SINCE_1_23 = SINCE_1_22 | {"onnxruntime_USE_FPA_INTB_GEMM": "OFF"}

OF_VERSION: dict[str, dict[str, str]] = {
    "1.20.1": {},
    "1.21.0": {},
    "1.21.1": {},
    "1.22.0": SINCE_1_22,
    "1.23.0": SINCE_1_23,
    "1.23.2": SINCE_1_23,
    "1.40.0": SINCE_1_23,
}

LATEST = tuple(Arch.parse(number) for number in ("89", "90", "100", "120"))

LEGACY = tuple(Arch.parse(number) for number in ("50", "52", "60", "61", "70"))


def values(profile: Profile, version: str, *, cpuinfo: bool = True) -> dict[str, str]:
    return {
        entry.name: entry.value
        for entry in options(profile, version, left_out(LATEST, version), cpuinfo=cpuinfo)
    }


@pytest.mark.parametrize("version", OF_VERSION)
@pytest.mark.parametrize("profile", Profile)
def test_exactly_these_entries(profile: Profile, version: str) -> None:
    assert values(profile, version) == EVERYWHERE | OF_PROFILE[profile] | OF_VERSION[version]


def test_full_for_a_set_that_launches_no_flash_attention_compiles_none() -> None:
    """1.21.0's flash_api.cc and lean_api.cc require 8.x or 9.0."""
    entries = options(Profile.FULL, "1.21.0", left_out(LEGACY, "1.21.0"), cpuinfo=True)
    assert {entry.name for entry in entries if entry.value != (EVERYWHERE | FULL)[entry.name]} == {
        "onnxruntime_USE_FLASH_ATTENTION",
        "onnxruntime_USE_LEAN_ATTENTION",
    }
    unread = options(Profile.FULL, "1.23.2", left_out(LEGACY, "1.23.2"), cpuinfo=True)
    assert {entry.value for entry in unread if "ATTENTION" in entry.name} == {"ON"}


@pytest.mark.parametrize("version", OF_VERSION)
@pytest.mark.parametrize("profile", Profile)
def test_entries_can_be_written_as_cmake(profile: Profile, version: str) -> None:
    """Entries are written in quotes, once each; a switch is a BOOL."""
    found = options(profile, version, left_out(LATEST, version), cpuinfo=False)
    for entry in found:
        assert not set(f"{entry.value}{entry.reason}") & set('"\\\n')
        assert entry.type == ("BOOL" if entry.value in ("ON", "OFF") else "STRING")
    assert len({option.name for option in found}) == len(found)


def test_host_library_is_built_only_when_asked_for() -> None:
    assert "onnxruntime" not in build_targets(Host.WHEEL)
    assert "onnxruntime" in build_targets(Host.SOURCE)
