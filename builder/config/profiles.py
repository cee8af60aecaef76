"""Profiles, the amounts of ORT that are compiled: CMake options, each with reason, source and releases.

Names and defaults are those of 1.21.0's ``cmake/CMakeLists.txt`` (line numbers in ``source``). For later
releases, the options that official packaging sets were checked. Options whose default is the wanted value are
set too, because a default can change, as that of FPA_INTB_GEMM did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from builder.config.build_plan import BuildPlan, CompilePlan
from builder.config.variants import GitSource
from builder.facts.ort.units import Launch
from builder.facts.ort.versions import ALWAYS, ReleaseRange
from builder.formats.package_names import Host, Profile


@dataclass(frozen=True)
class Option:
    """One CMake option: ``set(NAME VALUE CACHE TYPE "reason")``."""

    name: str
    value: str
    reason: str
    source: str
    """The source of the name and the value."""
    span: ReleaseRange = ALWAYS
    """The ORT releases that have the option."""

    @property
    def type(self) -> str:
        """CMake's cache type of the option."""
        return "BOOL" if self.value in {"ON", "OFF"} else "STRING"


_CMAKE = "CMake's documentation"

_SCRIPT = "tools/ci_build/github/linux/build_cuda_c_api_package.sh"

COMMON: tuple[Option, ...] = (
    Option("CMAKE_BUILD_TYPE", "Release", "as the official build", f"{_SCRIPT} of 1.21.0"),
    Option("onnxruntime_USE_CUDA", "ON", "the CUDA provider is what we ship", "CMakeLists.txt line 72"),
    Option("onnxruntime_BUILD_SHARED_LIB", "ON", "a host library for every language", f"{_SCRIPT} of 1.21.0"),
    Option(
        *("onnxruntime_USE_FULL_PROTOBUF", "ON", "the whole of protobuf, static"), "CMakeLists.txt line 118"
    ),
    Option("onnxruntime_BUILD_UNIT_TESTS", "OFF", "ORT's own tests need a GPU", "build.py --skip_tests"),
    Option("CMAKE_BUILD_WITH_INSTALL_RPATH", "ON", "no RUNPATH into the build machine", _CMAKE),
    Option("CMAKE_INSTALL_RPATH", "$ORIGIN", "libraries find their neighbours", _CMAKE),
    Option(
        *("onnxruntime_NVCC_THREADS", "1", "as the official build; memory is per thread"),
        "1.21.0's onnxruntime_providers_cuda.cmake line 158: default 1; at 00a7441: default 4",
        ReleaseRange(first=(1, 22)),
    ),
    Option(
        *("onnxruntime_USE_FPA_INTB_GEMM", "OFF", "as the official C package: 54 MB, and slow to compile"),
        "pull requests 25802 (the option), 26002 (341 to 287 MB without)",
        ReleaseRange(first=(1, 23)),
    ),
)
"""The options of every profile."""

_LEAN_SOURCE = (
    "CMakeLists.txt lines 149, 97 to 99, and 847: without contrib operators 1.21.0 turns all three off"
)

PROFILES: Mapping[Profile, tuple[Option, ...]] = {
    Profile.FULL: (
        Option(
            "onnxruntime_DISABLE_CONTRIB_OPS", "OFF", "full: contrib operators", "CMakeLists.txt line 149"
        ),
        Option("onnxruntime_USE_FLASH_ATTENTION", "ON", "full: serves sm_80 on", "CMakeLists.txt line 97"),
        Option("onnxruntime_USE_LEAN_ATTENTION", "ON", "full: decoding", "CMakeLists.txt line 98"),
        Option(
            *("onnxruntime_USE_MEMORY_EFFICIENT_ATTENTION", "ON", "full: attention below sm_80 too"),
            "CMakeLists.txt line 99",
        ),
    ),
    Profile.LEAN: (
        Option("onnxruntime_DISABLE_CONTRIB_OPS", "ON", "lean: 54 CUDA units instead of 155", _LEAN_SOURCE),
        Option("onnxruntime_USE_FLASH_ATTENTION", "OFF", "lean: flash attention needs sm_80", _LEAN_SOURCE),
        Option("onnxruntime_USE_LEAN_ATTENTION", "OFF", "lean: part of flash attention", _LEAN_SOURCE),
        Option(
            *("onnxruntime_USE_MEMORY_EFFICIENT_ATTENTION", "OFF", "lean: serves contrib ops only"),
            _LEAN_SOURCE,
        ),
    ),
}

_MINIMAL = Option(
    *("onnxruntime_CUDA_MINIMAL", "ON", "minimal: the EP's frame, one CUDA unit; for tests"),
    "CMakeLists.txt line 79",
)

_NO_CPUINFO = Option(
    *("onnxruntime_ENABLE_CPUINFO", "OFF", "only the host library asks for it"), "CMakeLists.txt line 229"
)


def options(profile: Profile, version: str, unused: Iterable[Launch], *, cpuinfo: bool) -> tuple[Option, ...]:
    """Return the options of a profile that ORT ``version`` has, those of ``COMMON`` first.

    ``unused``: the units that no GPU of the set launches (``units.left_out``): their options are ``OFF``.
    ``cpuinfo``: whether the source of the host library's CPU detection library is available.
    """
    off = {launch.option for launch in unused}
    known = (option for option in _all(profile, cpuinfo) if version in option.span)
    return tuple(_switched_off(option) if option.name in off else option for option in known)


def options_of(plan: BuildPlan, division: CompilePlan) -> tuple[Option, ...]:
    """Return the options of a plan; none if nothing is compiled."""
    if plan.profile is None:
        return ()
    from_git = isinstance(plan.on.source, GitSource)
    return options(plan.profile, plan.ort_version, division.left_out, cpuinfo=from_git)


def fixed_settings() -> Mapping[str, str]:
    """Return the values of the options that every build of this project sets alike, by name."""
    return {option.name: option.value for option in COMMON}


def open_settings() -> tuple[str, ...]:
    """Return the names of the options whose value depends on profile, set or host library."""
    names = [option.name for listed in PROFILES.values() for option in listed]
    return tuple(sorted({*names, _MINIMAL.name, _NO_CPUINFO.name}))


def _switched_off(option: Option) -> Option:
    return replace(option, value="OFF", reason="no architecture of the set launches any of it")


def _all(profile: Profile, cpuinfo: bool) -> Iterator[Option]:
    yield from COMMON
    yield from PROFILES[Profile.LEAN if profile is Profile.MINIMAL else profile]
    if profile is Profile.MINIMAL:
        yield _MINIMAL
    if not cpuinfo:
        yield _NO_CPUINFO


def build_targets(host: Host) -> tuple[str, ...]:
    """Return the Ninja targets: provider and bridge, and the host library where it is compiled too."""
    provider = ("onnxruntime_providers_cuda", "onnxruntime_providers_shared")
    return provider if host is Host.WHEEL else (*provider, "onnxruntime")
