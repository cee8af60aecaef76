"""This module makes a runtime image: lay out, build, compare with its budget, push, compare again, attest.

Its Python wheels are unpacked: the project's own, and those of a requirements file.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from packageurl import PackageURL
from packaging.utils import parse_wheel_filename

from builder.binary.library_names import HOST
from builder.build.own_programs import RUNTIME, SERVICE, make_models, make_wheel
from builder.compile.stages import build_logged
from builder.config.build_plan import Workplace
from builder.config.fields import ProjectSection
from builder.config.inputs import SELFTEST_MODEL, SELFTEST_TRANSFORMER, Input, ort_wheel
from builder.config.variants import WITHOUT_GPU_WHEEL, Origin
from builder.console import Reporter
from builder.contents.attestations import AttestedImage, Part, attestations, library_parts
from builder.contents.provenance import BuilderRun
from builder.contents.required_files import ORTPACKS
from builder.contents.sbom import SUPPLIERS, deb_purl, pypi_purl
from builder.errors import CommandError, ConfigError
from builder.files.atomic_write import scratch_folder
from builder.files.digest import file_digest
from builder.files.file_lock import exclusive
from builder.files.pip_download import pip_download, refusal
from builder.formats.manifest import Manifest
from builder.formats.package_names import CUDA, LIB, LINUX
from builder.io.archive.unpacking import manifest_of
from builder.io.docker.engine import ImageBuild
from builder.io.docker.registry import IndexEntry, PushedImage
from builder.io.git import revision_of
from builder.io.wheel import first_choice, unpack_wheel
from builder.io.wiring import Wiring
from builder.prove.verify import unpacked
from builder.publish.image import (
    HOME,
    PLATFORMS,
    SYSTEM,
    ImageWheel,
    ServiceTrees,
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
    """Layers as ``DockerEngine.layers`` returns them."""
    entry: IndexEntry | None


@dataclass(frozen=True, kw_only=True)
class VariantImages(ProjectSection):
    """The names of one variant's runtime images."""

    variant: str
    tags: tuple[str, ...]
    """The first tag in the engine of each platform's image."""
    pushed: str | None
    """``REGISTRY/NAME@sha256:…`` of the index of these images; null without ``--push``."""


