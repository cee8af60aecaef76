"""Rules that choose the package for a machine, the GPUs that a user names, and a model for a machine.

One process can load one package, and GPUs of several generations may need several. A package that runs every
operator precedes one that does not (``cannot_run``). Then these are compared in turn: the GPU memory served
natively, the number of GPUs served natively, the same two for just-in-time compilation, the version of CUDA
(a newer one has a newer ONNX Runtime), the size of the archive (smaller first), the name. Where no GPU runs a
package, one that needs none is chosen, with the reason and the remedy.

Memory measures the worth of a GPU: it limits the size of models, and GPUs with more of it are the faster
ones. Unknown memory counts as 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from builder.client.selection.forms import FormChoice
from builder.client.selection.reasons import (
    TITLES,
    code_refusal,
    cuda_of,
    driver_refusal,
    glibc_refusal,
    gpus_refusal,
    lacking,
    limits,
    refusal,
    runs_too,
    support_of,
    system_refusal,
)
from builder.errors import ValidationError
from builder.facts.gpu.compatibility import JIT, NATIVE
from builder.facts.gpu.devices import Device
from builder.formats.index import Index, IndexPackage, distinct
from builder.formats.manifest import ModelRule
from builder.formats.missing_kernels import counted
from builder.formats.package_names import COREML, CPU, CUDA, DIRECTML


@dataclass(frozen=True)
class Rejection:
    """A package that was not chosen, and the reason in one sentence."""

    package: str
    reason: str


@dataclass(frozen=True)
class PackageChoice:
    """The package to run. ``package`` is ``None`` where the index has no package for this system."""

    package: Optional[IndexPackage]
    device: Optional[Device]
    """The GPU with the most memory among those that the package runs on; ``None`` where it runs on none."""
    support: Optional[str]
    """How the package's code runs on ``device``: ``native`` or ``jit``; ``None`` where ``device`` is."""
    reasons: Tuple[Rejection, ...]
    """One rejection for each other package, sorted by name."""
    summary: str
    """The choice and its reason. Without a GPU it begins with ``CPU:``, ``DirectML:`` or ``CoreML:``, and
    names a change that would make a GPU package run."""
    others: Tuple[Device, ...] = ()
    """The machine's other GPUs, by index."""
    visible: Optional[str] = None
    """The value of ``CUDA_VISIBLE_DEVICES`` that leaves only GPUs that this package runs on, the one with the
    most memory first. ``None`` where no GPU has to be hidden, or where ``notes`` explain why no value can be
    given."""
    notes: Tuple[str, ...] = ()
    """Further facts and remedies for the user, a sentence or two each."""
    form: FormChoice = field(default_factory=FormChoice)
    """The form of package that was chosen from, and why."""

    @property
    def on_gpu(self) -> bool:
        """Return whether the package will run on an NVIDIA GPU of this machine."""
        return self.package is not None and self.device is not None


def select(
    devices: Sequence[Device],
    index: Index,
    platform: str,
    glibc: Optional[str] = None,
    hidden: Sequence[Device] = (),
) -> PackageChoice:
    """Return the package that serves the GPUs best by the module's rule, else one that needs no GPU.

    A package is never chosen if its ``capabilities`` state ``partial`` or ``none``, if the driver is outside
    its range, or if it needs a newer glibc. The order of ``devices`` and of the index's packages does not
    matter. A package in several layouts or forms of archive counts once: ``offers`` returns all of its
    entries.

    ``glibc`` is the system's version, ``""`` for musl, ``None`` where it is unknown. ``hidden`` are further
    GPUs of the machine that must not be used; ``visible`` leaves them out.
    """
    machine, present = _Machine(by_number(devices), platform, glibc), by_number((*devices, *hidden))
    packages = sorted(distinct(index.packages), key=lambda package: (package.name, package.file))
    candidates = [machine.served_by(package) for package in packages]
    best = min(
        (candidate for candidate in candidates if candidate.devices),
        key=lambda served: served.rank,
        default=None,
    )
    if best is None:
        return replace(_fall_back(packages, machine), others=present)
    return PackageChoice(
        package=best.package,
        device=best.devices[0],
        support=support_of(best.package, best.devices[0]),
        reasons=tuple(
            Rejection(
                served.package.name,
                machine.refusal(served.package) or _why_not(served, best, machine.devices),
            )
            for served in candidates
            if served is not best
        ),
        summary=_summary(best, machine.devices),
        others=tuple(device for device in present if device is not best.devices[0]),
        visible=_visible_devices(best.devices, present),
        notes=(*limits(best.package, best.devices), *_hiding_advice(best.devices, present)),
    )


