"""What each command answers: lines for a person, a value for a program, an exit code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Tuple

from builder.client import env
from builder.client.commands import Work
from builder.client.complete import Means
from builder.client.detect import Detection, Surroundings, detect
from builder.client.install import Job, install
from builder.client.layout import Prefix, in_use, installed
from builder.client.nearby import Nearby, site_packages
from builder.client.offer import AUTO
from builder.client.pip import Pip
from builder.client.probes import Outcome
from builder.client.source import Located, locate
from builder.client.verify import verify
from builder.client.web import Web
from builder.core.device import Device
from builder.core.index import Index, IndexPackage
from builder.core.select import Choice, distinct, offers, recommend, refusal, select
from builder.errors import IntegrityError, NoCompatiblePackageError, ValidationError

FORMAT = 1


@dataclass(frozen=True)
class World:
    """The machine as the commands see it; a test hands in another one."""

    around: Surroundings
    web: Web
    platform: str
    cores: int
    ram_gib: int
    say: Callable[[str], None]
    now: Callable[[], datetime]
    free: Callable[[Path], int]
    work: Work
    environments: Tuple[Path, ...]
    """``site-packages`` of the Python that runs this."""


@dataclass(frozen=True)
class Options:
    """What the user asked for, defaults filled in."""

    prefix: Prefix
    index: Optional[str]
    variant: Optional[str]
    dialect: str = "sh"
    """Shell that ``env`` writes for."""
    layout: str = AUTO
    look_in: Tuple[Path, ...] = ()
    """Environments that may hold NVIDIA's libraries."""


@dataclass(frozen=True)
class Answer:
    """``value`` is printed with ``--json``, ``lines`` without."""

    value: Mapping[str, object]
    lines: Tuple[str, ...]
    code: int = 0


def answer_detect(world: World, options: Options) -> Answer:  # noqa: ARG001 every command has this shape
    """The GPUs and what each probe said."""
    found = detect(world.around)
    devices = [_spell(device) for device in found.devices] or ["no NVIDIA GPU"]
    probes = [f"  {probe.name}: {probe.outcome.value}: {probe.detail}" for probe in found.probes]
    value = {
        **_head("detect"),
        "platform": world.platform,
        "driver": found.driver,
        "devices": [_device(device) for device in found.devices],
        "probes": [
            {"name": probe.name, "outcome": probe.outcome.value, "detail": probe.detail}
            for probe in found.probes
        ],
    }
    return Answer(value, (*devices, f"driver {found.driver or 'unknown'}", "probes:", *probes))


def answer_select(world: World, options: Options) -> Answer:
    """Which package this machine should run, and why not the others."""
    choice, found, _ = _choose(world, options)
    return Answer({**_head("select"), **_choice(choice)}, tuple(_explain(choice, found)))


def answer_install(world: World, options: Options) -> Answer:
    """Install the choice. The CPU is a choice too: nothing is installed then, and that is no error."""
    choice, found, located = _choose(world, options)
    head = {**_head("install"), **_choice(choice)}
    if choice.package is None:
        lines = (*_explain(choice, found), "Nothing was installed: use ONNX Runtime's own CPU build.")
        return Answer({**head, "installed": None}, lines)
    before = in_use(options.prefix)
    result = install(_job(world, options, choice, located))
    done = f"{'Installed' if result.fresh else 'Already installed, every file verified'}: {result.folder}"
    kept = [f"The one before stays: {before}"] if before not in {None, result.folder.name} else []
    now = {"folder": str(result.folder), "fresh": result.fresh, "why": result.why}
    value = {**head, **_choice(replace(choice, package=result.package)), "installed": now}
    return Answer(value, (*_explain(choice, found), result.why, done, *kept))


def _job(world: World, options: Options, choice: Choice, located: Located) -> Job:
    environments = (*site_packages(options.look_in), *world.environments)
    means = Means(
        prefix=options.prefix,
        nearby=Nearby(options.prefix, environments),
        pip=Pip(tuple(dict.fromkeys((world.around.python, "python3", "python"))), world.work),
        say=world.say,
        free=world.free,
    )
    same = offers(located.index.packages, choice.package) if choice.package else ()
    return Job(choice, same, options.layout, located, means, world.web, world.now)


def answer_verify(world: World, options: Options) -> Answer:  # noqa: ARG001 every command has this shape
    """Hash what is installed again; exit code 7 when it is not as its manifest says."""
    verdict = verify(installed(options.prefix))
    good = f"{verdict.manifest.name}: {len(verdict.manifest.files)} files are as the manifest says"
    value = {
        **_head("verify"),
        "name": verdict.manifest.name,
        "folder": str(verdict.folder),
        "files": len(verdict.manifest.files),
        "problems": list(verdict.problems),
    }
    if verdict.problems:
        return Answer(value, (*verdict.problems, "Run install again."), IntegrityError.exit_code)
    return Answer(value, (good,))


