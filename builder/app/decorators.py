"""The decorators that make Invoke's tasks of the functions in ``tasks.py``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from invoke.context import Context
from invoke.parser.argument import Argument
from invoke.tasks import Task, task

from builder.app.compile_caches import answering, named_caches
from builder.app.compiled_ahead import candidates, compiled_variants, divided, left_out
from builder.app.flags import FLAGS, make_wiring, parse_jobs, parse_memory, plan_options, require_cache
from builder.builds.all_variants import require_memory
from builder.builds.builders import named_builders
from builder.builds.variant_build import BuildOptions, VariantBuild
from builder.builds.wiring import Wiring
from builder.config.project import pick_variants
from builder.errors import ValidationError
from builder.pipeline.plan import PlanOptions, require_base
from builder.ports import CompileCaches
from builder.project.variants import Variant


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
    """Return a decorator that makes a task of a function.

    ``own`` has the help lines of the function's flags; flags in ``FLAGS`` need none.
    """

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        shared = {flag: FLAGS[flag] for flag in inspect.signature(body).parameters if flag in FLAGS}
        return task(
            body,
            klass=Verb,
            name=name,
            positional=positional,
            iterable=iterable,
            help=shared | own,
            auto_shortflags=False,  # a new flag would change the letters of others
        )

    return decorate


class Verb(Task[Callable[..., None]]):
    """A task that refuses empty values of flags, and keeps its help lines.

    Invoke's task removes each line when it is read, so that a second read finds none.
    """

    def __call__(self, *context: object, **flags: object) -> Callable[..., None]:
        """See ``invoke.tasks.Task``. Raises ``ValidationError`` for an empty value."""
        _require_values(flags)
        return super().__call__(*context, **flags)

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """See ``invoke.tasks.Task``."""
        lines = dict(self.help)
        try:
            return super().get_arguments(ignore_unknown_help)
        finally:
            self.help = lines


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

    def builds_for(
        self, architectures: Sequence[str], *, jobs: str | None, memory: str | None
    ) -> list[tuple[VariantBuild, Sequence[str]]]:
        """Return the builds of the verb compile, each with the architectures that it compiles.

        Without a name they are those of ``--all``, which may lack architectures, unlike named variants.
        Raises what ``builds``, ``divided``, ``VariantBuild.require_engine`` and ``require_memory`` do.
        """
        project = self.wiring.project
        every = self.every or not self.names
        added = candidates(project, architectures, widen=self.plan_options.widen) if every else []
        chosen = replace(self, names=(*self.names, *(one.name for one in added)), every=False)
        builds = chosen.builds(jobs=jobs, memory=memory)
        known = {str(arch) for one in compiled_variants(project) for arch in one.sm}
        found = divided(
            builds,
            architectures,
            named=self.names,
            known=known,
            aside=left_out(project),
            reporter=self.wiring.reporter,
        )
        for name in found:
            builds[name].require_engine()
        require_memory([builds[name] for name in found])
        return [(builds[name], wanted) for name, wanted in found.items()]

    def builds(
        self,
        *,
        jobs: str | None = None,
        memory: str | None = None,
        force: bool = False,
        cache: str | None = None,
        compile_cache: str | None = None,
        ahead: str | None = None,
        compiles: bool = False,
    ) -> dict[str, VariantBuild]:
        """Return the variants' builds by name.

        If there are several, each line of output begins with its variant. Compile caches are opened only for
        a verb that ``compiles``.

        Raises ``ValidationError`` for a wrong value of a flag, and what ``variants`` and ``named_builders``
        do.
        """
        variants, wiring = self.variants(), self.wiring
        options = BuildOptions(
            plan_options=self.plan_options,
            force=force,
            jobs=None if jobs is None else parse_jobs(jobs),
            memory=None if memory is None else parse_memory(memory),
            cache=None if cache is None else require_cache(cache),
            image_builder=(self.builders["builder"] or "").split(",")[0] or None,
            builders=named_builders(wiring.engine, self.builders),
            caches=answering(wiring, named_caches(wiring, compile_cache, ahead))
            if compiles
            else CompileCaches(),
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
