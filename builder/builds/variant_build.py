"""One variant's build, from plan to verified packages."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from builder.adapters.shared_cache.cache_server import served
from builder.builds.artifact import Artifact, built_key, read_built, write_built
from builder.builds.builders import Builders
from builder.builds.check_tools import CheckTools
from builder.builds.disk_needs import (
    DiskNeed,
    compile_needs,
    disk_lines,
    disk_needs,
    engine_needs,
    image_needs,
    require_disk_space,
    tool_needs,
)
from builder.builds.estimate import compile_work, estimate_lines, forecast
from builder.builds.images.runtime_image import (
    ImageOptions,
    MadeImage,
    RuntimeImage,
    VariantImages,
    publish_index,
)
from builder.builds.packing import Packer
from builder.builds.side_by_side import side_by_side
from builder.builds.wiring import Wiring
from builder.errors import (
    FULL_DISK,
    BuilderError,
    CheckFailedError,
    IntegrityError,
    NothingToDoError,
    ToolMissingError,
    ValidationError,
    os_error,
)
from builder.findings.finding import require_no_errors
from builder.formats.package_names import CUDA, LINUX, SERVED
from builder.gpu.architectures import Arch
from builder.inside import costs
from builder.onnxruntime.toolchain import compiled_for
from builder.pipeline.check import native_sm, require_checked
from builder.pipeline.compile import StageBuild, export, lay_out
from builder.pipeline.image import PLATFORMS
from builder.pipeline.plan import PlanOptions, choose_base, coverage_to_come, plan, provider_in
from builder.pipeline.render import render
from builder.ports import CompileCaches, Reporter, Store
from builder.project.bases import SuiteSystem
from builder.project.build_plan import NOTHING_RENDERED, BuildPlan, Rendered, Workplace
from builder.project.inputs import LOCK_MISSING, DebianPackage
from builder.project.required_inputs import open_inputs
from builder.project.variants import Origin, Variant, on_platform
from builder.release.preflight import check_plan


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The command line's flags on how to build; ``plan_options`` has those on what to build."""

    plan_options: PlanOptions
    builders: Builders = field(default_factory=Builders)
    """Builders that compile; without names: the current builder."""
    image_builder: str | None = None
    """Builder of runtime images; ``None``: the current builder."""
    force: bool = False
    """Whether to build although everything is up to date."""
    jobs: int | None = None
    """Units of all variants that a machine compiles at once; ``None``: as many as it has cores."""
    memory: int | None = None
    """Bytes of memory that these units may take together; ``None``: the machine's free memory."""
    cache: str | None = None
    """Cache for BuildKit's layers outside the builder, in the form of ``--cache``."""
    caches: CompileCaches = field(default_factory=CompileCaches)
    """Compile caches in addition to the engine's own."""


