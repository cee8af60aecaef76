"""Plug-ins: packages whose library a stock ONNX Runtime registers as CUDA provider, whatever its version."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnxruntime

from ortpacks_runtime.client import ClientError, ask, devices
from ortpacks_runtime.libraries import Libraries, has_own_cuda, takes_plugins, without_driver
from ortpacks_runtime.places import Place, fitting, serves
from ortpacks_runtime.providers import CUDA, ORT_NAMES, ProviderError
from ortpacks_runtime.settings import Settings, settings

_NAME = ORT_NAMES[CUDA]

_FOLDERS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PATH")
"""The variable in the client's ``env`` with the folder of the installed package's libraries, by system."""

_LIBRARY = "ORTPACKS_EP_LIBRARY"
"""The variable with the library of a package's plug-in."""

_SEE_ONE = "let this process see a GPU (CUDA_VISIBLE_DEVICES; in a container --gpus all)"

_LOCKS: dict[int, threading.Lock] = {}
"""A lock for each process: one that was forked would wait for a thread of its parent."""

_registered: dict[Path, Plugin] = {}
"""The registered plug-ins by their libraries. A host keeps them until the process ends."""

_owner: list[int] = []
"""The process that registered them."""


@dataclass(frozen=True)
class Registration:
    """What ``register`` did."""

    devices: tuple[Any, ...] = ()
    """The ``OrtEpDevice`` of each GPU that the plug-in has code for, the chosen one first."""
    reasons: tuple[str, ...] = ()
    """Why there is no device; empty where there is one."""
    package: str = ""
    """The name of the plug-in's package."""
    library: Path | None = None


@dataclass(frozen=True)
class Plugin:
    """An installed plug-in, by its package's manifest."""

    package: Libraries
    library: Path
    oldest_host: str


class NoPluginError(ProviderError):
    """No plug-in is installed."""


def register(device: int | str | None = None, *, download: bool = False) -> Registration:
    """Register the plug-in for this machine's GPU with the onnxruntime of this process.

    ``device`` is a GPU by its number in CUDA's order or its UUID; ``None``: ``ORTPACKS_DEVICE``, else the GPU
    that fits best. ``download``: the client installs the plug-in that fits where none does. A second call
    registers nothing again. Raises nothing: whatever prevents it is among the reasons.
    """
    try:
        place, chosen = _place(settings({"device": device}), download=download)
    except ProviderError as error:
        return Registration(reasons=(str(error),))
    return Registration(chosen, (), place.libraries, Path(_library(chosen[0])))


def place_of(wanted: Settings) -> Place | None:
    """Return the GPU for a session on a registered plug-in; ``None`` where no plug-in could serve.

    That is so where onnxruntime has a CUDA provider of its own or is too old, and without a GPU outside of an
    image. Raises ``ProviderError`` where no plug-in can be used.
    """
    try:
        if not takes_plugins():
            return None
        if not devices():
            if _LIBRARY in os.environ:
                raise ProviderError("no NVIDIA GPU was found for the plug-in", without_driver() or _SEE_ONE)
            return None
        return _place(wanted, download=False)[0]
    except ClientError:
        return None
    except NoPluginError as error:
        what = f"onnxruntime {onnxruntime.__version__} here was built without {_NAME}, and {error.what}"
        do = f"{error.do}, or pip install onnxruntime-gpu in place of onnxruntime"
        raise ProviderError(what, do) from error


def _place(wanted: Settings, *, download: bool) -> tuple[Place, tuple[Any, ...]]:
    """Register the plug-in that fits; return the GPU, and the GPUs' ``OrtEpDevice``, the chosen one first.

    Raises ``ProviderError``.
    """
    if has_own_cuda():
        what = f"onnxruntime {onnxruntime.__version__} here has a CUDA provider of its own"
        raise ProviderError(what, "plug-ins are for the wheel onnxruntime, not for onnxruntime-gpu")
    if not takes_plugins():
        raise _too_old("plug-ins need", "1.24.4")
    if _owner and _owner[0] != os.getpid():
        raise ProviderError(
            "this process was forked after a plug-in was registered, and CUDA works only in the first one",
            "register after the fork, or start processes by spawn",
        )
    try:
        known = devices()
        if not known:
            raise ProviderError("no NVIDIA GPU was found")
        with _LOCKS.setdefault(os.getpid(), threading.Lock()):
            plugin, place = _fitting(known, wanted, download=download)
            _register(plugin)
        served = {at for at, one in enumerate(known) if serves(plugin.package, one)}
    except ClientError as error:
        raise ProviderError(str(error)) from error
    listed = {_ordinal(one): one for one in _listed(plugin)}
    if place.ordinal not in listed:
        raise ProviderError(
            f"onnxruntime lists {len(listed)} GPUs for {place.libraries}, and not GPU {place.ordinal}",
            "let the process see /sys/class/drm or /sys/bus/pci, where onnxruntime looks for GPUs",
        )
    ordered = sorted(served & listed.keys(), key=lambda at: at != place.ordinal)
    place = replace(place, cannot_run=plugin.package.cannot_run, ep_device=listed[place.ordinal])
    return place, tuple(listed[at] for at in ordered)


