"""image: a runtime image's Dockerfile, the trees that become its layers, its names, and what it is held to.

Layers lie in the order in which images share them, because an engine fetches what lies above the first layer
that it lacks: system, NVIDIA's libraries, models, Python's packages, the package. Every file has one time and
the engine gives all to root, so a layer's bytes follow from its content, whoever builds it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from jinja2 import BaseLoader

from builder.errors import CheckFailedError, IntegrityError, ValidationError
from builder.formats.manifest import Manifest
from builder.formats.package_names import CUDA, REDUCED
from builder.package.contents import NVIDIA
from builder.pipeline.render import template_environment
from builder.ports import BuiltImage, PushedImage

PLATFORM = "linux/amd64"

SYSTEM = "rootfs-slim.tar"
"""The root file system in the build's context."""

_EPOCH = 1704067200
"""2024-01-01, the time of every file above the system."""

_HOME = "opt/ortpacks"
"""Where the package lies."""

_PYTHON = "usr/local/lib/python3.11/dist-packages"
"""Where Debian's Python looks for packages that are not Debian's."""

_MODELS = f"{_HOME}/models"

_NVIDIA_LAYER = 1
"""Of an image for CUDA; below it is the system."""

_LEFT_OUT = (
    "onnxruntime/capi/libonnxruntime.so.*",
    "onnxruntime/capi/libonnxruntime_providers_cuda.so",
    "onnxruntime/capi/libonnxruntime_providers_tensorrt.so",
    "onnxruntime/quantization",
    "onnxruntime/tools",
    "onnxruntime/transformers",
    "numpy*/tests",
    "numpy/_core/include",
    "numpy/_core/lib/*.a",
    "numpy/f2py",
    "*.pyi",
    "*.data",
)
"""Of wheels: the libraries that the package has, and what a program that runs models does not import."""

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9.-]*(?::[0-9]{1,5})?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+")

_COMMIT = re.compile(rb"git-commit-id=([0-9a-f]{7,40})")
"""In ONNX Runtime's build information, which its host library holds as text."""


@dataclass(frozen=True, kw_only=True)
class ServiceTrees:
    """What an image with the service has besides: unpacked wheels, and the folder of its models."""

    wheels: tuple[Path, ...]
    models: Path


def require_repository(text: str) -> str:
    """``text``, if it names a registry and a repository in it. Raises ``ValidationError``."""
    host = text.partition("/")[0]
    if not _REPOSITORY.fullmatch(text) or not ("." in host or ":" in host or host == "localhost"):
        raise ValidationError(
            f"--push {text!r} is no REGISTRY/NAME",
            cause="a registry's host and a name in lower case are wanted, without a scheme or a tag",
            advice="Like ghcr.io/owner/ortpacks or localhost:5000/ortpacks; tags follow from the package.",
        )
    return text


def require_platform(text: str) -> str:
    """``text``, if images are made for it. Raises ``ValidationError``."""
    if text != PLATFORM:
        raise ValidationError(
            f"--platform {text!r}",
            cause=f"the libraries of the packages are for {PLATFORM}, so that is what images are made for",
            advice="Leave --platform out.",
        )
    return text


def local_tag(manifest: Manifest, *, service: bool) -> str:
    """``ortpacks/modern:1.23.2``, ``ortpacks/legacy:1.21.0-minimal``, ``ortpacks/cpu:1.23.2-service``."""
    return f"ortpacks/{manifest.variant}:{manifest.onnxruntime.version}{_ends(manifest, service=service)}"


def published_tags(manifest: Manifest, *, service: bool) -> tuple[str, ...]:
    """The tags in a registry: of this version, of the newest, and of the newest for each architecture.

    What a smaller profile made is nobody's newest.
    """
    ends = _ends(manifest, service=service)
    names = [f"{manifest.onnxruntime.version}-{manifest.variant}"]
    if manifest.onnxruntime.profile not in REDUCED:
        names += [f"latest-{manifest.variant}", *(f"latest-sm{sm}" for sm in manifest.sm)]
    return tuple(f"{name}{ends}" for name in names)


def _ends(manifest: Manifest, *, service: bool) -> str:
    profile = manifest.onnxruntime.profile
    return (f"-{profile}" if profile in REDUCED else "") + ("-service" if service else "")


