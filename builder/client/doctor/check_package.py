"""Checks that the package in use is whole, fits this machine, and is what applications load.

Other libraries may be loaded instead of the package's. A file system with noexec or a bad kernel cache may
hinder the package's own.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Dict, Iterator, List, Sequence

from builder.client.doctor.advice import MachineFinding, finding
from builder.client.doctor.observations import InstalledPackage, Observations, Shadow
from builder.client.selection.forms import OF_A_PACKAGE, OWN_PROVIDER, host_refusal
from builder.client.selection.reasons import RUNS, glibc_refusal, numbers, support_of
from builder.facts.gpu.compatibility import JIT, NATIVE
from builder.facts.gpu.devices import Device
from builder.facts.gpu.table import FIRST_FP16
from builder.finding import Severity
from builder.formats.missing_kernels import consequence_of, counted
from builder.formats.package_names import CUDA, MUSL, SERVED, Profile
from builder.formats.text import grouped


def no_package(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D201 where no package is installed, D202 where the one in use is missing or unreadable."""
    if observed.broken is not None:
        yield finding("D202", observed.broken)
    elif observed.installed is None:
        yield finding("D201", "No package is installed.")


def damaged_package(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D203 or D212 where a file of a package differs from its manifest."""
    for code, package in (("D203", observed.installed), ("D212", observed.outside)):
        if package and package.problems:
            first, count = package.problems[0], len(package.problems)
            rest = f", and {count - 1} more" if count > 1 else ""
            yield finding(code, f"{package.folder}: {first}{rest}.")


def unsuitable_package(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D204 to D206, D208 or D210 where the package's code does not suit the visible GPUs."""
    if observed.installed is None or not observed.devices:
        return
    package = observed.installed.package
    if package.provider != CUDA and observed.platform in SERVED[CUDA]:
        yield finding("D208", f"{package.name} is in use, and there is {_names(observed.devices)}.")
    if package.provider != CUDA:
        return
    known = [device for device in observed.devices if device.capability]
    served = [device for device in known if support_of(package, device) in RUNS]
    lost = [device for device in known if device not in served]
    if known and not served:
        yield finding("D204", f"{package.name} is in use{_once(observed.installed)}.", whom=_names(known))
    elif lost:
        yield finding("D206", f"{package.name} runs on {_names(served)}, not on {_names(lost)}.")
    yield from _slow(observed, observed.installed, served)


def gpu_without_fp16(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D207 where a GPU is below compute capability 5.3."""
    old = [device for device in observed.devices if device.capability and device.capability < FIRST_FP16]
    if old:
        yield finding("D207", f"{_names(old)} is here.")


def glibc_too_old(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D209 where the glibc is older than the package needs; for musl there is D108."""
    if observed.installed is None or observed.system.glibc == MUSL:
        return
    why = glibc_refusal(observed.installed.package, observed.system.glibc)
    if why:
        yield finding("D209", f"{observed.installed.package.name}: {why}.")


def lacks_kernels(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D211 where the package lacks kernels: a note for what every plug-in lacks, else a warning."""
    package = observed.installed.package if observed.installed else None
    consequence = (
        consequence_of(package.onnxruntime.cannot_run, package.onnxruntime.host) if package else None
    )
    if package and consequence:
        missing = counted(package.onnxruntime.cannot_run)
        sentence = f"{package.name} is in use. Operators without CUDA kernels in it: {missing}."
        told = finding("D211", sentence, **consequence._asdict())
        is_full = package.onnxruntime.profile == Profile.FULL.value  # it lacks what every plug-in does
        yield replace(told, severity=Severity.NOTE) if is_full else told


def by_jit(observed: Observations) -> List[Device]:
    """Return the GPUs on which the package in use runs by just-in-time compilation."""
    if observed.installed is None:
        return []
    package = observed.installed.package
    return [device for device in observed.devices if support_of(package, device) == JIT]


def _slow(
    observed: Observations, installed: InstalledPackage, served: List[Device]
) -> Iterator[MachineFinding]:
    jit = by_jit(observed)
    if jit and len(jit) == len(served) and installed.support == NATIVE:
        yield finding("D205", f"{installed.package.name} has no native code for {_names(jit)}.")
    driver, own = numbers(observed.cuda), numbers(installed.cuda)
    if jit and driver and own and driver < own:
        sentence = f"The driver serves CUDA {observed.cuda}, the package is of CUDA {installed.cuda}"
        yield finding("D210", f"{sentence}, and {_names(jit)} has no native code in it.", cuda=installed.cuda)


def _names(devices: Sequence[Device]) -> str:
    return ", ".join(f"{device.name} ({device.capability or 'capability unknown'})" for device in devices)


def _once(installed: InstalledPackage) -> str:
    return f", installed for {installed.gpu}" if installed.gpu else ""


CACHE_FLOOR = 2**30
"""The least size of the kernel cache in bytes: the driver's default on a workstation. A CUDA provider's
kernels take hundreds of MB."""

_ORT = "libonnxruntime"

_CUDNN = "libcudnn"

_NAMED = 3
"""The most libraries that a finding names."""


def foreign_host_library(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D301 where ``ORT_DYLIB_PATH`` leads out of the package in use."""
    if observed.host is not None and observed.installed and not observed.installed.package.plugin:
        yield finding("D301", f"ORT_DYLIB_PATH={observed.host} is not in {observed.installed.folder}.")


def shadowed_libraries(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D302, D305 or D306 where another ONNX Runtime, cuDNN or CUDA library precedes the package's."""
    kinds: Dict[str, List[Shadow]] = {"D302": [], "D305": [], "D306": []}
    for shadow in observed.shadows:
        kinds[_kind(shadow)].append(shadow)
    for code, shadows in kinds.items():
        if shadows:
            named = "; ".join(map(_shadow_text, shadows[:_NAMED]))
            rest = f"; and {len(shadows) - _NAMED} more" if len(shadows) > _NAMED else ""
            yield finding(code, f"Before the package's in LD_LIBRARY_PATH: {named}{rest}.")


def python_distributions(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D303 for a Python with another version of ONNX Runtime, D304 for several distributions in one."""
    for folder, installed in grouped((one.folder, one) for one in observed.distributions).items():
        names = ", ".join(f"{one.name} {one.version}" for one in installed)
        if len(installed) > 1:
            yield finding("D304", f"{folder} has {names}.")
    others = [
        distribution for distribution in observed.distributions if distribution.version != _version(observed)
    ]
    if others and observed.installed and not observed.installed.package.plugin:
        names = ", ".join(f"{other.name} {other.version} in {other.folder}" for other in others)
        yield finding("D303", f"The package is ONNX Runtime {_version(observed)}; a Python has {names}.")


def host_of_a_plugin(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D313 to D315 where the application's ONNX Runtime does not go with the plug-in in use."""
    plugin = observed.installed.package.plugin if observed.installed else None
    host = observed.application
    why = host_refusal(host, plugin) if plugin and host else None
    if plugin and host and why:
        code = {OWN_PROVIDER: "D313", OF_A_PACKAGE: "D315"}.get(host.obstacle or "", "D314")
        yield finding(code, f"A plug-in is in use, and {why}.", oldest=plugin.oldest_host)


def plugin_beside_a_provider(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D313 where a Python has a wheel with a plug-in, and an onnxruntime with a CUDA provider."""
    for wheel in observed.plugin_wheels:
        for other in observed.distributions:
            if other.folder == wheel.folder and "gpu" in other.name:
                yield finding("D313", f"{wheel.folder} has {wheel.name} and {other.name} {other.version}.")


def wheels_without_nvidia(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D310 where NVIDIA's wheels that a wheel of this project requires are missing.

    They were not installed, or another version replaced them.
    """
    for distribution in observed.distributions:
        if distribution.lacks:
            named = f"{distribution.name} {distribution.version}"
            lacks = ", ".join(distribution.lacks)
            yield finding("D310", f"{distribution.folder} has {named}, and not {lacks}.")


def libraries_of_others(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D312 where the session's process loaded CUDA's libraries from outside of the package in use."""
    installed, trial = observed.installed, observed.trial
    if installed is None or trial is None:
        return
    own = (installed.folder, os.path.realpath(installed.folder))
    others = [path for path in trial.loaded if not path.startswith(own)]
    if others:
        rest = f", and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        yield finding("D312", f"The session's process has {', '.join(others[:_NAMED])}{rest}.")


def noexec_file_systems(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D307 or D308 where the file system of the package or of ``TMPDIR`` is mounted with noexec."""
    folder = observed.installed.folder if observed.installed else None
    for place in observed.noexec:
        code = "D307" if place == folder else "D308"
        yield finding(code, f"{place} is on a file system that is mounted with noexec.")


def unusable_kernel_cache(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D309 where code is compiled just in time, and the kernel cache is off, small or read-only."""
    if not by_jit(observed):
        return
    if observed.cache.disabled:
        yield finding("D309", "CUDA_CACHE_DISABLE=1.")
    elif observed.cache.max_bytes is not None and observed.cache.max_bytes < CACHE_FLOOR:
        yield finding("D309", f"CUDA_CACHE_MAXSIZE={observed.cache.max_bytes}, less than {CACHE_FLOOR}.")
    elif not observed.cache.writable:
        yield finding("D309", f"{observed.cache.folder}: this user may not write there.")


def _kind(shadow: Shadow) -> str:
    if shadow.name.startswith(_ORT):
        return "D302"
    return "D305" if shadow.name.startswith(_CUDNN) and not _same(shadow) else "D306"


def _same(shadow: Shadow) -> bool:
    """Return whether a shadow has the version of the package's own library; false where one is unknown.

    Only the parts that both versions have are compared: 9.10.2 and 9.10.2.21 are the same.
    """
    if shadow.version is None or shadow.own is None:
        return False
    pairs = zip(shadow.version.split("."), shadow.own.split("."))
    return all(theirs == ours for theirs, ours in pairs)


def _shadow_text(shadow: Shadow) -> str:
    version = f" ({shadow.version})" if shadow.version else ""
    own = f", the package's is {shadow.own}" if shadow.own else ""
    return f"{shadow.path}{version}{own}"


def _version(observed: Observations) -> str:
    return observed.installed.package.onnxruntime.version if observed.installed else ""


RULES = (
    no_package,
    damaged_package,
    unsuitable_package,
    gpu_without_fp16,
    glibc_too_old,
    lacks_kernels,
    foreign_host_library,
    shadowed_libraries,
    python_distributions,
    libraries_of_others,
    wheels_without_nvidia,
    host_of_a_plugin,
    plugin_beside_a_provider,
    noexec_file_systems,
    unusable_kernel_cache,
)
