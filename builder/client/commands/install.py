"""The command ``install`` also writes ``gpu-info.json``, which describes the machine and the choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List

from builder.client.commands.recommend import by_table
from builder.client.commands.select_package import (
    Scene,
    choice_value,
    choose,
    explained,
    look,
    note_verdict,
    remember,
)
from builder.client.install.complete import (
    CompletionMeans,
    Nearby,
    Wheels,
    library_folders,
    site_packages,
)
from builder.client.install.current import require_ours
from builder.client.install.installer import InstallJob, InstallResult, install
from builder.client.install.pip import Pip
from builder.client.install.source import network
from builder.client.trials.try_out import OrtTrials
from builder.client.world import ClientOptions, CommandAnswer, World, head, require_yes
from builder.formats.index import IndexPackage, offers
from builder.formats.package_names import WINDOWS
from builder.formats.text import amount
from builder.selection.choice import PackageChoice


def answer_install(world: World, options: ClientOptions) -> CommandAnswer:
    """Install the package that fits. Where no package does, nothing is installed and the exit code is 0."""
    scene = look(world, options)
    choice = choose(scene, options.variant)
    if choice.package is None:
        return _nothing(world, options, scene, choice)
    for line in () if options.as_json else explained(choice, scene):
        world.say(line)
    job = _job(world, options, choice, choice.package, scene)
    _ask(world, options, job, choice.package)
    result = install(job)
    remember(world, options, scene.located.shown, scene.located.signed)
    choice = replace(choice, package=result.package)
    note_verdict(world, options, scene, choice, by_table(choice, scene, world))
    value = {**head("install"), **choice_value(choice), "installed": _value(result)}
    return CommandAnswer(value, tuple(_result_lines(result)))


def _nothing(world: World, options: ClientOptions, scene: Scene, choice: PackageChoice) -> CommandAnswer:
    note_verdict(world, options, scene, choice, by_table(choice, scene, world))
    value = {**head("install"), **choice_value(choice), "installed": None}
    lines = (*explained(choice, scene), "Nothing was installed: use ONNX Runtime's own CPU build.")
    return CommandAnswer(value, lines)


def _job(
    world: World, options: ClientOptions, choice: PackageChoice, package: IndexPackage, scene: Scene
) -> InstallJob:
    environments = (*site_packages(options.look_in), *world.environments)
    around = world.around
    libraries = library_folders(around.root, around.env.get("CONDA_PREFIX"), options.look_in)
    pythons = (world.around.python, "python3", "python", *(["py"] if world.platform == WINDOWS else []))
    pip = Pip(tuple(dict.fromkeys(pythons)), world.around.work)
    means = CompletionMeans(
        prefix=options.prefix,
        nearby=Nearby(options.prefix, environments, libraries),
        wheels=Wheels(options.wheels, None if options.offline else pip),
        say=world.say,
        free=world.free,
    )
    return InstallJob(
        choice=choice,
        offers=offers(scene.index.packages, package),
        layout=options.layout,
        located=scene.located,
        means=means,
        web=network(world.web, offline=options.offline),
        now=world.now,
        trials=OrtTrials(world.around.ask, world.around.python),
        symlink=world.symlink,
    )


def _ask(world: World, options: ClientOptions, job: InstallJob, package: IndexPackage) -> None:
    """Ask the user before anything is fetched, unless the folder of an offered package exists already."""
    require_ours(options.prefix)
    if not any(options.prefix.folder(offer).is_dir() for offer in job.offers):
        room = f"{amount(package.size)} to fetch at most, {amount(package.installed_size)} on the disk"
        require_yes(world, options, f"Install {package.name} under {options.prefix.root} ({room})?")


def _result_lines(result: InstallResult) -> List[str]:
    lines = [*([result.upgrade] if result.upgrade else []), result.why]
    if result.tried.version is not None:
        lines.append(f"Its libraries load here: ONNX Runtime {result.tried.version}.")
    else:
        lines.append(f"Not tried out: {result.tried.failure}.")
    done = "Installed" if result.fresh else "Already installed, every file verified"
    lines.append(f"{done}: {result.folder}")
    if result.previous is not None:
        lines.append(f"The one before stays for rollback: {result.previous}")
    if result.dropped:
        lines.append(f"Removed, {amount(result.freed)} freed: {', '.join(result.dropped)}")
    return lines


def _value(result: InstallResult) -> Dict[str, object]:
    return {
        "folder": str(result.folder),
        "fresh": result.fresh,
        "why": result.why,
        "loads": result.tried.version is not None,
        "previous": result.previous,
        "removed": list(result.dropped),
        "upgrade": result.upgrade,
    }