@dataclass(frozen=True)
class _Machine:
    """The GPUs, by number, and the system that a package is chosen for."""

    devices: Tuple[Device, ...]
    platform: str
    glibc: Optional[str]

    @property
    def providers(self) -> Tuple[str, ...]:
        return _BY_SYSTEM.get(self.platform.partition("-")[0], (CPU,))

    def refusal(self, package: IndexPackage) -> Optional[str]:
        return system_refusal(package, self.platform, self.glibc)

    def served_by(self, package: IndexPackage) -> _Served:
        runs = [one for one in self.devices if refusal(package, one, self.platform, self.glibc) is None]
        native, jit = (
            tuple(device for device in runs if support_of(package, device) == word) for word in (NATIVE, JIT)
        )
        return _Served(package, native, jit)


@dataclass(frozen=True)
class _Served:
    """A package, and the GPUs that run its native code or its PTX."""

    package: IndexPackage
    native: Tuple[Device, ...]
    jit: Tuple[Device, ...]

    @property
    def devices(self) -> Tuple[Device, ...]:
        """Return all GPUs, largest memory first; of equal ones, those with native code first."""
        return tuple(sorted((*self.native, *self.jit), key=self._by_memory))

    @property
    def worth(self) -> Tuple[int, int, int, int]:
        """Return the values that the module's rule compares before CUDA's version: more is better."""
        return (_total_mib(self.native), len(self.native), _total_mib(self.jit), len(self.jit))

    @property
    def rank(self) -> Tuple[int, Tuple[int, ...], int, int, str]:
        """Return the module's rule as a sort key: the least is the best."""
        package, worth = self.package, tuple(-value for value in self.worth)
        return (lacking(package), worth, -cuda_of(package), package.size, package.name)

    def _by_memory(self, device: Device) -> Tuple[int, bool, int, str, str]:
        jit = support_of(self.package, device) == JIT
        return (-(device.memory_mib or 0), jit, device.index, device.uuid, device.name)


def _summary(best: _Served, devices: Sequence[Device]) -> str:
    device, name = best.devices[0], best.package.name
    how = "has native code for" if device in best.native else "runs by just-in-time compilation on"
    sentences = [f"{name} {how} {device.name} (compute capability {device.capability})."]
    if len(devices) > 1:
        sentences.append(f"It runs on {len(best.devices)} of {len(devices)} GPUs here.")
    if any(one.driver is None for one in best.devices):
        sentences.append("The driver's version is not known and was not checked.")
    return " ".join(sentences)


def _why_not(served: _Served, best: _Served, devices: Sequence[Device]) -> str:
    if served.package.provider != CUDA:
        title = TITLES.get(served.package.provider, served.package.provider)
        return f"its provider is {title}, {best.package.name} uses the GPU"
    if not served.devices:
        return gpus_refusal(served.package, devices)
    return _why_less(served, best)


def _why_less(served: _Served, best: _Served) -> str:
    name = best.package.name
    if lacking(served.package) > lacking(best.package):
        missing = counted(served.package.onnxruntime.cannot_run)
        return f"it has no CUDA kernels for operators that {name} runs ({missing})"
    if served.worth == best.worth:
        return runs_too(served.package, best.package)
    if not served.native and best.native:
        return f"it runs by just-in-time compilation only, {name} has native code"
    if served.worth[:2] != best.worth[:2]:
        return f"it runs natively on {_in_words(served.native)}, {name} on {_in_words(best.native)}"
    if not served.jit:
        return f"it runs too, {name} adds {_in_words(best.jit)} by just-in-time compilation"
    return f"it runs by just-in-time compilation on {_in_words(served.jit)}, {name} on {_in_words(best.jit)}"


