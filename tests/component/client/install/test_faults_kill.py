"""Tests of kill -9 at random moments of install, rollback and uninstall, and of simultaneous commands.

Another process kills the client at any moment; ``test_kill`` kills it at a counted step instead.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from builder.client.__main__ import run
from tests.doubles.release import FILES, write_release
from tests.support.faults.client import NEW, OLD, Ground, lay_ground, require_cured, require_usable
from tests.support.forked import FORK, begin_anew

SEED = 20_261_122

ENV = {"ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_FORCE_DRIVER": "570.133.07", "PATH": "/usr/bin:/bin"}

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


def client(argv: Sequence[str], begin: Connection, said: Path) -> None:
    """Run the client in this process as a shell would, once there is something to read from ``begin``."""
    begin_anew(["ortpacks", *argv], ENV, said, said)
    begin.send("ready")
    begin.recv()
    sys.exit(run())


class Client:
    """A client in its own process that starts its command on request."""

    def __init__(self, argv: Sequence[str], said: Path) -> None:
        self.said = said
        self.line, theirs = FORK.Pipe()
        self.process = FORK.Process(target=client, args=(argv, theirs, said))
        self.process.start()
        theirs.close()
        assert self.line.recv() == "ready"

    def begin(self) -> None:
        self.line.send("begin")

    def end(self) -> tuple[int, str]:
        """Wait for the client and return its exit code and output."""
        self.process.join()
        self.line.close()
        assert self.process.exitcode is not None
        return self.process.exitcode, self.said.read_text()


def argv_of(command: str, ground: Ground, prefix: Path) -> list[str]:
    index = ["--index", str(ground.newer)] if command == "install" else []
    return [command, *index, "--prefix", str(prefix)]


@pytest.fixture(scope="module")
def seconds(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Return the seconds that each command takes here without a kill."""
    folder = tmp_path_factory.mktemp("dry")
    machine = ground.machine(folder)
    taken = {}
    for command in TIMES:
        client = Client(argv_of(command, ground, machine.prefix), folder / command)
        begin = time.perf_counter()
        client.begin()
        code, said = client.end()
        taken[command] = time.perf_counter() - begin
        assert code == 0, said
    return taken


@pytest.fixture(scope="module")
def codes() -> list[int]:
    """Return the exit codes of the clients so far that were to be killed."""
    return []


@pytest.mark.parametrize(("command", "number"), CASES)
def test_a_kill_at_any_moment_leaves_a_whole_version_and_the_next_install_cures(
    ground: Ground,
    seconds: dict[str, float],
    codes: list[int],
    tmp_path: Path,
    command: str,
    number: int,
) -> None:
    machine = ground.machine(tmp_path / "home")
    if command != "install":
        require_cured(machine, str(ground.newer))
    client = Client(argv_of(command, ground, machine.prefix), tmp_path / "said")
    moment = random.Random(f"{SEED} {command} {number}").random() * seconds[command]  # noqa: S311 any moment
    client.begin()
    time.sleep(moment)
    client.process.kill()
    code, said = client.end()
    codes.append(code)
    assert code in {0, -signal.SIGKILL}, said
    if (machine.prefix / "current").exists():
        require_usable(machine, {OLD, NEW})
    else:
        assert command == "uninstall"
    require_cured(machine, str(ground.newer))


@pytest.mark.parametrize(
    "others", [["install"], ["rollback"], ["uninstall"], ["rollback", "uninstall"]], ids="+".join
)
def test_commands_at_once_take_turns(ground: Ground, tmp_path: Path, others: list[str]) -> None:
    machine = ground.machine(tmp_path / "home")
    require_cured(machine, str(ground.newer))
    clients = [
        Client(argv_of(command, ground, machine.prefix), tmp_path / str(number))
        for number, command in enumerate(["install", *others])
    ]
    for client in clients:
        client.begin()
    for code, said in [client.end() for client in clients]:
        assert code in {0, 3}, said  # 3: no version is left for rollback or uninstall
        assert "Traceback" not in said
    if (machine.prefix / "current").exists():
        require_usable(machine, {OLD, NEW})
    require_cured(machine, str(ground.newer))


def test_kills_come_before_the_commands_end(codes: list[int]) -> None:
    """A tenth of them at least, whatever else this machine does; on a quiet one five sixths do."""
    assert codes.count(-signal.SIGKILL) >= len(codes) // 10
