"""The command line that ``./run`` starts: Invoke, and verbs that take any number of things without a flag.

Invoke gives a task as many bare words as it has parameters, all of which must be there. Here, in a verb with
``--also``, every bare word after the first is one more ``--also``; in one with ``--package`` every bare word
is one more of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from invoke.program import Program

UNFLAGGED = {"--also": 1, "--package": 0}
"""Flags that need not be written, and how many bare words come before the first that they stand before."""


def with_flags(words: Sequence[str], valued: frozenset[str], flag: str = "--also") -> Iterator[str]:
    """The words after a verb, with ``flag`` before every bare one that it need not be written before.

    ``valued`` are the flags that take the word behind them.
    """
    bare = 0
    value = False
    for word in words:
        is_flag = word.startswith("-") and not value
        bare += not (value or is_flag)
        if bare > UNFLAGGED[flag] and not (value or is_flag):
            yield flag
        yield word
        value = is_flag and word in valued


class Verbs(Program):
    """Invoke with the words of the first verb put right before they are parsed."""

    def parse_tasks(self) -> None:
        """See ``invoke.program.Program``."""
        verb, *words = self.core.unparsed or [""]
        if verb in self.collection.task_names:
            flags = {
                f"--{name}"[len(name) == 1 :]: argument.takes_value
                for argument in self.collection[verb].get_arguments()
                for name in argument.names
            }
            for unflagged in UNFLAGGED.keys() & flags.keys():
                valued = frozenset(flag for flag, takes in flags.items() if takes)
                self.core.unparsed = [verb, *with_flags(words, valued, unflagged)]
        super().parse_tasks()


if __name__ == "__main__":
    Verbs(name="ortpacks").run()
