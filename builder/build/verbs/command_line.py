"""The program that ``./run`` starts: Invoke's, with help, completion and errors of its own.

Invoke gives a task as many bare words as it has positional parameters, and each parameter needs one.
``Verbs`` lifts this limit: in a verb with ``--also`` every bare word after the first is one more ``--also``,
and in a verb with ``--package`` every bare word is a package.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import json
import os
import re
import shlex
import signal
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.program import Program

from builder.build.verbs.flags import ROOT
from builder.errors import FULL_DISK, BuilderError, ValidationError, os_error
from builder.formats.text import nearest, redacted_message, shown, wrapped
from builder.io.wiring import make_quiet, without_secrets

INTERRUPTED = 130

_OUTPUT_LOST = (*FULL_DISK, errno.EIO)
"""Error numbers of a failed write to an open file or to the output. Such an error names no file."""

UNFLAGGED = {"--also": 1, "--package": 0}
"""Flags that may be left out, each with the number of bare words that come before its first value."""


def with_flags(words: Sequence[str], valued: frozenset[str], flag: str = "--also") -> Iterator[str]:
    """Yield the words after a verb, with ``flag`` inserted before every bare word that lacks it.

    ``valued`` are the flags that take the next word as their value.
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


ROLES: Mapping[str, Mapping[str, str]] = json.loads(
    Path(__file__).with_name("roles.json").read_text(encoding="utf-8")
)
"""Every verb, with an example, below what it is for."""

_FORMER = {
    "bake": "./run build --builder NAME",
    "builds": "the table in docs/performance.md",
    "bundle": "./run build --compiled",
    "check": "./run verify --read-only PACKAGE",
    "cache": "./run clean --cache --dry-run",
    "help": "./run VERB --help",
}
"""What took the place of words that were verbs, or that people take for one."""

_START = """\
ONNX Runtime for every NVIDIA card from Maxwell to Blackwell.

  ./run doctor                           what is here and what is missing for a build
  ./run plan --variant legacy            what would be built, why, how long it takes and the room it needs
  ./run build --variant modern --mixed   a verified package in dist/, in minutes
  ./run inspect dist/*.tar.zst           which GPUs the code in libraries runs on: anybody's, or a package's
  ./run verify                           prove each package in dist/, and run models on it

./run --list has every verb, ./run build --help a verb's flags. README.md is the place to start.
"""

_LIST_FORMATS = ("flat", "nested", "json")

_UNKNOWN = re.compile(r"No idea what '(?P<word>.*)' is!", re.DOTALL)

_NO_VALUE = re.compile(r"Flag <Argument: (?P<name>\S+)> needed value and was not given one!")


