"""The step image makes a runtime image's Dockerfile, layers, tags and labels, and checks the image.

Layers are in the order in which images share them, because an engine fetches all layers from the first one on
that it lacks: system, NVIDIA's libraries by wheel, models, Python's packages, the package. Each is a tar
whose bytes depend on its files alone, so every machine builds the same layer. A folder as a context would not
do: BuildKit updates its copy of an earlier build's context (docs/quirks.md).
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from jinja2 import BaseLoader

from builder.binary.library_names import NVIDIA
from builder.config.inputs import Input
from builder.contents.attestations import Part
from builder.errors import CheckFailedError, IntegrityError, ValidationError
from builder.files.disk import disk_errors
from builder.formats.manifest import FileEntry, Manifest
from builder.formats.package_names import CUDA, LIB, LINUX, LINUX_ARM64, REDUCED
from builder.formats.text import redacted
from builder.io.debian.rootfs import NEWEST_MTIME
from builder.io.docker.registry import PushedImage
from builder.io.templates import template_environment

PLATFORMS: Mapping[str, str] = {LINUX: "linux/amd64", LINUX_ARM64: "linux/arm64"}
"""Docker's name of each platform that images are made for, by the platform's name in packages."""

SYSTEM = "system"
"""Name of the layer with the slim Debian."""

HOME = "opt/ortpacks"
"""Folder of the package in an image."""

_PYTHON = "usr/local/lib/python3.11/dist-packages"
"""Folder where Debian's Python looks for packages that are not Debian's."""

_MODELS = f"{HOME}/models"

MODELS_LAYER = "models"

_LAST = "nvidia-curand"
"""Layer above those that all CUDA images share: the official build links cuRAND, our compiled ones do not."""

_FOR_GPUS = ("*_fp16.onnx", "*_int8.onnx")
"""Models in number types other than fp32, which an image without CUDA omits to stay within its budget."""

_LEFT_OUT = (
    "apsw/sqlite_extra_binaries/*",
    "onnxruntime/capi/libonnxruntime.so.*",
    "onnxruntime/capi/libonnxruntime_providers_cuda.so",
    "onnxruntime/capi/libonnxruntime_providers_tensorrt.so",
    "onnxruntime/quantization/*",
    "onnxruntime/tools/*",
    "onnxruntime/transformers/*",
    "numpy*/tests/*",
    "numpy/_core/include/*",
    "numpy/_core/lib/*.a",
    "numpy/f2py/*",
    "numpy/distutils/*",
    "apsw/tests/*",
    "*.pyi",
    "*.data/*",
)
"""Files of wheels that images omit: libraries that the package has, and files not needed to run models."""

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9.-]*(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+")

_COMMIT = re.compile(rb"git-commit-id=([0-9a-f]{7,40})")
"""The commit in ONNX Runtime's build information, which its host library has as text."""


@dataclass(frozen=True, kw_only=True)
class ImageWheel:
    """An unpacked wheel whose files an image has."""

    tree: Path
    part: Part


@dataclass(frozen=True, kw_only=True)
class ServiceTrees:
    """The additional contents of an image with the service: wheels, and the folder of its models."""

    wheels: tuple[ImageWheel, ...]
    models: Path
    sources: tuple[Part, ...]
    """Parts that the models were made from."""


def require_repository(text: str) -> str:
    """Return ``text`` if it names a registry and a repository in it. Raises ``ValidationError``."""
    host = text.partition("/")[0]
    if not _REPOSITORY.fullmatch(text) or not ("." in host or ":" in host or host == "localhost"):
        raise ValidationError(
            f"--push {redacted(text)!r} is no REGISTRY/NAME",
            cause="a registry's host and a name in lower case are wanted, without a scheme or a tag",
            advice="Like ghcr.io/owner/ortpacks or localhost:5000/ortpacks; tags follow from the package.",
        )
    return text


def require_platforms(text: str) -> tuple[str, ...]:
    """Return the packages' names of the platforms in ``text``, such as ``linux/amd64,linux/arm64``.

    Raises ``ValidationError`` for a platform without images.
    """
    known = {name: platform for platform, name in PLATFORMS.items()}
    asked = tuple(dict.fromkeys(text.split(",")))
    for name in asked:
        if name not in known:
            raise ValidationError(
                f"--platform {text!r}: images are not made for {name!r}",
                advice=f"Name {', '.join(known)}, or both with a comma between.",
            )
    return tuple(known[name] for name in asked)


