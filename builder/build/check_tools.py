"""The tools that check packages: cuobjdump, a bare image, the smoke program, models, a virtual card.

Only the base determines the tools, so a package can be verified without a plan of its build. This machine's
own engine makes and runs the tools, wherever libraries were compiled. The expected outputs of models come
from the stock onnxruntime CPU wheel of this environment.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from pathlib import Path

from builder.compile.plan import PlanOptions, choose_base, decide
from builder.compile.render import render
from builder.compile.stages import CHECK_STAGES, StageBuild, build_image, export, lay_out, virtual_card
from builder.config.build_plan import Rendered
from builder.config.inputs import debian_version, host_wheel
from builder.config.variants import Origin, Variant
from builder.console import Reporter
from builder.contents.cuobjdump import Inspector
from builder.io.docker.cuobjdump_container import ContainerInspector
from builder.io.wiring import Wiring
from builder.prove.selftest import SelftestBench, SelftestTrial, stock_outputs
from builder.prove.virtualcard.sessions import CardRuntime

_NOBODY = Variant(name="check-tools", sm=(), generations=())


class CheckTools:
    """The tools of one base, which are made under a lock and shared by all variants."""

    def __init__(self, wiring: Wiring, base: str, reporter: Reporter) -> None:
        self._wiring = wiring
        self._base = base
        self._reporter = reporter
        self._store = wiring.store(wiring.lock, reporter)
        self._place = wiring.check_tools_place(base)

    @property
    def _smoke(self) -> Path:
        return self._place.tools / "ortpacks-smoke"

    def inspector(self) -> Inspector:
        """Return cuobjdump in a container, after trying it on a file with known images.

        All bases have the same version of cuobjdump. Raises ``CommandError`` if it lists other images in that
        file.
        """
        deb = self._wiring.project.check.cuobjdump
        version = debian_version(deb)
        with self._reporter.step("make cuobjdump and try it"), self._locked():
            image = self._image("cuobjdump", self._rendered())
            pin = self._wiring.lock.pins[deb.key]
            answers = self._wiring.cache / f"cuobjdump-{version}-{pin.sha256[:12]}"
            made = ContainerInspector(self._wiring.engine, image, version, answers)
            made.try_out(self._wiring.root / "builder/binary/known-images.so")
        return made

    def toolchain(self) -> str:
        """Return the tag of the image of the base's toolchain: nvcc and gcc."""
        with self._reporter.step("make the image of the toolchain"), self._locked():
            return self._image("toolchain", self._rendered())

    def selftest_bench(self) -> SelftestBench:
        """Return the container image, smoke program and models of the self-test."""
        with self._reporter.step("make the image and the programs of the self-test"), self._locked():
            rendered = self._rendered()
            self._export(rendered)
            image = self._image("bare", rendered)
        return SelftestBench(
            engine=self._wiring.engine,
            image=image,
            script=self._wiring.templates / "selftest.sh",
            smoke=self._smoke,
            trials=self.trials(),
            stock_outputs=stock_outputs,
        )

    def trials(self) -> tuple[SelftestTrial, ...]:
        """Return the models of the self-test."""
        # Imported late: onnx is slow to import.
        from builder.prove.sample_models import selftest_trials  # noqa: PLC0415

        return selftest_trials(self._store, self._wiring.cache / "made")

    def card_runtime(self) -> CardRuntime:
        """Return the virtual card's library, which replaces CUDA's runtime, and a process runner."""
        with self._reporter.step("make the virtual card"), self._locked():
            self._export(self._rendered())
        return CardRuntime(library=self._place.tools / "libvirtualcard.so", runner=self._wiring.runner)

    def host(self, version: str) -> Path:
        """Return the host library of the stock wheel of ``version``, which is fetched."""
        tree = self._store.unpack(host_wheel(version))
        return tree / "onnxruntime" / "capi" / f"libonnxruntime.so.{version}"

    def _export(self, rendered: Rendered) -> None:
        programs = (self._wiring.templates / "smoke.c", *virtual_card(self._wiring.root))
        texts = (file.read_text(encoding="utf-8") for file in programs)
        key = self._key(rendered, rendered.runtime_dockerfile, *texts)
        made = self._place.root / "tools.key"
        if self._smoke.is_file() and made.is_file() and made.read_text(encoding="utf-8") == key:
            return
        stage_build = StageBuild(engine=self._wiring.engine, store=self._store, reporter=self._reporter)
        export("tools", self._place.tools, rendered, self._place, stage_build)
        made.write_text(key, encoding="utf-8")

    def _locked(self) -> AbstractContextManager[None]:
        waits = "another build makes the tools that check packages: waiting"
        return self._wiring.locked(f"check-tools-{self._base}", self._reporter, waits)

    def _rendered(self) -> Rendered:
        """Write the context of the tools and return the Dockerfiles of a package that compiles nothing."""
        plan = decide(self._wiring.project, _NOBODY, PlanOptions(), self._base, Origin.WHEEL)
        rendered = render(plan, self._wiring.lock, self._wiring.loader)
        rootfs, root = self._wiring.rootfs(self._reporter), self._wiring.root
        lay_out(plan, rendered, self._place, store=self._store, rootfs=rootfs, root=root)
        return rendered

    def _image(self, target: str, rendered: Rendered) -> str:
        text = rendered.runtime_dockerfile if target in CHECK_STAGES else rendered.dockerfile
        tag = f"ortpacks/{target}:{self._base}-{self._key(rendered, text)[:12]}"
        if self._wiring.engine.has_image(tag):
            return tag
        wheels = rendered.contexts.items() if target == "toolchain" else ()
        build_image(
            self._place,
            target,
            tag,
            engine=self._wiring.engine,
            trees={name: self._store.unpack(wheel) for name, wheel in wheels},
            network=rendered.network,
        )
        return tag

    def _key(self, rendered: Rendered, *texts: str) -> str:
        """Return a hex sha256 over the sources of the tools: pins, root file systems and ``texts``."""
        systems = [file.stat() for file in sorted(self._place.context.glob("rootfs-*.tar"))]
        times = [f"{system.st_size} {system.st_mtime_ns}" for system in systems]
        return hashlib.sha256("\n".join((rendered.toolchain_key, *times, *texts)).encode()).hexdigest()


def tools_of(wiring: Wiring, plan_options: PlanOptions) -> CheckTools:
    """Return the tools of the base that the flags choose."""
    base = choose_base(wiring.project, plan_options, wiring.engine)[0]
    return CheckTools(wiring, base, wiring.reporter)
