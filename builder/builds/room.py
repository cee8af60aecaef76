"""The room that a build takes on its disks, by step. A build says it first, and refuses where there is less.

What is still to be fetched is known from ``inputs.lock``. What follows from it is reckoned with what builds
on base assembled left on x86-64 Debian 12 with Docker 26.1, measured on 2026-11-23; NVIDIA's own image is in
no number yet.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from builder.errors import DiskError
from builder.package.contents import wanted
from builder.ports import Held, Store
from builder.project.build_plan import BuildPlan, Rendered
from builder.project.inputs import Lock
from builder.project.variants import Origin

_UNPACKED = 1.55
"""Bytes of a wheel's files for each of its own: 4.02 GB of 2.59 GB in the eight largest (``du -sb``),
2.94 GB of 1.95 GB that a package of them unpacks to."""

_PACKED = {Origin.SOURCE: 0.76, Origin.WHEEL: 1.12}
"""Bytes of a variant's packages for each of the wheels that they are made from: 1.47 GB of 1.93 GB
(``legacy``, full), 2.18 GB of 1.95 GB (``modern --mixed``)."""

_COMPILED = 300_000_000
"""What compiling leaves in ``dist/VARIANT`` (``du -s``; ``legacy``, full)."""

_TOOLS = 1_500_000_000
"""Layers and images of the check tools: 0.17 GB loaded (``docker images``); two root file systems of
0.65 GB together, as context and as layer."""

_COMPILING = 2_000_000_000
"""Sources 0.4 GB twice, Ninja's tree and ccache 0.95 GB (``buildx du --verbose``; ``legacy``, full)."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """The bytes that a step takes, and the folder that it takes them in."""

    step: str
    size: int
    folder: Path


def rooms(
    plan: BuildPlan, rendered: Rendered, lock: Lock, store: Store, *, cache: Path, dist: Path
) -> Iterator[Room]:
    """The room of each step outside the engine. The last is free again when the build has ended."""
    packed = {file.source for file in wanted(plan) if file.source}
    wheels = sum(lock.pins[item.key].size for item in packed if item.key in lock.pins)
    compiling = rendered.contexts.values() if plan.origin is Origin.SOURCE else ()
    used = (*packed, *compiling, *rendered.debs, *rendered.sources)
    to_fetch, to_unpack = store.absent(used)
    yield Room(step="inputs", size=to_fetch, folder=cache)
    yield Room(step="unpacked", size=int(to_unpack * _UNPACKED), folder=cache)
    if plan.origin is Origin.SOURCE:
        yield Room(step="compiled", size=_COMPILED, folder=dist)
    yield Room(step="packages", size=int(wheels * _PACKED[plan.origin]), folder=dist)
    yield Room(step="proof", size=int(wheels * _UNPACKED), folder=dist)


def engine_rooms(
    plan: BuildPlan, rendered: Rendered, lock: Lock, held: Iterable[Held], folder: Path, *, compiles: bool
) -> Iterator[Room]:
    """The room on an engine that holds ``held`` of ours, and whose data lie in ``folder``.

    ``compiles`` says that it is the one that would compile.
    """
    names = [f"{thing.kind} {thing.name}" for thing in held]
    if not any(name.startswith(f"image ortpacks/cuobjdump:{plan.base}-") for name in names):
        yield Room(step="check tools", size=_TOOLS, folder=folder)
    if compiles and plan.origin is Origin.SOURCE and plan.profile:
        compiled = f"cache ortpacks-{plan.variant.name}-{plan.profile.value}-{plan.host.value}-"
        if not any(name.startswith(compiled) for name in names):
            trees = sum(lock.pins[wheel.key].size for wheel in set(rendered.contexts.values()))
            yield Room(step="compile", size=_COMPILING + int(trees * _UNPACKED), folder=folder)


def room_lines(rooms: Iterable[Room]) -> Iterator[str]:
    """A line for each disk: what the steps take there, and what is free."""
    for disk, found in _by_disk(rooms).items():
        steps = [f"{room.step} {_gb(room.size)}" for room in found if _gb(room.size) != _gb(0)]
        told = f" ({', '.join(steps)})" if steps else ""
        yield f"room     {_gb(_sum(found))} GB{told} of {_gb(_free(disk))} GB free in {disk}"


def require_room(what: str, rooms: Iterable[Room]) -> None:
    """Raise ``DiskError`` for a disk that has too little, with what can be done."""
    for disk, found in _by_disk(rooms).items():
        if _sum(found) > _free(disk):
            raise DiskError(
                f"{what} does not fit",
                cause=f"about {_gb(_sum(found))} GB are needed in {disk}, {_gb(_free(disk))} GB are free",
                advice="`./run clean --dry-run --cache --inputs` says what could be given back, `docker "
                "system df` what the engine holds. ORTPACKS_CACHE and --dist name folders on other disks.",
            )


def _by_disk(rooms: Iterable[Room]) -> dict[Path, list[Room]]:
    """The rooms of each disk, by the folder that it is mounted on."""
    disks: dict[Path, list[Room]] = {}
    for room in rooms:
        folder = room.folder.absolute()
        there = [path for path in (folder, *folder.parents) if path.is_dir()]
        same = [path for path in there if path.stat().st_dev == there[0].stat().st_dev]
        disks.setdefault(same[-1], []).append(room)
    return disks


def _sum(rooms: Iterable[Room]) -> int:
    return sum(room.size for room in rooms)


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f}"
