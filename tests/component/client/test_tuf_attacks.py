"""The attacks that The Update Framework lists, tried on the real client against one mirror.

Source: The Update Framework, specification 1.0.31, section 1.5.2, and its page "Security". Each attack begins
on a machine that has installed a release from that mirror.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from builder.client import cli
from builder.formats.trust import TARGETS
from builder.io.archive.client_zipapp import build_client
from tests.doubles.hostile import CHUNKED, floods
from tests.doubles.machine import NOW, Machine
from tests.doubles.release import FILES, Server, serving, write_release
from tests.support import ROOT
from tests.support.factories.signed_release import Signed
from tests.support.factories.signing import ALICE, BOB, CI, FIRST, key, root
from tests.support.faults.client import version_in_use, versions_in

MALLORY, NEW = key("mallory"), key("new")

BEFORE = NOW - timedelta(days=9)
"""The time of the release that the machine has installed."""

REVOKED = root(ALICE, BOB, before=FIRST, release_keys=[NEW.public])
"""The root that takes the release key CI away."""

TWO = root(ALICE, BOB, before=FIRST, release_keys=[CI.public, NEW.public], release_threshold=2)
"""The root by which a release needs two signatures."""

THEIRS = root(MALLORY, root_keys=[MALLORY.public], release_keys=[MALLORY.public], threshold=1)
"""The first root of another project."""

EVIL = {**FILES, "LICENSE": b"evil\n"}


@dataclass
class Mirror(Signed):
    """A mirror with a release of 1.22.0, which the machine has installed; then somebody controls it."""

    server: Server

    def __init__(self, folder: Path, server: Server) -> None:
        self.server = server
        super().__init__(folder)
        self.offer("1.22.0", now=BEFORE)
        assert self.run("install", self.index) == 0, self.machine.err

    @property
    def index(self) -> str:
        return f"{self.server.url}/index.json"

    def offer(
        self, version: str, *roots: bytes, evil: bool = False, without: Sequence[str] = (), **how: object
    ) -> None:
        """Put another release in place of the mirror's, signed by CI or as ``how`` says."""
        for path in self.folder.iterdir():
            path.unlink()
        write_release(self.folder, version=version, files=EVIL if evil else FILES)
        self.sign(*roots, **{"now": NOW, **how})  # type: ignore[arg-type]
        for name in without:
            (self.folder / name).unlink()

    def put(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)

    def seen(self, *roots: bytes, by: object = NEW) -> None:
        """Install an honest release that these roots and keys sign."""
        self.offer("1.22.1", *roots, by=by, now=BEFORE + timedelta(days=1))
        assert self.run("install", self.index) == 0, self.machine.err

    def archive(self, variant: str = "legacy") -> Path:
        return next(self.folder.glob(f"ortpacks-{variant}-*.tar.zst"))

    def content(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


def other_archive(mirror: Mirror) -> None:
    mirror.offer("1.23.2")
    name, size = mirror.archive().name, mirror.archive().stat().st_size
    (mirror.folder / name).write_bytes(bytes(size))


def other_index(mirror: Mirror) -> None:
    mirror.offer("1.23.2")
    write_release(mirror.folder, files=EVIL)


def spliced(name: str, version: str = "1.23.2", *, evil: bool = False) -> Callable[[Mirror], None]:
    """Return an attack that puts yesterday's file ``name`` in the place of today's."""

    def attack(mirror: Mirror) -> None:
        mirror.offer(version, evil=evil, now=NOW - timedelta(days=1))
        old = next(mirror.folder.glob(name)).read_bytes()
        mirror.offer("1.23.2")
        next(mirror.folder.glob(name)).write_bytes(old)

    return attack


def wrong_file(mirror: Mirror) -> None:
    mirror.offer("1.23.2")
    shutil.copyfile(mirror.archive("modern"), mirror.archive())


def wrong_document(mirror: Mirror) -> None:
    """``notes.json`` is signed as well, and would be an index."""
    mirror.offer("1.23.2", evil=True)
    evil = mirror.content("index.json")
    mirror.offer("1.23.2")
    mirror.put("notes.json", evil)
    mirror.sign(now=NOW + timedelta(hours=1))
    mirror.put("index.json", evil)


def endless(name: str) -> Callable[[Mirror], None]:
    def attack(mirror: Mirror) -> None:
        mirror.offer("1.23.2")
        where = mirror.archive().name if name == "archive" else name
        mirror.server.always[where] = floods(CHUNKED, b"400\r\n" + b" " * 1024 + b"\r\n")

    return attack


def half_a_root(mirror: Mirror) -> None:
    """Alice's root key alone, where two are needed."""
    theirs = root(ALICE, before=FIRST, release_keys=[MALLORY.public])
    mirror.offer("1.23.2", THEIRS, evil=True, by=MALLORY)
    mirror.put("1.root.json", FIRST)
    mirror.put("2.root.json", theirs)


def half_a_release(mirror: Mirror) -> None:
    mirror.seen(FIRST, TWO, by=(CI, NEW))
    mirror.offer("1.23.2", FIRST, TWO, evil=True, by=CI)


def replayed(mirror: Mirror) -> None:
    mirror.seen(FIRST, REVOKED)
    mirror.offer("1.23.2", evil=True, by=CI)  # with the first root alone


def replayed_elsewhere(mirror: Mirror) -> None:
    """The client is another download, in another folder, and asks another mirror."""
    replayed(mirror)
    assert mirror.machine.run("uninstall", "--yes") == 0
    mirror.server.url = mirror.server.url.replace("127.0.0.1", "localhost")


def withheld_from_the_middle(mirror: Mirror) -> None:
    """The client stays at root 2, which it has seen, although the mirror has the first and the third."""
    mirror.seen(FIRST, REVOKED)
    third = root(ALICE, BOB, before=REVOKED, release_keys=[BOB.public])
    mirror.offer("1.23.2", FIRST, REVOKED, third, by=BOB, without=["2.root.json", "3.root.json"])


ATTACKS: dict[str, tuple[Callable[[Mirror], object], int, str]] = {
    "none": (lambda mirror: mirror.offer("1.23.2"), 0, ""),
    "arbitrary software: an archive": (other_archive, 7, "sha256"),
    "arbitrary software: an index": (other_index, 7, "index.json is not what was signed"),
    "arbitrary software: no signature": (
        lambda m: m.offer("1.23.2", evil=True, without=[TARGETS]), 7, "there is no targets.json",
    ),
    "arbitrary software: a root of their own": (
        lambda m: m.offer("1.23.2", THEIRS, root(MALLORY, before=THEIRS), evil=True, by=MALLORY),
        7, "2.root.json is signed by 0 of the keys",
    ),
    "rollback": (lambda m: m.offer("1.21.0", now=BEFORE - timedelta(days=1)), 7, "is older than the release"),
    "freeze": (lambda m: m.offer("1.21.0", now=NOW - timedelta(days=730)), 7, "was signed until 2026-11-21"),
    "endless data: the index": (endless("index.json"), 10, "larger than"),
    "endless data: the signature": (endless(TARGETS), 10, "larger than"),
    "endless data: the next root": (endless("2.root.json"), 10, "larger than"),
    "endless data: an archive": (endless("archive"), 7, "more than the bytes promised"),
    "mix-and-match: index and signature": (
        spliced("index.json", "1.22.5"), 7, "index.json is not what was signed",
    ),
    "mix-and-match: index and archive": (spliced("ortpacks-legacy-*.tar.zst", evil=True), 7, "wanted"),
    "fast-forward": (
        lambda m: m.offer("1.23.2", now=datetime(2100, 1, 1, tzinfo=UTC)), 7, "is a time in the future",
    ),
    "wrong file: another archive": (wrong_file, 7, "wanted"),
    "wrong file: another document": (wrong_document, 7, "index.json is not what was signed"),
    "key compromise below the threshold: a root key": (half_a_root, 7, "2.root.json is signed by 1 of the"),
    "key compromise below the threshold: a release key": (half_a_release, 7, "by 2.root.json, 2 are needed"),
    "key compromise at the threshold": (lambda m: m.offer("1.23.2", evil=True), 0, ""),
    "revoked key replayed": (replayed, 7, "by 2.root.json, 1 is needed"),
    "revoked key replayed elsewhere": (replayed_elsewhere, 7, "by 2.root.json, 1 is needed"),
    "withheld root": (
        lambda m: m.offer("1.23.2", FIRST, REVOKED, by=NEW, without=["2.root.json"]),
        7, "by 1.root.json, 1 is needed",
    ),
    "withheld root after a later one": (withheld_from_the_middle, 7, "by 2.root.json, 1 is needed"),
}  # fmt: skip
"""What is done, the exit code of the next ``install``, and the reason. The row at the threshold is what one
stolen release key can do (docs/trust.md)."""


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setattr(cli, "shipped", lambda name: FIRST)
    (tmp_path / "release").mkdir()
    with serving(tmp_path / "release") as server:
        yield Mirror(tmp_path, server)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_installs_nothing_but_what_the_threshold_signs(mirror: Mirror, name: str) -> None:
    attack, code, reason = ATTACKS[name]
    attack(mirror)
    versions = mirror.machine.prefix / "versions"
    before = sorted(versions.rglob("*"))
    assert mirror.run("install", mirror.index) == code, mirror.machine.out + mirror.machine.err
    assert reason in mirror.machine.err
    assert (sorted(versions.rglob("*")) == before) == (code != 0)
    if before:
        assert version_in_use(mirror.machine) == ("1.23.2" if code == 0 else max(versions_in(mirror.machine)))


def test_an_attack_does_not_keep_the_next_honest_release_away(mirror: Mirror) -> None:
    """No version and no root of a forger is stored."""
    for name in ("fast-forward", "arbitrary software: a root of their own", "rollback", "freeze"):
        ATTACKS[name][0](mirror)
        assert mirror.run("install", mirror.index) == 7
    mirror.offer("1.23.2")
    assert mirror.run("install", mirror.index) == 0, mirror.machine.err


def of_root(*roots: bytes, folder: Path) -> bytes:
    return build_client(ROOT, folder / "made.pyz", None, *roots).read_bytes()


FORKED = root(MALLORY, before=FIRST, root_keys=[MALLORY.public], release_keys=[MALLORY.public], threshold=1)

FAR = root(MALLORY, before=FORKED.replace(b'"version": 2', b'"version": 98'), release_keys=[MALLORY.public])

CLIENTS: dict[str, tuple[tuple[bytes, ...], int]] = {
    "the own root": ((FIRST,), 0),
    "the next root": ((FIRST, REVOKED), 0),
    "another first root": ((THEIRS,), 7),
    "a second root of their own": ((FIRST, FORKED), 7),
    "root 99 of their own": ((FIRST, FAR), 7),
}
"""The roots in a foreign client that the release key has signed, and the exit code of ``self-update``."""


@pytest.mark.parametrize("name", CLIENTS)
def test_a_foreign_client_is_not_taken(mirror: Mirror, tmp_path: Path, name: str) -> None:
    """The release key alone would else replace a root that needs two signatures."""
    roots, code = CLIENTS[name]
    program = tmp_path / "bin" / "ortpacks.pyz"
    program.parent.mkdir()
    program.write_bytes(b"the old one")
    mirror.offer("1.23.2")
    mirror.put("ortpacks.pyz", of_root(*roots, folder=tmp_path))
    mirror.sign(now=NOW + timedelta(hours=1))
    machine = Machine(mirror.machine.home, env=mirror.machine.env, program=program)
    assert machine.run("self-update", "--index", mirror.index) == code, machine.err
    assert (program.read_bytes() == b"the old one") == (code != 0)
    assert ("do not follow this one's" in machine.err) == (code != 0)
