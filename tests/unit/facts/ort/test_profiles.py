"""Tests of each profile's options by ORT version, against a table written by hand from ORT's
CMakeLists.txt."""

import pytest

from builder.config.profiles import build_targets, options
from builder.facts.gpu.architectures import Arch
from builder.facts.ort.units import left_out
from builder.formats.package_names import Host, Profile
from tests.support.tables import table

VERSIONS = ("1.20.1", "1.21.0", "1.21.1", "1.22.0", "1.23.0", "1.23.2", "1.40.0")

LATEST = tuple(Arch.parse(number) for number in ("89", "90", "100", "120"))

LEGACY = tuple(Arch.parse(number) for number in ("50", "52", "60", "61", "70"))


def listed(profile: Profile, version: str) -> dict[str, str]:
    """Return the table's entries of a profile and a version."""
    return {
        name: value
        for name, value, only, since in table("ort/options.txt")
        if only in ("", profile.value) and since <= version
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("profile", Profile)
def test_exactly_these_entries(profile: Profile, version: str) -> None:
    entries = options(profile, version, left_out(LATEST, version), cpuinfo=True)
    assert {entry.name: entry.value for entry in entries} == listed(profile, version)


def test_full_for_a_set_that_launches_no_flash_attention_compiles_none() -> None:
    """1.21.0's flash_api.cc and lean_api.cc require 8.x or 9.0."""
    entries = options(Profile.FULL, "1.21.0", left_out(LEGACY, "1.21.0"), cpuinfo=True)
    assert {entry.name for entry in entries if entry.value != listed(Profile.FULL, "1.21.0")[entry.name]} == {
        "onnxruntime_USE_FLASH_ATTENTION",
        "onnxruntime_USE_LEAN_ATTENTION",
    }
    unread = options(Profile.FULL, "1.23.2", left_out(LEGACY, "1.23.2"), cpuinfo=True)
    assert {entry.value for entry in unread if "ATTENTION" in entry.name} == {"ON"}


@pytest.mark.parametrize("version", VERSIONS)
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
