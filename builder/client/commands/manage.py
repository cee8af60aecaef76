"""The commands ``verify``, ``rollback`` and ``uninstall`` work on installed packages, without a network.

Packages are removed in an order that leaves a whole package in use, or none, whenever the command is killed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import List, Tuple

from builder.client.context import CommandAnswer, CommandContext, require_yes
from builder.client.install.current import (
    detach,
    folder_in_use,
    in_use,
    installed,
    previous_package,
    remove_packages,
    require_ours,
    size_of_trees,
    switch,
    versions,
)
from builder.client.install.prefix import Prefix, changing, empty
from builder.client.install.unpack import verify
from builder.errors import IntegrityError, NothingToDoError
from builder.files.disk import remove
from builder.formats.text import amount


def answer_verify(context: CommandContext, prefix: Prefix) -> CommandAnswer:  # noqa: ARG001 every command has this shape
    """Hash the files of the package in use; exit code 7 where one differs from the manifest."""
    verdict = verify(installed(prefix))
    good = f"{verdict.manifest.name}: {len(verdict.manifest.files)} files are as the manifest says"
    value = {
        "name": verdict.manifest.name,
        "folder": str(verdict.folder),
        "files": len(verdict.manifest.files),
        "problems": list(verdict.problems),
    }
    if verdict.problems:
        return CommandAnswer(value, (*verdict.problems, "Run install again."), IntegrityError.exit_code)
    return CommandAnswer(value, (good,))


def answer_rollback(context: CommandContext, prefix: Prefix) -> CommandAnswer:
    """Switch back to the package that was in use before, after every file of it is verified."""
    now, target = installed(prefix).name, _target(prefix)
    require_yes(context, f"Go back from {now} to {target.name}?")
    require_ours(prefix)
    with changing(prefix, context.say):
        empty(prefix.parts)
        now, target = installed(prefix).name, _target(prefix)
        problems = _problems(target)
        if problems:
            raise IntegrityError(
                f"{target.name} is damaged, so {now} stays in use: {'; '.join(problems)}",
                advice="`install --index` with the index of its release installs it again.",
            )
        switch(prefix, target)
    value = {"from": now, "to": target.name, "folder": str(target)}
    return CommandAnswer(value, (f"In use, every file verified: {target}", f"No longer in use: {now}"))


def answer_uninstall(context: CommandContext, prefix: Prefix, *, old: bool) -> CommandAnswer:
    """Remove all packages, or with ``old`` only those that are not in use. Other programs' files stay."""
    if folder_in_use(prefix) is None and not versions(prefix) and not prefix.state.is_dir():
        raise NothingToDoError(
            f"No package is installed under {prefix.root}.",
            advice="Name the folder that has one with --prefix.",
        )
    what = "all packages that are not in use" if old else "all packages"
    require_yes(context, f"Remove {what} under {prefix.root}?", default=False)
    require_ours(prefix)
    with changing(prefix, context.say):
        arrived = size_of_trees((prefix.parts, prefix.downloads))
        empty(prefix.parts)
        empty(prefix.downloads)
        now = in_use(prefix)
        gone = [folder for folder in versions(prefix) if not old or folder.name != now]
        freed = arrived + (remove_packages(prefix, gone) if old else _remove_all(prefix))
        now, names = in_use(prefix), [folder.name for folder in gone]
        left = [] if old else _left(prefix)
        if not old:
            _leave(prefix)
    value = {
        "removed": names,
        "freed": freed,
        "in_use": now,
        "left": [str(path) for path in left],
    }
    left_over = ["leftovers of interrupted installs"] if arrived else []
    removed = f"Removed, {amount(freed)} freed: {', '.join([*names, *left_over]) or 'nothing'}"
    rest = [f"In use: {now}"] if now else [f"Not ours, it stays: {path}" for path in left]
    return CommandAnswer(value, (removed, *rest))


def _target(prefix: Prefix) -> Path:
    name = previous_package(prefix)
    if name is None:
        raise NothingToDoError(
            f"{in_use(prefix)} is in use, and no earlier package is here to return to.",
            advice="`install --index` with the index of an older release installs one.",
        )
    return prefix.versions / name


def _problems(package: Path) -> Tuple[str, ...]:
    try:
        return verify(package).problems
    except IntegrityError as error:
        return (error.headline,)


def _left(prefix: Prefix) -> List[Path]:
    """Return the paths under the prefix that the client did not make, with only the lock left of its own."""
    there = sorted(prefix.root.iterdir())
    return [path for path in there if path != prefix.state or set(path.iterdir()) != {prefix.lock}]


def _remove_all(prefix: Prefix) -> int:
    """Remove all that the client made but the lock, and return the bytes freed by packages.

    The link ``current`` goes first, then the packages.
    """
    detach(prefix)
    freed = remove_packages(prefix, versions(prefix))
    for path in (prefix.gpu_info, prefix.history, prefix.signed, prefix.downloads, prefix.parts):
        remove(path)
    with suppress(OSError):  # it holds files of other programs
        prefix.versions.rmdir()
    return freed


def _leave(prefix: Prefix) -> None:
    """Remove the lock, and the two folders around it unless they hold files of others.

    The next command may hold a new lock at once: from here on nothing that it made may be removed.
    """
    with suppress(OSError):  # Windows keeps the lock while it is held
        remove(prefix.lock)
        prefix.state.rmdir()
        prefix.root.rmdir()
