"""Tests of ``self-update``: which clients it takes, which it refuses, and which files it leaves."""

import hashlib
import io
import json
import signal
import subprocess
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from builder.client import __version__, cli
from builder.files.file_lock import exclusive
from builder.io.archive.client_zipapp import build_client
from tests.doubles.machine import NOW, Machine
from tests.doubles.release import serving
from tests.support import ROOT
from tests.support.factories.signing import ALICE, BOB, CI, FIRST, root, targets
from tests.support.messages import Told
from tests.support.schemas import schema

NEWER = "9.0.1"

BASE = "/o/r/releases"


def of_version(client: bytes, version: str, code: str = "") -> bytes:
    """Return the same client with another version in its source, and ``code`` that runs when it starts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(client)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "builder/client/__init__.py":
                content = (
                    content.replace(f'"{__version__}"'.encode(), f'"{version}"'.encode()) + code.encode()
                )
            new.writestr(name, content)
    return b"#!/usr/bin/env python3\n" + buffer.getvalue()


class Desk:
    """A client made with the first root, and a folder with a signed release that has a newer client."""

    def __init__(self, folder: Path, old: bytes, new: bytes) -> None:
        self.folder = folder / "release"
        self.folder.mkdir()
        (folder / "bin").mkdir()
        self.client = folder / "bin" / "ortpacks.pyz"
        self.root: bytes | None = FIRST
        self.machine = Machine(folder / "home", program=self.client)
        self.client.write_bytes(old)
        self.old, self.new = old, new
        self.put(new)

    def put(self, content: bytes, now: datetime = NOW) -> None:
        """Write a release with this client; its index has a format that the old client does not know."""
        files = {"ortpacks.pyz": content, "index.json": b'{"format": 99}'}
        for name, data in files.items():
            (self.folder / name).write_bytes(data)
        (self.folder / "targets.json").write_bytes(targets(files, now=now))
        sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
        (self.folder / "SHA256SUMS").write_text(sums)

    def update(self, *argv: str) -> int:
        return self.machine.run("self-update", "--index", str(self.folder), *argv)

    def updated(self, *argv: str) -> str:
        assert self.update(*argv) == 0, self.machine.err
        return self.machine.out

    def refused(self, code: int, *argv: str) -> str:
        assert self.update(*argv) == code, self.machine.out + self.machine.err
        assert self.client.read_bytes() == self.old
        assert [path.name for path in self.client.parent.iterdir()] == ["ortpacks.pyz"]
        return self.machine.err


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Return a client with the first root, and a newer one."""
    old = build_client(ROOT, tmp_path_factory.mktemp("first") / "ortpacks.pyz", None, FIRST).read_bytes()
    return old, of_version(old, NEWER)


