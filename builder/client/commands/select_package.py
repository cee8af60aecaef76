"""``select`` chooses the package that fits this machine; ``list`` shows those offered and installed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from builder.client.commands.show_gpus import device_line, device_value
from builder.client.context import CommandAnswer, CommandContext, ReleaseSource, Wish
from builder.client.doctor.observations import Detection, Outcome
from builder.client.install.current import in_use, previous_package, size_of_files, versions
from builder.client.install.prefix import Prefix, changing, read_info, write_json
from builder.client.install.source import Located, locate
from builder.client.probe.detect import detect
from builder.client.selection.forms import ApplicationHost, FormChoice, by_default, cards, refusal_of_all
from builder.client.selection.reasons import lacking, limits, refusal
from builder.client.selection.select import PackageChoice, Rejection, only, select
from builder.client.selection.table import lines as table_lines
from builder.errors import (
    DiskError,
    IntegrityError,
    NoCompatiblePackageError,
    TransferError,
    ValidationError,
)
from builder.facts.gpu.compatibility import JIT
from builder.facts.gpu.devices import Device
from builder.formats.index import Index, IndexPackage, distinct
from builder.formats.json_values import to_json
from builder.formats.manifest import ModelRule, loads_models
from builder.formats.package_names import COREML, DIRECTML, PackageForm
from builder.formats.text import amount

if TYPE_CHECKING:  # as in builder.client.context
    from builder.client.install.signed import Trust


def answer_select(
    context: CommandContext, release: ReleaseSource, wish: Wish, *, explain: bool
) -> CommandAnswer:
    """Show the package that this machine should run, and the reason against each other package."""
    selection = read_release_and_gpus(context, release, wish)
    choice = choose(selection, wish.variant)
    lines = explained(choice, selection)
    if explain:
        lines += [
            "",
            *table_lines(choice, selection.devices, selection.index, selection.platform, selection.glibc),
        ]
    return CommandAnswer(choice_value(choice), tuple(lines))


@dataclass(frozen=True)
class PackageSelection:
    """The packages to choose from, and the machine to choose for."""

    found: Detection
    located: Located
    devices: Sequence[Device]
    """The GPUs to choose for: all of them, or those of ``--device``."""
    platform: str
    wish: Wish = field(default_factory=Wish)
    host: Optional[ApplicationHost] = None
    """The application's ONNX Runtime; looked for only where the release has plug-ins or the user asks."""

    @property
    def glibc(self) -> Optional[str]:
        """Return the system's glibc version, in the form that ``client.selection.select`` takes."""
        return self.found.system.glibc

    @property
    def index(self) -> Index:
        """Return the release's index."""
        return self.located.index


def located(context: CommandContext, release: ReleaseSource) -> Located:
    """Return the release that the user named, with its signatures verified if the client has a root."""
    return locate(release.index, context.web, trust_of(context, release))


def trust_of(context: CommandContext, release: ReleaseSource) -> Optional[Trust]:
    """Return the keys that a release must be signed by; ``None`` where no signature is required."""
    if release.root is None:
        return None
    from builder.client.install.signed import Trust, kept_root  # noqa: PLC0415 only a signed release needs it

    kept = kept_root(release.state, release.first_root or release.root) if release.state else None
    return Trust(release.root, context.now(), release.prefix, kept, context.say)


def read_release_and_gpus(context: CommandContext, release: ReleaseSource, wish: Wish) -> PackageSelection:
    """Read the index and detect the GPUs."""
    there = located(context, release)
    if wish.table is not None:
        there = replace(there, index=replace(there.index, models=_models(wish.table)))
    detection = detect(context.around)
    devices = only(detection.devices, wish.device) if wish.device else detection.devices
    asked = wish.host is not None or any(package.plugin for package in there.index.packages)
    host = _host(context, wish.host) if asked else None
    return PackageSelection(detection, there, devices, context.platform, wish, host)


def _host(context: CommandContext, said: Optional[str]) -> Optional[ApplicationHost]:
    from builder.client.commands.hosts import found_host, stated_host  # noqa: PLC0415 only plug-ins need it

    return found_host(context, {}) if said is None else stated_host(said, context)


