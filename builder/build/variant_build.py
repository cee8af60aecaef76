"""One variant's build, from plan to verified packages."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path

from builder.build.check_tools import CheckTools
from builder.build.packing import Packer
from builder.build.pinning import pin_base, unpack_pinned
from builder.build.runtime_image import (
    ImageOptions,
    MadeImage,
    RuntimeImage,
    VariantImages,
    publish_index,
    service_trees,
)
from builder.build.source_reading import other_host, rules_of
from builder.compile.artifact import Artifact, built_key, package_sources, read_built, write_built
from builder.compile.builders import Builders
from builder.compile.compile_cache import CompileCaches, served
from builder.compile.estimate import (
    DiskNeed,
    compile_needs,
    compile_work,
    disk_lines,
    disk_needs,
    engine_needs,
    estimate_lines,
    forecast,
    image_needs,
    require_disk_space,
    tool_needs,
)
from builder.compile.plan import (
    Planner,
    PlanOptions,
    choose_base,
    coverage_to_come,
)
from builder.compile.render import missing_inputs, render
from builder.compile.stages import StageBuild, export, lay_out
from builder.config.build_plan import NOTHING_RENDERED, BuildPlan, Rendered, Workplace, compile_plan
from builder.config.inputs import DebianPackage, Input
from builder.config.variants import Origin, SuiteSystem, Variant, on_platform
from builder.console import Reporter
from builder.contents.check import native_sm
from builder.contents.reading import needed_libraries
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
from builder.facts.gpu.architectures import Arch
from builder.farm import costs
from builder.finding import require_no_errors
from builder.formats.package_names import CUDA, LINUX, SERVED, Host
from builder.io.process import side_by_side
from builder.io.store import FileStore
from builder.io.wiring import Wiring
from builder.publish.image import PLATFORMS
from builder.publish.preflight import check_pins, check_plan

_NOT_RELEASABLE = "cannot be released, so it is not built"


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
        wiring, name = self._wiring, self._variant.name
        with self._reporter.step(f"plan {name}"):
            decided = self._planner().plan(wiring.project, self._variant)
            if self._options.plan_options.release:
                missing = missing_inputs(decided, wiring.lock)
                require_no_errors(check_plan(decided, wiring.lock, missing), f"{name} {_NOT_RELEASABLE}")
            return decided

    def _planner(self) -> Planner:
        wiring, name, options = self._wiring, self._variant.name, self._options.plan_options
        release = options.release  # it takes the pins that are committed
        form = self._variant.form
        host = options.host or (Host.SOURCE if options.source else wiring.project.onnxruntime.host)
        host = Host.SOURCE if self._variant.is_plugin else host

        def refuse(wheel: Input) -> None:
            require_no_errors(check_pins([wheel.key], name), f"{name} {_NOT_RELEASABLE}")

        unpack = partial(unpack_pinned, wiring, self._reporter, refuse if release else None)
        return Planner(
            options=options,
            engine=wiring.engine,
            unpack=unpack,
            native_sm=cache(native_sm),
            needed_libraries=needed_libraries,
            reporter=self._reporter,
            rules=lambda base: rules_of(wiring, base, self._reporter, form),
            other_host=lambda base: other_host(wiring, base, unpack),
            pin=None if release else lambda base: pin_base(wiring, base, self._reporter, host),
        )

    def show_plan(self) -> None:
        """Report the plan, the GPUs that its package will run on, and the time and disk space to build it."""
        decided = self.plan()
        if self._variant.provider == CUDA:
            self._reporter.say(coverage_to_come(decided, self._planner().sass(decided)))
        self._report_estimate()
        for line in disk_lines(self.disk_needs()):
            self._reporter.say(line)

    def forecast(self) -> dict[str, object]:
        """Return the plan as values for JSON, with the time and disk space of its build."""
        decided = self.plan()
        return forecast(decided, self.unit_costs, self.jobs(), self.disk_needs())

    def render(self) -> None:
        """Write the Dockerfiles and the build context into ``dist/<variant>``."""
        with self._locked():
            self._render()

    def lay_out(self, folder: Path) -> Rendered:
        """Write the Dockerfiles and the build context into ``folder`` and return what was rendered."""
        decided, wiring = self.plan(), self._wiring
        rendered = render(decided, wiring.lock, wiring.loader, system=self._system())
        rootfs = wiring.rootfs(self._reporter)
        lay_out(decided, rendered, Workplace(folder), store=self._store, rootfs=rootfs, root=wiring.root)
        return rendered

    def build(self) -> tuple[Path, ...]:
        """Return the verified packages in ``dist``; build them unless they are up to date."""
        self.require_engine()
        with self._locked():
            decided = self.plan()
            key = self._key()
            done = self._built(key)
            for package in done:
                self._reporter.say(f"{package.name} is up to date")
            if done:
                return done
            self._report_estimate()
            self.require_memory()
            self._require_space(self.disk_needs())
            rendered = self._render()
            artifact = Artifact(self._wiring, self._place, rendered, self._reporter)
            packing = self._packing(rendered)
            if decided.origin is Origin.SOURCE:
                packing.prepare()
                make = partial(artifact.make, anew=self._options.force)
                self._options.builders.compile(make, self._home, self._means(self._reporter))
            try:
                bundled = packing.pack()
            except (CheckFailedError, IntegrityError):
                artifact.discard()  # so the next build compiles
                raise
            packages = tuple(packed.path for packed in bundled)
            write_built(self._place.root, key, packages)
            return packages

    def compile(self, architectures: Sequence[str]) -> None:
        """Compile the device code of some architectures for the compile caches.

        Several builders compile one architecture each at a time, a single one compiles all together.

        Raises what ``targets`` and ``compile.compile_cache.served`` do.
        """
        self.require_engine()
        wiring = self._wiring
        with self._locked():
            decided = self.plan()
            targets = self.targets(architectures)
            self.require_memory()
            outline = render(decided, wiring.lock, wiring.loader)
            needs = compile_needs(decided, outline, self._store, cache=wiring.cache, dist=wiring.dist)
            in_engine = self._engine_needs(outline, None, "-".join(targets))
            self._require_space([*needs, *in_engine])
            rendered = self._render()
            with self._reporter.step(f"compile {self._variant.name} for {', '.join(targets)}"):
                if len(self._options.builders) > 1:
                    named = {f"{self._variant.name} {target}": [target] for target in targets}
                    works = {
                        name: partial(self._compile_ahead, rendered, part, wiring.console.prefixed(name))
                        for name, part in named.items()
                    }
                    side_by_side(works, wiring.runner.interrupt)
                else:
                    self._compile_ahead(rendered, targets, self._reporter)

    def _compile_ahead(self, rendered: Rendered, architectures: Sequence[str], reporter: Reporter) -> None:
        made = self._place.root / f"ahead-{'-'.join(architectures)}"
        self._options.builders.compile(
            lambda means: export("artifact", made, rendered, self._place, means, architectures),
            self._home,
            self._means(reporter),
        )
        shutil.rmtree(made)

    def architectures(self) -> tuple[str, ...]:
        """Return the architectures of the plan's set, with those that widening added."""
        return tuple(map(str, self.plan().variant.sm))

    def targets(self, architectures: Sequence[str]) -> list[str]:
        """Return the architectures that nvcc compiles for, ``90a`` where ORT's CMake replaces ``90``.

        Raises ``ValidationError`` for an architecture that the variant lacks, and ``NothingToDoError`` for a
        variant that is not compiled.
        """
        decided = self.plan()
        if decided.origin is not Origin.SOURCE:
            raise NothingToDoError(f"Nothing is compiled for {self._variant.name}: {decided.origin_reason}")
        known = self.architectures()
        if unknown := [one for one in architectures if one not in known]:
            raise ValidationError(
                f"--arch: {self._variant.name} is not compiled for {', '.join(unknown)}",
                advice=f"It has {', '.join(known)}.",
            )
        wanted = {Arch.parse(architecture).number for architecture in architectures}
        return [str(one) for one in compile_plan(decided).whole_list.sass if one.number in wanted]

    def _key(self) -> str:
        sources = package_sources(self._wiring.root, self._wiring.project)
        return built_key(self.plan(), self._wiring.lock, sources)

    def _built(self, key: str) -> tuple[Path, ...]:
        """Return the packages of the last build if they are up to date; none with ``force``."""
        return () if self._options.force else read_built(self._place.root, key, self._wiring.dist)

    def is_up_to_date(self) -> bool:
        """Return whether ``build`` would build nothing. Reads every byte of the packages."""
        return bool(self._built(self._key()))

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

    def bundle(self) -> tuple[Path, ...]:
        """Return verified packages that are made from the libraries of the last build."""
        self.require_engine()
        with self._locked():
            return tuple(packed.path for packed in self._packing(self._render()).pack())

    def image(self, options: ImageOptions) -> VariantImages:
        """Make the runtime images, one for each platform. Missing packages are built first.

        Raises ``NothingToDoError`` for a platform that the variant has no image for, ``ValidationError``
        where the images could not have one tag, and what ``RuntimeImage.make`` and ``publish_index`` do.
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
        if options.service and options.push and len(platforms) > 1:
            raise ValidationError(
                "--service --push: one platform at a time",
                cause="its images for two platforms have different versions of ONNX Runtime, "
                "and a tag names one",
                advice=f"Push each: --platform {PLATFORMS[platforms[0]]}, then the other.",
            )
        self._wiring.engine.facts()
        images = [self._on(platform).one_image(options) for platform in platforms]
        pushed = publish_index(self._wiring, images, options, self._reporter) if options.push else None
        return VariantImages(
            variant=self._variant.name, tags=tuple(image.tag for image in images), pushed=pushed
        )

    def _on(self, platform: str) -> VariantBuild:
        if platform == self._variant.platform:
            return self
        variant = on_platform(self._variant, platform)
        return VariantBuild(self._wiring, variant, self._options, self._reporter)

    def one_image(self, options: ImageOptions) -> MadeImage:
        """Return the image of this build's package.

        Raises ``DiskError`` if it does not fit, and what ``RuntimeImage.make`` does.
        """
        self._require_room_for_image(options.service)
        wiring, reporter = self._wiring, self._reporter
        service = service_trees(wiring, self._variant.platform, reporter) if options.service else None
        package, builder = self.build()[0], self._options.image_builder
        with self._locked():
            return RuntimeImage(wiring, self._place, package, service, reporter, builder).make(options.push)

    def require_engine(self) -> None:
        """Raise ``ToolMissingError`` if the variant needs an engine and there is none."""
        if self._variant.is_tried_here:
            self._wiring.engine.facts()

    @cached_property
    def _store(self) -> FileStore:
        return self._wiring.store(self._wiring.lock, self._reporter)

    def _locked(self) -> AbstractContextManager[None]:
        waits = f"another process works in {self._place.root}: waiting"
        return self._wiring.locked(self._variant.folder, self._reporter, waits)

    @property
    def _home(self) -> int:
        """The variant's number, from which its builder follows."""
        return [*self._wiring.project.packages].index(self._variant.name)

    def _means(self, reporter: Reporter) -> StageBuild:
        """Return what a stage is compiled with, on the current builder."""
        options = self._options
        return StageBuild(
            engine=self._wiring.engine,
            store=self._store,
            reporter=reporter,
            jobs=options.jobs,
            memory=options.memory,
            served=partial(served, options.caches, reporter) if options.caches.readable else None,
        )

    def _report_estimate(self) -> None:
        for line in estimate_lines(self.plan(), self.unit_costs, self.jobs()):
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
        needs = disk_needs(decided, rendered, lock, self._store, cache=wiring.cache, dist=wiring.dist)
        try:
            tools = self._base_of_tools()
        except BuilderError:  # an engine without facts stops no build
            tools = None
        if tools is None:
            return tuple(needs)
        rootfs = wiring.rootfs(self._reporter)
        beside = tool_needs(wiring.project.bases[tools], self._store, rootfs, wiring.cache)
        return (*needs, *beside, *self._engine_needs(rendered, tools))

    def _engine_needs(self, rendered: Rendered, tools: str | None, ahead: str = "") -> Iterator[DiskNeed]:
        """Yield the disk space in this machine's engine; none if it does not say where it has its data."""
        engine = self._wiring.engine
        with suppress(BuilderError):  # an engine without facts stops no build
            if folder := engine.facts().folder:
                held, here = engine.resources(), self._options.builders.have_own_engine
                yield from engine_needs(
                    self.plan(),
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
        needs = image_needs(decided, self._wiring.lock, dist=dist, engine=folder, service=service)
        built = () if self.is_up_to_date() else self.disk_needs()
        require_disk_space(f"the image of {self._variant.name} does not fit", [*built, *needs])

    @cached_property
    def unit_costs(self) -> Mapping[str, costs.Cost]:
        """The measured cost of each unit of ONNX Runtime, by its object's path."""
        return costs.read(self._wiring.root / "builder/farm/costs.tsv")

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

    def _base_of_tools(self) -> str | None:
        """Return the base whose tools check the package; ``None`` if nothing in it can be run here."""
        if self._variant.is_tried_here:
            return self.plan().base
        if self._variant.platform != LINUX:
            return None
        try:
            self._wiring.engine.facts()
        except ToolMissingError:
            return None
        return choose_base(self._wiring.project, self._options.plan_options, self._wiring.engine)[0]

    def _render(self) -> Rendered:
        decided = self.plan()
        if not self._variant.is_tried_here:
            self._reporter.say(f"{self._variant.name} needs no Dockerfile: {decided.base_reason}")
            return NOTHING_RENDERED
        with self._reporter.step(f"render {self._variant.name}"):
            rendered = self.lay_out(self._place.root)
            self._reporter.say(str(self._place.dockerfile))
        return rendered

    def _system(self) -> tuple[DebianPackage, ...]:
        """Return the packages of the root file system that compiles; none for a wheel or on an image."""
        decided = self.plan()
        system = decided.on.system if decided.origin is Origin.SOURCE else None
        if not isinstance(system, SuiteSystem):
            return ()
        return self._wiring.rootfs(self._reporter).packages(system.suite, system.packages)

    def _packing(self, rendered: Rendered) -> Packer:
        base = self._base_of_tools()
        return Packer(
            wiring=self._wiring,
            place=self._place,
            plan=self.plan(),
            rendered=rendered,
            plan_options=self._options.plan_options,
            began=self._began,
            tools=None if base is None else CheckTools(self._wiring, base, self._reporter),
            store=self._store,
            reporter=self._reporter,
        )
