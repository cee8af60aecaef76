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
from builder.formats.package_names import Host, PackageForm, Profile
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

_PARTS_OF_PLUGINS = {**_PARTS, Profile.MINIMAL: ("lean", "minimal_plugin")}

_AS_PLUGIN = "onnxruntime_BUILD_CUDA_EP_AS_PLUGIN"


def options(
    profile: Profile,
    rules: SourceRules,
    cuda: str,
    unused: Iterable[Launch],
    *,
    cpuinfo: bool,
    form: PackageForm = PackageForm.PROVIDER,
) -> tuple[Option, ...]:
    """Return the options of a profile that ORT's source has, those of every profile first.

    ``cuda``: nvcc's version. ``unused``: the units that no GPU of the set launches (``left_out``); their
    options are ``OFF``. ``cpuinfo``: whether the source of the host library's CPU detection library is
    available. Raises ``ConfigError`` for an option that the source would have to have.
    """
    off = {launch.option for launch in unused}
    wanted = [*_all(profile, cpuinfo, form)]
    absent = rules.unknown(option.name for option in wanted)
    known = [option for option in wanted if option.name not in absent]
    lacking = [option.name for option in wanted if option.is_needed and option not in known]
    if _AS_PLUGIN in lacking or (form is PackageForm.PLUGIN and rules.plugin is None):
        lacks = f"the source has no option {_AS_PLUGIN} and plugin-ep-cuda/MIN_ONNXRUNTIME_VERSION"
        unread = f"its source has no pin here, so it is not known whether it has {_AS_PLUGIN}"
        raise ConfigError(
            f"--form plugin: ONNX Runtime {rules.version} cannot be compiled as a plug-in",
            cause=unread if rules.stands_in else lacks,
            advice="The development state of 1.30 has both (--source). --form provider works with this one.",
        )
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
    made = options(
        plan.profile, plan.rules, cuda, division.left_out, cpuinfo=has_cpuinfo, form=plan.variant.form
    )
    if plan.variant.is_plugin and (source := plan.rules.plugin):
        version = source.version
        said = Option(_VERSION, version.value, "as its source and version.json have it", str(version.line))
        return (*made, said)
    return made


_VERSION = "onnxruntime_PLUGIN_EP_VERSION"


def reading_settings(
    profile: Profile = Profile.FULL, form: PackageForm = PackageForm.PROVIDER
) -> Mapping[str, str]:
    """Return the values of the options of a profile, under which a source is read."""
    return {option.name: option.value for option in _all(profile, cpuinfo=True, form=form)}


def known_options() -> frozenset[str]:
    """Return the names of all options that builds of this project set."""
    every = (_all(profile, cpuinfo=False, form=form) for profile in Profile for form in PackageForm)
    return frozenset(option.name for options in every for option in options)


def is_plugin_known(rules: SourceRules) -> bool:
    """Return whether a source has the option that compiles a plug-in."""
    return not rules.unknown([_AS_PLUGIN])


def _switched_off(option: Option) -> Option:
    return replace(option, value="OFF", reason="no architecture of the set launches any of it")


def _all(profile: Profile, cpuinfo: bool, form: PackageForm) -> Iterator[Option]:
    parts = _PARTS[profile]
    if form is PackageForm.PLUGIN:
        parts = (*_PARTS_OF_PLUGINS[profile], "plugin")
    for part in ("common", *parts, *(() if cpuinfo else ("without_cpuinfo",))):
        yield from _TABLES[part]


def build_targets(host: Host | None) -> tuple[str, ...]:
    """Return the Ninja targets: provider and bridge, and the host library where it is compiled too.

    Without a host library (``None``) it is the plug-in.
    """
    if host is None:
        return ("onnxruntime_providers_cuda_plugin",)
    provider = ("onnxruntime_providers_cuda", "onnxruntime_providers_shared")
    return provider if host is Host.WHEEL else (*provider, "onnxruntime")