def _models(file: Path) -> Tuple[ModelRule, ...]:
    try:
        # Editors on Windows write a byte order mark.
        return loads_models(file.read_text(encoding="utf-8-sig"), str(file))
    except OSError as error:
        raise ValidationError(f"--models {file}: {error.strerror}.", advice="Check the path.") from error
    except UnicodeDecodeError as error:
        raise ValidationError(f"--models {file}: not UTF-8 text.") from error


def choose(selection: PackageSelection, variant: Optional[str]) -> PackageChoice:
    """Return the package that this machine should run.

    ``variant`` limits the choice to packages of this variant or name. Raises ``ValidationError`` or
    ``NoCompatiblePackageError`` where there is none.
    """
    packages, wish, host = selection.index.packages, selection.wish, selection.host
    mine = [item for item in packages if variant in (None, item.variant, item.name)]
    plugins = [item for item in mine if item.plugin and item.platform == selection.platform]
    form = _form(selection, plugins, only=bool(mine) and all(item.plugin for item in mine))
    if wish.host is not None:
        plugins = [item for item in plugins if refusal_of_all(host, [item]) is None]
    taken = plugins if form.form is PackageForm.PLUGIN else [item for item in packages if not item.plugin]
    index = replace(selection.index, packages=tuple(taken))
    here = replace(selection, located=replace(selection.located, index=index))
    choice = _select(here, index) if variant is None else _of_variant(variant, here)
    others = distinct(item for item in packages if item not in taken) if form.reason else ()
    why = f"form {form.form.value} is taken: {form.reason}"
    rejected = [Rejection(item.name, why) for item in others]
    notes = [cards(plugins)] if form.form is PackageForm.PLUGIN and not choice.on_gpu else []
    reasons = sorted((*choice.reasons, *rejected), key=lambda item: item.package)
    return replace(choice, form=form, reasons=tuple(reasons), notes=(*choice.notes, *notes))


def _form(selection: PackageSelection, plugins: Sequence[IndexPackage], *, only: bool) -> FormChoice:
    """Return the form to choose from; ``only``: nothing but plug-ins can be chosen.

    Raises ``NoCompatiblePackageError`` where a plug-in is asked for, and there is none or the stated host
    registers none.
    """
    wish, host = selection.wish, selection.host
    if wish.form == PackageForm.PROVIDER.value:
        return FormChoice(reason="as asked with --form.")
    none = None if plugins else f"this release has no plug-in for {selection.platform}"
    unfit = none or refusal_of_all(host, plugins)
    if wish.form or (only and plugins):
        if none or (wish.host is not None and unfit):
            advice = "A package of form provider brings its own host: leave --form out."
            raise NoCompatiblePackageError(f"--form plugin: {unfit}.", advice=advice)
        why = "as asked with --form" if wish.form else "only plug-ins are there to choose from"
        return FormChoice(PackageForm.PLUGIN, f"{why}{f', though {unfit}' if unfit else ''}.")
    if wish.host is None:
        return FormChoice() if none else by_default(host, plugins)
    if unfit:
        return FormChoice(reason=f"{unfit}.")
    registered = tuple(item for item in plugins if refusal_of_all(host, [item]) is None)
    if _select(selection, replace(selection.index, packages=registered)).on_gpu:
        return FormChoice(PackageForm.PLUGIN, f"{host.where if host else ''} registers it.")
    return FormChoice(reason=f"no plug-in is for a GPU here: {cards(plugins)}.")


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
    prefix: Prefix,
    selection: PackageSelection,
    choice: PackageChoice,
    verdict: ModelVerdict,
) -> None:
    """Write ``gpu-info.json``, whole or not at all. Where it cannot be written, the user gets a message."""
    try:
        with changing(prefix, context.say):
            write_json(prefix, prefix.gpu_info, _gpu_info(choice, selection.found, verdict, context.now()))
    except DiskError as error:
        context.say(f"{prefix.gpu_info}: not written: {error}")


