"""This module makes a runtime image: lay out, build, compare with its budget, push, compare again, attest."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builder.adapters.git import revision_of
from builder.binary.library_names import HOST
from builder.builds.images.image_wheels import our_part, own_wheel, part_of, service_trees
from builder.builds.proving import unpacked
from builder.builds.python_wheels import RUNTIME
from builder.builds.wiring import Wiring
from builder.files.atomic_write import scratch_folder
from builder.formats.manifest import Manifest
from builder.formats.package_names import CUDA, LIB
from builder.package.archive import manifest_of
from builder.package.attestations import AttestedImage, Part, attestations, library_parts
from builder.package.provenance import BuilderRun
from builder.package.sbom import deb_purl
from builder.pipeline.compile import build_logged
from builder.pipeline.image import (
    HOME,
    PLATFORMS,
    SYSTEM,
    ImageWheel,
    architecture,
    commit_of,
    dockerfile,
    labels,
    layers,
    local_tags,
    own_size,
    published_tags,
    require_budget,
    require_same,
    size_on_disk,
    write_layer,
)
from builder.ports import ImageBuild, IndexEntry, PushedImage, Reporter
from builder.project.build_plan import Workplace
from builder.project.inputs import Input, ort_wheel
from builder.project.variants import Origin


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """The command line's flags for an image."""

    service: bool = False
    """Whether the image starts the service and holds its models."""
    push: str | None = None
    """Repository to push to, ``REGISTRY/NAME``; ``None``: do not push."""
    platforms: tuple[str, ...] = ()
    """Platforms by their names in packages; empty: the variant's platform."""


@dataclass(frozen=True, kw_only=True)
class MadeImage:
    """The image of one package and, if it was pushed, its entry for the registry's index."""

    tag: str
    manifest: Manifest
    layers: tuple[str, ...]
    """Layers as ``Engine.layers`` returns them."""
    entry: IndexEntry | None


@dataclass(frozen=True, kw_only=True)
class VariantImages:
    """The images of one variant."""

    tags: tuple[str, ...]
    """The first tag in the engine of each platform's image."""
    pushed: str | None
    """``REGISTRY/NAME@DIGEST``; ``None`` if nothing was pushed."""


@dataclass(frozen=True, kw_only=True)
class _Contents:
    """The contents of an image besides its Debian system."""

    package: Path
    manifest: Manifest
    wheels: Sequence[ImageWheel]


