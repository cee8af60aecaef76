"""What each profile turns off."""

from __future__ import annotations

from builder.core.profiles import build_targets, cache_entries
from builder.core.variant import Host, Profile


def values(profile: Profile) -> dict[str, str]:
    return {entry.name: entry.value for entry in cache_entries(profile, cpuinfo=False)}


def test_full_turns_no_feature_off() -> None:
    off = {name for name, value in values(Profile.FULL).items() if value == "OFF"}
    assert off == {"onnxruntime_BUILD_UNIT_TESTS", "onnxruntime_ENABLE_CPUINFO"}


def test_lean_has_no_contrib_ops_and_no_flash_attention() -> None:
    lean = values(Profile.LEAN)
    assert lean["onnxruntime_DISABLE_CONTRIB_OPS"] == "ON"
    assert lean["onnxruntime_USE_FLASH_ATTENTION"] == "OFF"
    assert "onnxruntime_CUDA_MINIMAL" not in lean


def test_minimal_is_lean_and_the_frame_only() -> None:
    assert values(Profile.MINIMAL) == {**values(Profile.LEAN), "onnxruntime_CUDA_MINIMAL": "ON"}


def test_every_profile_looks_for_its_neighbours_in_its_own_folder() -> None:
    for profile in Profile:
        assert values(profile)["CMAKE_INSTALL_RPATH"] == "$ORIGIN"


def test_host_library_is_built_only_when_asked_for() -> None:
    assert "onnxruntime" not in build_targets(Host.WHEEL)
    assert "onnxruntime" in build_targets(Host.SOURCE)