@contextlib.contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a verb as Ctrl-C does: with them the programs that the verb has started.

    By default Python would end at once, and BuildKit go on compiling for hours. A signal that is ignored,
    as SIGHUP is below ``nohup``, stays so.
    """
    ours = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in ours:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


class Verbs(Program):
    """Invoke's program, with ``with_flags`` applied to the words of the first verb.

    ``VERB --help`` explains a verb as ``--help VERB`` does, also if the verb has positional parameters. For
    an unknown verb or flag, the error names the nearest one, and the exit code is 2.
    """

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:  # noqa: A002 - Invoke's name
        """See ``invoke.program.Program``. An error ends the program with its message and exit code.

        So does a full disk, and a reader that closes the pipe early. A bug keeps its traceback.
        """
        try:
            try:
                with without_secrets(), _ended_as_by_ctrl_c():
                    super().run(argv, exit)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
            sys.exit(BuilderError.exit_code)
        except (BuilderError, OSError) as error:
            failure = error if isinstance(error, BuilderError) else _failure(error)
            sys.stderr.write(f"error: {shown(redacted_message(str(failure)))}\n")
            sys.exit(failure.exit_code)

    def core_args(self) -> list[Argument]:
        """See ``invoke.program.Program``. Adds ``--quiet``, which every verb takes."""
        quiet = "no progress: only warnings, errors, reports and what --json prints"
        return [*super().core_args(), Argument(names=("quiet", "q"), kind=bool, default=False, help=quiet)]

    def execute(self) -> None:
        """See ``invoke.program.Program``, which would report neither an interrupt nor a closed pipe."""
        if self.args.quiet.value:
            make_quiet()
        try:
            super().execute()
        except KeyboardInterrupt:
            raise Exit("interrupted; the same command goes on from here", code=INTERRUPTED) from None
        except BrokenPipeError:
            _discard_output()
            ended = "error: the program that read the output has ended"
            raise Exit(ended, code=BuilderError.exit_code) from None

    def parse_core(self, argv: list[str] | None) -> None:
        """See ``invoke.program.Program``."""
        try:
            super().parse_core(argv)
        except ValueError:
            raise ValidationError("--list-depth and --command-timeout take whole numbers") from None

    def print_help(self) -> None:
        """See ``invoke.program.Program``. Prints the same text as ``./run`` without words."""
        sys.stdout.write(_START)

    def list_flat(self) -> None:
        """See ``invoke.program.Program``. Prints the verbs by what they are for."""
        verbs = dict(self._make_pairs(self.scoped_collection))
        for role, examples in ROLES.items():
            sys.stdout.write(f"{role}:\n\n")
            self.print_columns([(name, verbs[name]) for name in examples])
        sys.stdout.write(
            "./run VERB --help has a verb's flags and an example.\n"
            "-q (--quiet) leaves warnings, errors, reports and what --json prints.\n"
        )

    def print_task_help(self, name: str) -> None:
        """See ``invoke.program.Program``. Prints what the verb does, an example and its flags."""
        example = next(examples[name] for examples in ROLES.values() if name in examples)
        what = wrapped(inspect.getdoc(self.collection[name]) or "", 80)
        sys.stdout.write(f"{what}\n\n  {example}\n\n")
        flags = self.parser.contexts[name].help_tuples()
        if flags:
            sys.stdout.write("Flags:\n")
            self.print_columns(flags)

    def print_version(self) -> None:
        """See ``invoke.program.Program``."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        sys.stdout.write(f"{project['name']} {project['version']}\n")

    def parse_tasks(self) -> None:
        """See ``invoke.program.Program``."""
        first, *words = self.core.unparsed or [""]
        if first in self.collection.task_names:
            flags = {
                f"--{name}": argument.takes_value
                for argument in self.collection[first].get_arguments()
                for name in argument.names
            }
            valued = frozenset(flag for flag, takes in flags.items() if takes)
            for unflagged in UNFLAGGED.keys() & flags.keys():
                self.core.unparsed = [first, *with_flags(words, valued, unflagged)]
            if {"--help", "-h"}.intersection(words):
                # Invoke would take --help as the value of a positional parameter
                self.args.help.value = first
                self.core.unparsed = []
        try:
            super().parse_tasks()
        except ParseError as error:
            raise self._usage(error) from None

    def parse_cleanup(self) -> None:
        """See ``invoke.program.Program``."""
        asked, listed = self.args.help.value, self.args.list.value
        form = self.args["list-format"].value
        if isinstance(asked, str) and asked not in self.collection.task_names:
            raise self._unknown(asked, None)
        if isinstance(listed, str):
            raise ValidationError(f"--list takes no word like {listed!r}", advice=_help_of(None))
        if form not in _LIST_FORMATS:
            raise ValidationError(f"--list-format {form!r} is none of {', '.join(_LIST_FORMATS)}.")
        super().parse_cleanup()

    def _usage(self, error: ParseError) -> ValidationError:
        """Return the error for words that do not parse, with the nearest spelling and where help is."""
        verb = error.context.name if error.context is not None else None
        unknown = _UNKNOWN.fullmatch(str(error))
        if unknown:
            return self._unknown(unknown["word"], verb)
        needs = _NO_VALUE.fullmatch(str(error))
        return ValidationError(
            f"--{needs['name']} needs a value" if needs else str(error), advice=_help_of(verb)
        )

    def _unknown(self, word: str, verb: str | None) -> ValidationError:
        before = self.argv[self.argv.index(word) - 1] if word in self.argv else ""
        if before.startswith("--") and self.argv.count(before) > 1:
            return ValidationError(f"{before} is given twice", advice=f"It takes one value. {_help_of(verb)}")
        if not word.startswith("-"):
            former = f"Use {_FORMER[word]}." if word in _FORMER else ""
            what, near = "verb", former or nearest(word, self.collection.task_names)
        else:
            what, near = (
                "flag",
                nearest(word, self.parser.contexts[verb].flags if verb else self.initial_context.flags),
            )
        if not near and what == "verb" and verb and "--variant" in self.parser.contexts[verb].flags:
            near = f"Did you mean --variant {word}?"
        of = f" of {verb}" if verb and what == "flag" else ""
        return ValidationError(f"{word!r} is no {what}{of}", advice=f"{near} {_help_of(verb)}".lstrip())


def _failure(error: OSError) -> BuilderError:
    """Return what to report of a file, or of an output without room. Raises ``error`` where it is a bug."""
    if error.filename is None and error.errno not in _OUTPUT_LOST:
        raise error
    if error.filename is None:
        _discard_output()
    return os_error(error)


def _discard_output() -> None:
    """Send buffered output to /dev/null. Python would write it at exit, fail and exit with 120."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _help_of(verb: str | None) -> str:
    return f"./run {verb} --help has its flags." if verb else "./run --list has the verbs."


def program(namespace: Collection | None = None) -> Verbs:
    """Return the program that ``./run`` starts; without a namespace it reads ``tasks.py``."""
    return Verbs(name="ortpacks", binary="./run", binary_names=["./run"], namespace=namespace)


def command_to_continue(verb: str) -> str:
    """Return the command that continues this run: the user's words from ``verb`` on, without ``--force``."""
    words = (word for word in sys.argv[sys.argv.index(verb) :] if word != "--force")
    return shlex.join(["./run", *words])


def restart_through_run() -> None:
    """Replace the process by ``./run`` with the same words if it is Invoke itself (``invoke build``)."""
    if "invoke.main" in sys.modules:
        os.execv(ROOT / "run", ["./run", *sys.argv[1:]])  # noqa: S606 - it replaces this process


if __name__ == "__main__":
    program().run()
