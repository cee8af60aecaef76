"""Helpers of tests that inject faults into the client: what must hold after each fault."""

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from builder.client.context import CommandContext
from builder.client.probe.processes import ProcessAnswer
from builder.files.http_client import Web
from builder.files.http_opener import open_url
from tests.doubles.machine import Machine
from tests.doubles.release import write_release

OLD, NEW = "1.22.0", "1.23.2"


def no_children(argv: Sequence[str], seconds: float) -> ProcessAnswer:
    """Raise ``OSError`` instead of starting a process, so that the client does not try packages out.

    This saves time in tests of faults.
    """
    raise OSError(f"{argv[0]}: not for {seconds} s here")


def ticking(step: float) -> Callable[[], float]:
    """Return a clock that advances by ``step`` seconds with each call."""
    now = iter(range(10**9))
    return lambda: next(now) * step


@dataclass
class Quick(Machine):
    """A machine that starts no process, and whose clock for networks advances by ``tick`` seconds a call."""

    tick: float = 0.0

    def context(self) -> CommandContext:
        context = super().context()
        return replace(context, surroundings=lambda: replace(context.around, ask=no_children))

    def web(self) -> Web:
        return replace(super().web(), open=partial(open_url, clock=ticking(self.tick)))


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Two releases, and a prefix with the older one installed, of which each case gets a copy."""

    older: Path
    newer: Path
    installed: Path

    def machine(self, home: Path) -> Quick:
        """Return a machine with the older release installed."""
        machine = Quick(home)
        shutil.copytree(self.installed, machine.prefix, symlinks=True)
        return machine


def lay_ground(folder: Path) -> Ground:
    """Write both releases and install the older one."""
    older = write_release(folder / "older", version=OLD)
    newer = write_release(folder / "newer", version=NEW)
    machine = Quick(folder / "home")
    assert machine.run("install", "--index", str(older)) == 0, machine.err
    return Ground(older=older, newer=newer, installed=machine.prefix)


def version_in_use(machine: Machine) -> str:
    """Return the version in the name of the folder that ``current`` points to."""
    return (machine.prefix / "current").resolve().name.split("-")[2]


def versions_in(machine: Machine) -> set[str]:
    """Return the versions in the names of the installed folders."""
    return {path.name.split("-")[2] for path in (machine.prefix / "versions").iterdir()}


def require_usable(machine: Machine, versions: Collection[str]) -> None:
    """Assert that a whole package of one of ``versions`` is in use, and that ``env`` describes it."""
    assert machine.run("verify") == 0, machine.out + machine.err
    assert machine.run("env") == 0, machine.err
    assert "ORT_DYLIB_PATH" in machine.out
    assert version_in_use(machine) in versions


def require_cured(machine: Machine, index: str) -> None:
    """Assert that the next install succeeds and leaves no temporary files."""
    assert machine.run("install", "--index", index) == 0, machine.err
    require_usable(machine, {NEW})
    assert machine.litter() == []


def outlive(machine: Machine, index: str, codes: Collection[int], *, cure: str | None = None) -> int:
    """Install the newer release under a fault, check the result, and install again.

    Returns the first exit code.

    ``codes``: allowed exit codes. ``cure``: the index of the next install, by default the same.
    """
    code = machine.run("install", "--index", index)
    assert code in codes, (code, machine.err)
    require_usable(machine, {NEW} if code == 0 else {OLD})
    require_cured(machine, cure or index)
    return code
