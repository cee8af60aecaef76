"""This module chooses the GPU of a session, and the libraries of its provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from ortpacks_runtime import libraries
from ortpacks_runtime.client import ClientError, devices, implied
from ortpacks_runtime.options import Profile
from ortpacks_runtime.providers import ProviderError
from ortpacks_runtime.settings import Settings

_RANKS = {"native": 0, "jit": 1, "partial": 2}
"""Ranks of the support that a package's manifest states for a GPU, the best first."""


@dataclass(frozen=True)
class Place:
    """The GPU and the libraries for a session."""

    libraries: str
    device: dict[str, Any] | None = None
    ordinal: int = 0
    note: str = ""
    cannot_run: tuple[Mapping[str, Any], ...] = ()
    """Operators without CUDA kernels in the libraries, by domain."""
    ep_device: Any = None
    """The GPU as the host's ``OrtEpDevice`` of a registered plug-in; ``None`` without a plug-in."""
    jit: bool = False
    """Whether the libraries serve the GPU only by code that the driver compiles."""

    @property
    def profile(self) -> Profile | None:
        """Settings for the GPU; ``None`` without a GPU."""
        return self.device["profile"] if self.device else None


def prepare(name: str, wanted: Settings) -> Place:
    """Load the libraries and return the place.

    Raises ``ProviderError`` with the first thing that is missing.
    """
    with ThreadPoolExecutor() as asking:  # the client is a process of its own each time
        answer = asking.submit(devices)
        found = libraries.find(name)
    try:
        place = fitting(answer.result(), found, wanted)
        libraries.load(found, name)
    except ClientError as error:
        raise ProviderError(str(error)) from error
    except ProviderError as error:
        raise ProviderError("; ".join(filter(None, (error.what, found.note))), error.do) from error
    return replace(place, note=found.note, cannot_run=found.cannot_run)


def fitting(known: Sequence[dict[str, Any]], found: libraries.Libraries, wanted: Settings) -> Place:
    """Return the requested GPU, else the one that the libraries serve best; of equals, that with most memory.

    Raises ``ProviderError`` if there is no such GPU, or if the libraries have no code for it, and
    ``ClientError`` if the client does not tell whether they have.
    """
    numbered = list(enumerate(known))
    if not numbered:
        raise ProviderError("no NVIDIA GPU was found")
    if wanted.device is not None:
        numbered = [(at, one) for at, one in numbered if wanted.device in (at, one["uuid"])]
        if not numbered:
            there = ", ".join(f"{at} ({one['uuid'] or one['name']})" for at, one in enumerate(known))
            what = f"device {wanted.device} is not among the GPUs that CUDA may use: {there}"
            raise ProviderError(what, "name one of them")
    served = [(_rank(one, found), -(one["memory_mib"] or 0), at, one) for at, one in numbered]
    rank, _, at, one = min(served, key=lambda row: row[:3])
    if rank == len(_RANKS):
        what = f"compute capability {one['capability'] or 'unknown'}"
        raise ProviderError(f"{found.name} has no code for {one['name']}, {what}")
    return Place(found.name, one, at, jit=rank == _RANKS["jit"])


def serves(found: libraries.Libraries, device: Mapping[str, Any]) -> bool:
    """Return whether the libraries have code for a GPU. Raises ``ClientError``."""
    return _rank(device, found) < len(_RANKS)


def _rank(device: Mapping[str, Any], found: libraries.Libraries) -> int:
    """Return 0 for native code, and a higher number for worse support.

    A wheel that does not state its capabilities counts as native.
    """
    capability = device["capability"]
    if found.capabilities is None:
        return 0
    if not capability:
        return len(_RANKS)
    support = found.capabilities.get(capability) or implied(found.capabilities, capability)
    return _RANKS.get(support, len(_RANKS))