def answer_env(world: World, options: Options) -> Answer:  # noqa: ARG001 every command has this shape
    """The variables an application needs."""
    values = env.variables(options.prefix)
    return Answer({**_head("env"), "variables": values}, tuple(env.lines(values, options.dialect)))


def answer_recommend(world: World, options: Options) -> Answer:
    """The model this machine can hold, by the table in the index."""
    choice, _, located = _choose(world, options)
    vram = choice.device.memory_mib if choice.package and choice.device else None
    rule = recommend(located.index.models, vram, world.cores, world.ram_gib)
    seen = f"{f'{vram} MiB of GPU memory' if vram else 'no usable GPU memory'}, {world.cores} cores, "
    why = f"{seen}{world.ram_gib} GiB of RAM"
    value = {
        **_head("recommend"),
        "model": rule.model if rule else None,
        "device": rule.device if rule else None,
        "vram_mib": vram,
        "cores": world.cores,
        "ram_gib": world.ram_gib,
    }
    return Answer(value, (f"{rule.model if rule else 'no model of the table fits'}: {why}",))


def _choose(world: World, options: Options) -> Tuple[Choice, Detection, Located]:
    located = locate(options.index, world.web)
    found = detect(world.around)
    if options.variant is None:
        return select(found.devices, located.index, world.platform), found, located
    return _as_asked(options.variant, found, located.index, world.platform), found, located


def _as_asked(variant: str, found: Detection, index: Index, platform: str) -> Choice:
    """``--variant``: the user's word stands even where no GPU here runs it, for images built elsewhere."""
    names = sorted({package.variant for package in index.packages})
    if variant not in names:
        raise ValidationError(f"--variant {variant}: the index has {', '.join(names)}")
    mine = tuple(package for package in index.packages if package.variant == variant)
    choice = select(found.devices, replace(index, packages=mine), platform)
    if choice.package is not None:
        return choice
    here = sorted((item for item in distinct(mine) if item.platform == platform), key=lambda item: item.size)
    if not here:
        raise NoCompatiblePackageError(f"--variant {variant}: it has no package for {platform}.")
    return replace(choice, package=here[0], summary=_warning(here[0], found, platform))


def _warning(package: IndexPackage, found: Detection, platform: str) -> str:
    reasons = [refusal(package, device, platform) for device in found.devices]
    why = "; ".join(reason for reason in reasons if reason) or "no NVIDIA GPU was found"
    return f"{package.name}, as asked with --variant. It will not run on a GPU here: {why}."


def _explain(choice: Choice, found: Detection) -> List[str]:
    lines = [choice.summary]
    lines += [f"  not {rejection.package}: {rejection.reason}" for rejection in choice.reasons]
    if choice.package is None and not found.devices:
        lines += [
            f"  {probe.name}: {probe.detail}" for probe in found.probes if probe.outcome is not Outcome.FOUND
        ]
    lines += [f"  also here: {_spell(device)}" for device in choice.others if choice.package]
    return lines + ([f"  set CUDA_VISIBLE_DEVICES={choice.visible}"] if choice.visible else [])


def _head(command: str) -> Dict[str, object]:
    return {"format": FORMAT, "command": command}


def _choice(choice: Choice) -> Dict[str, object]:
    package = choice.package
    return {
        "package": {
            "name": package.name,
            "variant": package.variant,
            "layout": package.layout,
            "file": package.file,
            "size": package.size,
            "sha256": package.sha256,
        }
        if package
        else None,
        "support": choice.support,
        "device": _device(choice.device) if choice.device else None,
        "others": [_device(device) for device in choice.others],
        "reasons": [{"package": item.package, "reason": item.reason} for item in choice.reasons],
        "summary": choice.summary,
        "cuda_visible_devices": choice.visible,
    }


def _device(device: Device) -> Dict[str, object]:
    return {
        "index": device.index,
        "uuid": device.uuid or None,
        "name": device.name,
        "capability": str(device.capability) if device.capability else None,
        "memory_mib": device.memory_mib,
        "driver": device.driver,
    }


def _spell(device: Device) -> str:
    return f"GPU {device.index}: {device}" + (f" {device.uuid}" if device.uuid else "")


COMMANDS: Mapping[str, Callable[[World, Options], Answer]] = {
    "detect": answer_detect,
    "select": answer_select,
    "install": answer_install,
    "verify": answer_verify,
    "env": answer_env,
    "recommend": answer_recommend,
}
