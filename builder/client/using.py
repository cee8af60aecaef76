"""The answers of ``verify`` and ``env``: about the package in use."""

from __future__ import annotations

from builder.client import env
from builder.client.current import installed
from builder.client.verify import verify
from builder.client.world import Answer, Options, World, head
from builder.errors import IntegrityError


def answer_verify(world: World, options: Options) -> Answer:  # noqa: ARG001 every command has this shape
    """Hash what is installed again; exit code 7 when it is not as its manifest says."""
    verdict = verify(installed(options.prefix))
    good = f"{verdict.manifest.name}: {len(verdict.manifest.files)} files are as the manifest says"
    value = {
        **head("verify"),
        "name": verdict.manifest.name,
        "folder": str(verdict.folder),
        "files": len(verdict.manifest.files),
        "problems": list(verdict.problems),
    }
    if verdict.problems:
        return Answer(value, (*verdict.problems, "Run install again."), IntegrityError.exit_code)
    return Answer(value, (good,))


def answer_env(world: World, options: Options) -> Answer:
    """The variables an application needs."""
    values = env.variables(options.prefix, world.platform)
    said = env.lines(values, options.dialect, world.platform)
    return Answer({**head("env"), "variables": values}, tuple(said))
