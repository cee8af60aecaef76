"""A client that meets faults: what must hold after each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from builder.client.probe.processes import ProcessAnswer
from builder.client.world import World
from builder.files.http_client import Web, open_url
from tests.doubles.machine import Machine
from tests.doubles.release import write_release

OLD, NEW = "1.22.0", "1.23.2"


def no_children(argv: Sequence[str], seconds: float) -> ProcessAnswer:
    """A machine where no process can be started: then packages are not tried out, which saves time."""
    raise OSError(f"{argv[0]}: not for {seconds} s here")


def ticking(step: float) -> Callable[[], float]:
    """A clock that goes on by ``step`` seconds each time it is looked at."""
    now = iter(range(10**9))
    return lambda: next(now) * step


@dataclass
class Quick(Machine):
    """Starts no process; its clock for networks is its own."""

    tick: float = 0.0

    def world(self) -> World:
        world = super().world()
        return replace(world, surroundings=lambda: replace(world.around, ask=no_children))

    def web(self) -> Web:
        return replace(super().web(), open=partial(open_url, clock=ticking(self.tick)))


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Two releases, and a prefix with the older one installed that each case gets a copy of."""

    older: Path
    newer: Path
    installed: Path

    def machine(self, home: Path) -> Quick:
        """With the older release installed."""
        machine = Quick(home)
        shutil.copytree(self.installed, machine.prefix, symlinks=True)
        return machine


def lay_ground(folder: Path) -> Ground:
    """Write the releases and install the older one."""
    older = write_release(folder / "older", version=OLD)
    newer = write_release(folder / "newer", version=NEW)
    machine = Quick(folder / "home")
    assert machine.run("install", "--index", str(older)) == 0, machine.err
    return Ground(older=older, newer=newer, installed=machine.prefix)


def version_in_use(machine: Machine) -> str:
    """By the name of the folder that ``current`` leads to."""
    return (machine.prefix / "current").resolve().name.split("-")[2]


def require_usable(machine: Machine, versions: Collection[str]) -> None:
    """A whole package of ``versions`` is in use, and told how to be used."""
    assert machine.run("verify") == 0, machine.out + machine.err
    assert machine.run("env") == 0, machine.err
    assert "ORT_DYLIB_PATH" in machine.out
    assert version_in_use(machine) in versions


def require_cured(machine: Machine, index: str) -> None:
    """The next install succeeds and leaves nothing behind."""
    assert machine.run("install", "--index", index) == 0, machine.err
    require_usable(machine, {NEW})
    assert machine.litter() == []


def outlive(machine: Machine, index: str, codes: Collection[int], *, cure: str | None = None) -> int:
    """An install of the newer release that meets a fault, a look around, and the next install."""
    code = machine.run("install", "--index", index)
    assert code in codes, (code, machine.err)
    require_usable(machine, {NEW} if code == 0 else {OLD})
    require_cured(machine, cure or index)
    return code
