"""The command ``install`` also writes ``gpu-info.json``, which describes the machine and the choice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from builder.client.commands.recommend import by_table
from builder.client.commands.select_package import (
    choice_value,
    choose,
    explained,
    note_verdict,
    read_release_and_gpus,
)
from builder.client.context import CommandAnswer, CommandContext, ReleaseSource, Wish, require_yes
from builder.client.install.complete import Libraries, library_folders, site_packages
from builder.client.install.current import require_ours
from builder.client.install.installer import Installation, InstallResult
from builder.client.install.pip import Pip
from builder.client.install.prefix import Prefix
from builder.client.trials.try_out import OrtTrials
from builder.formats.index import IndexPackage, offers
from builder.formats.package_names import WINDOWS
from builder.formats.text import amount, printable


def answer_install(
    context: CommandContext,
    release: ReleaseSource,
    wish: Wish,
    *,
    layout: Optional[str],
    look_in: Sequence[Path],
    wheels: Sequence[Path],
    offline: bool,
    as_json: bool,
) -> CommandAnswer:
    """Install the package that fits. Where no package does, nothing is installed and the exit code is 0.

    ``layout`` is ``full`` or ``thin``, ``None`` where the client chooses. ``look_in`` are environments that
    may hold NVIDIA's libraries, ``wheels`` folders that may hold their wheels.
    """
    prefix, selection = release.prefix, read_release_and_gpus(context, release, wish)
    choice = choose(selection, wish.variant)
    verdict = by_table(choice, selection, context)
    if choice.package is None:
        note_verdict(context, prefix, selection, choice, verdict)
        value = {**choice_value(choice), "installed": None}
        lines = (*explained(choice, selection), "Nothing was installed: use ONNX Runtime's own CPU build.")
        return CommandAnswer(value, lines)
    for line in () if as_json else explained(choice, selection):
        context.say(printable(line))
    offered = offers(selection.index.packages, choice.package)
    _ask(context, prefix, offered, choice.package)
    around = context.around
    libraries = Libraries(
        prefix,
        environments=(*site_packages(look_in), *context.environments),
        folders=library_folders(around.root, around.env.get("CONDA_PREFIX"), look_in),
        wheels=tuple(wheels),
        pip=None if offline else _pip(context),
    )
    trials = OrtTrials(around.ask, around.python)
    installation = Installation(
        selection.located, choice, libraries, context.web, trials, context.free, context.now, selection.host
    )
    result = installation.run(offered, layout)
    selection.located.remember()
    choice = replace(choice, package=result.package)
    note_verdict(context, prefix, selection, choice, verdict)
    value = {**choice_value(choice), "installed": _value(result)}
    return CommandAnswer(value, tuple(_result_lines(result)))


def _pip(context: CommandContext) -> Pip:
    pythons = (context.around.python, "python3", "python", *(["py"] if context.platform == WINDOWS else []))
    return Pip(tuple(dict.fromkeys(pythons)), context.around.work)


def _ask(
    context: CommandContext, prefix: Prefix, offered: Sequence[IndexPackage], package: IndexPackage
) -> None:
    """Ask the user before anything is fetched, unless the folder of an offered package exists already."""
    require_ours(prefix)
    if not any(prefix.folder(offer).is_dir() for offer in offered):
        room = f"{amount(package.size)} to fetch at most, {amount(package.installed_size)} on the disk"
        require_yes(context, f"Install {package.name} under {prefix.root} ({room})?")


def _result_lines(result: InstallResult) -> List[str]:
    lines = [*([result.upgrade] if result.upgrade else []), result.why]
    if result.manifest.plugin and result.tried.failure is None:
        lines.append(_plugin_line(result))
    elif result.tried.version is not None:
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


def _plugin_line(result: InstallResult) -> str:
    if result.tried.version is not None:
        return f"ONNX Runtime {result.tried.version} registers it. `env` prints its path and name."
    oldest = result.package.plugin.oldest_host if result.package.plugin else ""
    return (
        "Its libraries load here. No host registered it, for none that fits is known: the application needs "
        f"ONNX Runtime {oldest} or newer. `env` prints its path and name."
    )


def _value(result: InstallResult) -> Dict[str, object]:
    return {
        "folder": str(result.folder),
        "fresh": result.fresh,
        "why": result.why,
        "loads": result.tried.ran and result.tried.failure is None,
        "previous": result.previous,
        "removed": list(result.dropped),
        "upgrade": result.upgrade,
    }