@dataclass(frozen=True)
class RuntimeImage:
    """The runtime image of one package."""

    wiring: Wiring
    place: Workplace
    package: Path
    service: ServiceTrees | None
    """The service's wheels and models; ``None`` for an image without it."""
    reporter: Reporter
    builder: str | None = None
    began: float = field(default_factory=time.time)
    """Start of the work, in seconds since 1970."""

    @cached_property
    def _manifest(self) -> Manifest:
        return manifest_of(self.package)

    @property
    def _has_package(self) -> bool:
        """Whether the package is in the image; the service without CUDA needs Python's wheel alone.

        Not on ARM: in QEMU, the import of 1.32.0 never ended, so that image has its package's version.
        """
        is_tried = self._platform == LINUX
        return self.service is None or self._manifest.provider == CUDA or not is_tried

    @cached_property
    def _host(self) -> Input:
        """The wheel of Python's ONNX Runtime: the newest where any version serves, else the package's."""
        manifest, version = self._manifest, self._manifest.onnxruntime.version
        if manifest.plugin or not self._has_package:
            return Input.wheel(self.wiring.project.image.wheels["onnxruntime"].spec, self._platform)
        if manifest.provider == CUDA:
            return ort_wheel(version)
        return Input.wheel(f"onnxruntime=={version}", self._platform)

    @cached_property
    def _described(self) -> Manifest:
        """What tags and labels say: the package, or without it the wheel."""
        manifest = self._manifest
        version = self._host.requirement.partition("==")[2]
        ort = replace(manifest.onnxruntime, version=version)
        return manifest if self._has_package else replace(manifest, name="", onnxruntime=ort)

    def make(self, repository: str | None = None) -> MadeImage:
        """Make the image and return it.

        With a ``repository``, the image is also pushed, under the tag of its platform.

        Raises ``CheckFailedError`` for an image over its budget, ``TransferError`` if a registry refuses it,
        and ``IntegrityError`` if the registry then has other layers.
        """
        wiring, manifest = self.wiring, self._manifest
        self.place.root.mkdir(parents=True, exist_ok=True)
        with (
            self.reporter.step(f"image {self.place.root.name}"),
            scratch_folder(self.place.root / "image", needed=0) as folder,
        ):
            context = folder / "image-context"
            names = self._lay_out(context)
            tags = local_tags(self._described, service=self.service is not None)
            request = ImageBuild(
                dockerfile=self._dockerfile,
                context=context,
                target="runtime",
                tags=tags,
                builder=self.builder,
                network=False,
                platform=PLATFORMS[self._platform],
            )
            build_logged(wiring.engine, request, self.place.log)
            built = wiring.engine.layers(tags[0])
            size = size_on_disk(context.iterdir())
            also = f", also {tags[1]}, which compose.yaml starts" if tags[1:] else ""
            self.reporter.say(f"image {tags[0]}  {size / 1e6:,.0f} MB in {len(built)} layers{also}")
            if manifest.provider != CUDA:
                require_budget(manifest, size, wiring.project.image.budget)
            entry = None
            if repository:
                image, entry = self._push(request, built, repository)
                size = own_size(names, image)
                self.reporter.say(f"{size / 1e6:,.1f} MB compressed, NVIDIA's layers and models not counted")
                if manifest.provider == CUDA and manifest.onnxruntime.origin == Origin.SOURCE.value:
                    require_budget(manifest, size, wiring.project.image.budget)
        return MadeImage(tag=tags[0], manifest=self._described, layers=built, entry=entry)

    def _lay_out(self, context: Path) -> Sequence[str]:
        """Write Dockerfile and layers; return the names of the layers, in order, without the system's."""
        wiring, service, manifest, wheels = self.wiring, self.service, self._manifest, self._wheels
        context.mkdir(parents=True)
        system = wiring.rootfs(self.reporter).slim(*self._system)
        shutil.copyfile(system, context / f"{SYSTEM}.tar")
        with unpacked(wiring, self.reporter, self.package) as tree:
            package = tree if self._has_package else None
            by_layer = layers(
                package, manifest, [wheel.tree for wheel in wheels], service.models if service else None
            )
            own = (tree / LIB).glob(HOST) if package else ()
            host = next(chain(own, wheels[0].tree.glob("onnxruntime/capi/libonnxruntime.so.*")), None)
            commit = commit_of(host.read_bytes()) if host else ""
            for name, files in by_layer.items():
                write_layer(files, context / f"{name}.tar")
        named = labels(self._described, commit, f"https://github.com/{wiring.project.publish.repository}")
        text = dockerfile(wiring.loader, self._described, by_layer, named, service=service is not None)
        self._dockerfile.write_text(text, encoding="utf-8")
        return tuple(by_layer)

    @property
    def _dockerfile(self) -> Path:
        return self.place.root / "image.Dockerfile"

    @property
    def _platform(self) -> str:
        return self._manifest.platform

    @property
    def _system(self) -> tuple[str, Sequence[str], str]:
        project = self.wiring.project
        return project.image.suite, project.image.packages, architecture(self._platform)

    @cached_property
    def _wheels(self) -> Sequence[ImageWheel]:
        ort = self._host
        if self.wiring.lock.is_open(ort):
            of_cuda = ort.requirement.startswith("onnxruntime-gpu")
            raise ConfigError(
                f"inputs.lock has no pin of {ort.spec}, which is in the image",
                advice=f"Run ./run lock. {WITHOUT_GPU_WHEEL if of_cuda else ''}".rstrip(),
            )
        numpy = Input.wheel(self.wiring.project.image.wheels["numpy"].spec, self._platform)
        others = self.service.wheels if self.service else (self._pinned(numpy),)
        return [self._pinned(ort), own_wheel(self.wiring, RUNTIME, self.reporter), *others]

    def _pinned(self, wheel: Input) -> ImageWheel:
        store = self.wiring.store(self.wiring.lock, self.reporter)
        return ImageWheel(tree=store.unpack(wheel), part=part_of(self.wiring, wheel))

    def _push(
        self, request: ImageBuild, built: tuple[str, ...], repository: str
    ) -> tuple[PushedImage, IndexEntry]:
        """Push the built image, whose layers BuildKit has.

        Returns the pushed image and its entry in an index.
        """
        engine, docker = self.wiring.engine, PLATFORMS[self._platform]
        reference = f"{repository}:{published_tags(self._described, service=self.service is not None)[0]}"
        alone = f"{reference}-{architecture(self._platform)}"
        with self.reporter.step(f"push {alone}"):
            build_logged(engine, replace(request, tags=(), push=(alone,)), self.place.log)
            image = engine.pushed(alone, docker)
        require_same(alone, built, image)
        statements = attestations(
            AttestedImage(
                reference=reference,
                digest=image.digest,
                platform=docker,
                variant=self._manifest.variant,
                package=self.package.name if self._has_package else "",
                service=self.service is not None,
                parts=self._parts(),
            ),
            self.wiring.project.publish.repository,
            BuilderRun(
                started=self.began,
                finished=time.time(),
                revision=revision_of(self.wiring.root, self.wiring.runner),
            ),
        )
        return image, IndexEntry(image.digest, docker, statements)

    def _parts(self) -> Sequence[Part]:
        """Return the parts whose files the image has: Debian packages, wheels, the package, and libraries."""
        manifest = self._manifest
        ours = our_part(manifest.name, manifest.onnxruntime.version, self.package)
        parts = [
            *(
                Part(purl=deb_purl(deb.name, deb.version, deb.arch), sha256=deb.sha256, supplier="Debian")
                for deb in self.wiring.rootfs(self.reporter).slim_packages(*self._system)
            ),
            *(wheel.part for wheel in self._wheels),
            *(self.service.sources if self.service else ()),
            *((ours, *library_parts(manifest, HOME)) if self._has_package else ()),
        ]
        return tuple({part.purl: part for part in parts}.values())


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
        for image in images:
            require_same(tag, image.layers, engine.pushed(tag, PLATFORMS[image.manifest.platform]))
        reporter.say(f"pushed {tag}")
    pushed = f"{repository}@{digest}"
    reporter.say(pushed)
    return pushed


