"""The command ``select`` chooses the package that fits this machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple

from builder.client.commands.show_gpus import device_line, device_value
from builder.client.context import ClientOptions, CommandAnswer, CommandContext, head
from builder.client.install.prefix import changing, write_json
from builder.client.install.source import Located, locate
from builder.client.probe.detect import Detection, detect
from builder.errors import DiskError, NoCompatiblePackageError, ValidationError
from builder.findings.observations import Outcome
from builder.formats import model_table
from builder.formats.index import Index, IndexPackage, distinct
from builder.formats.manifest import ModelRule
from builder.formats.package_names import COREML, DIRECTML
from builder.gpu.compatibility import JIT
from builder.gpu.devices import Device
from builder.selection.choice import PackageChoice
from builder.selection.choice import lines as table_lines
from builder.selection.reasons import lacking, limits, refusal
from builder.selection.select import only, select

if TYPE_CHECKING:  # as in builder.client.context
    from builder.client.install.signed import Trust
    from builder.formats.trust import SignedRelease


def answer_select(context: CommandContext, options: ClientOptions) -> CommandAnswer:
    """Show the package that this machine should run, and the reason against each other package."""
    selection = read_release_and_gpus(context, options)
    choice = choose(selection, options.variant)
    lines = explained(choice, selection)
    if options.explain:
        lines += [
            "",
            *table_lines(choice, selection.devices, selection.index, selection.platform, selection.glibc),
        ]
    return CommandAnswer({**head("select"), **choice_value(choice)}, tuple(lines))


@dataclass(frozen=True)
class PackageSelection:
    """The packages to choose from, and the machine to choose for."""

    found: Detection
    located: Located
    devices: Sequence[Device]
    """The GPUs to choose for: all of them, or those of ``--device``."""
    platform: str

    @property
    def glibc(self) -> Optional[str]:
        """Return the system's glibc version, in the form that ``selection.select`` takes."""
        return self.found.system.glibc

    @property
    def index(self) -> Index:
        """Return the release's index."""
        return self.located.index


def release(context: CommandContext, options: ClientOptions) -> Located:
    """Return the release that the user named, with its signatures verified if the client has a root."""
    return locate(options.index, context.web, trust_of(context, options))


def remember(
    context: CommandContext, options: ClientOptions, place: str, signed: Optional[SignedRelease]
) -> None:
    """Store the version of the signed release that was taken from ``place``."""
    trust = trust_of(context, options)
    if trust is not None and signed is not None:
        with changing(options.prefix, context.say):
            trust.remember(place, signed)


def trust_of(context: CommandContext, options: ClientOptions) -> Optional[Trust]:
    """Return the keys that a release must be signed by; ``None`` where no signature is required."""
    if options.root is None:
        return None
    from builder.client.install.signed import Trust  # noqa: PLC0415 only a signed release needs it

    return Trust(options.root, context.now(), options.prefix)


def read_release_and_gpus(context: CommandContext, options: ClientOptions) -> PackageSelection:
    """Read the index and detect the GPUs."""
    located = release(context, options)
    if options.table is not None:
        models = _models(options.table)
        located = replace(located, index=replace(located.index, models=models))
    found = detect(context.around)
    devices = only(found.devices, options.device) if options.device else found.devices
    return PackageSelection(found, located, devices, context.platform)


def _models(file: Path) -> Tuple[ModelRule, ...]:
    """Return the table in ``file``. Raises ``ConfigError``."""
    try:
        # Editors on Windows write a byte order mark.
        return model_table.loads(file.read_text(encoding="utf-8-sig"), str(file)).models
    except OSError as error:
        raise ValidationError(f"--models {file}: {error.strerror}.", advice="Check the path.") from error
    except UnicodeDecodeError as error:
        raise ValidationError(f"--models {file}: not UTF-8 text.") from error


def choose(selection: PackageSelection, variant: Optional[str]) -> PackageChoice:
    """Return the package that this machine should run.

    ``variant`` limits the choice to packages of this variant or name. Raises ``ValidationError`` or
    ``NoCompatiblePackageError`` where there is none.
    """
    return _select(selection, selection.index) if variant is None else _of_variant(variant, selection)


def _select(selection: PackageSelection, index: Index) -> PackageChoice:
    hidden = [device for device in selection.found.devices if device not in selection.devices]
    return select(selection.devices, index, selection.platform, selection.glibc, hidden)


def _of_variant(variant: str, selection: PackageSelection) -> PackageChoice:
    """Return the choice for ``--variant``, also where no GPU here runs it.

    An image for another machine can be built with it.
    """
    mine = tuple(
        package for package in selection.index.packages if variant in (package.variant, package.name)
    )
    if not mine:
        names = sorted({package.variant for package in selection.index.packages})
        raise ValidationError(
            f"--variant {variant}: the index has {', '.join(names)}. A package's name is taken too: that of "
            "its archive, without .tar.zst."
        )
    choice = _select(selection, replace(selection.index, packages=mine))
    if choice.package is not None:
        asked = f"{choice.package.name}, as asked with --variant."
        return choice if choice.device is not None else replace(choice, summary=asked)
    fitting = [item for item in distinct(mine) if item.platform == selection.platform]
    if not fitting:
        raise NoCompatiblePackageError(
            f"--variant {variant}: it has no package for {selection.platform}.",
            advice="`list` shows all packages of the release.",
        )
    best = min(fitting, key=lambda item: (lacking(item), item.size))
    return replace(choice, package=best, summary=_warning(best, selection), notes=limits(best))


