"""Gathers what ``doctor`` judges: the machine, the package in use, and what may come between them.

ONNX Runtime in Python environments is known by the records there; nothing is imported. Libraries that the
loader finds before the package's are known by their names, in ``LD_LIBRARY_PATH``.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Iterable, Iterator, Mapping, Optional, Tuple

from builder.client.install.current import folder_in_use
from builder.client.install.prefix import Prefix, read_info
from builder.client.install.unpack import Verification, manifest_in, verify
from builder.client.probe.detect import FORCED_CAPABILITIES, FORCED_DRIVER, FORCED_MEMORY, VARIABLE, detect
from builder.client.probe.system import Allowed, driver_on_disk, look_at_kernel, may_use
from builder.client.trials.try_out import OrtTrials, host_of, model_file, reason
from builder.client.world import ClientOptions, World
from builder.errors import BuilderError, ConfigError, NothingToDoError
from builder.files.digest import Digest, has_bytes
from builder.files.disk import is_file, is_folder
from builder.findings.observed import (
    Cache,
    Distribution,
    InstalledPackage,
    Kernel,
    ModelTrial,
    Seen,
    SessionTrial,
    Shadow,
)
from builder.formats.index import StoredArchive, build_index
from builder.formats.manifest import FileEntry, Manifest
from builder.formats.package_names import CPU, CUDA
from builder.formats.text import printable

_TEMPORARY = "/tmp"  # noqa: S108 it is only looked at

_MOST_DIGITS = 20
"""Of a number of bytes."""

_MOST_CHARACTERS = 4000
"""Of an application's words: patterns that are looked for in them take their time."""

_STATED = (FORCED_CAPABILITIES, FORCED_DRIVER, FORCED_MEMORY)


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


def examine(world: World, options: ClientOptions, rights: Rights) -> Seen:
    """All that the rules want to know of this machine. Nothing is changed.

    Raises ``ValidationError`` for a model that is no file, ``NothingToDoError`` for one and no package.
    """
    files = [model_file(text, text, "Give a model's path.") for text in options.models]
    verdict, installed, broken = _package(options.prefix)
    seen = replace(
        _machine(world, rights),
        broken=broken,
        distributions=tuple(distributions((*world.environments, *options.look_in))),
        cache=_cache(world, rights),
    )
    places = [Path(world.around.env.get("TMPDIR") or _TEMPORARY)]
    if verdict is not None:
        places.insert(0, verdict.folder)
        trial, models = _trials(verdict, seen, world, files)
        seen = replace(
            seen,
            installed=installed,
            host=_elsewhere(verdict.folder, world.around.env),
            shadows=tuple(_shadows(verdict, world)),
            trial=trial,
            models=models,
        )
    elif files:
        raise NothingToDoError(
            "--try: no package is installed that a model could be opened in.", advice="Run install first."
        )
    return replace(seen, noexec=tuple(str(place) for place in places if rights.noexec(place)))


def examine_failure(world: World, options: ClientOptions, rights: Rights, said: str) -> Seen:
    """The machine, the package in use, and the failure of a session that an application tells in ``said``.

    The package's files are not read and no session is run. Raises ``ConfigError`` where nothing is said.
    """
    _, installed, broken = _package(
        options.prefix, lambda folder: Verification(folder, manifest_in(folder), ())
    )
    words = printable(" ".join(said.split()))[:_MOST_CHARACTERS]
    if not words:
        raise ConfigError("--said: no words. Give the error's text in quotes.")
    failure, code = reason(words, words)
    trial = SessionTrial(CUDA, failure, code)
    return replace(_machine(world, rights), installed=installed, broken=broken, trial=trial)


def _machine(world: World, rights: Rights) -> Seen:
    found, env, root = detect(world.around), world.around.env, world.around.root
    linux = found.system.os == "linux"
    return Seen(
        platform=world.platform,
        system=found.system,
        kernel=look_at_kernel(root, rights.may_use) if linux else Kernel(),
        replies={probe.name: probe for probe in found.probes},
        devices=found.devices,
        driver=found.driver or (driver_on_disk(root) if linux else None),
        cuda=found.cuda,
        cuda_visible=env.get(VARIABLE),
        stated=tuple(f"{name}={env[name]}" for name in _STATED if env.get(name)),
    )


def _package(
    prefix: Prefix, read: Callable[[Path], Verification] = verify
) -> Tuple[Optional[Verification], Optional[InstalledPackage], Optional[str]]:
    """The package in use, or why it cannot be read."""
    try:
        folder = folder_in_use(prefix)
        if folder is None:
            return None, None, _dangling(prefix)
        verdict = read(folder)
        return verdict, _installed(verdict, read_info(folder)), None
    except (BuilderError, OSError, ValueError) as error:
        return None, None, str(error)


def _dangling(prefix: Prefix) -> Optional[str]:
    for path in (prefix.pointer, prefix.current):
        if path.is_symlink() or path.exists():
            return f"{path} leads to no package."
    return None