def _fitting(known: Sequence[dict[str, Any]], wanted: Settings, *, download: bool) -> tuple[Plugin, Place]:
    """Return the plug-in that serves the GPU best and its place; of equals, one that is registered.

    ONNX Runtime itself tells of a GPU without code only at the first run. Raises ``ProviderError``.
    """
    with suppress(ProviderError):
        return _best(tuple(_registered.values()), known, wanted)
    version = ("--form", "plugin", "--host", onnxruntime.__version__)
    do = f"ortpacks install {' '.join(version)}"
    try:
        return _best(_installed(), known, wanted)
    except ProviderError as error:
        if error.do:
            raise
        if download:
            ask("install", "--yes", *version, seconds=None)
            return _best(_installed(), known, wanted)
        if isinstance(error, NoPluginError):
            raise NoPluginError(error.what, do) from error
        try:
            answer = ask("select", *version)
            fits = f"; {answer['package']['name']} fits" if answer["support"] else ""
        except (ClientError, KeyError, TypeError):
            fits = ""
        raise ProviderError(error.what + fits, do) from error


def _best(
    plugins: Sequence[Plugin], known: Sequence[dict[str, Any]], wanted: Settings
) -> tuple[Plugin, Place]:
    """Return the plug-in with native code for the GPU, else by JIT.

    Raises ``ProviderError`` with the reason of each plug-in.
    """
    judged = [(plugin, _judged(plugin, known, wanted)) for plugin in plugins]
    places = [(plugin, place) for plugin, place in judged if isinstance(place, Place)]
    if not judged:
        raise NoPluginError("no plug-in is installed")
    if not places:
        refusals = [error for _, error in judged if isinstance(error, ProviderError)]
        what = "; ".join(dict.fromkeys(one.what for one in refusals))
        raise ProviderError(what, next((one.do for one in refusals if one.do), ""))
    return min(places, key=lambda one: one[1].jit)


def _judged(plugin: Plugin, known: Sequence[dict[str, Any]], wanted: Settings) -> Place | ProviderError:
    try:
        if _numbers(onnxruntime.__version__) < _numbers(plugin.oldest_host):
            raise _too_old(f"{plugin.package.name} needs", plugin.oldest_host)
        return fitting(known, plugin.package, wanted)
    except ProviderError as error:
        return error


def _register(plugin: Plugin) -> None:
    """Register ``plugin``, once for each process. Raises ``ProviderError``."""
    others = {Path(_library(one)) for one in _listed()} - _registered.keys() - {plugin.library}
    if others:
        raise ProviderError(f"{', '.join(map(str, others))} is registered in this process already")
    if plugin.library in _registered:
        return
    name = f"{_NAME}.{plugin.package.name}" if _registered else _NAME
    _owner[:] = [os.getpid()]
    try:
        if not _listed(plugin):
            onnxruntime.register_execution_provider_library(name, str(plugin.library))
    except Exception as error:  # onnxruntime's exceptions share no class
        raise ProviderError(f"{plugin.package.name} cannot be registered: {error}") from error
    _registered[plugin.library] = plugin


def _listed(plugin: Plugin | None = None) -> list[Any]:
    """Return the host's ``OrtEpDevice`` of each GPU; with ``plugin`` those that it serves."""
    found = [one for one in onnxruntime.get_ep_devices() if one.ep_name == _NAME]
    return [one for one in found if plugin is None or _library(one) == str(plugin.library)]


def _library(listed: Any) -> str:
    return str(listed.ep_metadata.get("library_path", ""))


def _ordinal(listed: Any) -> int:
    """Return the GPU's number in CUDA's order, as the plug-in says it."""
    text = str(listed.ep_metadata.get("cuda_device_id", ""))
    return int(text) if text.isdecimal() else -1


def _installed() -> list[Plugin]:
    """Return the plug-ins: that of ``ORTPACKS_EP_LIBRARY``, as in our images, then those that are installed.

    The package in use comes first of these.
    """
    named = os.environ.get(_LIBRARY)
    folders = [Path(named).parent.parent.resolve()] if named else []
    with suppress(ClientError):  # nothing is installed
        variables = ask("env")["variables"]
        lib = next((variables[name] for name in _FOLDERS if name in variables), "")
        used = Path(lib).parent.resolve()
        folders += [used, *(one.parent for one in sorted(used.parent.glob("*/manifest.json")))]
    plugins = (_read(folder / "manifest.json") for folder in dict.fromkeys(folders))
    return [plugin for plugin in plugins if plugin]


def _read(manifest: Path) -> Plugin | None:
    """Return a package's plug-in; ``None`` where the package is none, or cannot be read."""
    try:
        value: Mapping[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
        entry, folder = value["plugin"], manifest.parent
        if _NAME not in entry["names"]:
            return None
        cannot_run = tuple(value["onnxruntime"].get("cannot_run") or ())
        package = Libraries(value["name"], folder / "lib", dict(value["capabilities"]), cannot_run=cannot_run)
        return Plugin(package, folder / entry["library"], str(entry["oldest_host"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _too_old(needs: str, oldest: str) -> ProviderError:
    what = f"{needs} ONNX Runtime {oldest} or newer, this Python has {onnxruntime.__version__}"
    return ProviderError(what, f"pip install 'onnxruntime>={oldest}'")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
