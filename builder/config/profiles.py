"""Profiles, the amounts of ORT that are compiled: CMake options, each with reason and source.

An option is set where ORT's source has it (``SourceRules.options``). Line numbers are those of 1.21.0's
``cmake/CMakeLists.txt``. Options whose default is the wanted value are set too, because a default can change,
as that of FPA_INTB_GEMM did. An option whose default the compiler is too old for is ``OFF``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from builder.config.build_plan import BuildPlan, CompilePlan
from builder.errors import ConfigError
from builder.facts.ort.launch_patterns import Launch
from builder.facts.ort.source_rules import SourceRules
from builder.formats.package_names import Host, Profile
from builder.formats.text import nearest


@dataclass(frozen=True)
class Option:
    """One CMake option: ``set(NAME VALUE CACHE TYPE "reason")``."""

    name: str
    value: str
    reason: str
    source: str
    """The source of the name and the value."""
    is_needed: bool = True
    """Whether a source without it is refused; otherwise it is left out there."""
    is_changed: bool = False
    """Whether it is set only where the source has another default, or it is not known."""

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
        is_needed=False,
        is_changed=True,
    ),
    Option(
        *("onnxruntime_USE_FPA_INTB_GEMM", "OFF", "as the official C package: 54 MB, and slow to compile"),
        "pull requests 25802 (the option), 26002 (341 to 287 MB without)",
        is_needed=False,
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
    *("onnxruntime_ENABLE_CPUINFO", "OFF", "only the host library asks for it", "CMakeLists.txt line 229"),
    is_needed=False,
)


def options(
    profile: Profile, rules: SourceRules, cuda: str, unused: Iterable[Launch], *, cpuinfo: bool
) -> tuple[Option, ...]:
    """Return the options of a profile that ORT's source has, those of ``COMMON`` first.

    ``cuda``: nvcc's version. ``unused``: the units that no GPU of the set launches (``left_out``); their
    options are ``OFF``. ``cpuinfo``: whether the source of the host library's CPU detection library is
    available. Raises ``ConfigError`` for an option that the source would have to have.
    """
    off = {launch.option for launch in unused}
    absent = rules.unknown(option.name for option in _all(profile, cpuinfo))
    known = [option for option in _all(profile, cpuinfo) if option.name not in absent]
    lacking = [option.name for option in _all(profile, cpuinfo) if option.is_needed and option not in known]
    if lacking:
        said = f"ONNX Runtime {rules.version} has no option "
        raise ConfigError([f"{said}{name}. {nearest(name, rules.options)}".rstrip() for name in lacking])
    ours = [
        _switched_off(option) if option.name in off else option
        for option in known
        if not (option.is_changed and rules.has_default(option.name, option.value))
    ]
    too_new = rules.impossible({option.name: option.value for option in ours}, cuda)
    kept = [option for option in ours if option.name not in too_new]
    return (
        *kept,
        *(Option(name, "OFF", f"needs CUDA {fact.value}", str(fact.line)) for name, fact in too_new.items()),
    )


def options_of(plan: BuildPlan, division: CompilePlan) -> tuple[Option, ...]:
    """Return the options of a plan; none if nothing is compiled."""
    if plan.profile is None:
        return ()
    cpuinfo = plan.on.dependencies.get("pytorch_cpuinfo")
    has_cpuinfo = cpuinfo is None or cpuinfo.item is not None
    cuda = plan.on.toolkit.version
    return options(plan.profile, plan.rules, cuda, division.left_out, cpuinfo=has_cpuinfo)


def reading_settings(profile: Profile = Profile.FULL) -> Mapping[str, str]:
    """Return the values of the options of a profile, under which a source is read."""
    return {option.name: option.value for option in _all(profile, cpuinfo=True)}


def known_options() -> frozenset[str]:
    """Return the names of all options that builds of this project set."""
    return frozenset(option.name for profile in Profile for option in _all(profile, cpuinfo=False))


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
