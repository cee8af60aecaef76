"""Rules for the form of a package: a provider with a host of its own, or a plug-in for an application's host.

Provider is the default: it serves what loads ``ORT_DYLIB_PATH``. A plug-in is taken where the user asks for
it, or names a host that registers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Optional, Sequence

from builder.client.selection.reasons import RUNS, numbers
from builder.formats.index import IndexPackage
from builder.formats.manifest import PluginEntry
from builder.formats.package_names import PackageForm

OWN_PROVIDER = "has a CUDA provider of its own"

OF_A_PACKAGE = "is the host of a package of form provider"


@dataclass(frozen=True)
class ApplicationHost:
    """The ONNX Runtime of an application."""

    where: str
    """What it is and where it comes from, for messages: ``onnxruntime 1.31.1 in /app/site-packages``."""
    version: Optional[str] = None
    """``None`` where it is unknown."""
    library: Optional[str] = None
    """The path of its host library; ``None`` where that is unknown."""
    obstacle: Optional[str] = None
    """Why no plug-in is for it, whatever its version: ``OWN_PROVIDER`` or ``OF_A_PACKAGE``."""


@dataclass(frozen=True)
class FormChoice:
    """The form of package to choose from, and the reason in a sentence; empty where there is no choice."""

    form: PackageForm = PackageForm.PROVIDER
    reason: str = ""


def host_refusal(host: Optional[ApplicationHost], plugin: PluginEntry) -> Optional[str]:
    """Return why the host does not register the plug-in; ``None`` where it does."""
    oldest = numbers(plugin.oldest_host)
    wanted = f"a plug-in needs ONNX Runtime {plugin.oldest_host} or newer"
    if host is None:
        return f"there is no host: {wanted} in the application"
    if host.obstacle:
        return f"{host.where} {host.obstacle}: {wanted} that is for the CPU alone"
    version = numbers(host.version)
    if version is None:
        return f"the version of {host.where} is unknown: {wanted}"
    return f"{host.where} is too old: {wanted}" if oldest and version < oldest else None


def refusal_of_all(host: Optional[ApplicationHost], plugins: Iterable[IndexPackage]) -> Optional[str]:
    """Return why the host registers none of ``plugins``; ``None`` where it registers one."""
    refusals = [host_refusal(host, package.plugin) for package in plugins if package.plugin]
    return None if None in refusals or not refusals else refusals[0]


def by_default(host: Optional[ApplicationHost], plugins: Sequence[IndexPackage]) -> FormChoice:
    """Return the form where the user says nothing: provider, and whether the host that was found could do."""
    could = host is not None and refusal_of_all(host, plugins) is None
    hint = f" {host.where} registers a plug-in too: --form plugin." if host and could else ""
    return FormChoice(reason=f"the default, for applications that load ORT_DYLIB_PATH.{hint}")


def cards(plugins: Iterable[IndexPackage]) -> str:
    """Return which compute capabilities each plug-in runs on, in words."""
    served = {
        package.name: ", ".join(card for card, support in package.capabilities.items() if support in RUNS)
        for package in plugins
    }
    return "; ".join(f"{name} runs on {on}" for name, on in sorted(served.items()))