def _installed(verdict: Verification, info: Mapping[str, object]) -> InstalledPackage:
    manifest = verdict.manifest
    support, gpu = info.get("support"), info.get("gpuName")
    (package,) = build_index("", [(manifest, StoredArchive("", 0, ""))], ()).packages
    return InstalledPackage(
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


def _shadows(verdict: Verification, world: World) -> Iterator[Shadow]:
    if not world.platform.startswith("linux"):
        return iter(())
    return shadows(verdict.folder, verdict.manifest, world.around.env)


def _trials(
    verdict: Verification, seen: Seen, world: World, files: Iterable[Path]
) -> Tuple[Optional[SessionTrial], Tuple[ModelTrial, ...]]:
    """A session of one node and the user's models, in what is whole: on the GPU only where CUDA has one."""
    manifest = verdict.manifest
    host = host_of(verdict.folder, manifest)
    if verdict.problems or host is None:
        return None, ()
    no_gpu = manifest.provider == CUDA and not seen.reply("libcuda").devices
    provider = CPU if no_gpu else manifest.provider
    trials = OrtTrials(world.around.ask, world.around.python)
    # First the node: a cold disk or the driver's compiler must not eat into a model's shorter time.
    one_node = trials.compute(host, provider)
    opened = [ModelTrial(str(file), provider, trials.open(host, provider, file).failure) for file in files]
    return one_node, tuple(opened)


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


_RECORD = re.compile(r"((?:ortpacks_)?onnxruntime(?:_[a-z0-9_]+)?)-(\d[^-]*)\.dist-info")

_OURS = "ortpacks_"

_REQUIRED = re.compile(r"^Requires-Dist: (nvidia-[a-z0-9-]+)==([0-9.]+)$", re.MULTILINE)
"""NVIDIA's wheels as our own wheel requires them."""

_PLACES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "Lib/site-packages")

_PLUGINS = ("onnxruntime_extensions", "onnxruntime_genai", "onnxruntime_tools")
"""These have folders of their own."""


def distributions(environments: Iterable[Path]) -> Iterator[Distribution]:
    """Each distribution that brings the folder ``onnxruntime``. Environments, or their ``site-packages``."""
    inner = (path for folder in environments for path in (folder, *_inside(folder)))
    for place in dict.fromkeys(inner):
        for record in sorted(place.glob("*onnxruntime*.dist-info")):
            match = _RECORD.fullmatch(record.name)
            if match and not match[1].startswith(_PLUGINS):
                lacks = tuple(_lacking(record)) if match[1].startswith(_OURS) else ()
                yield Distribution(match[1].replace("_", "-"), match[2], str(place), lacks)


def _lacking(record: Path) -> Iterator[str]:
    """NVIDIA's wheels that our own wheel requires and its environment does not have."""
    with suppress(OSError):
        text = (record / "METADATA").read_text(encoding="utf-8", errors="replace")
        for name, version in _REQUIRED.findall(text.partition("\n\n")[0]):
            if not (record.parent / f"{name.replace('-', '_')}-{version}.dist-info").is_dir():
                yield f"{name}=={version}"


def _inside(environment: Path) -> Iterator[Path]:
    return (path for pattern in _PLACES for path in sorted(environment.glob(pattern)))


LIBRARY_PATH = "LD_LIBRARY_PATH"

_LIB = "lib/"

_IN_NAME = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")

_IN_FOLDER = re.compile(r".+-(\d[^-]*)\.dist-info")


def shadows(folder: Path, manifest: Manifest, env: Mapping[str, str]) -> Iterator[Shadow]:
    """Each library of the package in ``folder`` that a folder of the variable before the package's has too.

    The same bytes are no shadow.
    """
    entries = [entry for entry in manifest.files if entry.path.startswith(_LIB)]
    for place in _before(folder / _LIB, env):
        for entry in entries:
            path = place / entry.path[len(_LIB) :]
            if is_file(path) and not has_bytes(path, Digest(entry.size, entry.sha256)):
                yield Shadow(path.name, str(path), _version(path), _own(entry, manifest))


def _before(lib: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """The variable's folders up to the package's own: the loader asks RUNPATH only after them.

    By ld.so(8) a colon and a semicolon part them, and an empty name is the current folder.
    """
    named = env.get(LIBRARY_PATH, "")
    for name in re.split("[:;]", named) if named else ():
        place = Path(name or Path.cwd())
        if not is_folder(place):
            continue
        if place.resolve() == lib.resolve():
            return
        yield place


def _version(path: Path) -> Optional[str]:
    """By its name behind all links, else by the wheel it came in. It is not loaded: nobody vouches for it."""
    match = _IN_NAME.search(path.resolve().name)
    return match[1] if match else _of_wheel(path)


def _of_wheel(path: Path) -> Optional[str]:
    """``site-packages/nvidia/cudnn/lib/X`` is of ``site-packages/nvidia_cudnn_cu12-VERSION.dist-info``."""
    if len(path.parts) < 5 or path.parts[-4] != "nvidia":  # noqa: PLR2004 the parts that the docstring names
        return None
    records = path.parents[3].glob(f"nvidia_{path.parts[-3]}_*.dist-info")
    return next((match[1] for match in (_IN_FOLDER.fullmatch(item.name) for item in records) if match), None)


def _own(entry: FileEntry, manifest: Manifest) -> str:
    """``9.10.2.21`` of ``wheel:nvidia-cudnn-cu12==9.10.2.21``."""
    if entry.source.startswith("wheel:nvidia-"):
        return entry.source.partition("==")[2]
    return manifest.onnxruntime.version