def _in_words(devices: Sequence[Device]) -> str:
    count = len(devices)
    return f"{count} GPU{'' if count == 1 else 's'} with {_total_mib(devices):,} MiB"


_WHY_NO_LINE = (
    "The line is not given here: not every UUID is known, and numbers are not reliable, for CUDA begins with "
    "the fastest GPU and nvidia-smi counts by PCI slot. With CUDA_DEVICE_ORDER=PCI_BUS_ID both count alike."
)


def _total_mib(devices: Iterable[Device]) -> int:
    return sum(device.memory_mib or 0 for device in devices)


def _visible_devices(served: Sequence[Device], present: Sequence[Device]) -> Optional[str]:
    """Return the value of ``CUDA_VISIBLE_DEVICES`` that hides the GPUs that are not served.

    ``None`` where all are served, or a served GPU's UUID is unknown. Each UUID comes once, because CUDA sees
    no GPU at all when one comes twice.
    """
    if not _hidden(served, present) or not all(device.uuid for device in served):
        return None
    return ",".join(dict.fromkeys(device.uuid for device in served))


def _hiding_advice(served: Sequence[Device], present: Sequence[Device]) -> Tuple[str, ...]:
    """Return advice on hiding GPUs by hand where ``_visible_devices`` gives no value; empty elsewhere."""
    hidden = _hidden(served, present)
    if not hidden or all(device.uuid for device in served):
        return ()
    names = ", ".join(f"GPU {device.index} ({device.name})" for device in hidden)
    return (f"Hide {names} from the application with CUDA_VISIBLE_DEVICES. {_WHY_NO_LINE}",)


def _hidden(served: Sequence[Device], present: Sequence[Device]) -> Sequence[Device]:
    return [device for device in by_number(present) if device not in served]


def by_number(devices: Iterable[Device]) -> Tuple[Device, ...]:
    """Return the GPUs sorted by index, UUID and name."""
    return tuple(sorted(devices, key=lambda device: (device.index, device.uuid, device.name)))


_BY_SYSTEM: Dict[str, Tuple[str, ...]] = {"linux": (CPU,), "win": (DIRECTML, CPU), "macos": (COREML, CPU)}
"""Providers that need no NVIDIA GPU, best first, by the first part of a platform's name."""

_NO_GPU = (
    "no NVIDIA GPU was found. If there is one, its driver is missing or hidden from this process; `detect` "
    "shows what each probe said."
)

_NO_CUDA = "there is no CUDA for macOS."


def _fall_back(packages: Sequence[IndexPackage], machine: _Machine) -> PackageChoice:
    """Return the choice of a package for this platform that needs no NVIDIA GPU.

    Its ``package`` is ``None`` where the release has none.
    """
    known = machine.providers
    fitting = [
        package for package in packages if package.provider in known and machine.refusal(package) is None
    ]
    chosen = min(fitting, key=lambda one: (known.index(one.provider), one.size, one.name), default=None)
    title = TITLES[chosen.provider if chosen else CPU]
    instead = [f"{chosen.name} is taken instead."] if chosen else []
    return PackageChoice(
        package=chosen,
        device=None,
        support=None,
        reasons=tuple(
            Rejection(one.name, machine.refusal(one) or _why_not_instead(one, chosen, machine))
            for one in packages
            if one is not chosen
        ),
        summary=" ".join([f"{title}:", *_why_no_gpu_runs(packages, machine), *instead]),
    )


def _why_not_instead(package: IndexPackage, chosen: Optional[IndexPackage], machine: _Machine) -> str:
    """Return why a package that this system could load is not the ``chosen`` one, which needs no GPU."""
    if package.provider == CUDA:
        return gpus_refusal(package, machine.devices)
    if chosen is None or package.provider not in machine.providers:
        return f"{TITLES.get(package.provider, package.provider)} is not for {machine.platform}"
    if chosen.provider == package.provider:
        return runs_too(package, chosen)
    title = TITLES[chosen.provider]
    return f"it runs too, {chosen.name} is for {title}, which goes first on {package.platform}"