def architecture(platform: str) -> str:
    """Return Docker's and Debian's name of the processor of a package's platform: ``amd64``."""
    return PLATFORMS[platform].rpartition("/")[2]


def local_tags(manifest: Manifest, *, service: bool) -> tuple[str, ...]:
    """Return the local tags: ``ortpacks/modern:1.23.2``, ``ortpacks/legacy:1.21.0-minimal-service``.

    An image with the service has another one without the version, ``ortpacks/modern:service``, for
    ``compose.yaml``. For another platform than ``linux-x64`` the processor is added:
    ``ortpacks/cpu:1.21.0-arm64``.
    """
    ends = _ends(manifest, service=service)
    ends += "" if manifest.platform == LINUX else f"-{architecture(manifest.platform)}"
    names = (f"{manifest.onnxruntime.version}{ends}", *([ends.removeprefix("-")] if service else []))
    return tuple(f"ortpacks/{manifest.variant}:{name}" for name in names)


def published_tags(manifest: Manifest, *, service: bool) -> tuple[str, ...]:
    """Return the tags in a registry: of this version, of the newest, and of the newest for each architecture.

    An image of a reduced profile only gets the tag of its version.
    """
    ends = _ends(manifest, service=service)
    names = [f"{manifest.onnxruntime.version}-{manifest.variant}"]
    if manifest.onnxruntime.profile not in REDUCED:
        names += [f"latest-{manifest.variant}", *(f"latest-sm{sm}" for sm in manifest.sm)]
    return tuple(f"{name}{ends}" for name in names)


def _ends(manifest: Manifest, *, service: bool) -> str:
    profile = manifest.onnxruntime.profile
    words = {profile: profile in REDUCED, "plugin": manifest.plugin, "service": service}
    return "".join(f"-{word}" for word, is_said in words.items() if is_said)


def commit_of(host_library: bytes) -> str:
    """Return the commit that ONNX Runtime's host library names as its own; empty if it names none."""
    match = _COMMIT.search(host_library)
    return match[1].decode() if match else ""


def labels(manifest: Manifest, commit: str, source: str) -> Mapping[str, str]:
    """Return the labels of an image; ``commit`` is ONNX Runtime's, ``source`` the URL of this project.

    A manifest without a name stands for an image without a package.
    """
    cuda = manifest.provider == CUDA
    title = "org.opencontainers.image"
    by_name = {
        f"{title}.title": f"ortpacks {manifest.variant}",
        f"{title}.description": f"ONNX Runtime {manifest.onnxruntime.version}"
        + (f", package {manifest.name}" if manifest.name else ""),
        f"{title}.version": manifest.onnxruntime.version,
        f"{title}.licenses": "MIT AND LicenseRef-NVIDIA" if cuda else "MIT",
        f"{title}.source": source,
        "io.ortpacks.variant": manifest.variant,
        "io.ortpacks.package": manifest.name,
        "io.ortpacks.onnxruntime": manifest.onnxruntime.version,
        "io.ortpacks.onnxruntime.commit": commit,
        "io.ortpacks.sm": " ".join(manifest.sm),
        "io.ortpacks.cuda": manifest.cuda or "",
        "io.ortpacks.cudnn": manifest.cudnn or "",
        "io.ortpacks.toolkit": manifest.toolkit if cuda else "",
        "io.ortpacks.driver": manifest.driver.floor if manifest.driver else "",
    }
    return {name: value for name, value in by_name.items() if value}


def dockerfile(
    loader: BaseLoader, manifest: Manifest, names: Iterable[str], named: Mapping[str, str], *, service: bool
) -> str:
    """Return the Dockerfile of an image; ``names`` are its layers' names, in order, ``named`` its labels."""
    template = template_environment(loader).get_template("image.Dockerfile.j2")
    return template.render(
        layers=[SYSTEM, *names],
        home=f"/{HOME}",
        models=f"/{_MODELS}",
        labels=named,
        cuda=manifest.provider == CUDA,
        package=bool(manifest.name),
        plugin=manifest.plugin,
        service=service,
    )


