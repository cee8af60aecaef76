"""The command line turns flags into values, and errors into messages and exit codes. ``./run`` starts it.

Invoke gives a task as many bare words as it has positional parameters, and each parameter needs one.
``Verbs`` lifts this limit: in a verb with ``--also`` every bare word after the first is one more ``--also``,
and in a verb with ``--package`` every bare word is a package.

``--cache`` names a cache for BuildKit's layers outside the builder, ``type=gha,scope=legacy``. Cache types
whose source and target are named differently (``type=local``) are refused. Source of the types, and of the
keys that are secrets: the page "Cache storage backends" of Docker's manual.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import inspect
import io
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.program import Program
from invoke.tasks import Task, task

from builder.adapters.compile_cache import compile_cache
from builder.builds.builders import named_builders
from builder.builds.variant_build import BuildOptions, VariantBuild
from builder.builds.wiring import Wiring
from builder.config.project import pick_variants
from builder.console import Console
from builder.errors import FULL_DISK, BuilderError, TransferError, ValidationError, os_error
from builder.formats.package_names import Host, Profile
from builder.formats.text import nearest
from builder.pipeline.plan import PlanOptions, require_base
from builder.ports import CompileCache, CompileCaches
from builder.project.variants import Origin, Variant

P = ParamSpec("P")

E = TypeVar("E", bound=Enum)

ROOT = Path(__file__).resolve().parent.parent.parent

INTERRUPTED = 130

_MOST_JOBS = 1024

_MEMORY = re.compile(r"(?P<size>[0-9]{1,6}(?:\.[0-9]{1,3})?)(?P<unit>[GgMm])(?:i?[Bb])?")

_OUTPUT_LOST = (*FULL_DISK, errno.EIO)
"""Error numbers of a failed write to an open file or to the output. Such an error names no file."""

JSON = "as JSON; messages go to standard error"
"""The help line of ``--json``."""

FLAGS = {
    "variant": "a variant or provider of variants.yaml; may be given more than once",
    "all": "every variant and provider without `all: false` in variants.yaml; ./run matrix lists them",
    "base": "auto (the first of variants.yaml that can be had), nvidia, assembled or redist",
    "origin": "auto (wheel where it serves the whole set), wheel or source",
    "profile": "full, lean or minimal; asking for less than full means compiling",
    "host": "wheel or source: where libonnxruntime.so.1 comes from",
    "widen": "add architectures so that it runs wherever plain code for the set does",
    "mixed": "repack the wheel of onnxruntime.version where it serves, whatever version the base compiles",
    "release": "both layouts, and refuse now what publish would refuse: less than full, unpinned bases",
    "builder": "buildx builders to compile on: NAME[,NAME...]; a variant takes the least busy one",
    "context": "Docker contexts to compile on: NAME[,NAME...]",
    "offline": "fetch nothing: everything must be in the cache",
    "dist": "folder for results (dist)",
}


def reported(body: Callable[Concatenate[Context, P], None]) -> Callable[Concatenate[Context, P], None]:
    """Return the verb with its errors turned into messages and exit codes. A bug keeps its traceback."""

    @functools.wraps(body)
    def run(context: Context, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            _require_values(kwargs)
            body(context, *args, **kwargs)
        except BuilderError as error:
            raise Exit(f"error: {error}", code=error.exit_code) from None
        except KeyboardInterrupt:
            raise Exit("interrupted; the same command goes on from here", code=INTERRUPTED) from None
        except BrokenPipeError:
            _discard_output()
            raise Exit(
                "error: the program that read the output has ended", code=BuilderError.exit_code
            ) from None
        except OSError as error:
            failure = _failure(error)
            raise Exit(f"error: {failure}", code=failure.exit_code) from None

    return run


def _failure(error: OSError) -> BuilderError:
    """What to report of a file, or of an output without room. Raises ``error`` itself where it is a bug."""
    if error.filename is None and error.errno not in _OUTPUT_LOST:
        raise error
    if error.filename is None:
        _discard_output()
    return os_error(error)


def _require_values(flags: Mapping[str, object]) -> None:
    """Raise ``ValidationError`` for a flag whose value is empty: a shell's variable that is not set.

    Most flags would go unnoticed then, and ``--dist`` would be another folder.
    """
    for name, value in flags.items():
        if value == "" or (isinstance(value, list) and "" in value):
            raise ValidationError(
                f"--{name.strip('_').replace('_', '-')} is empty",
                advice="Give it a value, or leave it out.",
            )


def verb(
    *,
    name: str | None = None,
    positional: Sequence[str] | None = None,
    iterable: Sequence[str] = (),
    **own: str,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a task of a function, with its errors handled as in ``reported``.

    ``own`` has the help lines of the function's flags; flags in ``FLAGS`` need none.
    """

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        shared = {flag: FLAGS[flag] for flag in inspect.signature(body).parameters if flag in FLAGS}
        return task(
            reported(body),
            klass=Verb,
            name=name,
            positional=positional,
            iterable=iterable,
            help=shared | own,
            auto_shortflags=False,  # a new flag would change the letters of others
        )

    return decorate