def service_trees(wiring: Wiring, platform: str, reporter: Reporter) -> ServiceTrees:
    """Make the service's wheels and models in ``dist`` and return them.

    Raises ``TransferError`` if a wheel of the service's lock file, or of the models, cannot be fetched.
    """
    locked = locked_wheels(wiring, wiring.root / SERVICE / "requirements.lock", platform, reporter)
    return ServiceTrees(
        wheels=(*locked, own_wheel(wiring, SERVICE, reporter)),
        models=make_models(wiring),
        sources=tuple(part_of(wiring, wheel) for wheel in (SELFTEST_TRANSFORMER, SELFTEST_MODEL)),
    )


def own_wheel(wiring: Wiring, project: str, reporter: Reporter) -> ImageWheel:
    """Make the wheel of one of the project's own Python packages, and return it unpacked."""
    made = make_wheel(wiring, project)
    tree = wiring.cache / "unpacked" / file_digest(made).sha256
    lock = wiring.cache / "locks" / f"unpack-{tree.name[:16]}.lock"
    with exclusive(lock, lambda: reporter.say(f"another process unpacks {made.name}: waiting")):
        if not tree.is_dir():
            unpack_wheel(made, tree)
    name, version, *_ = parse_wheel_filename(made.name)
    return ImageWheel(tree=tree, part=our_part(name, str(version), made))


def our_part(name: str, version: str, file: Path) -> Part:
    """Return the part for one of our own files. Its purl is ``generic``: no package index has the file."""
    purl = PackageURL("generic", None, name, version)
    return Part(purl=purl.to_string(), sha256=file_digest(file).sha256, supplier=SUPPLIERS[ORTPACKS])


def part_of(wiring: Wiring, wheel: Input) -> Part:
    """Return the part of a wheel with the sha256 of its pin in ``inputs.lock``."""
    return Part(purl=pypi_purl(wheel.spec), sha256=wiring.lock.pins[wheel.key].sha256)


def locked_wheels(wiring: Wiring, lock: Path, platform: str, reporter: Reporter) -> tuple[ImageWheel, ...]:
    """Return the unpacked wheels of a requirements file with hashes.

    pip fetches them once for each content of the file and platform. Their folders are ``<sha256 of the
    wheel>/<its name>``.
    """
    folder = wiring.cache / "requirements" / platform / file_digest(lock).sha256
    if not folder.is_dir():
        reporter.say(f"fetching what {lock.name} of the {lock.parent.name} names")
        with scratch_folder(folder, needed=0) as fresh:
            wheels = fresh.with_name(f"{fresh.name}.wheels")
            wanted = ["--require-hashes", f"--requirement={lock}", *first_choice(platform)]
            try:
                wiring.runner.run(pip_download(sys.executable, wheels, wanted))
                for wheel in sorted(wheels.glob("*.whl")):
                    unpack_wheel(wheel, fresh / file_digest(wheel).sha256 / wheel.name)
            except CommandError as error:
                raise refusal(lock.name, error.tail, "Check the network and pip's index.") from error
            fresh.rename(folder)
    made = []
    for tree in sorted(folder.glob("*/*.whl"), key=lambda one: one.name):
        name, version, *_ = parse_wheel_filename(tree.name)
        part = Part(purl=pypi_purl(f"{name}=={version}"), sha256=tree.parent.name)
        made.append(ImageWheel(tree=tree, part=part))
    return tuple(made)
