"""The command line that ``./run`` starts: Invoke, and verbs that take any number of things without a flag.

Invoke gives a task as many bare words as it has parameters and no more. Here, in a verb with ``--also``,
every bare word after the first is one more ``--also``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from invoke.program import Program

MORE = "--also"


def with_flags(words: Sequence[str], valued: frozenset[str]) -> Iterator[str]:
    """The words after a verb, with ``--also`` before every bare one but the first.

    ``valued`` are the flags that take the word behind them.
    """
    bare = 0
    value = False
    for word in words:
        is_flag = word.startswith("-") and not value
        bare += not (value or is_flag)
        if bare > 1 and not (value or is_flag):
            yield MORE
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
            if MORE in flags:
                valued = frozenset(flag for flag, takes in flags.items() if takes)
                self.core.unparsed = [verb, *with_flags(words, valued)]
        super().parse_tasks()


if __name__ == "__main__":
    Verbs(name="ortpacks").run()