class RuntimeImage:
    """The runtime image of one package."""

    def __init__(
        self,
        wiring: Wiring,
        place: Workplace,
        options: ImageOptions,
        platform: str,
        reporter: Reporter,
        builder: str | None = None,
    ) -> None:
        """Raises the errors of ``service_trees`` before anything is built."""
        self._wiring = wiring
        self._place = place
        self._push_to = options.push
        self._platform = platform
        self._reporter = reporter
        self._builder = builder
        self._began = time.time()
        self._dockerfile = place.root / "image.Dockerfile"
        self._service = service_trees(wiring, platform, reporter) if options.service else None

    def make(self, package: Path) -> MadeImage:
        """Make the image and return it.

        If it is to be pushed, the registry has it under the tag of its platform.

        Raises ``CheckFailedError`` for an image over its budget, ``TransferError`` if a registry refuses it,
        and ``IntegrityError`` if the registry then has other layers.
        """
        wiring = self._wiring
        manifest = manifest_of(package, wiring.archive(self._reporter))
        self._place.root.mkdir(parents=True, exist_ok=True)
        with (
            self._reporter.step(f"image {self._place.root.name}"),
            scratch_folder(self._place.root / "image", needed=0) as folder,
        ):
            context = folder / "image-context"
            contents = _Contents(package=package, manifest=manifest, wheels=self._wheels(manifest))
            names = self._lay_out(context, contents)
            tags = local_tags(manifest, service=self._service is not None)
            request = ImageBuild(
                dockerfile=self._dockerfile,
                context=context,
                target="runtime",
                tags=tags,
                builder=self._builder,
                network=False,
                platform=PLATFORMS[self._platform],
            )
            build_logged(wiring.engine, request, self._place.log)
            built = wiring.engine.layers(tags[0])
            size = size_on_disk(context.iterdir())
            also = f", also {tags[1]}, which compose.yaml starts" if tags[1:] else ""
            self._reporter.say(f"image {tags[0]}  {size / 1e6:,.0f} MB in {len(built)} layers{also}")
            if manifest.provider != CUDA:
                require_budget(manifest, size, wiring.project.image.budget)
            entry = None
            if self._push_to:
                image, entry = self._push(request, contents, built, self._push_to)
                size = own_size(names, image)
                self._reporter.say(f"{size / 1e6:,.1f} MB compressed, NVIDIA's layers and models not counted")
                if manifest.provider == CUDA and manifest.onnxruntime.origin == Origin.SOURCE.value:
                    require_budget(manifest, size, wiring.project.image.budget)
        return MadeImage(tag=tags[0], manifest=manifest, layers=built, entry=entry)

    def _lay_out(self, context: Path, contents: _Contents) -> Sequence[str]:
        """Write Dockerfile and layers; return the names of the layers, in order, without the system's."""
        wiring, service, manifest = self._wiring, self._service, contents.manifest
        context.mkdir(parents=True)
        system = wiring.rootfs(self._reporter).slim(*self._system)
        shutil.copyfile(system, context / f"{SYSTEM}.tar")
        with unpacked(wiring, self._reporter, contents.package) as tree:
            commit = commit_of((tree / LIB / HOST).read_bytes())
            wheels = [wheel.tree for wheel in contents.wheels]
            found = layers(tree, manifest, wheels, service.models if service else None)
            for name, files in found.items():
                write_layer(files, context / f"{name}.tar")
        named = labels(manifest, commit, f"https://github.com/{wiring.project.publish.repository}")
        text = dockerfile(wiring.loader, manifest, found, named, service=service is not None)
        self._dockerfile.write_text(text, encoding="utf-8")
        return tuple(found)

    @property
    def _system(self) -> tuple[str, Sequence[str], str]:
        """Suite, packages and architecture of the slim Debian system."""
        project = self._wiring.project
        return project.image.suite, project.image.packages, architecture(self._platform)

    def _wheels(self, manifest: Manifest) -> Sequence[ImageWheel]:
        """Return the wheels of Python's ONNX Runtime, of our runtime layer, and of numpy or the service."""
        version = manifest.onnxruntime.version
        stock = Input.wheel(f"onnxruntime=={version}", self._platform)
        ort = ort_wheel(version) if manifest.provider == CUDA else stock
        numpy = Input.wheel(self._wiring.project.image.wheels["numpy"].spec, self._platform)
        others = self._service.wheels if self._service else (self._pinned(numpy),)
        return [self._pinned(ort), own_wheel(self._wiring, RUNTIME, self._reporter), *others]

    def _pinned(self, wheel: Input) -> ImageWheel:
        store = self._wiring.store(self._wiring.lock, self._reporter)
        return ImageWheel(tree=store.unpack(wheel), part=part_of(self._wiring, wheel))

    def _push(
        self, request: ImageBuild, contents: _Contents, built: tuple[str, ...], repository: str
    ) -> tuple[PushedImage, IndexEntry]:
        """Push the built image, whose layers BuildKit has.

        Returns the pushed image and its entry in an index.
        """
        engine, docker = self._wiring.engine, PLATFORMS[self._platform]
        reference = f"{repository}:{published_tags(contents.manifest, service=self._service is not None)[0]}"
        alone = f"{reference}-{architecture(self._platform)}"
        with self._reporter.step(f"push {alone}"):
            build_logged(engine, replace(request, tags=(), push=(alone,)), self._place.log)
            image = engine.pushed(alone, docker)
        require_same(alone, built, image)
        statements = attestations(
            AttestedImage(
                reference=reference,
                digest=image.digest,
                platform=docker,
                variant=contents.manifest.variant,
                package=contents.package.name,
                service=self._service is not None,
                parts=self._parts(contents),
            ),
            self._wiring.project.publish.repository,
            BuilderRun(
                started=self._began,
                finished=time.time(),
                revision=revision_of(self._wiring.root, self._wiring.runner),
            ),
        )
        return image, IndexEntry(image.digest, docker, statements)

    def _parts(self, contents: _Contents) -> Sequence[Part]:
        """Return the parts whose files the image has: Debian packages, wheels, the package, and libraries."""
        manifest = contents.manifest
        found = [
            *(
                Part(purl=deb_purl(one.name, one.version, one.arch), sha256=one.sha256, supplier="Debian")
                for one in self._wiring.rootfs(self._reporter).slim_packages(*self._system)
            ),
            *(wheel.part for wheel in contents.wheels),
            *(self._service.sources if self._service else ()),
            our_part(manifest.name, manifest.onnxruntime.version, contents.package),
            *library_parts(manifest, HOME),
        ]
        return tuple({part.purl: part for part in found}.values())


def publish_index(
    wiring: Wiring, images: Sequence[MadeImage], options: ImageOptions, reporter: Reporter
) -> str:
    """Push an index of a variant's images, one for each platform, under every tag.

    Returns ``REGISTRY/NAME@DIGEST``. Raises ``TransferError`` and ``IntegrityError`` as
    ``RuntimeImage.make`` does.
    """
    engine, repository = wiring.engine, str(options.push)
    names = published_tags(images[0].manifest, service=options.service)
    with reporter.step(f"push {repository}:{names[0]}"):
        digest = engine.publish(repository, names, [one.entry for one in images if one.entry])
    for tag in (f"{repository}:{name}" for name in names):
        for one in images:
            require_same(tag, one.layers, engine.pushed(tag, PLATFORMS[one.manifest.platform]))
        reporter.say(f"pushed {tag}")
    pushed = f"{repository}@{digest}"
    reporter.say(pushed)
    return pushed