def _gpu_info(
    choice: PackageChoice, detection: Detection, verdict: ModelVerdict, now: datetime
) -> Dict[str, object]:
    package, device = choice.package, choice.device or _largest(detection)
    memory = device.memory_mib if device else None
    on_gpu = verdict.device == "gpu"
    return {
        "format": 1,
        "hasGPU": bool(detection.devices),
        "gpuName": device.name if device else None,
        "vramMB": memory,
        "vramGB": round(memory / 1024, 1) if memory is not None else None,
        "cudaVersion": detection.cuda,
        "driverVersion": detection.driver,
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


def _largest(detection: Detection) -> Optional[Device]:
    return max(detection.devices, key=lambda device: device.memory_mib or 0, default=None)


def explained(choice: PackageChoice, selection: PackageSelection) -> List[str]:
    """Return lines with the choice, the reasons against other packages, and notes for the user."""
    lines = [
        choice.summary,
        *([f"  form {choice.form.form.value}: {choice.form.reason}"] if choice.form.reason else []),
    ]
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
        missed = (probe for probe in selection.found.replies.values() if probe.outcome is not Outcome.FOUND)
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
        "form": {"form": choice.form.form.value, "reason": choice.form.reason or None},
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
        "onnxruntime": package.onnxruntime.version,
        "cannot_run": to_json(package.onnxruntime.cannot_run),
        "cannot_run_below": to_json(package.onnxruntime.cannot_run_below),
        "form": package.form.value,
        "oldest_host": package.plugin.oldest_host if package.plugin else None,
    }


def answer_list(context: CommandContext, release: ReleaseSource) -> CommandAnswer:
    """List the packages of the release, if one is named, and the installed ones. No file is hashed.

    The exit code is 10 where the release cannot be fetched; the installed packages are listed then too.
    """
    missed, prefix = None, release.prefix
    try:
        index = located(context, release).index if release.index else None
    except TransferError as error:
        index, missed = None, error
    here = list(_versions(prefix))
    offered = index.packages if index else ()
    value: Dict[str, object] = {
        "prefix": str(prefix.root),
        "tag": index.tag if index else None,
        "offered": [_offer_value(package, prefix) for package in offered],
        "installed": here,
    }
    lines = [
        f"installed under {prefix.root}:",
        *(map(_version_line, here) if here else ["  nothing"]),
    ]
    if index:
        lines += [f"release {index.tag}:", *(_offer_line(package, prefix) for package in offered)]
    if missed is None:
        return CommandAnswer(value, tuple(lines))
    value["error"] = {"code": missed.exit_code, "message": str(missed)}
    return CommandAnswer(value, (*lines, f"release: {missed}"), missed.exit_code)


def _versions(prefix: Prefix) -> Iterator[Dict[str, object]]:
    """Yield a description of each package under the prefix, whose files are not verified."""
    roles = {previous_package(prefix): "previous", in_use(prefix): "current"}
    for folder in versions(prefix):
        try:
            info = read_info(folder)
        except IntegrityError:
            info = {}
        name, version, when = (_text(info.get(key)) for key in ("name", "version", "installedAt"))
        yield {
            "name": name or folder.name,
            "folder": str(folder),
            "onnxruntime": version,
            "installed_at": when,
            "size": size_of_files(folder),
            "role": roles.get(folder.name),
            "form": (PackageForm.PLUGIN if info.get("plugin") else PackageForm.PROVIDER).value,
        }


def _text(value: object) -> Optional[str]:
    return value if isinstance(value, str) else None


def _version_line(version: Mapping[str, object]) -> str:
    form = ", plug-in" if version["form"] == PackageForm.PLUGIN.value else ""
    role = form + (f", {version['role']}" if version["role"] else "")
    return f"  {Path(str(version['folder'])).name}: {amount(int(str(version['size'])))}{role}"


def _offer_value(package: IndexPackage, prefix: Prefix) -> Dict[str, object]:
    sizes = {"installed_size": package.installed_size, "here": prefix.folder(package).is_dir()}
    return {**package_value(package), "platform": package.platform, **sizes}


def _offer_line(package: IndexPackage, prefix: Prefix) -> str:
    form = f", plug-in for ONNX Runtime {package.plugin.oldest_host} or newer" if package.plugin else ""
    here = form + (", here" if prefix.folder(package).is_dir() else "")
    return f"  {package.file}: {amount(package.size)}, {amount(package.installed_size)} installed{here}"
