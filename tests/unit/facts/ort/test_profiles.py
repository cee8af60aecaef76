"""Tests of each profile's options by ORT version, against a table written by hand from ORT's
CMakeLists.txt."""

from dataclasses import replace

import pytest

from builder.config.profiles import Option, build_targets, options
from builder.errors import ConfigError
from builder.facts.gpu.architectures import Arch
from builder.facts.ort.known_rules import rules_for
from builder.facts.ort.source_rules import SourceRules
from builder.facts.ort.units import left_out
from builder.formats.package_names import Host, Profile
from tests.support.messages import Refused
from tests.support.tables import table

VERSIONS = ("1.21.0", "1.21.1", "1.22.0", "1.23.0", "1.23.2", "1.40.0")

LATEST = tuple(Arch.parse(number) for number in ("89", "90", "100", "120"))

LEGACY = tuple(Arch.parse(number) for number in ("50", "52", "60", "61", "70"))


def made(profile: Profile, version: str, sm: tuple[Arch, ...], *, cpuinfo: bool = True) -> tuple[Option, ...]:
    rules = rules_for(version)
    return options(profile, rules, "12.9", left_out(sm, rules), cpuinfo=cpuinfo)


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
    entries = made(profile, version, LATEST)
    assert {entry.name: entry.value for entry in entries} == listed(profile, version)


def test_full_for_a_set_that_launches_no_flash_attention_compiles_none() -> None:
    """1.21.0's flash_api.cc and lean_api.cc require 8.x or 9.0."""
    entries = made(Profile.FULL, "1.21.0", LEGACY)
    assert {entry.name for entry in entries if entry.value != listed(Profile.FULL, "1.21.0")[entry.name]} == {
        "onnxruntime_USE_FLASH_ATTENTION",
        "onnxruntime_USE_LEAN_ATTENTION",
    }
    unread = made(Profile.FULL, "1.23.2", LEGACY)
    assert {entry.value for entry in unread if "ATTENTION" in entry.name} == {"ON"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("profile", Profile)
def test_entries_can_be_written_as_cmake(profile: Profile, version: str) -> None:
    """Entries are written in quotes, once each; a switch is a BOOL."""
    found = made(profile, version, LATEST, cpuinfo=False)
    for entry in found:
        assert not set(f"{entry.value}{entry.reason}") & set('"\\\n')
        assert entry.type == ("BOOL" if entry.value in ("ON", "OFF") else "STRING")
    assert len({option.name for option in found}) == len(found)


def test_host_library_is_built_only_when_asked_for() -> None:
    assert "onnxruntime" not in build_targets(Host.WHEEL)
    assert "onnxruntime" in build_targets(Host.SOURCE)


def test_an_option_that_nvcc_is_too_old_for_is_off_with_the_line_as_its_source() -> None:
    """1.30.0-dev compiles kernels for FP4 unless told otherwise, and stops below CUDA 12.8."""
    rules = rules_for("1.30.0")
    newer = options(Profile.FULL, rules, "12.8", (), cpuinfo=True)
    assert "onnxruntime_USE_FP4_QMOE" not in {option.name for option in newer}
    *_, last = options(Profile.FULL, rules, "12.4", (), cpuinfo=True)
    assert (last.name, last.value, last.reason) == ("onnxruntime_USE_FP4_QMOE", "OFF", "needs CUDA 12.8")
    assert last.source == "cmake/CMakeLists.txt:1553"


def test_an_option_that_the_source_does_not_have_is_left_out_or_refused(refused: Refused) -> None:
    rules = rules_for("1.30.0")

    def without(word: str) -> SourceRules:
        few = {name: fact for name, fact in rules.options.items() if word not in name}
        return replace(rules, options=few | {"onnxruntime_USE_FLESH_ATTENTION": next(iter(few.values()))})

    left = options(Profile.FULL, without("GEMM"), "12.9", (), cpuinfo=True)
    assert "onnxruntime_USE_FPA_INTB_GEMM" not in {option.name for option in left}
    with refused(ConfigError):
        options(Profile.FULL, without("FLASH"), "12.9", (), cpuinfo=True)