def commit_of(host_library: bytes) -> str:
    """The commit that ONNX Runtime's host library names as its own; empty where it names none."""
    found = _COMMIT.search(host_library)
    return found[1].decode() if found else ""


def labels(manifest: Manifest, commit: str, source: str) -> Mapping[str, str]:
    """The labels of an image; ``commit`` is ONNX Runtime's, ``source`` the URL of this project."""
    cuda = manifest.provider == CUDA
    title = "org.opencontainers.image"
    found = {
        f"{title}.title": f"ortpacks {manifest.variant}",
        f"{title}.description": f"ONNX Runtime {manifest.onnxruntime.version}, package {manifest.name}",
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
    return {name: value for name, value in found.items() if value}


def dockerfile(
    loader: BaseLoader, manifest: Manifest, trees: Sequence[str], named: Mapping[str, str], *, service: bool
) -> str:
    """The Dockerfile of an image: ``trees`` are its layers' contexts in order, ``named`` its labels."""
    template = template_environment(loader).get_template("image.Dockerfile.j2")
    return template.render(
        system=SYSTEM,
        home=f"/{_HOME}",
        models=f"/{_MODELS}",
        trees=trees,
        labels=named,
        cuda=manifest.provider == CUDA,
        service=service,
    )


def lay_trees(
    folder: Path, package: Path, manifest: Manifest, wheels: Sequence[Path], models: Path | None
) -> Mapping[str, Path]:
    """The trees of an image's layers above the system, in order, in the new ``folder``.

    The unpacked ``package`` is moved there. Each tree has the paths that its files have in the image.
    """
    home = folder / "package" / _HOME
    home.parent.mkdir(parents=True)
    package.rename(home)
    if manifest.provider == CUDA:
        libraries = folder / "nvidia" / _HOME / "lib"
        libraries.mkdir(parents=True)
        for path in _nvidia_libraries(manifest):
            (home / path).rename(libraries / Path(path).name)
    if models is not None:
        shutil.copytree(models, folder / "models" / _MODELS)
    for tree in wheels:
        shutil.copytree(tree, folder / "python" / _PYTHON, ignore=_left_out(tree), dirs_exist_ok=True)
    laid = {name: folder / name for name in ("nvidia", "models", "python", "package")}
    found = {name: tree for name, tree in laid.items() if tree.is_dir()}
    for tree in found.values():
        _settle(tree)
    return found


def _nvidia_libraries(manifest: Manifest) -> Iterator[str]:
    return (one.path for one in manifest.files if one.vendor == NVIDIA and one.path.startswith("lib/"))


def _left_out(tree: Path) -> Callable[[str, list[str]], set[str]]:
    def ignored(folder: str, names: list[str]) -> set[str]:
        paths = {name: os.path.relpath(os.path.join(folder, name), tree) for name in names}  # noqa: PTH118
        return {name for name, path in paths.items() if any(fnmatch(path, pattern) for pattern in _LEFT_OUT)}

    return ignored


def _settle(tree: Path) -> None:
    """Give every file and folder the same time, and a mode that lets anybody read it."""
    for path in (tree, *tree.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        os.utime(path, (_EPOCH, _EPOCH))


def hold_to_budget(manifest: Manifest, size: int, budget: int) -> None:
    """Raise ``CheckFailedError`` for an image of ``size`` bytes that is larger than its budget."""
    if size > budget:
        raise CheckFailedError(
            f"the image of {manifest.name} has {size:,} bytes; image.budget of variants.yaml is {budget:,}"
        )


def beside_nvidia(manifest: Manifest, image: PushedImage) -> int:
    """The bytes that are pulled for an image where NVIDIA's layer is there."""
    held = image.sizes[_NVIDIA_LAYER] if manifest.provider == CUDA else 0
    return sum(image.sizes) - held


def require_same(tag: str, built: BuiltImage, pushed: PushedImage) -> None:
    """Raise ``IntegrityError`` unless the registry has, under ``tag``, the layers that were built."""
    if pushed.layers != built.layers:
        raise IntegrityError(
            f"{tag} has other layers in its registry than the image that was built: wanted "
            f"{', '.join(built.layers)}, got {', '.join(pushed.layers)}",
            advice="Somebody else may have pushed at the same time: run the same command again.",
        )
