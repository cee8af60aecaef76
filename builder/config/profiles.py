"""Profiles, the amounts of ORT that are compiled: the CMake options of ``profiles.json``.

An option is set where ORT's source has it (``SourceRules.options``). Line numbers are those of 1.21.0's
``cmake/CMakeLists.txt``. Options whose default is the wanted value are set too, because a default can change,
as that of FPA_INTB_GEMM did. An option whose default the compiler is too old for is ``OFF``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files

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


_READ = json.loads(files("builder.config").joinpath("profiles.json").read_text(encoding="utf-8"))

_TABLES: Mapping[str, tuple[Option, ...]] = {
    part: tuple(Option(**row) for row in rows) for part, rows in _READ.items()
}
"""The options of every profile, ``common``, and what a profile has besides."""

_PARTS = {Profile.FULL: ("full",), Profile.LEAN: ("lean",), Profile.MINIMAL: ("lean", "minimal")}


def options(
    profile: Profile, rules: SourceRules, cuda: str, unused: Iterable[Launch], *, cpuinfo: bool
) -> tuple[Option, ...]:
    """Return the options of a profile that ORT's source has, those of every profile first.

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
    for part in ("common", *_PARTS[profile], *(() if cpuinfo else ("without_cpuinfo",))):
        yield from _TABLES[part]


def build_targets(host: Host) -> tuple[str, ...]:
    """Return the Ninja targets: provider and bridge, and the host library where it is compiled too."""
    provider = ("onnxruntime_providers_cuda", "onnxruntime_providers_shared")
    return provider if host is Host.WHEEL else (*provider, "onnxruntime")