class VariantBuild:
    """One variant's build.

    Its public methods do the work of verbs, under the lock of the variant's folder.
    """

    def __init__(self, wiring: Wiring, variant: Variant, options: BuildOptions, reporter: Reporter) -> None:
        self._began = time.time()
        self._wiring = wiring
        self._variant = variant
        self._options = options
        self._reporter = reporter
        self._place: Workplace = wiring.place(variant.folder)
        self._decided: BuildPlan | BuilderError | None = None

    def plan(self) -> BuildPlan:
        """Return the plan: base, origin, version and profile.

        Raises ``CheckFailedError`` with ``--release`` for a plan that no release can have.
        """
        if self._decided is None:  # cached_property of Python 3.11 would hold up the plans of other variants
            try:
                self._decided = self._decide()
            except BuilderError as error:
                self._decided = error
        if isinstance(self._decided, BuilderError):
            raise self._decided
        return self._decided

    def _decide(self) -> BuildPlan:
        with self._reporter.step(f"plan {self._variant.name}"):
            decided = plan(
                self._wiring.project,
                self._variant,
                self._options.plan_options,
                engine=self._wiring.engine,
                store=self._store,
                native_sm=native_sm,
                reporter=self._reporter,
            )
            self._say_open_pins(decided)
            if self._options.plan_options.release:
                findings = check_plan(decided, self._wiring.lock)
                require_no_errors(findings, f"{self._variant.name} cannot be released, so it is not built")
            return decided

    def _say_open_pins(self, decided: BuildPlan) -> None:
        open_ = open_inputs(decided.project, decided.base, self._wiring.lock)
        if open_ and decided.origin is Origin.SOURCE:
            self._reporter.say(f"unpinned {', '.join(open_)}: not usable for a release. {LOCK_MISSING}")

    def show_plan(self) -> None:
        """Report the plan, the GPUs that its package will run on, and the time and disk space to build it."""
        decided = self.plan()
        if self._variant.provider == CUDA:
            self._reporter.say(
                coverage_to_come(decided, lambda: native_sm(provider_in(decided, self._store)))
            )
        self._report_estimate(decided)
        for line in disk_lines(self.disk_needs()):
            self._reporter.say(line)

    def forecast(self) -> dict[str, object]:
        """Return the plan as values for JSON, with the time and disk space of its build."""
        decided = self.plan()
        return forecast(decided, self.unit_costs, self.jobs(), self.disk_needs())

    def render(self) -> None:
        """Write the Dockerfiles and the build context into ``dist/<variant>``."""
        with self._locked():
            self._render(self.plan())

    def is_compiled(self) -> bool:
        """Return whether the plan compiles anything, rather than repacking an official wheel."""
        return self.plan().origin is Origin.SOURCE

    def lay_out(self, folder: Path) -> Rendered:
        """Write the Dockerfiles and the build context into ``folder`` and return what was rendered."""
        return self._laid_out(self.plan(), Workplace(folder))

    def build(self) -> tuple[Path, ...]:
        """Return the verified packages in ``dist``; build them unless they are up to date."""
        self.require_engine()
        with self._locked():
            decided = self.plan()
            key = built_key(decided, self._wiring.lock, self._wiring.code())
            done = self._built(key)
            for package in done:
                self._reporter.say(f"{package.name} is up to date")
            if done:
                return done
            self._report_estimate(decided)
            self.require_memory()
            self._require_space(self.disk_needs())
            rendered = self._render(decided)
            artifact = Artifact(self._wiring, self._place, rendered, self._reporter)
            packing = self._packing(decided, rendered)
            if decided.origin is Origin.SOURCE:
                packing.prepare()
                self._on_a_builder(
                    lambda means: artifact.make(means, anew=self._options.force), self._reporter
                )
            try:
                bundled = packing.pack()
            except (CheckFailedError, IntegrityError):
                artifact.discard()  # so the next build compiles
                raise
            packages = tuple(one.package.path for one in bundled)
            write_built(self._place.root, key, packages, [file for one in bundled for file in one.files])
            return packages

    def compile(self, architectures: Sequence[str]) -> None:
        """Compile the device code of some architectures for the compile caches.

        Several builders compile one architecture each at a time, a single one compiles all together.

        Raises ``ValidationError`` for an architecture that the variant lacks, ``NothingToDoError`` for a
        variant that is not compiled, and what
        ``adapters.shared_cache.cache_server.served`` does.
        """
        self.require_engine()
        with self._locked():
            decided = self.plan()
            targets = self._targets(decided, architectures)
            self.require_memory()
            self._require_space(self._compile_needs(decided, targets))
            rendered = self._render(decided)
            with self._reporter.step(f"compile {self._variant.name} for {', '.join(targets)}"):
                if len(self._options.builders) > 1:
                    self._spread(rendered, targets)
                else:
                    self._compile_ahead(rendered, targets, self._reporter)

    def _spread(self, rendered: Rendered, architectures: Sequence[str]) -> None:
        """Compile the architectures at once, each on the builder with the least to do."""
        console = self._wiring.console
        names = {f"{self._variant.name} {one}": [one] for one in architectures}
        side_by_side(
            {
                name: partial(self._compile_ahead, rendered, one, console.prefixed(name))
                for name, one in names.items()
            },
            self._wiring.runner.interrupt,
        )

    def _compile_ahead(self, rendered: Rendered, architectures: Sequence[str], reporter: Reporter) -> None:
        made = self._place.root / f"ahead-{'-'.join(architectures)}"
        self._on_a_builder(
            lambda means: export("artifact", made, rendered, self._place, means, architectures), reporter
        )
        shutil.rmtree(made)

    def require_compiled(self, architectures: Sequence[str]) -> None:
        """Raise what ``compile`` does for architectures or a variant that it does not compile."""
        self._targets(self.plan(), architectures)

    def architectures(self) -> tuple[str, ...]:
        """Return the architectures of the plan's set, those that widen it included."""
        return tuple(map(str, self.plan().variant.sm))

    def with_caches(self, caches: CompileCaches) -> VariantBuild:
        """Return this build, with its plan, and with compile caches in addition to the engine's own."""
        made = copy(self)
        made._options = replace(self._options, caches=caches)  # noqa: SLF001 - its own class
        return made

    def _targets(self, decided: BuildPlan, architectures: Sequence[str]) -> list[str]:
        """Return the architectures that nvcc compiles for, ``90a`` where ORT's CMake replaces ``90``."""
        if decided.origin is not Origin.SOURCE:
            raise NothingToDoError(f"Nothing is compiled for {self._variant.name}: {decided.origin_reason}")
        known = self.architectures()
        if unknown := [one for one in architectures if one not in known]:
            raise ValidationError(
                f"--arch: {self._variant.name} is not compiled for {', '.join(unknown)}",
                advice=f"It has {', '.join(known)}.",
            )
        wanted = {Arch.parse(one).number for one in architectures}
        return [str(one) for one in compiled_for(decided.variant.sm, decided).sass if one.number in wanted]

    def _built(self, key: str) -> tuple[Path, ...]:
        """Return the packages of the last build if they are up to date; none with ``force``."""
        return () if self._options.force else read_built(self._place.root, key, self._wiring.dist)

    def is_up_to_date(self) -> bool:
        """Return whether ``build`` would build nothing. Reads every byte of the packages."""
        return bool(self._built(built_key(self.plan(), self._wiring.lock, self._wiring.code())))

    def heaviest(self) -> int:
        """Return the MiB of memory that the plan's heaviest unit takes; 0 if nothing is compiled."""
        return compile_work(self.plan(), self.unit_costs).heaviest

    def require_memory(self) -> None:
        """Raise ``ValidationError`` if ``--memory`` is less than the plan's heaviest unit takes."""
        heaviest = self.heaviest()
        if self._options.memory is not None and self._options.memory >> 20 < heaviest:
            raise ValidationError(
                f"--memory: {self._options.memory >> 20} MiB are too little for {self._variant.name}",
                cause=f"its heaviest unit took {heaviest} MiB when it was measured",
                advice=f"Give --memory {heaviest}M or more, or leave it out.",
            )

    def build_beside_others(self) -> tuple[Path, ...]:
        """Build as ``build`` does, and report a failure at once, since other builds may go on for hours."""
        try:
            return self.build()
        except BuilderError as error:
            self._reporter.warn(str(error))
            raise
        except OSError as error:
            if error.filename is None and error.errno not in FULL_DISK:
                raise  # a bug
            failure = os_error(error)
            self._reporter.warn(str(failure))
            raise failure from error

    def check(self) -> None:
        """Check the libraries of the last build against the variant.

        Raises ``CheckFailedError`` with every finding.
        """
        self.require_engine()
        with self._locked():
            decided = self.plan()
            _, report = self._packing(decided, self._render(decided)).check()
            require_checked(report.findings, f"{self._variant.name} does not hold what it promises")

    def bundle(self) -> tuple[Path, ...]:
        """Return verified packages that are made from the libraries of the last build."""
        self.require_engine()
        with self._locked():
            decided = self.plan()
            bundled = self._packing(decided, self._render(decided)).pack()
            return tuple(one.package.path for one in bundled)

    def image(self, options: ImageOptions) -> VariantImages:
        """Make the runtime images, one for each platform. Missing packages are built first.

        Raises ``NothingToDoError`` for a platform that the variant has no image for, and what
        ``RuntimeImage.make`` and ``publish_index`` do.
        """
        platforms = options.platforms or (self._variant.platform,)
        served = (LINUX,) if self._variant.provider == CUDA else SERVED[self._variant.provider]
        for platform in platforms:
            if platform not in PLATFORMS or platform not in served:
                raise NothingToDoError(
                    f"{self._variant.name} has no runtime image for {platform}: images are for Linux, "
                    f"those for {self._variant.provider} for {', '.join(served)}. Variant cpu has one "
                    f"for {' and one for '.join(PLATFORMS)}."
                )
        self._wiring.engine.facts()
        images = [self._on(platform).one_image(options) for platform in platforms]
        pushed = publish_index(self._wiring, images, options, self._reporter) if options.push else None
        return VariantImages(tags=tuple(one.tag for one in images), pushed=pushed)

    def _on(self, platform: str) -> VariantBuild:
        """Return the build of the variant's package for a platform."""
        if platform == self._variant.platform:
            return self
        variant = on_platform(self._variant, platform)
        return VariantBuild(self._wiring, variant, self._options, self._reporter)

    def one_image(self, options: ImageOptions) -> MadeImage:
        """Return the image of this build's package.

        Raises ``DiskError`` if it does not fit, and what ``RuntimeImage.make`` does.
        """
        self._require_room_for_image(options.service)
        maker = RuntimeImage(
            self._wiring,
            self._place,
            options,
            self._variant.platform,
            self._reporter,
            self._options.image_builder,
        )
        package = self.build()[0]
        with self._locked():
            return maker.make(package)

    def require_engine(self) -> None:
        """Raise ``ToolMissingError`` if the variant needs an engine and there is none."""
        if self._variant.is_tried_here:
            self._wiring.engine.facts()

    @cached_property
    def _store(self) -> Store:
        return self._wiring.store(self._wiring.lock, self._reporter)

    def _locked(self) -> AbstractContextManager[None]:
        waits = f"another process works in {self._place.root}: waiting"
        return self._wiring.locked(self._variant.folder, self._reporter, waits)

    def _on_a_builder(self, work: Callable[[StageBuild], None], reporter: Reporter) -> None:
        self._options.builders.compile(
            lambda name: work(self._stage_build(name, reporter)),
            [*self._wiring.project.packages].index(self._variant.name),
            engine=self._wiring.engine,
            reporter=reporter,
        )

    def _stage_build(self, builder: str | None, reporter: Reporter) -> StageBuild:
        caches = self._options.caches
        return StageBuild(
            engine=self._wiring.engine,
            store=self._store,
            reporter=reporter,
            builder=builder,
            jobs=self._options.jobs,
            memory=self._options.memory,
            cache=self._options.cache,
            served=partial(served, caches, reporter) if caches.readable else None,
        )

    def _report_estimate(self, decided: BuildPlan) -> None:
        for line in estimate_lines(decided, self.unit_costs, self.jobs()):
            self._reporter.say(line)

    def _require_space(self, needed: Sequence[DiskNeed]) -> None:
        """Report the disk space that is taken. Raises ``DiskError`` if it is not free."""
        for line in disk_lines(needed):
            self._reporter.say(line)
        require_disk_space(f"{self._variant.name} does not fit", needed)

    def disk_needs(self) -> tuple[DiskNeed, ...]:
        """Return the disk space that a build takes if nothing is up to date."""
        decided, wiring, lock = self.plan(), self._wiring, self._wiring.lock
        rendered = render(decided, lock, wiring.loader) if self._variant.is_tried_here else NOTHING_RENDERED
        found = disk_needs(decided, rendered, lock, self._store, cache=wiring.cache, dist=wiring.dist)
        try:
            tools = self._base_of_tools(decided)
        except BuilderError:  # an engine without facts stops no build
            tools = None
        if tools is None:
            return tuple(found)
        rootfs = wiring.rootfs(self._reporter)
        beside = tool_needs(wiring.project.bases[tools], self._store, rootfs, wiring.cache)
        return (*found, *beside, *self._engine_needs(decided, rendered, tools))

    def _compile_needs(self, decided: BuildPlan, architectures: Sequence[str]) -> tuple[DiskNeed, ...]:
        """Return the disk space of compiling alone."""
        wiring = self._wiring
        rendered = render(decided, wiring.lock, wiring.loader)
        found = compile_needs(decided, rendered, self._store, cache=wiring.cache, dist=wiring.dist)
        return (*found, *self._engine_needs(decided, rendered, None, "-".join(architectures)))

    def _engine_needs(
        self, decided: BuildPlan, rendered: Rendered, tools: str | None, ahead: str = ""
    ) -> Iterator[DiskNeed]:
        """Yield the disk space in this machine's engine; none if it does not say where it has its data."""
        engine = self._wiring.engine
        with suppress(BuilderError):  # an engine without facts stops no build
            if folder := engine.facts().folder:
                held, here = engine.resources(), self._options.builders.have_own_engine
                yield from engine_needs(
                    decided,
                    rendered,
                    self._wiring.lock,
                    held,
                    folder,
                    tools=tools,
                    compiles=here,
                    ahead=ahead,
                )

    def _require_room_for_image(self, service: bool) -> None:
        """Raise ``DiskError`` if the image, and its package unless that is up to date, do not fit."""
        folder = self._wiring.engine.facts().folder
        if folder is None:
            return
        decided, dist = self.plan(), self._wiring.dist
        found = image_needs(decided, self._wiring.lock, dist=dist, engine=folder, service=service)
        built = () if self.is_up_to_date() else self.disk_needs()
        require_disk_space(f"the image of {self._variant.name} does not fit", [*built, *found])

    @cached_property
    def unit_costs(self) -> Mapping[str, costs.Cost]:
        """What each unit of ONNX Runtime has cost, by its output."""
        return costs.read(self._wiring.root / "builder/inside/costs.tsv")

    def jobs(self) -> int | None:
        """Return the number of units compiled at once.

        It is ``None`` without an engine, and on other builders without ``--jobs``.
        """
        if self._options.jobs or not self._options.builders.are_own_engine:
            return self._options.jobs
        try:
            return self._wiring.engine.facts().cpus
        except ToolMissingError:
            return None

    def _tools_to_try(self, decided: BuildPlan) -> CheckTools | None:
        """Return the tools that check the package; ``None`` for another system or without an engine."""
        base = self._base_of_tools(decided)
        return None if base is None else CheckTools(self._wiring, base, self._reporter)

    def _base_of_tools(self, decided: BuildPlan) -> str | None:
        if self._variant.is_tried_here:
            return decided.base
        if self._variant.platform != LINUX:
            return None
        try:
            self._wiring.engine.facts()
        except ToolMissingError:
            return None
        return choose_base(self._wiring.project, self._options.plan_options, self._wiring.engine).value

    def _render(self, decided: BuildPlan) -> Rendered:
        if not self._variant.is_tried_here:
            self._reporter.say(f"{self._variant.name} needs no Dockerfile: {decided.base_reason}")
            return NOTHING_RENDERED
        with self._reporter.step(f"render {self._variant.name}"):
            rendered = self._laid_out(decided, self._place)
            self._reporter.say(str(self._place.dockerfile))
        return rendered

    def _laid_out(self, decided: BuildPlan, place: Workplace) -> Rendered:
        rendered = render(decided, self._wiring.lock, self._wiring.loader, system=self._system(decided))
        lay_out(
            decided,
            rendered,
            place,
            store=self._store,
            rootfs=self._wiring.rootfs(self._reporter),
            root=self._wiring.root,
        )
        return rendered

    def _system(self, decided: BuildPlan) -> tuple[DebianPackage, ...]:
        """Return the packages of the root file system that compiles; none for a wheel or on an image."""
        system = decided.on.system if decided.origin is Origin.SOURCE else None
        if not isinstance(system, SuiteSystem):
            return ()
        return self._wiring.rootfs(self._reporter).packages(system.suite, system.packages)

    def _packing(self, decided: BuildPlan, rendered: Rendered) -> Packer:
        return Packer(
            wiring=self._wiring,
            place=self._place,
            plan=decided,
            rendered=rendered,
            plan_options=self._options.plan_options,
            began=self._began,
            tools=self._tools_to_try(decided),
            store=self._store,
            reporter=self._reporter,
        )
