"""The verbs' flags: decorators that turn functions into Invoke's tasks, help lines, and parsed values."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TypeVar

from invoke.parser.argument import Argument
from invoke.tasks import Task

from builder.build.all_variants import require_memory
from builder.build.source_trial import try_source
from builder.build.variant_build import BuildOptions, VariantBuild
from builder.compile.builders import named_builders
from builder.compile.compile_cache import CompileCaches
from builder.compile.plan import PlanOptions, require_base
from builder.config.load import pick_variants
from builder.config.variants import Origin, Project, Variant
from builder.console import Console
from builder.errors import NothingToDoError, ValidationError
from builder.facts.gpu.architectures import Arch, architectures
from builder.files.disk import absolute, is_file
from builder.formats.package_names import Host, PackageForm, Profile
from builder.io.wiring import Wiring

E = TypeVar("E", bound=Enum)

ROOT = Path(__file__).resolve().parent.parent.parent.parent

_MOST_JOBS = 1024

_MEMORY = re.compile(r"(?P<size>[0-9]{1,6}(?:\.[0-9]{1,3})?)(?P<unit>[GgMm])(?:i?[Bb])?")

JSON = "as JSON; messages go to standard error"
"""The help line of ``--json``."""

FLAGS: Mapping[str, tuple[object, str]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
"""The default and the help line of each flag that several verbs share, in the order of verbs for variants.