def _warning(package: IndexPackage, selection: PackageSelection) -> str:
    reasons = [refusal(package, device, selection.platform, selection.glibc) for device in selection.devices]
    why = "; ".join(reason for reason in reasons if reason) or "no NVIDIA GPU was found"
    return f"{package.name}, as asked with --variant. It will not run on a GPU here: {why}."


@dataclass(frozen=True)
class ModelVerdict:
    """The model that the machine can hold, and whether it was opened."""

    model: Optional[str]
    device: Optional[str]
    """``gpu`` or ``cpu``: the device that runs the model."""
    vram_mib: Optional[int]
    """GPU memory in MiB that a model may take; ``None`` where it is unknown or there is no GPU."""
    tested: bool = False
    """Whether the model was opened."""


def note_verdict(
    context: CommandContext,
    options: ClientOptions,
    selection: PackageSelection,
    choice: PackageChoice,
    verdict: ModelVerdict,
) -> None:
    """Write ``gpu-info.json``, whole or not at all. Where it cannot be written, the user gets a message."""
    prefix = options.prefix
    try:
        with changing(prefix, context.say):
            write_json(prefix, prefix.gpu_info, _gpu_info(choice, selection.found, verdict, context.now()))
    except DiskError as error:
        context.say(f"{prefix.gpu_info}: not written: {error}")


def _gpu_info(
    choice: PackageChoice, found: Detection, verdict: ModelVerdict, now: datetime
) -> Dict[str, object]:
    """Return the content of ``gpu-info.json``; docs/client.md explains each key."""
    package, device = choice.package, choice.device or _largest(found)
    memory = device.memory_mib if device else None
    on_gpu = verdict.device == "gpu"
    return {
        "format": 1,
        "hasGPU": bool(found.devices),
        "gpuName": device.name if device else None,
        "vramMB": memory,
        "vramGB": round(memory / 1024, 1) if memory is not None else None,
        "cudaVersion": found.cuda,
        "driverVersion": found.driver,
        "package": package.name if package else None,
        "recommendedModel": verdict.model,
        "tested": verdict.tested,
        "vramVerified": verdict.tested and on_gpu,
        "fallbackToCpu": not (
            choice.on_gpu or (package is not None and package.provider in {DIRECTML, COREML})
        ),
        "reason": choice.summary,
        "checkedAt": now.isoformat(timespec="seconds"),
    }


def _largest(found: Detection) -> Optional[Device]:
    return max(found.devices, key=lambda device: device.memory_mib or 0, default=None)


def explained(choice: PackageChoice, selection: PackageSelection) -> List[str]:
    """Return lines with the choice, the reasons against other packages, and notes for the user."""
    lines = [choice.summary]
    mine = {package.name for package in selection.index.packages if package.platform == selection.platform}
    lines += [f"  not {other.package}: {other.reason}" for other in choice.reasons if other.package in mine]
    elsewhere = sum(other.package not in mine for other in choice.reasons)
    if elsewhere:
        lines.append(f"  {elsewhere} for other systems: `list` names them")
    if choice.support == JIT:
        lines.append(
            "  the first start takes minutes: the driver compiles the code for this GPU, and keeps it"
        )
    if not choice.on_gpu and not selection.found.devices:
        missed = (probe for probe in selection.found.probes if probe.outcome is not Outcome.FOUND)
        lines += [f"  {probe.name}: {probe.detail}" for probe in missed]
    lines += [f"  also here: {device_line(device)}" for device in choice.others if choice.on_gpu]
    lines += [f"  {note}" for note in choice.notes]
    return lines + ([f"  set CUDA_VISIBLE_DEVICES={choice.visible}"] if choice.visible else [])


def choice_value(choice: PackageChoice) -> Dict[str, object]:
    """Return a choice as a value for ``--json``."""
    return {
        "package": package_value(choice.package) if choice.package else None,
        "support": choice.support,
        "device": device_value(choice.device) if choice.device else None,
        "others": [device_value(device) for device in choice.others],
        "reasons": [{"package": item.package, "reason": item.reason} for item in choice.reasons],
        "summary": choice.summary,
        "notes": list(choice.notes),
        "cuda_visible_devices": choice.visible,
    }


def package_value(package: IndexPackage) -> Dict[str, object]:
    """Return a package of an index as a value for ``--json``."""
    return {
        "name": package.name,
        "variant": package.variant,
        "provider": package.provider,
        "layout": package.layout,
        "file": package.file,
        "size": package.size,
        "sha256": package.sha256,
        "cannot_run": [asdict(missing) for missing in package.onnxruntime.cannot_run],
    }
