"""The buildx builders and Docker contexts that compile the variants of one run, where some are named.

To ``docker buildx build`` a context is a builder too. Compiling alone happens there: what comes back is
checked, packed and run by this machine's own engine.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from builder.errors import ToolMissingError, ValidationError
from builder.formats.text import nearest
from builder.ports import Engine, Reporter


class Builders:
    """The builders of one run. Each variant is compiled by the one that is least busy."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = list(names)
        self._busy: Counter[str | None] = Counter()
        self._gone: set[str] = set()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._names)

    def compile(
        self, work: Callable[[str | None], None], home: int, *, engine: Engine, reporter: Reporter
    ) -> None:
        """Call ``work`` with a builder's name; with ``None``, for the current one, where none is named.

        Of builders that are equally busy it is the one at ``home``, so that a variant finds its caches again.
        Where the builder goes away meanwhile, another one that answers is tried once. Raises what ``work``
        raises.
        """
        with self._taken(home) as name:
            try:
                work(name)
            except ToolMissingError:
                if name is None or not self._others_answer(name, engine):
                    raise
            else:
                return
        with self._taken(home) as other:
            reporter.warn(f"{name} went away; {other} compiles now, with what its own caches have")
            work(other)

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

    def _others_answer(self, lost: str, engine: Engine) -> bool:
        """Whether a builder other than ``lost`` answers. Those that do not are taken no more."""
        self._gone.add(lost)
        for name in self._names:
            try:
                if name not in self._gone:
                    engine.wake(name)
            except ToolMissingError:
                self._gone.add(name)
        return len(self._gone) < len(self._names)


def named_builders(engine: Engine, flags: Mapping[str, str | None]) -> Builders:
    """The builders that ``--builder`` and ``--context`` name, by commas. All of them are running then.

    Raises ``ValidationError`` for names that are unknown and ``ToolMissingError`` for a builder that does not
    answer.
    """
    given = {flag: text.split(",") for flag, text in flags.items() if text is not None}
    known = {flag: engine.builders(flag) for flag in given}
    unknown = [(flag, name) for flag, names in given.items() for name in names if name not in known[flag]]
    if unknown:
        raise ValidationError([_unknown(flag, name, known[flag]) for flag, name in unknown])
    names = dict.fromkeys(name for names in given.values() for name in names)
    for name in names:
        engine.wake(name)
    return Builders([*names])


def _unknown(flag: str, name: str, known: Sequence[str]) -> str:
    return f"--{flag} {name!r} is none of {', '.join(known)}. {nearest(name, known)}".rstrip()
