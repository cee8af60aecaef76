"""A trial of another source (``--source``): the bases of ``variants.yaml`` compile it in this run.

A base keeps what it has in place of archives, where the source downloads these too, and its patches, where
the version is the same. It does not keep an older ONNX: the operators of ONNX Runtime are defined there. Pins
are written to the cache, not to ``inputs.lock``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from builder.build.pinning import pin_source, write_lock
from builder.config.fields import (
    DEPENDENCY_FORM,
    GIT_FORM,
    SPECS,
    TARBALL_FORM,
    Override,
    origin,
    override,
    repository,
)
from builder.config.inputs import TARS, Input, InputKind, Lock
from builder.config.variants import Base, GitSource, Source, TarballSource, TreeSource, source_problems
from builder.errors import ParseError, ValidationError
from builder.facts.ort.source import Dependency, SourceFacts
from builder.files.disk import absolute, resolved
from builder.io.wiring import Wiring

_OPERATORS = "onnx"
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")


def try_source(wiring: Wiring, text: str, dependencies: Sequence[str] = ()) -> None:
    """Let the bases of this run compile another source: its path, or its URL, with ``@REF`` or without.

    ``dependencies`` are ``NAME=WHAT``. Raises ``ValidationError`` for what names no source or nothing that it
    downloads, and what pinning and reading it raise.
    """
    source, given = named_source(text), dict(map(_named_dependency, dependencies))
    item = source.item
    with wiring.reporter.step("source"):
        wiring.__dict__.pop("lock", None)
        wiring.is_trial = True
        known = wiring.lock
        others = Lock({key: pin for key, pin in known.pins.items() if key != item.key})  # a branch goes on
        is_asked = item.is_here or not wiring.offline
        try:
            pinned = pin_source(wiring, item, others if is_asked else known, wiring.reporter)
        except ParseError as error:
            error.what = f"--source {text}: {error.what}"
            raise
        wiring.lock = known.with_more(pinned)
        write_lock(wiring, wiring.lock)
        facts, pin = pinned.sources[item.key], pinned.pins[item.key]
        state = f", commit {pin.revision}" if pin.revision else ""
        dirty = " and changes" if pin.is_dirty else ""
        wiring.reporter.say(f"ONNX Runtime {facts.version} of {item.spec}{state}{dirty}")
        bases = {name: _trying(base, source, facts, given) for name, base in wiring.project.bases.items()}
        wiring.project = replace(wiring.project, bases=bases)
        any_base = next(iter(bases))
        if problems := [*source_problems(wiring.project, any_base, wiring.lock)]:
            raise ValidationError([problem.removeprefix(f"bases.{any_base}.") for problem in problems])


def _named_dependency(text: str) -> tuple[str, Override]:
    name, _, what = text.partition("=")
    if not re.fullmatch(DEPENDENCY_FORM.pattern, what):
        raise ValidationError(
            f"--dependency {text!r} is not NAME=WHAT", advice=f"WHAT is {DEPENDENCY_FORM.allowed}."
        )
    return name, override(what)


def _trying(base: Base, source: Source, facts: SourceFacts, given: Mapping[str, Override]) -> Base:
    needed = {one.name: one for one in facts.dependencies}
    stand_ins = {name: one for name, one in base.dependencies.items() if name in needed}
    if (own := stand_ins.get(_OPERATORS)) and _is_older(own, needed[_OPERATORS]):
        del stand_ins[_OPERATORS]
    return replace(
        base,
        source=source,
        ort_version=facts.version,
        dependencies={**stand_ins, **given},
        patches=base.patches if base.ort_version == facts.version else (),
    )


def _is_older(stand_in: Override, asked: Dependency) -> bool:
    """Return whether what a base has is older than what the source names, or may be.

    What has no version in its name, like a folder, is not judged.
    """
    own, wanted = (_VERSION.search(name.rpartition("/")[2]) for name in (stand_in.public, asked.url))
    return own is not None and (wanted is None or Version(own[0]) < Version(wanted[0]))


def named_source(text: str) -> Source:
    """Return the source that ``--source`` names. Raises ``ConfigError`` where it names none.

    A folder is taken as it is, unless it is a bare repository or a reference is named.
    """
    path, (above, _, ref) = absolute(Path(text)), text.rpartition("@")
    if path.is_file():
        if not text.endswith(TARS):
            raise ValidationError(
                f"--source {text!r} is no archive of a source.", advice=f"One of {', '.join(TARS)}."
            )
        return TarballSource(Input(InputKind.FILE, str(resolved(path))))
    if path.is_dir() and not _is_bare(path):
        return TreeSource(Input(InputKind.TREE, str(resolved(path))))
    folder, ref = (path, "") if path.is_dir() else (absolute(Path(above)), ref)
    if folder.is_dir() and (path.is_dir() or "@" in text):
        item = Input(InputKind.GIT, f"{resolved(folder)}@{ref or 'HEAD'}")
        if not re.fullmatch(SPECS[InputKind.GIT], item.spec):
            raise ValidationError(
                f"--source: {ref!r} is no name of a tag, a branch or a commit.",
                advice="They begin with a letter or a digit, and have letters, digits, . _ / + -.",
            )
        return GitSource(item)
    is_far = not text.startswith("/")
    if is_far and re.fullmatch(TARBALL_FORM.pattern, text):
        return TarballSource(origin(text))
    if is_far and re.fullmatch(GIT_FORM.pattern, text):
        return GitSource(repository(text))
    raise ValidationError(
        f"--source {text!r}: nothing is there.",
        advice=f"A folder, a source archive ({', '.join(TARS)}) or a git repository: {GIT_FORM.allowed}.",
    )


def _is_bare(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir()
