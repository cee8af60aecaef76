"""A runtime image: gathered, built, held to its budget, pushed, and compared with what was built."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builder.adapters.wheel import first_choice, unpack_wheel
from builder.builds.proving import unpacked
from builder.builds.python_wheels import RUNTIME, SERVICE, make_models, make_wheel
from builder.builds.wiring import Wiring
from builder.errors import CommandError, TransferError
from builder.files.atomic_write import scratch_folder
from builder.files.digest import file_digest
from builder.files.pip_download import pip_download, refusal
from builder.formats.manifest import Manifest
from builder.formats.package_names import CUDA
from builder.package.archive import manifest_of
from builder.pipeline.image import (
    PLATFORM,
    SYSTEM,
    ServiceTrees,
    commit_of,
    dockerfile,
    hold_to_budget,
    labels,
    layers,
    local_tag,
    own_size,
    published_tags,
    require_same,
    write_layer,
)
from builder.ports import BuiltImage, ImageBuild, PushedImage, Reporter
from builder.project.build_plan import Workplace
from builder.project.inputs import Input, ort_wheel
from builder.project.variants import Origin

_SCANNER = "docker/buildkit-syft-scanner:stable-1"
"""The image that BuildKit makes SBOMs with."""

_NO_ATTESTATIONS = (
    "no SBOM and no provenance go with it: an engine that keeps images itself has no place for them. Turn on "
    "its containerd image store, or name a builder of `docker buildx create` with --builder"
)


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """The command line's flags on an image."""

    service: bool = False
    """Whether it starts the service and holds its models."""
    push: str | None = None
    """``REGISTRY/NAME``."""


