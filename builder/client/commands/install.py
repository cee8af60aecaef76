"""The command ``install`` also writes ``gpu-info.json``, which describes the machine and the choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List

from builder.client.commands.recommend import by_table
from builder.client.commands.select_package import (
    PackageSelection,
    choice_value,
    choose,
    explained,
    note_verdict,
    read_release_and_gpus,
    remember,
)
from builder.client.context import ClientOptions, CommandAnswer, CommandContext, head, require_yes
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
from builder.client.trials.try_out import OrtTrials
from builder.formats.index import IndexPackage, offers
from builder.formats.package_names import WINDOWS
from builder.formats.text import amount
from builder.selection.choice import PackageChoice


def answer_install(context: CommandContext, options: ClientOptions) -> CommandAnswer:
    """Install the package that fits. Where no package does, nothing is installed and the exit code is 0."""
    selection = read_release_and_gpus(context, options)
    choice = choose(selection, options.variant)
    if choice.package is None:
        return _nothing(context, options, selection, choice)
    for line in () if options.as_json else explained(choice, selection):
        context.say(line)
    job = _job(context, options, choice, choice.package, selection)
    _ask(context, options, job, choice.package)
    result = install(job)
    remember(context, options, selection.located.shown, selection.located.signed)
    choice = replace(choice, package=result.package)
    note_verdict(context, options, selection, choice, by_table(choice, selection, context))
    value = {**head("install"), **choice_value(choice), "installed": _value(result)}
    return CommandAnswer(value, tuple(_result_lines(result)))


def _nothing(
    context: CommandContext, options: ClientOptions, selection: PackageSelection, choice: PackageChoice
) -> CommandAnswer:
    note_verdict(context, options, selection, choice, by_table(choice, selection, context))
    value = {**head("install"), **choice_value(choice), "installed": None}
    lines = (*explained(choice, selection), "Nothing was installed: use ONNX Runtime's own CPU build.")
    return CommandAnswer(value, lines)


def _job(
    context: CommandContext,
    options: ClientOptions,
    choice: PackageChoice,
    package: IndexPackage,
    selection: PackageSelection,
) -> InstallJob:
    environments = (*site_packages(options.look_in), *context.environments)
    around = context.around
    libraries = library_folders(around.root, around.env.get("CONDA_PREFIX"), options.look_in)
    pythons = (context.around.python, "python3", "python", *(["py"] if context.platform == WINDOWS else []))
    pip = Pip(tuple(dict.fromkeys(pythons)), context.around.work)
    means = CompletionMeans(
        prefix=options.prefix,
        nearby=Nearby(options.prefix, environments, libraries),
        wheels=Wheels(options.wheels, None if options.offline else pip),
        say=context.say,
        free=context.free,
    )
    return InstallJob(
        choice=choice,
        offers=offers(selection.index.packages, package),
        layout=options.layout,
        located=selection.located,
        means=means,
        web=context.web,
        now=context.now,
        trials=OrtTrials(context.around.ask, context.around.python),
    )


def _ask(context: CommandContext, options: ClientOptions, job: InstallJob, package: IndexPackage) -> None:
    """Ask the user before anything is fetched, unless the folder of an offered package exists already."""
    require_ours(options.prefix)
    if not any(options.prefix.folder(offer).is_dir() for offer in job.offers):
        room = f"{amount(package.size)} to fetch at most, {amount(package.installed_size)} on the disk"
        require_yes(context, options, f"Install {package.name} under {options.prefix.root} ({room})?")


def _result_lines(result: InstallResult) -> List[str]:
    lines = [*([result.upgrade] if result.upgrade else []), result.why]
    if result.tried.version is not None:
        lines.append(f"Its libraries load here: ONNX Runtime {result.tried.version}.")
    else:
        lines.append(f"Not tried out: {result.tried.failure}.")
    done = "Installed" if result.fresh else "Already installed, every file verified"
    lines.append(f"{done}: {result.folder}")
    if result.previous is not None:
        lines.append(f"The previous package stays for rollback: {result.previous}")
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
