"""Checks of libraries that are loaded instead of the package's, of noexec, and of the kernel cache."""

from __future__ import annotations

from typing import Dict, Iterator, List

from builder.findings.check_package import by_jit
from builder.findings.finding import Advice, CheckAdvice, Finding, Severity
from builder.findings.observations import Distribution, Observations, Shadow

ADVICE = CheckAdvice(
    {
        "D301": Advice(
            Severity.WARNING,
            "An application that reads ORT_DYLIB_PATH loads that library and not the package in use.",
            "Set what `env` prints, and look for the variable in shell profiles and unit files.",
        ),
        "D302": Advice(
            Severity.WARNING,
            "The loader finds that ONNX Runtime before the package's. An application may run with another "
            "version, without this GPU's code, or with a provider library that does not fit it.",
            "Put the package's lib first in LD_LIBRARY_PATH, as `env` does, or take the other folder out.",
        ),
        "D303": Advice(
            Severity.NOTE,
            "A program of that Python uses its own ONNX Runtime, not the package, so the findings about the "
            "package do not apply to it. With what `env` sets, an onnxruntime-gpu of another version loads "
            "the package's provider, and crashes.",
            "Nothing, if your application is not that Python's. Else install onnxruntime-gpu of the "
            "package's version there, or start it without what `env` sets.",
        ),
        "D304": Advice(
            Severity.WARNING,
            "These distributions write into the same folder, so which of them `import onnxruntime` finds is "
            "chance; often it is the one for the CPU.",
            "`pip uninstall` all of them, then install the one that you want.",
        ),
        "D305": Advice(
            Severity.ERROR,
            "cuDNN is made of several libraries that must be of one version. The loader takes this one for "
            "some or all of the package's, and a session fails or crashes.",
            "Take the folder out of LD_LIBRARY_PATH, or put the package's lib before it, as `env` does.",
        ),
        "D306": Advice(
            Severity.WARNING,
            "The loader takes these instead of the package's: older ones lack symbols (500, named symbol not "
            "found) or code for this GPU.",
            "Take the folder out of LD_LIBRARY_PATH, or put the package's lib before it, as `env` does.",
        ),
        "D307": Advice(
            Severity.ERROR,
            "The file system is mounted with noexec: no library loads from there.",
            "Install with --prefix on another file system, or mount this one with exec.",
        ),
        "D308": Advice(
            Severity.NOTE,
            "The file system of temporary files is mounted with noexec. The package is not affected; Python "
            "programs that unpack libraries there fail.",
            "Nothing, or set TMPDIR to a folder elsewhere.",
        ),
        "D309": Advice(
            Severity.WARNING,
            "The package runs on this GPU by just-in-time compilation. Kernels that are not kept are "
            "compiled again at each start, which takes minutes.",
            "Unset CUDA_CACHE_DISABLE, set CUDA_CACHE_MAXSIZE=4294967296, and CUDA_CACHE_PATH to a folder "
            "that this user may write to.",
        ),
        "D310": Advice(
            Severity.WARNING,
            "The wheel has none of NVIDIA's libraries inside: its CUDA provider does not load, and sessions "
            "run on the CPU.",
            "With that Python, `pip install` the wheels that are named here, each in exactly this version.",
        ),
    }
)

CACHE_FLOOR = 2**30
"""The least size of the kernel cache in bytes: the driver's default on a workstation. A CUDA provider's
kernels take hundreds of MB."""

_ORT = "libonnxruntime"

_CUDNN = "libcudnn"

_NAMED = 3
"""The most libraries that a finding names."""


def foreign_host_library(observed: Observations) -> Iterator[Finding]:
    """Yield D301 where ``ORT_DYLIB_PATH`` leads out of the package in use."""
    if observed.host is not None and observed.installed:
        yield ADVICE.found("D301", f"ORT_DYLIB_PATH={observed.host} is not in {observed.installed.folder}.")


def shadowed_libraries(observed: Observations) -> Iterator[Finding]:
    """Yield D302, D305 or D306 where another ONNX Runtime, cuDNN or CUDA library precedes the package's."""
    kinds: Dict[str, List[Shadow]] = {"D302": [], "D305": [], "D306": []}
    for shadow in observed.shadows:
        kinds[_kind(shadow)].append(shadow)
    for code, found in kinds.items():
        if found:
            named = "; ".join(map(_shadow_text, found[:_NAMED]))
            rest = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            yield ADVICE.found(code, f"Before the package's in LD_LIBRARY_PATH: {named}{rest}.")


def python_distributions(observed: Observations) -> Iterator[Finding]:
    """Yield D303 for a Python with another version of ONNX Runtime, D304 for several distributions in one."""
    by_folder: Dict[str, List[Distribution]] = {}
    for one in observed.distributions:
        by_folder.setdefault(one.folder, []).append(one)
    for folder, found in by_folder.items():
        names = ", ".join(f"{one.name} {one.version}" for one in found)
        if len(found) > 1:
            yield ADVICE.found("D304", f"{folder} has {names}.")
    others = [one for one in observed.distributions if one.version != _version(observed)]
    if others and observed.installed:
        names = ", ".join(f"{one.name} {one.version} in {one.folder}" for one in others)
        yield ADVICE.found("D303", f"The package is ONNX Runtime {_version(observed)}; a Python has {names}.")


def wheels_without_nvidia(observed: Observations) -> Iterator[Finding]:
    """Yield D310 where NVIDIA's wheels that a wheel of this project requires are missing.

    They were not installed, or another version replaced them.
    """
    for one in observed.distributions:
        if one.lacks:
            what = f"{one.folder} has {one.name} {one.version}, and not {', '.join(one.lacks)}."
            yield ADVICE.found("D310", what)


def noexec_file_systems(observed: Observations) -> Iterator[Finding]:
    """Yield D307 or D308 where the file system of the package or of ``TMPDIR`` is mounted with noexec."""
    folder = observed.installed.folder if observed.installed else None
    for place in observed.noexec:
        code = "D307" if place == folder else "D308"
        yield ADVICE.found(code, f"{place} is on a file system that is mounted with noexec.")


def unusable_kernel_cache(observed: Observations) -> Iterator[Finding]:
    """Yield D309 where code is compiled just in time, and the kernel cache is off, small or read-only."""
    if not by_jit(observed):
        return
    if observed.cache.disabled:
        yield ADVICE.found("D309", "CUDA_CACHE_DISABLE=1.")
    elif observed.cache.max_bytes is not None and observed.cache.max_bytes < CACHE_FLOOR:
        yield ADVICE.found("D309", f"CUDA_CACHE_MAXSIZE={observed.cache.max_bytes}, less than {CACHE_FLOOR}.")
    elif not observed.cache.writable:
        yield ADVICE.found("D309", f"{observed.cache.folder}: this user may not write there.")


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
    foreign_host_library,
    shadowed_libraries,
    python_distributions,
    wheels_without_nvidia,
    noexec_file_systems,
    unusable_kernel_cache,
)