def layers(
    package: Path | None, manifest: Manifest, wheels: Iterable[Path], models: Path | None
) -> Mapping[str, Mapping[str, Path]]:
    """Return the layers above the system, in order: for each layer its files by their paths in the image.

    ``package`` and ``wheels`` are unpacked trees; ``None``: an image without a package. A file of a later
    wheel replaces one of an earlier wheel.
    Layers without files are left out.
    """
    libraries = (one for one in manifest.files if one.path.startswith(LIB))
    theirs = {library.path: _layer(library) for library in libraries if library.vendor == NVIDIA}
    names = sorted(set(theirs.values()), key=lambda name: (name.startswith(_LAST), name))
    by_layer: dict[str, dict[str, Path]] = {name: {} for name in (*names, MODELS_LAYER, "python", "package")}
    for path, file in _files(package) if package else ():
        by_layer[theirs.get(path, "package")][f"{HOME}/{path}"] = file
    for path, file in _files(models) if models else ():
        if manifest.provider == CUDA or not any(fnmatch(path, pattern) for pattern in _FOR_GPUS):
            by_layer[MODELS_LAYER][f"{_MODELS}/{path}"] = file
    for tree in wheels:
        for path, file in _files(tree):
            if not any(fnmatch(path, pattern) for pattern in _LEFT_OUT):
                by_layer["python"][f"{_PYTHON}/{path}"] = file
    return {name: files for name, files in by_layer.items() if files}


def _layer(entry: FileEntry) -> str:
    """Return the layer of one of NVIDIA's libraries: its wheel's name, ``nvidia-cudnn-cu12``."""
    return Input.parse(entry.source).requirement.partition("==")[0]


def _files(tree: Path) -> Iterator[tuple[str, Path]]:
    return ((path.relative_to(tree).as_posix(), path) for path in tree.rglob("*") if path.is_file())


def write_layer(files: Mapping[str, Path], tar: Path) -> None:
    """Write a layer: owned by root, readable by all, the same bytes for the same files.

    Raises ``DiskError``.
    """
    folders = {str(folder) for path in files for folder in PurePosixPath(path).parents} - {"."}
    needed = sum(file.stat().st_size for file in files.values())
    with disk_errors(tar, needed), tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted({*folders, *files}):
            info = tarfile.TarInfo(path)
            info.mtime, info.mode = NEWEST_MTIME, 0o755
            if path in folders:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
                continue
            stat = files[path].stat()
            info.size = stat.st_size
            info.mode = 0o755 if stat.st_mode & 0o100 else 0o644
            with files[path].open("rb") as file:
                archive.addfile(info, file)


def size_on_disk(tars: Iterable[Path]) -> int:
    """Return the uncompressed bytes of the files in layers.

    An engine with containerd's image store reports compressed sizes instead.
    """
    size = 0
    for tar in tars:
        with tarfile.open(tar, "r:") as layer:
            size += sum(file.size for file in layer if file.isreg())
    return size


def require_budget(manifest: Manifest, size: int, budget: int) -> None:
    """Raise ``CheckFailedError`` if an image of ``size`` bytes is larger than ``budget``."""
    if size > budget:
        raise CheckFailedError(
            f"the image of {manifest.name} has {size:,} bytes; image.budget of variants.yaml is {budget:,}"
        )


def own_size(names: Iterable[str], image: PushedImage) -> int:
    """Return the compressed bytes of an image without NVIDIA's layers and models.

    ``names`` are those of all its layers above the system. NVIDIA's layers and models are the first of them.
    """
    others = sum(name.startswith(("nvidia-", MODELS_LAYER)) for name in names)
    return sum(image.sizes) - sum(image.sizes[1 : 1 + others])


def require_same(tag: str, built: tuple[str, ...], pushed: PushedImage) -> None:
    """Raise ``IntegrityError`` unless the registry has, under ``tag``, the layers that were built."""
    if pushed.layers != built:
        raise IntegrityError(
            f"{tag} has other layers in its registry than the image that was built: wanted "
            f"{', '.join(built)}, got {', '.join(pushed.layers)}",
            advice="Somebody else may have pushed at the same time: run the same command again.",
        )
