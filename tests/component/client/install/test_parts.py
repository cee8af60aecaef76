"""Tests of archives in parts: the parts are fetched, joined and verified, also with faults."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Event

import pytest

from tests.doubles.machine import Machine
from tests.doubles.release import FILES, Fault, Handler, cut, name_of, serving, write_release

ARCHIVE = f"{name_of('modern')}.tar.zst"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    index = write_release(tmp_path / "release")
    cut(index, 300)
    return index.parent


def parts_of(release: Path) -> list[Path]:
    return sorted(release.glob(f"{ARCHIVE}.part*"), key=lambda path: int(path.name.rpartition("part")[2]))


def whole(machine: Machine) -> bool:
    host = (machine.lib / "libonnxruntime.so.1").read_bytes()
    return host == FILES["lib/libonnxruntime.so.1"] and not machine.litter()


def test_parts_from_a_server_are_joined(machine: Machine, release: Path) -> None:
    names = [path.name for path in parts_of(release)]
    assert len(names) > 2, "else this tests nothing"
    with serving(release) as server:
        assert machine.run("install", "--index", f"{server.url}/") == 0, machine.err
        assert sorted(path.lstrip("/") for path, _ in server.requests[1:]) == sorted(names), "each once"
    assert whole(machine)
    assert machine.run("verify") == 0


def test_parts_in_a_folder_are_joined_and_stay(machine: Machine, release: Path) -> None:
    before = {path.name: path.read_bytes() for path in release.iterdir()}
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    assert whole(machine)
    assert {path.name: path.read_bytes() for path in release.iterdir()} == before


def spoilt(part: Path) -> None:
    data = part.read_bytes()
    part.write_bytes(bytes([data[0] ^ 1]) + data[1:])


@pytest.mark.parametrize(("damage", "code"), [(Path.unlink, 10), (spoilt, 7)], ids=["missing", "damaged"])
@pytest.mark.parametrize("local", [True, False])
def test_a_part_that_is_missing_or_damaged_is_named_and_nothing_is_unpacked(
    machine: Machine, release: Path, local: bool, damage: Callable[[Path], None], code: int
) -> None:
    part = parts_of(release)[1]
    damage(part)
    with serving(release) as server:
        assert machine.run("install", "--index", str(release) if local else f"{server.url}/") == code
    assert part.name in machine.err
    assert not list((machine.prefix / "versions").iterdir())


def test_an_interrupt_ends_a_part_that_stalls(pyz: Path, release: Path, tmp_path: Path) -> None:
    asked, over = Barrier(2), Event()

    def stall(handler: Handler, content: bytes) -> None:
        asked.wait(20)
        over.wait(30)

    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ORTPACKS_FORCE_CC": "8.6"}
    with serving(release) as server:
        server.faults += by_name({path.name: [stall] for path in parts_of(release)})
        argv = [sys.executable, "-I", "-S", str(pyz), "install", "--index", f"{server.url}/"]
        with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as process:
            asked.wait(20)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]
        taken = time.monotonic() - began
        over.set()
    assert process.returncode == 130
    assert said.splitlines()[-1] == "ortpacks: interrupted; run it again to go on"
    assert taken < 5


def test_a_run_that_broke_off_goes_on_in_the_middle_of_a_part(machine: Machine, release: Path) -> None:
    names = [path.name for path in parts_of(release)]

    def cut(handler: Handler, content: bytes) -> None:
        handler.answer(200, content, {"ETag": '"x"'}, cut=100)

    def missing_later(handler: Handler, content: bytes) -> None:
        until = time.monotonic() + 20
        while not (any(joined_in(machine)) or time.monotonic() > until):
            time.sleep(0.01)
        missing(handler, content)

    with serving(release) as server:
        server.faults += by_name({names[1]: [cut, missing_later]})
        assert machine.run("install", "--index", f"{server.url}/") == 10
        server.requests.clear()
        assert machine.run("install", "--index", f"{server.url}/") == 0, machine.err
        asked = [(path.lstrip("/"), headers.get("Range")) for path, headers in server.requests]
    assert (names[1], "bytes=100-") in asked
    assert names[0] not in dict(asked), "the first part was there already"
    assert whole(machine)


@pytest.mark.parametrize("half", [True, False], ids=["half of the next part", "a damaged beginning"])
def test_what_a_kill_left_of_the_archive_is_written_over(machine: Machine, release: Path, half: bool) -> None:
    joined = killed_after(1, machine, release)
    joined.write_bytes(joined.read_bytes() + b"half of the next part" if half else b"?" * 300)
    with serving(release) as server:
        assert machine.run("install", "--index", f"{server.url}/") == 0, machine.err
        asked = sorted(path.lstrip("/") for path, _ in server.requests[1:])
    if half:  # each once, and the first not again
        assert asked == sorted(path.name for path in parts_of(release)[1:])
    assert whole(machine)


def missing(handler: Handler, content: bytes) -> None:
    handler.answer(404, b"")


def by_name(faults: dict[str, list[Fault]]) -> list[Fault]:
    """Return faults by file name."""

    def answer(handler: Handler, content: bytes) -> None:
        waiting = faults.get(handler.path.lstrip("/"))
        if waiting:
            waiting.pop(0)(handler, content)
        else:
            handler.serve(content)

    return [answer] * 100


def joined_in(machine: Machine) -> Iterator[Path]:
    """Yield the archive that parts are appended to, once there is one."""
    return (machine.prefix / ".ortpacks" / "downloads").glob(f"*-{ARCHIVE}.part")


def killed_after(parts: int, machine: Machine, release: Path) -> Path:
    """Write the start of an archive, as an install leaves it that was killed after joining
    ``parts`` parts."""
    listed = json.loads((release / "index.json").read_text())["packages"]
    (sha256,) = [package["sha256"] for package in listed if package["file"] == ARCHIVE]
    joined = machine.prefix / ".ortpacks" / "downloads" / f"{sha256[:12]}-{ARCHIVE}.part"
    joined.parent.mkdir(parents=True)
    joined.write_bytes(b"".join(path.read_bytes() for path in parts_of(release)[:parts]))
    return joined


def test_room_for_the_archive_and_a_part_is_asked_for(machine: Machine, release: Path) -> None:
    size = sum(path.stat().st_size for path in parts_of(release))
    needed = size + 300 + sum(map(len, FILES.values())) + 64 * 2**20
    machine.free = needed - 1
    with serving(release) as server:
        assert machine.run("install", "--index", f"{server.url}/") == 11
        assert len(server.requests) == 1
    assert f"{needed} bytes are needed" in machine.err
