"""Checks that the package in use is whole, and fits this machine's GPUs and system."""

from __future__ import annotations

from typing import Iterator, List, Sequence, Tuple

from builder.findings.finding import Advice, CheckAdvice, Finding, Severity
from builder.findings.observations import InstalledPackage, Observations
from builder.formats.missing_kernels import CURE, consequence_of, counted
from builder.formats.package_names import CUDA, MUSL, SERVED
from builder.gpu.compatibility import JIT, NATIVE
from builder.gpu.devices import Device
from builder.gpu.table import FIRST_FP16
from builder.selection.reasons import RUNS, glibc_refusal, support_of

ADVICE = CheckAdvice(
    {
        "D201": Advice(
            Severity.NOTE,
            "There is nothing to examine besides the machine.",
            "`install` takes the package that fits this machine.",
        ),
        "D202": Advice(
            Severity.ERROR,
            "The package in use cannot be found or read: an application finds no library, or another one.",
            "Run `install` again.",
        ),
        "D203": Advice(
            Severity.ERROR,
            "Files of the package were changed or removed after they were verified.",
            "Run `install` again: it fetches damaged and missing files.",
        ),
        "D204": Advice(
            Severity.ERROR,
            "The package in use has no code for {whom}. Was the card changed after the install?",
            "Run `install` again. It takes the package whose code runs on this GPU.",
        ),
        "D205": Advice(
            Severity.WARNING,
            "The package was installed for native code, and on this GPU it runs by just-in-time compilation: "
            "the first start takes minutes, and kernels made for this GPU would be faster.",
            "Run `install` again: the release may have native code for this GPU.",
        ),
        "D206": Advice(
            Severity.WARNING,
            "One process loads one package. On a GPU that it has no code for, an application fails with 209.",
            "Hide the others: `env` prints the line for CUDA_VISIBLE_DEVICES once `install` has run with all "
            "these GPUs. For another GPU install with --device and another --prefix.",
        ),
        "D207": Advice(
            Severity.WARNING,
            "Below compute capability 5.3 a GPU has no half-precision arithmetic, and some of ONNX Runtime's "
            "half-precision kernels are empty there: they return zeros, without an error.",
            "Use models in single precision (fp32) on this GPU.",
        ),
        "D208": Advice(
            Severity.WARNING,
            "There is an NVIDIA GPU, and the package in use has no CUDA: with one for the CPU the GPU is not "
            "used, with one for DirectML it is used by DirectX 12.",
            "Run `install` again: with the GPU in sight it may take another package. `select` says why it "
            "does not.",
        ),
        "D209": Advice(
            Severity.ERROR,
            "The package's libraries do not load with this system's C library.",
            "Update the system, or use a container with a newer one. `install` takes a package that fits, if "
            "the release has one.",
        ),
        "D210": Advice(
            Severity.WARNING,
            "The package runs on this GPU by just-in-time compilation, and a driver compiles PTX only up to "
            "the CUDA that it serves: newer PTX fails with 222.",
            "Update the driver to one that serves CUDA {cuda} (575 for 12.9).",
        ),
        "D211": Advice(
            Severity.WARNING, "The package was compiled with less than the full profile. {means}", CURE
        ),
    }
)

_MOST_DIGITS = 9
"""The most digits of a part of a version."""


def no_package(observed: Observations) -> Iterator[Finding]:
    """Yield D201 where no package is installed, D202 where the one in use is missing or unreadable."""
    if observed.broken is not None:
        yield ADVICE.found("D202", observed.broken)
    elif observed.installed is None:
        yield ADVICE.found("D201", "No package is installed.")


def damaged_package(observed: Observations) -> Iterator[Finding]:
    """Yield D203 where a file of the package differs from its manifest."""
    if observed.installed and observed.installed.problems:
        first, count = observed.installed.problems[0], len(observed.installed.problems)
        rest = f", and {count - 1} more" if count > 1 else ""
        yield ADVICE.found("D203", f"{observed.installed.folder}: {first}{rest}.")


def unsuitable_package(observed: Observations) -> Iterator[Finding]:
    """Yield D204 to D206, D208 or D210 where the package's code does not suit the visible GPUs."""
    if observed.installed is None or not observed.devices:
        return
    package = observed.installed.package
    if package.provider != CUDA and observed.platform in SERVED[CUDA]:
        yield ADVICE.found("D208", f"{package.name} is in use, and there is {_names(observed.devices)}.")
    if package.provider != CUDA:
        return
    known = [device for device in observed.devices if device.capability]
    served = [device for device in known if support_of(package, device) in RUNS]
    lost = [device for device in known if device not in served]
    if known and not served:
        yield ADVICE.found(
            "D204", f"{package.name} is in use{_once(observed.installed)}.", whom=_names(known)
        )
    elif lost:
        yield ADVICE.found("D206", f"{package.name} runs on {_names(served)}, not on {_names(lost)}.")
    yield from _slow(observed, observed.installed, served)


def gpu_without_fp16(observed: Observations) -> Iterator[Finding]:
    """Yield D207 where a GPU is below compute capability 5.3."""
    old = [device for device in observed.devices if device.capability and device.capability < FIRST_FP16]
    if old:
        yield ADVICE.found("D207", f"{_names(old)} is here.")


def glibc_too_old(observed: Observations) -> Iterator[Finding]:
    """Yield D209 where the glibc is older than the package needs; for musl there is D108."""
    if observed.installed is None or observed.system.glibc == MUSL:
        return
    why = glibc_refusal(observed.installed.package, observed.system.glibc)
    if why:
        yield ADVICE.found("D209", f"{observed.installed.package.name}: {why}.")


def lacks_kernels(observed: Observations) -> Iterator[Finding]:
    """Yield D211 where the package was compiled with less than the full profile."""
    package = observed.installed.package if observed.installed else None
    found = consequence_of(package.onnxruntime.cannot_run, package.onnxruntime.host) if package else None
    if package and found:
        missing = counted(package.onnxruntime.cannot_run)
        sentence = f"{package.name} is in use. Operators without CUDA kernels in it: {missing}."
        yield ADVICE.found("D211", sentence, **found._asdict())


def by_jit(observed: Observations) -> List[Device]:
    """Return the GPUs on which the package in use runs by just-in-time compilation."""
    if observed.installed is None:
        return []
    package = observed.installed.package
    return [device for device in observed.devices if support_of(package, device) == JIT]


def _slow(observed: Observations, installed: InstalledPackage, served: List[Device]) -> Iterator[Finding]:
    jit = by_jit(observed)
    if jit and len(jit) == len(served) and installed.support == NATIVE:
        yield ADVICE.found("D205", f"{installed.package.name} has no native code for {_names(jit)}.")
    newer = observed.cuda and installed.cuda and _numbers(observed.cuda) < _numbers(installed.cuda)
    if jit and newer:
        sentence = f"The driver serves CUDA {observed.cuda}, the package is of CUDA {installed.cuda}"
        yield ADVICE.found(
            "D210", f"{sentence}, and {_names(jit)} has no native code in it.", cuda=installed.cuda
        )


def _numbers(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal() and len(part) <= _MOST_DIGITS)


def _names(devices: Sequence[Device]) -> str:
    return ", ".join(f"{device.name} ({device.capability or 'capability unknown'})" for device in devices)


def _once(installed: InstalledPackage) -> str:
    return f", installed for {installed.gpu}" if installed.gpu else ""


RULES = (no_package, damaged_package, unsuitable_package, gpu_without_fp16, glibc_too_old, lacks_kernels)