def _why_no_gpu_runs(packages: Sequence[IndexPackage], machine: _Machine) -> List[str]:
    platform, devices = machine.platform, machine.devices
    mine = [package for package in packages if package.provider == CUDA and package.platform == platform]
    if platform.startswith("macos"):
        return [_NO_CUDA]
    if not devices:
        return [_NO_GPU]
    if not mine:
        return [f"this release has no GPU package for {platform}; one would change that."]
    cards = "; ".join(dict.fromkeys(str(device) for device in devices))
    return [f"no package of this release runs on {cards}.", *_ways_out(mine, machine)]


def _ways_out(packages: Iterable[IndexPackage], machine: _Machine) -> List[str]:
    """Return sentences with changes that would make a package run: another driver or system, else code."""
    ways = list(filter(None, (_way(package, machine) for package in packages)))
    if ways:
        return ways
    if any(device.capability is None for device in machine.devices):
        return ["Stating the compute capability with ORTPACKS_FORCE_CC would change that."]
    return ["A package that is built for such a compute capability would change that."]


def _way(package: IndexPackage, machine: _Machine) -> Optional[str]:
    runs = [one for one in machine.devices if one.capability and code_refusal(package, one) is None]
    if not runs:
        return None
    drivers = filter(None, (driver_refusal(package, device) for device in runs))
    systems = filter(None, [glibc_refusal(package, machine.glibc)])
    ways = {**dict.fromkeys(systems, "another system"), **dict.fromkeys(drivers, "another driver")}
    means = " and ".join(dict.fromkeys(ways.values()))
    return f"With {means} {package.name} would run: {'; '.join(ways)}."


def only(devices: Sequence[Device], wanted: str) -> Tuple[Device, ...]:
    """Return the devices that ``wanted`` names, in its order: indices and UUIDs, separated by commas.

    A UUID (``GPU-…``, ``MIG-…``) may be shortened as long as it matches one GPU. Raises ``ValidationError``
    with a list of the GPUs.
    """
    return tuple(dict.fromkeys(_named(devices, part.strip()) for part in wanted.split(",")))


def _named(devices: Sequence[Device], name: str) -> Device:
    matching = _matching(devices, name)
    if len(matching) == 1:
        return matching[0]
    problem = f"means {len(matching)} GPUs" if matching else "is no GPU of this machine"
    raise ValidationError(f"--device {name or '(empty)'} {problem}. {_inventory(matching or devices)}")


def _matching(devices: Sequence[Device], name: str) -> List[Device]:
    if name.isdecimal():
        return [device for device in devices if str(device.index) == name]
    lowered = name.lower()
    exact = [device for device in devices if lowered and device.uuid.lower() == lowered]
    return exact or [device for device in devices if lowered and device.uuid.lower().startswith(lowered)]


def _inventory(devices: Sequence[Device]) -> str:
    if not devices:
        return "No NVIDIA GPU was found; `detect` shows what each probe said."
    known = "; ".join(f"{device.index}: {device.uuid or 'no UUID'}, {device.name}" for device in devices)
    return f"By number or UUID: {known}."


_UNIFIED = ("macos-arm64",)

_SHARE_PERCENT = 35
"""The percentage of unified memory that a model may take. The rest is for the system and the application."""


def usable_vram(platform: str, ram_mib: int, vram_mib: Optional[int]) -> Optional[int]:
    """Return the MiB of GPU memory that a model may take; ``None`` where they are unknown.

    On a platform with unified memory it is a percentage of ``ram_mib``. Elsewhere it is ``vram_mib``, the
    memory of the chosen GPU, ``None`` without a GPU or where it is unknown.
    """
    return ram_mib * _SHARE_PERCENT // 100 if platform in _UNIFIED else vram_mib


def fitting(
    models: Iterable[ModelRule], vram_mib: Optional[int], cores: int, ram_gib: int
) -> Iterator[ModelRule]:
    """Yield every line whose minimums are met, in the table's order.

    ``vram_mib`` is ``None`` without a GPU or where its memory is unknown.
    """
    for rule in models:
        memory_fits = rule.device != "gpu" or (vram_mib is not None and vram_mib >= rule.vram_mib)
        if memory_fits and cores >= rule.cores and ram_gib >= rule.ram_gib:
            yield rule
