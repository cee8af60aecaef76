"""This module reads from a package's provenance how to make it again, and how another tree differs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from builder.errors import ConfigError
from builder.package.provenance import DEFINITION, Resource, Revision, at, dependency, read_subjects
from builder.project.inputs import Input, Lock

_BUILD = "./run build "

_WORDS = re.compile(r"(?:--(?:variant|base|profile|host|origin) [A-Za-z0-9._-]+|--(?:mixed|release|widen))")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that is needed to make one package again and to compare the result."""

    variant: str
    command: str
    subjects: Mapping[str, str]
    """Hex sha256 of the package's files, by file name."""
    config_sha256: str
    """Hex sha256 of ``variants.yaml``."""
    commit: str
    """Commit of the builder; empty if it was not a git checkout."""
    dirty: bool
    base_revision: str
    """``sha256:`` of an assembled base's parts, or an image's digest; empty if there is none."""
    inputs: Mapping[str, str]
    """Digest of each input by its URI; empty for an input that was not pinned."""


def read_recipe(document: bytes, where: str) -> Recipe:
    """Return the recipe in a provenance. Raises ``ParseError`` and ``SchemaError`` for another document."""
    subjects = read_subjects(document, where)
    value = json.loads(document)
    external, internal = (f"{DEFINITION}.{name}Parameters" for name in ("external", "internal"))
    found = at(value, f"{DEFINITION}.resolvedDependencies")
    parts = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    builder = next((one for one in parts if at(one, "name") == "ortpacks"), {})
    return Recipe(
        variant=_text(value, f"{external}.variant"),
        command=_text(value, f"{external}.command"),
        subjects=subjects,
        config_sha256=_text(value, f"{external}.config.sha256"),
        commit=_text(builder, "digest.gitCommit"),
        dirty=at(builder, "annotations.dirty") is True,
        base_revision=_text(value, f"{internal}.baseRevision"),
        inputs={
            _text(one, "uri"): _digest(one)
            for one in parts
            if one is not builder and at(one, "annotations.base") is not True
        },
    )


def build_arguments(recipe: Recipe) -> list[str]:
    """Return the arguments of ``./run build`` that make the package.

    Raises ``ConfigError`` for other commands.

    Only known flags of a foreign file reach a command line.
    """
    words = recipe.command.removeprefix(_BUILD)
    known = _WORDS.findall(words)
    if not recipe.command.startswith(_BUILD) or " ".join(known) != words:
        raise ConfigError(
            f"{recipe.command!r} is no command that makes a package.",
            advice="The provenance is of another ortpacks, or of an image: see its docs/provenance.md.",
        )
    return [word for flag in known for word in flag.split(" ")]


def tree_differences(
    recipe: Recipe, revision: Revision | None, config_sha256: str, lock: Lock
) -> Iterator[str]:
    """Yield a sentence for each difference between this tree and the tree that made the package."""
    made = f"it was made from commit {recipe.commit}" if recipe.commit else "it was made from no git checkout"
    if recipe.dirty:
        yield f"{made} and uncommitted changes"
    if revision is None:
        yield f"{made}; this folder is no git checkout"
    elif revision.commit != recipe.commit:
        yield f"{made}; here is {revision.commit}"
    if revision is not None and revision.dirty:
        yield "files here differ from their commit: `git status` names them"
    if recipe.config_sha256 != config_sha256:
        yield f"variants.yaml has sha256 {recipe.config_sha256[:12]} there, {config_sha256[:12]} here"
    ours: dict[str, set[str]] = {}
    for part in _pinned(lock):
        ours.setdefault(part.uri, set()).add(_first(part.digest))
    for uri, digest in recipe.inputs.items():
        here = ours.get(uri)
        if here is None:
            yield f"{uri} went in there; inputs.lock here does not have it"
        elif digest not in here:
            here_text = " or ".join(sorted(one or "not pinned" for one in here))
            yield f"{uri} is {digest or 'not pinned'} there, {here_text} in inputs.lock here"


def _pinned(lock: Lock) -> Iterator[Resource]:
    for key, pin in lock.pins.items():
        yield dependency(Input.parse(key), pin)


def _text(value: object, path: str) -> str:
    found = at(value, path)
    return found if isinstance(found, str) else ""


def _digest(part: object) -> str:
    found = at(part, "digest")
    return _first(found) if isinstance(found, dict) else ""


def _first(digest: Mapping[str, str]) -> str:
    return str(next(iter(digest.values()), ""))