class Verb(Task[Callable[..., None]]):
    """A task that keeps its help lines.

    Invoke's task removes each line when it is read, so that a second read finds none.
    """

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """See ``invoke.tasks.Task``."""
        lines = dict(self.help)
        try:
            return super().get_arguments(ignore_unknown_help)
        finally:
            self.help = lines


def _discard_output() -> None:
    """Send buffered output to /dev/null. Python would write it at exit, fail and exit with 120."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def command_to_continue(verb: str) -> str:
    """Return the command that continues this run: the user's words from ``verb`` on, without ``--force``."""
    words = (word for word in sys.argv[sys.argv.index(verb) :] if word != "--force")
    return shlex.join(["./run", *words])


def enum_value(kind: type[E], name: str, value: str | None) -> E | None:
    """Return a flag's value as a member of an enum; ``None`` if the flag was not given.

    Raises ``ValidationError`` for a value that the enum does not have.
    """
    words = [str(member.value) for member in kind]
    if value is not None and value not in words:
        raise ValidationError(f"--{name} {value!r} is none of {', '.join(words)}.")
    return None if value is None else kind(value)


def make_wiring(dist: str | None = None, *, offline: bool = False) -> Wiring:
    """Return the adapters and folders of this run."""
    return Wiring(ROOT, dist=Path(dist) if dist else None, offline=offline)


def document_console(wiring: Wiring) -> Console:
    """Return the console of standard output, for a JSON document; messages go to standard error from now."""
    console = wiring.console
    wiring.speak_on(sys.stderr)
    return console


def plan_options(
    base: str = "auto",
    origin: str | None = None,
    profile: str | None = None,
    host: str | None = None,
    *,
    widen: bool = False,
    mixed: bool = False,
    release: bool = False,
    offline: bool = False,
) -> PlanOptions:
    """Return the flags on what to build, as values.

    Raises ``ValidationError`` for a wrong value or ``--mixed --release``.
    """
    if mixed and release:
        raise ValidationError(
            "--mixed makes packages of different ONNX Runtime versions, and publish refuses those (R010), so "
            "--release cannot be had with it",
            advice="Leave one of them out.",
        )
    return PlanOptions(
        base=base,
        offline=offline,
        origin=enum_value(Origin, "origin", origin),
        profile=enum_value(Profile, "profile", profile),
        host=enum_value(Host, "host", host),
        widen=widen,
        mixed=mixed,
        release=release,
    )


def _jobs(value: str) -> int:
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST_JOBS):
        raise ValidationError(f"--jobs {value!r} is no number from 1 to {_MOST_JOBS}.")
    return int(value)


def _caches(wiring: Wiring, shared: str | None, ahead: str | None, into: str | None) -> CompileCaches:
    """Return the compile caches of the flags and of ``ORTPACKS_COMPILE_CACHE``, all of which answer.

    A shared cache that does not answer is left out with a warning, since the build works without it. Raises
    ``ValidationError``, and ``TransferError`` if the cache of ``--from`` or ``--into`` does not answer.
    """
    if ahead is not None and "://" not in ahead and not Path(ahead).is_dir():
        raise ValidationError(f"--from {ahead!r} is no folder.", advice="./run compile --into makes one.")
    named = {"--from": ahead, "--into": into}
    found = {
        where: compile_cache(text, where, wiring.env) for where, text in named.items() if text is not None
    }
    for cache in found.values():
        cache.require()
    return CompileCaches(
        shared=shared_cache(wiring, shared), ahead=found.get("--from"), into=found.get("--into")
    )