A list is given more than once, ``None`` is text.
"""


def make_wiring(dist: str | None = None, *, offline: bool = False) -> Wiring:
    """Return the adapters and folders of this run. Raises ``ValidationError`` if ``dist`` is a file."""
    if dist and is_file(absolute(Path(dist))):
        raise ValidationError(f"--dist {dist!r} is no folder.", advice="Name another one.")
    return Wiring(ROOT, dist=Path(dist) if dist else None, offline=offline)


def document_console(wiring: Wiring) -> Console:
    """Return the console of standard output, for a JSON document; messages go to standard error from now."""
    console = wiring.console
    wiring.speak_on(sys.stderr)
    return console


def enum_value(kind: type[E], name: str, value: str | None) -> E | None:
    """Return a flag's value as a member of an enum; ``None`` if the flag was not given.

    Raises ``ValidationError`` for a value that the enum does not have.
    """
    words = [str(member.value) for member in kind]
    if value is not None and value not in words:
        raise ValidationError(f"--{name} {value!r} is none of {', '.join(words)}.")
    return None if value is None else kind(value)


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
            "it does not go with --release",
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


def parse_jobs(value: str) -> int:
    """Return the number of ``--jobs``. Raises ``ValidationError`` for anything else."""
    if not (re.fullmatch("[0-9]{1,4}", value) and 1 <= int(value) <= _MOST_JOBS):
        raise ValidationError(f"--jobs {value!r} is no number from 1 to {_MOST_JOBS}.")
    return int(value)


def parse_memory(value: str) -> int:
    """Return the bytes of ``20G`` or ``6000M``, in units of 1024. Raises ``ValidationError``."""
    match = _MEMORY.fullmatch(value.strip())
    if match is None or not float(match["size"]):
        raise ValidationError(f"--memory {value!r} is no size.", advice="Like 20G or 6000M.")
    return int(float(match["size"]) * (1 << (30 if match["unit"] in "Gg" else 20)))


def parse_architectures(flag: str, value: str) -> tuple[Arch, ...]:
    """Return the architectures of a flag, each once. Raises ``ValidationError`` for another text."""
    try:
        return tuple(dict.fromkeys(architectures(value)))
    except ValueError as error:
        raise ValidationError(f"--{flag}: {error}", advice="With commas between: 75,86,90a.") from error


def verb(
    *,
    name: str | None = None,
    positional: Sequence[str] | None = None,
    iterable: Sequence[str] = (),
    shared: Iterable[str] = (),
    **own: str,
) -> Callable[[Callable[..., None]], Verb]:
    """Return a decorator that turns a function into a task.

    ``own`` has the help lines of the function's flags; flags in ``FLAGS`` need none. ``shared`` names flags
    of ``FLAGS`` that the task has too; the function gets ``ChosenVariants`` then, and no Invoke context.
    """

    def decorate(body: Callable[..., None]) -> Verb:
        known = {flag: FLAGS[flag][1] for flag in inspect.signature(body).parameters if flag in FLAGS}
        made = Verb(
            body,
            name=name,
            positional=positional,
            iterable=iterable,
            help=known | own,
            auto_shortflags=False,  # a new flag would change the letters of others
        )
        made.shared = tuple(shared)
        return made

    return decorate


def variant_verb(without: Sequence[str] = (), **own: str) -> Callable[[Callable[..., None]], Verb]:
    """Return ``verb`` with all shared flags except ``without``."""
    return verb(shared=[flag for flag in FLAGS if flag not in without], **own)


class Verb(Task[Callable[..., None]]):
    """A task that refuses empty values of flags, and keeps its help lines.

    Invoke's task removes each line when it is read, so that a second read finds none.
    """

    shared: tuple[str, ...]

    def __call__(self, *context: object, **flags: object) -> Callable[..., None]:
        """See ``invoke.tasks.Task``.

        Raises ``ValidationError`` for a wrong value of a shared flag, and for an empty value of any flag: it
        usually comes from a shell variable that is not set.
        """
        for name, value in flags.items():
            if value == "" or (isinstance(value, list) and "" in value):
                raise ValidationError(
                    f"--{name.strip('_').replace('_', '-')} is empty",
                    advice="Give it a value, or leave it out.",
                )
        if not self.shared:
            return super().__call__(*context, **flags)
        choose: Callable[..., ChosenVariants] = _chosen
        chosen = choose(**{name: flags.pop(name) for name in self.shared})
        done: Callable[..., None] = self.body(chosen, **flags)
        self.times_called += 1
        return done

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """See ``invoke.tasks.Task``."""
        lines = dict(self.help)
        own = super().get_arguments(ignore_unknown_help)
        self.help = lines
        for name in self.shared:
            value, line = FLAGS[name]
            own.append(Argument(name, kind=str if value is None else type(value), default=value, help=line))
        return own


@dataclass(frozen=True, kw_only=True)
class ChosenVariants:
    """The variants that a verb runs for, and the flags on what to build."""

    wiring: Wiring
    names: tuple[str, ...]
    every: bool
    """Whether ``--all`` was given."""
    plan_options: PlanOptions
    form: PackageForm | None = None
    """The form of the packages; ``None``: those of ``variants.yaml``."""
    builders: Mapping[str, str | None]
    """The values of ``--builder`` and ``--context``, by the names of these flags."""

    def variants(self) -> tuple[Variant, ...]:
        """Return the variants.

        Raises ``ValidationError`` for an unknown variant or base and for a plug-in that would be an official
        wheel, and ``NothingToDoError`` if no variant is named.
        """
        require_base(self.wiring.project, self.plan_options.base)
        picked = pick_variants(self.wiring.project, self.names, self.every)
        if self.form is None:
            return picked
        official = [one.name for one in picked if one.is_official and self.form is PackageForm.PLUGIN]
        if named := [name for name in official if name in self.names]:
            raise ValidationError(
                f"--form plugin: {', '.join(named)} would be an official wheel repacked, and a plug-in is "
                "compiled",
                advice="Name variants that are compiled for linux-x64.",
            )
        return tuple(replace(one, form=self.form) for one in picked if one.name not in official)

    def builds_for(
        self, architectures: Sequence[str], caches: CompileCaches, *, jobs: str | None, memory: str | None
    ) -> list[tuple[VariantBuild, Sequence[str]]]:
        """Return the builds of the verb compile, each with the architectures that it compiles.

        Named variants compile all of ``architectures``. Without a name, or with ``--all``, each variant
        compiles those that it has. Raises ``ValidationError`` for an architecture that no variant has,
        ``NothingToDoError`` where nothing is compiled, and what ``builds``, ``VariantBuild.require_engine``
        and ``require_memory`` do.
        """
        project, widen = self.wiring.project, self.plan_options.widen
        # Variants that cannot have one of the architectures are not even planned
        may_have = [
            variant.name
            for variant in project.variants.values()
            if variant.in_all and not variant.is_official
            if widen or variant.widen or not {*map(str, variant.sm)}.isdisjoint(architectures)
        ]
        names = dict.fromkeys((*self.names, *(may_have if self.every or not self.names else ())))
        if not names:
            raise _compiled_by_none(architectures, project)
        builds = replace(self, names=tuple(names), every=False).builds(caches, jobs=jobs, memory=memory)
        chosen: list[tuple[VariantBuild, Sequence[str]]] = []
        known: set[str] = set()
        official: NothingToDoError | None = None
        for name, build in builds.items():
            own = build.architectures()
            wanted = architectures if name in self.names else [one for one in architectures if one in own]
            known |= {*own}
            try:
                build.targets(wanted)
            except NothingToDoError as error:
                if name in self.names:
                    raise
                official = error
                self.wiring.reporter.say(str(error))
            else:
                chosen += [(build, wanted)] if wanted else []
        if unknown := [architecture for architecture in architectures if architecture not in known]:
            raise _compiled_by_none(unknown, project)
        if official and not chosen:
            raise official
        for build, _ in chosen:
            build.require_engine()
        require_memory([build for build, _ in chosen])
        return chosen

    def builds(
        self,
        caches: CompileCaches | None = None,
        *,
        jobs: str | None = None,
        memory: str | None = None,
        force: bool = False,
    ) -> dict[str, VariantBuild]:
        """Return the variants' builds by name.

        If there are several, each line of output begins with its variant.

        Raises ``ValidationError`` for a wrong value of a flag, and what ``variants`` and ``named_builders``
        do.
        """
        variants, wiring = self.variants(), self.wiring
        if self.plan_options.source and not wiring.is_trial:
            try_source(wiring, self.plan_options.source, self.plan_options.dependencies)
        options = BuildOptions(
            plan_options=self.plan_options,
            force=force,
            jobs=None if jobs is None else parse_jobs(jobs),
            memory=None if memory is None else parse_memory(memory),
            image_builder=(self.builders["builder"] or "").split(",")[0] or None,
            builders=named_builders(wiring.engine, self.builders),
            caches=caches or CompileCaches(),
        )
        single = len(variants) == 1
        reporters = [
            wiring.reporter if single else wiring.console.prefixed(variant.name) for variant in variants
        ]
        return {
            one.name: VariantBuild(wiring, one, options, reporter)
            for one, reporter in zip(variants, reporters, strict=True)
        }


def _compiled_by_none(architectures: Sequence[str], project: Project) -> ValidationError:
    compiled = [variant for variant in project.variants.values() if not variant.is_official]
    has = "; ".join(f"{one.name} has {', '.join(map(str, one.sm))}" for one in compiled)
    return ValidationError(
        f"--arch: no variant of --all is compiled for {', '.join(architectures)}",
        advice=f"In variants.yaml {has}. One outside --all is compiled with --variant.",
    )


def _chosen(
    *,
    variant: list[str],
    all: bool,  # noqa: A002 - the flag is --all
    offline: bool,
    dist: str | None,
    source: str | None = None,
    dependency: Sequence[str] = (),
    cuda: str | None = None,
    form: str | None = None,
    **what: object,
) -> ChosenVariants:
    options: Callable[..., PlanOptions] = plan_options
    builders = {name: what.pop(name, None) for name in ("builder", "context")}
    if source and what.get("release"):
        raise ValidationError(
            "--source makes packages of a source that variants.yaml does not name, and publish refuses those "
            "(R009), so it does not go with --release",
            advice="Name the source in variants.yaml, as a base.",
        )
    if dependency and not source:
        raise ValidationError(
            "--dependency goes with --source alone.", advice="In variants.yaml it is dependencies of a base."
        )
    return ChosenVariants(
        wiring=make_wiring(dist, offline=offline),
        names=tuple(variant),
        every=all,
        form=enum_value(PackageForm, "form", form),
        plan_options=replace(
            options(offline=offline, **what), source=source, dependencies=tuple(dependency), cuda=cuda
        ),
        builders={name: str(one) if one else None for name, one in builders.items()},
    )