class RuntimeImage:
    """The runtime image of one package."""

    def __init__(
        self,
        wiring: Wiring,
        place: Workplace,
        options: ImageOptions,
        reporter: Reporter,
        builder: str | None = None,
    ) -> None:
        """Raises the errors of ``service_trees`` before anything is built."""
        self._wiring = wiring
        self._place = place
        self._push_to = options.push
        self._reporter = reporter
        self._builder = builder
        self._dockerfile = place.root / "image.Dockerfile"
        self._service = service_trees(wiring, reporter) if options.service else None

    def make(self, package: Path) -> str:
        """The tag of the image; where it is pushed, it is also as it was built in its registry.

        Raises ``CheckFailedError`` for one over its budget, ``TransferError`` where a registry refuses, and
        ``IntegrityError`` where it has something else then.
        """
        wiring = self._wiring
        manifest = manifest_of(package, wiring.archive(self._reporter))
        self._place.root.mkdir(parents=True, exist_ok=True)
        with (
            self._reporter.step(f"image {self._place.root.name}"),
            scratch_folder(self._place.root / "image", needed=0) as folder,
        ):
            context = folder / "image-context"
            names = self._lay_out(folder, context, package, manifest)
            tag = local_tag(manifest, service=self._service is not None)
            request = ImageBuild(
                dockerfile=self._dockerfile,
                context=context,
                target="runtime",
                tag=tag,
                builder=self._builder,
                network=False,
                platform=PLATFORM,
            )
            self._build(request)
            built = wiring.engine.image(tag)
            self._reporter.say(f"image {tag}  {built.size / 1e6:,.0f} MB in {len(built.layers)} layers")
            if manifest.provider != CUDA:
                hold_to_budget(manifest, built.size, wiring.project.image.budget)
            if self._push_to:
                size = own_size(names, self._push(request, manifest, built, self._push_to))
                self._reporter.say(f"{size / 1e6:,.1f} MB compressed, NVIDIA's layers and models not counted")
                if manifest.provider == CUDA and manifest.onnxruntime.origin == Origin.SOURCE.value:
                    hold_to_budget(manifest, size, wiring.project.image.budget)
        return tag

    def _lay_out(self, folder: Path, context: Path, package: Path, manifest: Manifest) -> Sequence[str]:
        """Write Dockerfile and layers; the layers' names, in order, without the system's."""
        wiring, service = self._wiring, self._service
        base = wiring.project.bases.assembled
        context.mkdir(parents=True)
        system = wiring.rootfs(self._reporter).slim(base.suite, wiring.project.image.packages)
        shutil.copyfile(system, context / f"{SYSTEM}.tar")
        wheels = self._wheels(folder, manifest)
        with unpacked(wiring, self._reporter, package) as tree:
            commit = commit_of((tree / "lib/libonnxruntime.so.1").read_bytes())
            found = layers(tree, manifest, wheels, service.models if service else None)
            for name, files in found.items():
                write_layer(files, context / f"{name}.tar")
        named = labels(manifest, commit, f"https://github.com/{wiring.project.publish.repository}")
        text = dockerfile(wiring.loader, manifest, found, named, service=service is not None)
        self._dockerfile.write_text(text, encoding="utf-8")
        return tuple(found)

    def _wheels(self, folder: Path, manifest: Manifest) -> Sequence[Path]:
        """The unpacked wheels of Python's ONNX Runtime, our runtime layer, and numpy or the service's."""
        store = self._wiring.store(self._wiring.lock, self._reporter)
        version = manifest.onnxruntime.version
        ort = ort_wheel(version) if manifest.provider == CUDA else Input.wheel(f"onnxruntime=={version}")
        runtime = folder / "runtime-wheel"
        unpack_wheel(make_wheel(self._wiring, RUNTIME), runtime)
        numpy = self._wiring.project.image.wheels["numpy"]
        others = self._service.wheels if self._service else (store.unpack(numpy),)
        return [store.unpack(ort), runtime, *others]

    def _build(self, request: ImageBuild) -> None:
        with self._place.log.open("a", encoding="utf-8") as log:
            self._wiring.engine.build(request, lambda line: print(line, file=log))

    def _push(
        self, request: ImageBuild, manifest: Manifest, built: BuiltImage, repository: str
    ) -> PushedImage:
        """Push what was built, whose layers BuildKit holds; what the registry has then."""
        engine, names = self._wiring.engine, published_tags(manifest, service=self._service is not None)
        tags = tuple(f"{repository}:{name}" for name in names)
        attestations = self._attestations()
        with self._reporter.step(f"push {tags[0]}"):
            self._build(replace(request, tag=None, push=tags, attestations=attestations))
            found = {tag: engine.pushed(tag) for tag in tags}
        for tag, image in found.items():
            require_same(tag, built, image)
            self._reporter.say(f"pushed {tag}")
        image = found[tags[0]]
        self._reporter.say(f"{repository}@{image.digest}")
        return image

    def _attestations(self) -> tuple[str, ...]:
        """What BuildKit can attach to what is pushed; what it cannot is said."""
        engine = self._wiring.engine
        if not engine.can_attest(self._builder):
            self._reporter.warn(_NO_ATTESTATIONS)
            return ()
        try:
            engine.resolve(_SCANNER)
        except TransferError as error:
            self._reporter.warn(f"no SBOM goes with it, provenance alone: {_SCANNER}: {error.cause}")
            return ("provenance",)
        return ("provenance", "sbom")


def service_trees(wiring: Wiring, reporter: Reporter) -> ServiceTrees:
    """The service's wheels and its models, made in ``dist``.

    Raises ``TransferError`` where a wheel of its lock, or of the models, cannot be had.
    """
    locked = locked_trees(wiring, wiring.root / SERVICE / "requirements.lock", reporter)
    made = make_wheel(wiring, SERVICE)
    own = wiring.cache / "unpacked" / file_digest(made).sha256
    if not own.is_dir():
        unpack_wheel(made, own)
    return ServiceTrees(wheels=(*locked, own), models=make_models(wiring))


def locked_trees(wiring: Wiring, lock: Path, reporter: Reporter) -> tuple[Path, ...]:
    """The unpacked wheels of a requirements file with hashes, fetched by pip once for its bytes."""
    folder = wiring.cache / "locked" / file_digest(lock).sha256
    if not folder.is_dir():
        reporter.say(f"fetching what {lock.name} of the {lock.parent.name} names")
        with scratch_folder(folder, needed=0) as fresh:
            wheels = fresh.with_name(f"{fresh.name}.wheels")
            wanted = ["--require-hashes", f"--requirement={lock}", *first_choice()]
            try:
                wiring.runner.run(pip_download(sys.executable, wheels, wanted))
                for wheel in sorted(wheels.glob("*.whl")):
                    unpack_wheel(wheel, fresh / wheel.name)
            except CommandError as error:
                raise refusal(lock.name, error.tail, "Check the network and pip's index.") from error
            fresh.rename(folder)
    return tuple(sorted(folder.iterdir()))