def shared_cache(wiring: Wiring, flag: str | None = None) -> CompileCache | None:
    """Return the compile cache of ``--compile-cache`` or of ``ORTPACKS_COMPILE_CACHE``.

    Returns ``None`` if none is named, and with a warning if the cache does not answer. Raises
    ``ValidationError`` for an address that is not a cache's and for a cache that refuses access.
    """
    cache = named_cache(wiring, flag)
    try:
        if cache:
            cache.require()
    except TransferError as error:
        wiring.reporter.warn(f"{error.headline} The build goes on without it.")
        return None
    return cache


def named_cache(wiring: Wiring, flag: str | None) -> CompileCache | None:
    """The compile cache of ``--compile-cache`` or ``ORTPACKS_COMPILE_CACHE``, which is not asked yet."""
    where = "ORTPACKS_COMPILE_CACHE" if flag is None else "--compile-cache"
    address = wiring.env.get(where) if flag is None else flag
    return compile_cache(address, where, wiring.env) if address else None


def architectures(value: str) -> tuple[str, ...]:
    """Return the architectures of ``--arch 90,100``. Raises ``ValidationError`` for anything else."""
    words = tuple(value.split(","))
    if not all(re.fullmatch(r"[0-9]{2,3}[af]?", word) for word in words):
        raise ValidationError(f"--arch {value!r} is no list of architectures.", advice="Like 90 or 90,100.")
    return words


def _memory(value: str) -> int:
    """Return the bytes of ``20G`` or ``6000M``, in units of 1024."""
    found = _MEMORY.fullmatch(value.strip())
    if found is None or not float(found["size"]):
        raise ValidationError(f"--memory {value!r} is no size.", advice="Like 20G or 6000M.")
    return int(float(found["size"]) * (1 << (30 if found["unit"] in "Gg" else 20)))


@dataclass(frozen=True, kw_only=True)
class ChosenVariants:
    """The variants that a verb runs for, and the flags on what to build."""

    wiring: Wiring
    names: tuple[str, ...]
    every: bool
    """Whether ``--all`` was given."""
    plan_options: PlanOptions
    builders: Mapping[str, str | None]
    """The values of ``--builder`` and ``--context``, by the names of these flags."""

    def variants(self) -> tuple[Variant, ...]:
        """Return the variants.

        Raises ``ValidationError`` for an unknown variant or base, and ``NothingToDoError`` if no variant is
        named.
        """
        require_base(self.wiring.project, self.plan_options.base)
        return pick_variants(self.wiring.project, self.names, self.every)

    def builds(
        self,
        *,
        jobs: str | None = None,
        memory: str | None = None,
        force: bool = False,
        cache: str | None = None,
        compile_cache: str | None = None,
        ahead: str | None = None,
        into: str | None = None,
    ) -> dict[str, VariantBuild]:
        """Return the variants' builds by name.

        If there are several, each line of output begins with its variant.

        Raises ``ValidationError`` for a wrong value of a flag, and what ``variants`` and ``named_builders``
        do.
        """
        variants, wiring = self.variants(), self.wiring
        options = BuildOptions(
            plan_options=self.plan_options,
            force=force,
            jobs=None if jobs is None else _jobs(jobs),
            memory=None if memory is None else _memory(memory),
            cache=None if cache is None else require_cache(cache),
            image_builder=(self.builders["builder"] or "").split(",")[0] or None,
            builders=named_builders(wiring.engine, self.builders),
            caches=_caches(wiring, compile_cache, ahead, into),
        )
        single = len(variants) == 1
        reporters = [wiring.reporter if single else wiring.console.prefixed(one.name) for one in variants]
        return {
            one.name: VariantBuild(wiring, one, options, reporter)
            for one, reporter in zip(variants, reporters, strict=True)
        }


