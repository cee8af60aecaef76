"""What packages are checked and tried out with: cuobjdump, a bare image, the smoke program, models.

It follows from the base alone, so that a package can be verified without planning its build.

The stock onnxruntime CPU wheel of this environment: what a model's answer should be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import onnxruntime

from builder.adapters.docker.cuobjdump import ContainerInspector
from builder.builds.workshop import Workshop
from builder.files.file_lock import exclusive
from builder.formats.package_names import Host
from builder.pipeline.compile import Means, export, lay_out, virtual_card
from builder.pipeline.image import build_image
from builder.pipeline.render import render
from builder.pipeline.selftest import Bench
from builder.pipeline.selftest_models import Outputs, Tensor
from builder.ports import Inspector, Reporter
from builder.project.inputs import ort_wheel
from builder.project.plan import BuildPlan, Rendered
from builder.project.variants import Origin, Variant

_NOBODY = Variant(name="kit", sm=(), generations=())


class Kit:
    """The kit of one base, made once and shared by all variants: whoever comes second waits."""

    def __init__(self, shop: Workshop, base: str, reporter: Reporter, builder: str | None = None) -> None:
        self._shop = shop
        self._base = base
        self._reporter = reporter
        self._builder = builder
        self._store = shop.store(shop.lock, reporter)
        self._place = shop.place(f".kit-{base}")

    @property
    def folder(self) -> Path:
        """Where ``ortpacks-smoke`` lies."""
        return self._place.kit

    @property
    def _smoke(self) -> Path:
        return self._place.kit / "ortpacks-smoke"

    def inspector(self) -> Inspector:
        """Cuobjdump of the base's toolchain."""
        with self._alone():
            image = self._image("toolchain", self._made())
        project = self._shop.project
        version = project.bases.assembled.nvcc if self._base == "assembled" else project.cuda.version
        return ContainerInspector(self._shop.engine, image, version, self._shop.cache)

    def bench(self) -> Bench:
        """Where packages are tried out."""
        with self._alone():
            rendered = self._made()
            self._export(rendered)
            image = self._image("bare", rendered)
        return Bench(
            engine=self._shop.engine,
            image=image,
            script=self._shop.templates / "selftest.sh",
            smoke=self._smoke,
            trials=self._shop.trials(self._store),
            stock_outputs=_stock_outputs,
        )

    def virtual_card(self) -> Path:
        """The stand-in for CUDA's runtime."""
        with self._alone():
            self._export(self._made())
        return self._place.kit / "libvirtualcard.so"

    def _export(self, rendered: Rendered) -> None:
        """The programs. What is up to date stays: another variant may be running it."""
        programs = (self._shop.templates / "smoke.c", *virtual_card(self._shop.root))
        text = "".join(
            (
                rendered.dockerfile,
                rendered.toolchain_key,
                *(file.read_text(encoding="utf-8") for file in programs),
            )
        )
        key = hashlib.sha256(text.encode()).hexdigest()
        made = self._place.root / "kit.key"
        if self._smoke.is_file() and made.is_file() and made.read_text(encoding="utf-8") == key:
            return
        means = Means(
            engine=self._shop.engine, store=self._store, reporter=self._reporter, builder=self._builder
        )
        export("kit", self._place.kit, rendered, self._place, means)
        made.write_text(key, encoding="utf-8")

    def _alone(self) -> AbstractContextManager[None]:
        waits = "another build makes the kit: waiting"
        return exclusive(self._shop.lock_of(f"kit-{self._base}"), lambda: self._reporter.say(waits))

    def _made(self) -> Rendered:
        """The kit's Dockerfiles and context: those of a package that compiles nothing."""
        project = self._shop.project
        version = project.bases.ort_version(self._base)
        plan = BuildPlan(
            project=project,
            variant=_NOBODY,
            base=self._base,
            base_reason="",
            origin=Origin.WHEEL,
            origin_reason="",
            profile=None,
            host=Host.WHEEL,
            ort_version=version,
            ort_wheel=ort_wheel(version),
        )
        rendered = render(plan, self._shop.lock, self._shop.loader, package_name="kit")
        lay_out(
            plan,
            rendered,
            self._place,
            store=self._store,
            rootfs=self._shop.rootfs(self._reporter),
            root=self._shop.root,
        )
        return rendered

    def _image(self, target: str, rendered: Rendered) -> str:
        """A stage of the base as an image: ``ortpacks/toolchain``, ``ortpacks/bare``."""
        tag = f"ortpacks/{target}:{self._base}-{rendered.toolchain_key}"
        wheels = rendered.contexts.items() if target == "toolchain" else ()
        build_image(
            self._place,
            target,
            tag,
            engine=self._shop.engine,
            trees={name: self._store.unpack(wheel) for name, wheel in wheels},
            builder=self._builder,
            network=rendered.network,
        )
        return tag


def _stock_outputs(model: Path, inputs: Sequence[Tensor]) -> Outputs:
    """See ``builds.kit``."""
    # Imported late: onnxruntime is slow to import and leaves an id of its own in the user's home.

    return stock_outputs(model, inputs)


_DTYPES = {"f32": np.float32, "i32": np.int32, "i64": np.int64}


def stock_outputs(model: Path, inputs: Sequence[Tensor]) -> Mapping[str, list[float]]:
    """Run ``model`` on the stock CPU provider: output name → its numbers, flattened."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    feed = {item.name: np.frombuffer(item.data, _DTYPES[item.type]).reshape(item.dims) for item in inputs}
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, feed)
    return {name: np.asarray(value).ravel().tolist() for name, value in zip(names, values, strict=True)}
