"""Tests of kill -9 at random moments of install, rollback and uninstall, and of simultaneous commands.

Another process kills the client at any moment; ``test_kill`` kills it at a counted step instead.
"""

import os
import random
import signal
import time
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from builder.client.install.prefix import Prefix
from tests.doubles.release import FILES, write_release
from tests.support.faults.client import NEW, OLD, Ground, Quick, lay_ground, require_cured, require_usable
from tests.support.faults.killed import ended, in_a_child, meets_at

pytestmark = pytest.mark.thorough

SEED = 20_261_122

TIMES = {"install": 30, "rollback": 12, "uninstall": 12}

CASES = [(command, number) for command, times in TIMES.items() for number in range(times)]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Return releases of which the newer one is large enough to be killed during its install."""
    folder = tmp_path_factory.mktemp("ground")
    ground = lay_ground(folder)
    noise = random.Random(SEED).randbytes(2**22)  # noqa: S311 any bytes
    write_release(folder / "newer", version=NEW, files={**FILES, "lib/noise.so": noise})
    return ground


def run(machine: Quick, command: str, ground: Ground, *codes: int) -> None:
    """Run the command, which must end with one of these exit codes."""
    index = ["--index", str(ground.newer)] if command == "install" else []
    assert machine.run(command, *index) in codes, machine.err


@pytest.fixture(scope="module")
def seconds(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Return the seconds that each command takes here without a kill."""
    machine, taken = ground.machine(tmp_path_factory.mktemp("dry")), {}
    for command in TIMES:
        begin = time.perf_counter()
        run(machine, command, ground, 0)
        taken[command] = time.perf_counter() - begin
    return taken


@pytest.fixture(scope="module")
def kills() -> list[bool]:
    """Return for each command so far that was to be killed whether it was."""
    return []


def require_whole(machine: Quick, ground: Ground) -> None:
    if (machine.prefix / "current").exists():
        require_usable(machine, {OLD, NEW})
    require_cured(machine, str(ground.newer))


@pytest.mark.parametrize(("command", "number"), CASES)
def test_a_kill_at_any_moment_leaves_a_whole_version_and_the_next_install_cures(
    quick: Quick, ground: Ground, seconds: dict[str, float], kills: list[bool], command: str, number: int
) -> None:
    if command != "install":
        require_cured(quick, str(ground.newer))
    moment = random.Random(f"{SEED} {command} {number}").random() * seconds[command]  # noqa: S311 any moment
    child = in_a_child(partial(run, quick, command, ground, 0))
    time.sleep(moment)
    os.kill(child, signal.SIGKILL)
    status = ended(child)
    assert status in {0, -signal.SIGKILL}
    kills.append(status != 0)
    assert command == "uninstall" or (quick.prefix / "current").exists()
    require_whole(quick, ground)


@pytest.mark.parametrize(
    "others", [["install"], ["rollback"], ["uninstall"], ["rollback", "uninstall"]], ids="+".join
)
def test_commands_at_once_take_turns(quick: Quick, ground: Ground, others: list[str]) -> None:
    """No version may be left for rollback or uninstall, which then end with 3."""
    require_cured(quick, str(ground.newer))
    children = [in_a_child(partial(run, quick, command, ground, 0, 3)) for command in ("install", *others)]
    assert [ended(child) for child in children] == [0] * len(children)
    require_whole(quick, ground)


@pytest.mark.parametrize(
    ("command", "other"),
    [
        ("install", "uninstall"),
        ("rollback", "uninstall"),
        ("uninstall", "install"),
        ("uninstall", "uninstall"),
    ],
)
def test_a_command_that_begins_at_any_step_of_another_fails_neither(
    ground: Ground, tmp_path: Path, command: str, other: str
) -> None:
    """Defect: ``uninstall`` removed the folders that another command was making, which then failed."""
    for step in count(1):
        machine = ground.machine(tmp_path / str(step))
        if command == "rollback":
            require_cured(machine, str(ground.newer))
        works = [partial(run, machine, name, ground, 0, 3) for name in (command, other)]
        met = meets_at(step, machine.prefix, Prefix(machine.prefix).lock, *works)
        require_whole(machine, ground)
        if not met:
            break
    assert step > 5


def test_kills_come_before_the_commands_end(kills: list[bool]) -> None:
    """A tenth of them at least, whatever else this machine does; on a quiet one five sixths do."""
    assert sum(kills) >= len(kills) // 10