@pytest.fixture
def desk(tmp_path: Path, clients: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk(tmp_path, *clients)
    monkeypatch.setattr(cli, "shipped", lambda name: desk.root)
    return desk


def command(client: Path, *argv: str) -> tuple[list[str], dict[str, str]]:
    """Return the words and the environment that start a client."""
    return [sys.executable, "-I", "-S", str(client), *argv], {
        "PATH": "/usr/bin:/bin",
        "HOME": str(client.parent),
    }


def started(client: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    words, env = command(client, *argv)
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False)


def test_the_newer_client_takes_the_place_and_the_one_before_stays(desk: Desk) -> None:
    desk.client.chmod(0o700)
    said = desk.updated()
    assert f"is {NEWER} now; it was {__version__}" in said
    assert desk.client.read_bytes() == desk.new
    assert desk.client.stat().st_mode & 0o777 == 0o700
    before = desk.client.with_name("ortpacks.pyz.previous")
    assert before.read_bytes() == desk.old
    assert sorted(path.name for path in desk.client.parent.iterdir()) == ["ortpacks.pyz", before.name]
    assert str(before) in said
    assert "is the release's own" in desk.updated()


def test_four_updates_at_once_keep_the_client_before(desk: Desk) -> None:
    """Defect: the second update kept the new client as the one before. All four begin with the old one."""
    argv, env = command(desk.client, "self-update", "--index", str(desk.folder))
    with exclusive(desk.client.with_name("ortpacks.pyz.lock"), lambda: None):
        updates = [subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        for update in updates:
            assert any("Waiting for another" in line for line in update.stderr or ()), "it did not wait"
    said = [update.communicate()[1] for update in updates]
    assert [update.returncode for update in updates] == [0] * 4, said
    before = desk.client.with_name("ortpacks.pyz.previous")
    assert desk.client.read_bytes() == desk.new
    assert before.read_bytes() == desk.old
    assert left_beside(desk.client) == {"ortpacks.pyz", before.name}


def left_beside(client: Path) -> set[str]:
    """Return the files beside a client, whose folder is also its user's home."""
    return {path.name for path in client.parent.iterdir() if path.name != ".local"}


def test_a_killed_update_leaves_nothing_for_good(desk: Desk) -> None:
    """The new client kills the update that tries it."""
    desk.put(of_version(desk.old, NEWER, "\nimport os, signal; os.kill(os.getppid(), signal.SIGKILL)\n"))
    argv = ["self-update", "--index", str(desk.folder)]
    for _ in range(2):
        assert started(desk.client, *argv).returncode == -signal.SIGKILL
        assert left_beside(desk.client) == {"ortpacks.pyz", "ortpacks.pyz.new", "ortpacks.pyz.lock"}
        assert desk.client.read_bytes() == desk.old
    desk.put(desk.new)
    assert started(desk.client, *argv).returncode == 0
    assert left_beside(desk.client) == {"ortpacks.pyz", "ortpacks.pyz.previous"}


def test_check_says_and_does_nothing(desk: Desk) -> None:
    answer = json.loads(desk.updated("--check", "--json"))
    schema("client").validate(answer)
    assert (answer["newer"], answer["from"], answer["to"]) == (True, __version__, None)
    assert desk.client.read_bytes() == desk.old
    desk.put(desk.old)
    assert json.loads(desk.updated("--check", "--json"))["newer"] is False


def test_a_client_asks_for_the_newest_release_over_http(desk: Desk, tmp_path: Path) -> None:
    latest = tmp_path / "web/o/r/releases/latest"
    latest.mkdir(parents=True)
    (latest / "download").symlink_to(desk.folder)
    desk.put(desk.new, now=datetime.now(UTC))  # the client's clock is this machine's
    with serving(tmp_path / "web") as server:
        own = f"{server.url}{BASE}/download/v1/index.json"
        client = build_client(ROOT, tmp_path / "own" / "ortpacks.pyz", own, FIRST)
        done = started(client, "self-update")
        assert done.returncode == 0, done.stderr
        asked = {path for path, _ in server.requests}
    assert client.read_bytes() == desk.new
    assert f"ortpacks {NEWER} of no release" in started(client, "--version").stdout
    names = {"targets.json", "2.root.json", "ortpacks.pyz"}
    assert asked == {f"{BASE}/latest/download/{name}" for name in names}


@pytest.mark.parametrize("keys", [FIRST, None], ids=["no signature", "no keys"])
def test_what_nobody_signed_is_taken_only_if_the_user_says_so(desk: Desk, keys: bytes | None) -> None:
    if keys:
        (desk.folder / "targets.json").unlink()
    desk.root = keys
    assert ("is not signed" if keys else "this client has no keys") in desk.refused(7)
    desk.updated("--trust-unsigned")
    assert desk.client.read_bytes() == desk.new


@pytest.mark.parametrize("unsigned", [[], ["--trust-unsigned"]])
def test_other_bytes_than_promised_are_refused(desk: Desk, unsigned: list[str]) -> None:
    (desk.folder / "ortpacks.pyz").write_bytes(desk.new[:-1] + bytes([desk.new[-1] ^ 1]))
    assert "ortpacks.pyz" in desk.refused(7, *unsigned)
    (desk.folder / "ortpacks.pyz").unlink()
    assert "not there" in desk.refused(10, *unsigned)


def test_an_older_release_than_the_one_that_was_taken_is_refused(desk: Desk) -> None:
    old = NOW - timedelta(days=9)
    desk.put(desk.new, now=old)
    desk.updated("--check")  # nothing was taken from there
    desk.put(desk.new)
    desk.updated()
    desk.put(desk.old, now=old)
    assert desk.update() == 7
    assert "is older than the release that was taken from there before" in desk.machine.err


def test_a_client_with_older_keys_is_refused(desk: Desk) -> None:
    desk.root = root(ALICE, BOB, before=FIRST, release_keys=[CI.public])
    (desk.folder / "2.root.json").write_bytes(desk.root)
    assert "the keys in its ortpacks.pyz do not follow this one's" in desk.refused(7)


def test_a_prefix_that_cannot_be_written_leaves_the_program(desk: Desk) -> None:
    desk.machine.home.write_text("a file in the prefix's place")
    assert str(desk.machine.home) in desk.refused(11)


def spoilt(name: str, value: int) -> bytes:
    """Return a zip of a client whose directory says something else of the first member."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("builder/client/__init__.py", f'__version__ = "{NEWER}"\n')
        setattr(archive.infolist()[0], name, value)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "code", "why"),
    [
        (b"no zip at all", 7, "is no client"),
        # Defect: zipfile's error is none of its own for an encrypted member, an unknown method, and damage.
        (spoilt("flag_bits", 1), 7, "is no client"),
        (spoilt("compress_type", 99), 7, "is no client"),
        (spoilt("compress_type", zipfile.ZIP_DEFLATED), 7, "is no client"),
        ("0.9.9", 7, f"is 0.9.9, older than this {__version__}"),
        ("broken", 12, "does not start with"),
    ],
)
def test_what_is_no_newer_client_is_refused(desk: Desk, content: bytes | str, code: int, why: str) -> None:
    if content == "broken":
        content = desk.new.replace(b"import sys\n", b"import sis\n", 1)
        assert content != desk.new
    desk.put(of_version(desk.old, content) if isinstance(content, str) else content)
    assert why in desk.refused(code)


def test_where_there_is_nothing_to_update_it_says_so(desk: Desk, told: Told) -> None:
    desk.machine.program = None
    told(desk.refused(3).strip())
    desk.machine.program = desk.client
    assert desk.machine.run("self-update") == 2
    told(desk.machine.err.strip())
    (desk.client.parent / "__init__.py").touch()
    assert desk.update() == 3
    told(desk.machine.err.strip())
