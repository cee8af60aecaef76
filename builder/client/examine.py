"""Gathers what ``doctor`` judges: the machine, the package in use, and what may come between them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Iterable, Iterator, Mapping, Optional, Tuple

from builder.client import stated
from builder.client.bus import Allowed, driver_on_disk, look_at_kernel, may_use
from builder.client.current import pointed
from builder.client.detect import Detection, detect
from builder.client.layout import Prefix, read_info
from builder.client.places import expanded
from builder.client.pythons import distributions
from builder.client.selftest import host_of
from builder.client.shadows import shadows
from builder.client.trial import Sessions
from builder.client.verify import Verdict, verify
from builder.client.visible import VARIABLE
from builder.client.world import Options, World
from builder.core.index import Stored, build_index
from builder.core.manifest import Manifest
from builder.core.onnxfile import read_onnx
from builder.core.printable import printable
from builder.core.providers import CPU, CUDA
from builder.core.seen import Around, Cache, Distribution, Installed, ModelTrial, Reply, Seen, Shadow, Trial
from builder.errors import BuilderError, NothingToDoError, ValidationError

_TEMPORARY = "/tmp"  # noqa: S108 it is only looked at
_MOST_DIGITS = 20
"""Of a number of bytes."""
_STATED = (stated.CAPABILITIES, stated.DRIVER, stated.MEMORY)


def mounted_noexec(path: Path) -> bool:
    """Whether the file system of ``path`` runs no code; false where the system does not say."""
    flag = getattr(os, "ST_NOEXEC", 0)
    try:
        return bool(flag and os.statvfs(path).f_flag & flag)
    except (OSError, AttributeError):
        return False


def may_write(path: Path) -> bool:
    """Whether this user may write below ``path``, or make it."""
    try:
        there = next((folder for folder in (path, *path.parents) if folder.exists()), path)
        return os.access(there, os.W_OK | os.X_OK)
    except OSError:
        return False


@dataclass(frozen=True)
class Rights:
    """What the system lets this user do: a test cannot take rights from root."""

    may_use: Allowed = may_use
    may_write: Allowed = may_write
    noexec: Allowed = mounted_noexec


@dataclass(frozen=True)
class Package:
    """The package in use, read."""

    verdict: Verdict
    installed: Installed

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""
        return self.verdict.manifest


def examine(world: World, options: Options, rights: Rights) -> Tuple[Detection, Seen]:
    """The machine's own answers, and all that the rules want to know. Nothing is changed.

    Raises ``ValidationError`` for a model that is no file, ``NothingToDoError`` for one and no package.
    """
    files = [_model(text) for text in options.models]
    found = detect(world.around)
    package, broken = _package(options.prefix)
    seen = _machine(world, found, rights)
    seen = replace(seen, broken=broken, distributions=_pythons(world, options), cache=_cache(world, rights))
    places = [Path(world.around.env.get("TMPDIR") or _TEMPORARY)]
    if package is not None:
        places.insert(0, package.verdict.folder)
        seen = replace(
            seen,
            installed=package.installed,
            host=_elsewhere(package.verdict.folder, world.around.env),
            shadows=tuple(_shadows(package, world)),
            trial=_trial(package, seen, world),
            models=tuple(_models(package, seen, world, files)),
        )
    elif files:
        raise NothingToDoError("--try: no package is installed that a model could be opened in.")
    return found, replace(seen, noexec=tuple(str(place) for place in places if rights.noexec(place)))


def _machine(world: World, found: Detection, rights: Rights) -> Seen:
    linux = found.system.os == "linux"
    root = world.around.root
    seen = Seen(
        around=_around(world, found),
        replies={
            probe.name: Reply(
                outcome=probe.outcome.value,
                detail=probe.detail,
                listed=len(probe.devices),
                code=probe.code,
                error=probe.error or "",
            )
            for probe in found.probes
        },
        devices=found.devices,
        driver=found.driver or (driver_on_disk(root) if linux else None),
        cuda=found.cuda,
    )
    return replace(seen, kernel=look_at_kernel(root, rights.may_use)) if linux else seen


def _around(world: World, found: Detection) -> Around:
    env, system = world.around.env, found.system
    return Around(
        os=system.os,
        platform=world.platform,
        wsl=system.wsl,
        container=system.container,
        jetson=system.jetson,
        glibc=system.glibc,
        visible=system.nvidia_visible,
        parts=system.nvidia_capabilities,
        cuda_visible=env.get(VARIABLE),
        stated=tuple(f"{name}={env[name]}" for name in _STATED if name in env),
    )


def _package(prefix: Prefix) -> Tuple[Optional[Package], Optional[str]]:
    """The package in use, or why it cannot be read."""
    try:
        folder = pointed(prefix)
        if folder is None:
            return None, _dangling(prefix)
        verdict = verify(folder)
        info = read_info(folder)
    except (BuilderError, OSError, ValueError) as error:
        return None, str(error)
    return Package(verdict, _installed(verdict, info)), None


def _dangling(prefix: Prefix) -> Optional[str]:
    for path in (prefix.pointer, prefix.current):
        if path.is_symlink() or path.exists():
            return f"{path} leads to no package."
    return None


def _installed(verdict: Verdict, info: Mapping[str, object]) -> Installed:
    manifest = verdict.manifest
    support, gpu = info.get("support"), info.get("gpuName")
    (package,) = build_index("", [(manifest, Stored("", 0, ""))], ()).packages
    return Installed(
        package=package,
        cuda=manifest.cuda,
        folder=str(verdict.folder),
        problems=verdict.problems,
        support=support if isinstance(support, str) else None,
        gpu=gpu if isinstance(gpu, str) else None,
    )


def _elsewhere(folder: Path, env: Mapping[str, str]) -> Optional[str]:
    """``ORT_DYLIB_PATH`` where it is no file of the package."""
    named = env.get("ORT_DYLIB_PATH")
    try:
        return named if named and folder.resolve() not in Path(named).resolve().parents else None
    except (OSError, RuntimeError):  # a loop of links
        return named


def _shadows(package: Package, world: World) -> Iterator[Shadow]:
    if not world.platform.startswith("linux"):
        return iter(())
    return shadows(package.verdict.folder, package.manifest, world.around.env)


def _trial(package: Package, seen: Seen, world: World) -> Optional[Trial]:
    """Only of what is whole."""
    host = host_of(package.verdict.folder, package.manifest)
    if package.verdict.problems or host is None:
        return None
    return Sessions(world.around.ask, world.around.python).run(host, _provider(package, seen))


def _provider(package: Package, seen: Seen) -> str:
    """The GPU's only where CUDA has one, else the CPU's."""
    provider = package.manifest.provider
    return CPU if provider == CUDA and not seen.reply("libcuda").listed else provider


def _models(package: Package, seen: Seen, world: World, files: Iterable[Path]) -> Iterator[ModelTrial]:
    """The user's models, in what is whole."""
    host = host_of(package.verdict.folder, package.manifest)
    if package.verdict.problems or host is None:
        return
    provider = _provider(package, seen)
    for file in files:
        yield ModelTrial(str(file), provider, world.prover.open(host, provider, file).failure)


def _model(text: str) -> Path:
    """The model's file, read. Raises ``ValidationError``, and as ``read_onnx``."""
    file = expanded(Path(text)).absolute()
    if not file.is_file():
        raise ValidationError(
            f"--try {printable(text)}: no such file, or no regular one. Give a model's path."
        )
    read_onnx(file)
    return file


def _cache(world: World, rights: Rights) -> Cache:
    env = world.around.env
    home = env.get("HOME")
    named = env.get("CUDA_CACHE_PATH") or (f"{home}/.nv/ComputeCache" if home else "")
    size = env.get("CUDA_CACHE_MAXSIZE", "")
    return Cache(
        disabled=env.get("CUDA_CACHE_DISABLE") == "1",
        max_bytes=int(size) if size.isdecimal() and len(size) <= _MOST_DIGITS else None,
        folder=named,
        writable=not named or rights.may_write(Path(named)),
    )


def _pythons(world: World, options: Options) -> Tuple[Distribution, ...]:
    """Of the Python that runs this, and of the environments that ``ORTPACKS_LOOK_IN`` names."""
    return tuple(distributions((*world.environments, *options.look_in)))