def variant_verb(
    without: Sequence[str] = (), **own: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that makes a task of a function of ``ChosenVariants`` and of its own flags.

    ``own`` has the help lines of the function's flags. The task also takes the flags of ``FLAGS`` that
    ``over`` has as parameters, except those in ``without``.
    """

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        def over(  # noqa: PLR0913, PLR0917 - a verb has as many flags as it needs
            _context: Context,
            /,
            variant: list[str],
            all: bool = False,  # noqa: A002 - the flag is --all
            base: str = "auto",
            origin: str | None = None,
            profile: str | None = None,
            host: str | None = None,
            widen: bool = False,
            mixed: bool = False,
            release: bool = False,
            builder: str | None = None,
            context: str | None = None,
            offline: bool = False,
            dist: str | None = None,
            **flags: str | bool | None,
        ) -> None:
            chosen = ChosenVariants(
                wiring=make_wiring(dist, offline=offline),
                names=tuple(variant),
                every=all,
                plan_options=plan_options(
                    base, origin, profile, host, widen=widen, mixed=mixed, release=release, offline=offline
                ),
                builders={"builder": builder, "context": context},
            )
            body(chosen, **flags)

        first, names, every, *shared, _ = inspect.signature(over).parameters.values()
        _, *flags = inspect.signature(body).parameters.values()
        shared = [one for one in shared if one.name not in without]
        # Invoke reads the signature, and gives a short flag to the first parameter that can have it.
        over.__dict__["__signature__"] = inspect.Signature(
            [first, names, every, *(one.replace(kind=every.kind) for one in flags), *shared]
        )
        over.__doc__ = body.__doc__
        return verb(name=body.__name__, iterable=["variant"], **own)(over)

    return decorate


TYPES = ("gha", "registry", "s3", "azblob")

_SECRETS = ("token", "ghtoken", "access_key_id", "secret_access_key", "session_token")

_WORDS = re.compile(r"[a-z]+=[^,\s]+(?:,[a-z0-9_-]+=[^,\s]+)*")


def require_cache(text: str) -> str:
    """Return ``text`` if it names a cache without secrets.

    Raises ``ValidationError``, whose message repeats no secret.
    """
    words = [part.split("=", 1) for part in text.split(",")] if _WORDS.fullmatch(text) else []
    keys = {key for key, *_ in words}
    found = sorted(keys.intersection(_SECRETS))
    if found:
        raise ValidationError(
            f"--cache holds {', '.join(found)}",
            cause="a command line is no place for secrets",
            advice="Leave them out; buildx reads them from its environment (ACTIONS_RUNTIME_TOKEN, "
            "AWS_SECRET_ACCESS_KEY …).",
        )
    if not words or words[0] not in [["type", name] for name in TYPES]:
        raise ValidationError(
            f"--cache {text!r} is no cache of BuildKit's",
            advice=f"Say type= first, one of {', '.join(TYPES)}, then what it needs: type=gha,scope=legacy.",
        )
    return text


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


_START = """\
ONNX Runtime GPU packages, one per GPU generation.

  ./run doctor                           what is here and what is missing for a build
  ./run plan --variant legacy            what would be built, why, how long it takes and the room it needs
  ./run build --variant modern --mixed   a verified package in dist/, in minutes
  ./run inspect dist/*.tar.zst           which GPUs the code in libraries runs on: anybody's, or a package's
  ./run verify                           prove each package in dist/, and run models on it

./run --list has every verb, ./run build --help a verb's flags. README.md begins at the beginning.
"""

_MENDED = {
    # fish refuses a slash in names
    "_complete_./run": "_complete_ortpacks",
    # fish: files only after the verb
    "complete --command ./run --no-files": """\
complete --command run --force-files --condition 'test (count (commandline --tokenize --cut-at-cursor)) -gt 1'
complete --command run --no-files""",
    # zsh has words only after compinit
    "    # `words` contains": "    read -Ac words\n    # `words` contains",
}
"""Text of Invoke's completion scripts and what replaces it."""

_LIST_FORMATS = ("flat", "nested", "json")

_UNKNOWN = re.compile(r"No idea what '(?P<word>.*)' is!", re.DOTALL)

_NO_VALUE = re.compile(r"Flag <Argument: (?P<name>\S+)> needed value and was not given one!")


class Verbs(Program):
    """Invoke's program, with ``with_flags`` applied to the words of the first verb.

    ``VERB --help`` explains a verb as ``--help VERB`` does, also if the verb has positional parameters. For
    an unknown verb or flag, the error names the nearest one, and the exit code is 2.
    """

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:  # noqa: A002 - Invoke's name
        """See ``invoke.program.Program``.

        A reader that closes the pipe early, or a full disk, ends the program without a traceback.
        """
        try:
            try:
                super().run(argv, exit)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
            sys.exit(BuilderError.exit_code)
        except OSError as error:
            failure = _failure(error)
            sys.stderr.write(f"error: {failure}\n")
            sys.exit(failure.exit_code)

    def parse_core(self, argv: list[str] | None) -> None:
        """See ``invoke.program.Program``. A completion script is mended by ``_MENDED``."""
        told = io.StringIO()
        try:
            with contextlib.redirect_stdout(told):
                super().parse_core(argv)
        except ValueError:
            wrong = ValidationError("--list-depth and --command-timeout take whole numbers")
            raise Exit(f"error: {wrong}", code=wrong.exit_code) from None
        finally:
            script = told.getvalue()
            for theirs, ours in _MENDED.items():
                script = script.replace(theirs, ours)
            sys.stdout.write(script)

    def print_help(self) -> None:
        """See ``invoke.program.Program``. Prints the same text as ``./run`` without words."""
        sys.stdout.write(_START)

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
            raise Exit(f"error: {self._usage(error)}", code=ValidationError.exit_code) from None

    def parse_cleanup(self) -> None:
        """See ``invoke.program.Program``."""
        asked, listed = self.args.help.value, self.args.list.value
        form = self.args["list-format"].value
        wrong = None
        if isinstance(asked, str) and asked not in self.collection.task_names:
            wrong = self._unknown(asked, None)
        elif isinstance(listed, str):
            wrong = ValidationError(f"--list takes no word like {listed!r}", advice=_help_of(None))
        elif form not in _LIST_FORMATS:
            wrong = ValidationError(f"--list-format {form!r} is none of {', '.join(_LIST_FORMATS)}.")
        if wrong:
            raise Exit(f"error: {wrong}", code=wrong.exit_code)
        super().parse_cleanup()

    def _usage(self, error: ParseError) -> ValidationError:
        """Return the error for words that do not parse, with the nearest spelling and where help is."""
        verb = error.context.name if error.context is not None else None
        found = _UNKNOWN.fullmatch(str(error))
        if found:
            return self._unknown(found["word"], verb)
        needs = _NO_VALUE.fullmatch(str(error))
        return ValidationError(
            f"--{needs['name']} needs a value" if needs else str(error), advice=_help_of(verb)
        )

    def _unknown(self, word: str, verb: str | None) -> ValidationError:
        if not word.startswith("-"):
            what, near = "verb", nearest(word, self.collection.task_names)
        else:
            what, near = (
                "flag",
                nearest(word, self.parser.contexts[verb].flags if verb else self.initial_context.flags),
            )
        if not near and what == "verb" and verb and "--variant" in self.parser.contexts[verb].flags:
            near = f"Did you mean --variant {word}?"
        of = f" of {verb}" if verb and what == "flag" else ""
        return ValidationError(f"{word!r} is no {what}{of}", advice=f"{near} {_help_of(verb)}".lstrip())


def _help_of(verb: str | None) -> str:
    return f"./run {verb} --help has its flags." if verb else "./run --list has the verbs."


def program(namespace: Collection | None = None) -> Verbs:
    """Return the program that ``./run`` starts; without a namespace it reads ``tasks.py``."""
    return Verbs(name="ortpacks", binary="./run", binary_names=["./run"], namespace=namespace)


def restart_through_run() -> None:
    """Replace the process by ``./run`` with the same words if it is Invoke itself (``invoke build``)."""
    if "invoke.main" in sys.modules:
        os.execv(ROOT / "run", ["./run", *sys.argv[1:]])  # noqa: S606 - it replaces this process


if __name__ == "__main__":
    program().run()
