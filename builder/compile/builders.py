"""The buildx builders and Docker contexts that compile the variants of one run, if flags name some.

``docker buildx build`` accepts a context as a builder. Only compiling runs on these builders: this machine's
own engine checks, packs and runs the libraries that they return.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from builder.compile.stages import StageBuild
from builder.errors import ToolMissingError, ValidationError
from builder.formats.text import nearest
from builder.io.docker.engine import DockerEngine

_OWN = "default"
"""The name of this machine's own engine, as a builder and as a context."""

_LISTS = {
    "builder": "`docker buildx ls` lists the builders.",
    "context": "`docker context ls` lists the contexts.",
}
"""Advice by the flag whose names it is about."""


class Builders:
    """The builders of one run. Each variant is compiled on the builder with the fewest variants."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = list(names)
        self._busy: Counter[str | None] = Counter()
        self._gone: set[str] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._names)

    @property
    def have_own_engine(self) -> bool:
        """Whether this machine's own engine compiles, perhaps beside other builders."""
        return not self._names or _OWN in self._names

    @property
    def are_own_engine(self) -> bool:
        """Whether no other engine compiles than this machine's own."""
        return self._names in ([], [_OWN])

    def compile(self, work: Callable[[StageBuild], None], home: int, means: StageBuild) -> None:
        """Call ``work`` with ``means`` and the name of the builder with the fewest variants.

        Without named builders, the name is ``None``: the current builder. Of equally busy builders the first
        from index ``home`` on is taken, so that a variant finds its caches again. If the builder goes away
        during the work, another builder that answers is tried once. Raises what ``work`` raises.
        """
        with self._taken(home) as name:
            try:
                work(replace(means, builder=name))
            except ToolMissingError as error:
                if error.retry_after is None or name is None or not self._others_answer(name, means.engine):
                    raise
            else:
                return
        with self._taken(home) as other:
            means.reporter.warn(
                f"{name} does not answer any more; {other} compiles now, with the objects in its own caches"
            )
            work(replace(means, builder=other))

    @contextmanager
    def _taken(self, home: int) -> Iterator[str | None]:
        with self._lock:
            at = home % max(1, len(self._names))
            there = [name for name in self._names[at:] + self._names[:at] if name not in self._gone]
            name = min(there or self._names, key=self._busy.__getitem__, default=None)
            self._busy[name] += 1
        try:
            yield name
        finally:
            with self._lock:
                self._busy[name] -= 1

    def _others_answer(self, lost: str, engine: DockerEngine) -> bool:
        """Return whether a builder other than ``lost`` answers.

        Builders that do not answer are not taken again.
        """
        self._gone.add(lost)
        for name in self._names:
            try:
                if name not in self._gone:
                    engine.wake(name)
            except ToolMissingError:
                self._gone.add(name)
        return len(self._gone) < len(self._names)


def named_builders(engine: DockerEngine, flags: Mapping[str, str | None]) -> Builders:
    """Return the builders that ``--builder`` and ``--context`` name, separated by commas; all are running.

    Raises ``ValidationError`` for unknown names and ``ToolMissingError`` for a builder that does not answer.
    """
    given = {flag: text.split(",") for flag, text in flags.items() if text is not None}
    if empty := [flag for flag, names in given.items() if "" in names]:
        advice = "Take out a comma, or write the name."
        raise ValidationError(
            [f"--{flag} {flags[flag]!r}: a name is empty. {advice} {_LISTS[flag]}" for flag in empty]
        )
    known = {flag: engine.builders(flag) for flag in given}
    unknown = [(flag, name) for flag, names in given.items() for name in names if name not in known[flag]]
    if unknown:
        raise ValidationError([_unknown(flag, name, known[flag]) for flag, name in unknown])
    names = dict.fromkeys(name for names in given.values() for name in names)
    for name in names:
        engine.wake(name)
    return Builders([*names])


def _unknown(flag: str, name: str, known: Sequence[str]) -> str:
    advice = f"{nearest(name, known)} {_LISTS[flag]}".lstrip()
    return f"--{flag} {name!r} is none of {', '.join(known)}. {advice}"
