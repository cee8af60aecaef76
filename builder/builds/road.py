"""The road of one variant, from plan to a verified package; and several variants side by side."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from builder.builds.artifact import Artifact, read_stamp, stamp_key, write_stamp
from builder.builds.estimate import tell as tell_costs
from builder.builds.kit import Kit
from builder.builds.packing import Packing
from builder.builds.proving import complete
from builder.builds.records import Making
from builder.builds.workshop import Workshop
from builder.errors import CheckFailedError, IntegrityError, NothingToDoError, ToolMissingError
from builder.files.file_lock import exclusive
from builder.findings.finding import require
from builder.formats.manifest import loads
from builder.formats.package_names import Profile
from builder.formats.providers import CUDA, LINUX
from builder.inside import costs
from builder.package.archive import Member
from builder.pipeline.bundle import Bundled
from builder.pipeline.check import native_sm
from builder.pipeline.compile import Means, jobs, lay_out
from builder.pipeline.gather import Sources, gather
from builder.pipeline.image import build_image, image_tag
from builder.pipeline.plan import Wishes, choose_base, plan
from builder.pipeline.render import render
from builder.ports import Reporter, Store
from builder.project.inputs import DebianPackage
from builder.project.plan import NOTHING_RENDERED, BuildPlan, Rendered, Workplace, package_name
from builder.project.variants import Origin, Variant
from builder.release.preflight import check_plan


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line says about how to build, not what."""

    wishes: Wishes
    builder: str | None = None
    """A buildx builder other than the current one."""
    force: bool = False
    """Build although everything is up to date."""
    jobs: int | None = None
    """Units compiled at once; ``None``: what the engine's cores and memory allow."""
    cache: str | None = None
    """Where the layers of what is compiled outlive the builder: ``app.flags``."""


class Road:
    """One variant's way through the stages. Each public method is a verb and works alone in its folder."""

    def __init__(self, shop: Workshop, variant: Variant, options: Options, reporter: Reporter) -> None:
        """Nothing happens before a method is called."""
        self._began = time.time()
        self._shop = shop
        self._variant = variant
        self._options = options
        self._reporter = reporter
        self._place: Workplace = shop.place(variant.name)

    def plan(self) -> BuildPlan:
        """Decide base, origin, version and profile; refuse what no release takes where one was asked for."""
        with self._reporter.step(f"plan {self._variant.name}"):
            decided = plan(
                self._shop.project,
                self._variant,
                self._options.wishes,
                engine=self._shop.engine,
                store=self._store,
                native_sm=native_sm,
                reporter=self._reporter,
            )
            if self._options.wishes.release:
                findings = check_plan(decided, self._shop.lock)
                require(findings, f"{self._variant.name} cannot be released, so it is not built")
            return decided

    def tell_plan(self) -> None:
        """Decide, and say what compiling will take."""
        self._tell_costs(self.plan())

    def render(self) -> None:
        """Dockerfiles and build context in ``dist/<variant>``."""
        with self._alone():
            self._render(self.plan())

    def build(self) -> tuple[Path, ...]:
        """Verified packages in ``dist``; at once when nothing has changed since the last."""
        self._require_engine()
        with self._alone():
            decided = self.plan()
            key = stamp_key(decided, self._shop.lock, self._shop.code())
            done = () if self._options.force else read_stamp(self._place.root, key, self._shop.dist)
            for package in done:
                self._reporter.say(f"{package.name} is up to date")
            if done:
                return done
            self._tell_costs(decided)
            rendered = self._render(decided)
            self._compile(decided, rendered)
            bundled = self._pack_or_doubt(decided, rendered)
            packages = tuple(one.package.path for one in bundled)
            write_stamp(self._place.root, key, packages, [file for one in bundled for file in one.files])
            return packages

    def check(self) -> None:
        """Hold what the last build compiled to its variant; ``CheckFailedError`` names every finding."""
        self._require_engine()
        with self._alone():
            decided = self.plan()
            rendered = self._render(decided)
            _, report = self._packing(decided, rendered).check(self._gather(decided, rendered))
            require(report.findings, f"{self._variant.name} does not hold what it promises")

    def bundle(self) -> tuple[Path, ...]:
        """Verified packages from what the last build compiled."""
        self._require_engine()
        with self._alone():
            decided = self.plan()
            return tuple(one.package.path for one in self._pack(decided, self._render(decided)))

    def image(self) -> str:
        """The runtime image, made from the package, which is built first where it is not up to date.

        Raises ``NothingToDoError`` for a package without CUDA: its images need nothing of ours.
        """
        if not self._is_for_cuda:
            raise NothingToDoError(
                f"{self._variant.name} has no runtime image: images are made of packages for CUDA."
            )
        packages = self.build()
        with self._alone():
            decided = self.plan()
            return self._image(packages[0], decided, self._kit(decided.base))

    @property
    def _is_for_cuda(self) -> bool:
        return self._variant.provider == CUDA

    def _require_engine(self) -> None:
        """Ask it before anything is done. A package without CUDA is made without one."""
        if self._is_for_cuda:
            self._shop.engine.facts()

    @cached_property
    def _store(self) -> Store:
        return self._shop.store(self._shop.lock, self._reporter)

    def _alone(self) -> AbstractContextManager[None]:
        waits = f"another process works in {self._place.root}: waiting"
        return exclusive(self._shop.lock_of(self._variant.name), lambda: self._reporter.say(waits))

    def _artifact(self, rendered: Rendered) -> Artifact:
        return Artifact(self._shop, self._place, rendered, self._reporter)

    def _means(self, decided: BuildPlan) -> Means:
        engine = self._shop.engine
        return Means(
            engine=engine,
            store=self._store,
            reporter=self._reporter,
            builder=self._options.builder,
            jobs=self._options.jobs or jobs(engine.facts(), decided.profile),
            cache=self._options.cache,
        )

    def _tell_costs(self, decided: BuildPlan) -> None:
        table = costs.read(self._shop.root / "builder/inside/costs.tsv")
        for line in tell_costs(decided, table, self._jobs):
            self._reporter.say(line)

    def _jobs(self, profile: Profile) -> int | None:
        """Units of a profile that are compiled at once; ``None`` without an engine."""
        try:
            return self._options.jobs or jobs(self._shop.engine.facts(), profile)
        except ToolMissingError:
            return None

    def _kit(self, base: str) -> Kit:
        return Kit(self._shop, base, self._reporter, self._options.builder)

    def _trial_kit(self, decided: BuildPlan) -> Kit | None:
        """What the package is tried out with: nothing where it cannot run, or without an engine need not."""
        if self._is_for_cuda:
            return self._kit(decided.base)
        if self._variant.platform != LINUX:
            return None
        try:
            self._shop.engine.facts()
        except ToolMissingError:
            return None
        return self._kit(choose_base(self._shop.project, self._options.wishes, self._shop.engine).value)

    def _render(self, decided: BuildPlan) -> Rendered:
        if not self._is_for_cuda:
            self._reporter.say(f"{self._variant.name} needs no Dockerfile: {decided.base_reason}")
            return NOTHING_RENDERED
        with self._reporter.step(f"render {self._variant.name}"):
            name = str(package_name(decided))
            system = self._system(decided)
            rendered = render(decided, self._shop.lock, self._shop.loader, package_name=name, system=system)
            lay_out(
                decided,
                rendered,
                self._place,
                store=self._store,
                rootfs=self._shop.rootfs(self._reporter),
                root=self._shop.root,
            )
            self._reporter.say(str(self._place.dockerfile))
        return rendered

    def _system(self, decided: BuildPlan) -> tuple[DebianPackage, ...]:
        """The packages of the root file system that compiles; none where nothing is, or an image does."""
        if decided.base != "assembled" or decided.origin is not Origin.SOURCE:
            return ()
        base = decided.project.bases.assembled
        return self._shop.rootfs(self._reporter).packages(base.suite, base.packages)

    def _compile(self, decided: BuildPlan, rendered: Rendered) -> None:
        """ORT's libraries; nothing for origin wheel."""
        if decided.origin is Origin.SOURCE:
            self._artifact(rendered).make(self._means(decided), anew=self._options.force)

    def _gather(self, decided: BuildPlan, rendered: Rendered) -> tuple[Member, ...]:
        """Every file of the package, found. What was compiled must have been compiled for this very plan."""
        compiled = decided.origin is Origin.SOURCE
        sources = Sources(
            tree=self._store.unpack,
            artifact=self._artifact(rendered).folder() if compiled else None,
            licence=self._shop.root / decided.project.bundle.licence,
            directml=self._shop.templates / "directml.txt",
            relocate=self._shop.patchelf.with_origin,
        )
        return gather(decided, sources)

    def _pack_or_doubt(self, decided: BuildPlan, rendered: Rendered) -> tuple[Bundled, ...]:
        """Pack; libraries that fail are compiled anew by the next build."""
        try:
            return self._pack(decided, rendered)
        except (CheckFailedError, IntegrityError):
            self._artifact(rendered).doubt()
            raise

    def _pack(self, decided: BuildPlan, rendered: Rendered) -> tuple[Bundled, ...]:
        """A failure at any point leaves no package of these names in ``dist``, not even the old one."""
        packing = self._packing(decided, rendered)
        packing.clear()
        return packing.pack(self._gather(decided, rendered))

    def _packing(self, decided: BuildPlan, rendered: Rendered) -> Packing:
        making = Making(
            shop=self._shop,
            place=self._place,
            plan=decided,
            rendered=rendered,
            wishes=self._options.wishes,
            began=self._began,
        )
        return Packing(making, self._trial_kit(decided), self._store, self._reporter)

    def _image(self, package: Path, decided: BuildPlan, kit: Kit) -> str:
        archive = self._shop.archive(self._reporter)
        manifest = loads(archive.read_manifest(package), package.name)
        scratch = self._shop.dist / f"image-{self._variant.name}"
        tag = image_tag(decided)
        with (
            self._reporter.step(f"image {self._variant.name}"),
            archive.scratch(scratch, manifest.installed_size) as folder,
        ):
            kit.bench()
            archive.extract(package, folder)
            complete(self._shop, self._reporter, manifest, folder)
            build_image(
                self._place,
                "runtime",
                tag,
                engine=self._shop.engine,
                trees={"package": folder, "smoke": kit.folder},
                builder=self._options.builder,
                network=decided.base == "nvidia",
            )
            self._reporter.say(f"image {tag}")
        return tag
