"""Tests of a client with a root: what it installs, and what it refuses with exit code 7."""

import contextlib
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest

from builder.client import cli
from builder.client.install.prefix import Prefix, state_folder
from builder.client.install.signed import Beside, Trust
from builder.client.install.source import locate
from builder.errors import IntegrityError
from builder.formats.trust import TARGETS, SignedRelease
from tests.doubles.hostile import status
from tests.doubles.machine import NOW
from tests.doubles.release import FILES, serving, write_release
from tests.support.factories.signed_release import Signed
from tests.support.factories.signing import ALICE, BOB, FIRST, key, root, targets
from tests.support.tables import table

NEW = key("new")


def test_a_signed_release_is_installed_from_a_folder_and_a_server(signed: Signed) -> None:
    """What was verified is what is used: a server has no second chance to answer otherwise.

    Defect: the memory stayed after uninstall.
    """
    assert signed.run() == 0
    with serving(signed.folder) as server:
        assert signed.run("install", f"{server.url}/index.json") == 0, signed.machine.err
    paths = [path for path, _ in server.requests]
    assert sorted(paths) == sorted(set(paths)), "nothing is asked for twice"
    assert {"/index.json", "/targets.json", "/2.root.json"} <= set(paths)
    (remembered,) = json.loads((signed.machine.prefix / ".ortpacks/signed.json").read_text()).values()
    assert remembered == int(NOW.timestamp())
    assert signed.machine.run("uninstall", "--yes") == 0
    assert not signed.machine.prefix.exists()


CLOCKS = {
    "1970": (datetime(1970, 1, 1, tzinfo=UTC), NOW, "is a time in the future; today is 1970-01-01"),
    "a day behind": (NOW - timedelta(days=1), NOW, ""),
    "729 days ahead": (NOW + timedelta(days=729), NOW, ""),
    "730 days ahead": (NOW + timedelta(days=730), NOW, "was signed until .*, and today is 2028-11-20"),
    "ten years ahead": (
        NOW + timedelta(days=3655), NOW + timedelta(days=3600), r"1\.root\.json was signed until"
    ),
}  # fmt: skip
"""This machine's clock, the time of a signature, and what it says about that release."""


@pytest.mark.parametrize(("now", "signed", "why"), CLOCKS.values(), ids=CLOCKS)
def test_a_clock_that_is_wrong_is_told(tmp_path: Path, now: datetime, signed: datetime, why: str) -> None:
    """By a clock of 1970 no signature ever expires."""
    trust = Trust(FIRST, now, Prefix(tmp_path))
    made = {TARGETS: targets({"index.json": b"{}"}, now=signed)}
    with pytest.raises(IntegrityError, match=why) if why else contextlib.nullcontext():
        trust.require_signed("index.json", b"{}", "here", made.get)


def test_an_archive_changes_too_late(signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = next(signed.folder.glob("ortpacks-legacy-*.tar.zst"))
    other = write_release(tmp_path / "other", files={**FILES, "LICENSE": b"BSD\n"}).parent

    def verified(trust: Trust, file: Path, beside: Beside) -> SignedRelease:
        found = original(trust, file, beside)
        shutil.copyfile(other / file.name, file)
        return found

    original = Trust.require_archive
    monkeypatch.setattr(Trust, "require_archive", verified)
    with pytest.raises(IntegrityError, match="names no file of these bytes"):
        locate(archive, signed.machine.web(), Trust(FIRST, NOW, Prefix(tmp_path)))


@pytest.mark.parametrize(("code", "end"), [(404, 0), (403, 0), (401, 10), (500, 10)])
def test_only_a_root_that_is_not_there_is_no_newer_root(signed: Signed, code: int, end: int) -> None:
    """S3 answers 403 for a missing file, 500 says nothing about it."""
    with serving(signed.folder) as server:
        server.always["2.root.json"] = status(code)
        assert signed.run("select", f"{server.url}/index.json") == end
    assert (f"HTTP {code}" in signed.machine.err) == (end == 10)


def test_an_archive_alone_has_to_be_one_of_the_release(signed: Signed) -> None:
    archive = next(signed.folder.glob("ortpacks-legacy-*.tar.zst"))
    renamed = archive.rename(archive.with_name("download (1)"))
    machine = signed.machine
    assert machine.run("select", "--offline", str(renamed)) == 0
    alone = signed.folder.parent / "alone.tar.zst"
    alone.write_bytes(renamed.read_bytes())
    assert machine.run("select", "--offline", str(alone)) == 7
    assert "is not signed" in machine.err
    with renamed.open("ab") as file:
        file.write(b"\0")
    assert machine.run("select", "--offline", str(renamed)) == 7
    assert "names no file of these bytes" in machine.err


@pytest.mark.parametrize("content", [b"[]", b"\xff", b"[" * 100_000])
def test_an_unreadable_memory_is_no_memory_until_the_next_install(signed: Signed, content: bytes) -> None:
    """Defect: lists in lists ended in a traceback."""
    memory = signed.machine.prefix / ".ortpacks/signed.json"
    memory.parent.mkdir(parents=True)
    memory.write_bytes(content)
    assert signed.run() == 0
    assert f"{memory} cannot be read" in signed.machine.err
    assert [signed.run("install"), signed.run()] == [0, 0]
    assert str(memory) not in signed.machine.err


@pytest.mark.parametrize(("one", "other", "same"), table("client/same-places.txt"))
def test_two_places_are_one_or_two(tmp_path: Path, one: str, other: str, same: str) -> None:
    trust = Trust(FIRST, NOW, Prefix(tmp_path))
    (tmp_path / ".ortpacks/parts").mkdir(parents=True)
    new, old = (targets({"index.json": b"{}"}, now=NOW - timedelta(days=age)) for age in (0, 1))
    trust.remember(one, trust.require_release(one, {TARGETS: new}.get))
    with pytest.raises(IntegrityError, match="is older") if same == "yes" else contextlib.nullcontext():
        trust.require_release(other, {TARGETS: old}.get)


SECOND = root(ALICE, BOB, before=FIRST, release_keys=[NEW.public])

STORED = ".local/state/ortpacks/roots"


def the_root_of(signed: Signed, folder: str = STORED) -> Path:
    (file,) = (signed.machine.home / folder).glob("*.json")
    return file


def test_the_newest_root_is_kept(signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was made later keeps it for one that was made earlier."""
    signed.sign(FIRST, SECOND, by=NEW)
    monkeypatch.setattr(cli, "shipped", {"root.json": SECOND, "1.root.json": FIRST}.get)
    assert signed.run("select") == 0, "any command that verifies a release"
    assert the_root_of(signed).read_bytes() == SECOND
    monkeypatch.setattr(cli, "shipped", {"root.json": FIRST, "1.root.json": FIRST}.get)
    mirror = write_release(tmp_path / "mirror").parent
    signed.folder = mirror
    signed.sign()
    assert "by 2.root.json, 1 is needed" in signed.refused("install")
    assert signed.machine.run("install", f"--index={mirror}", f"--prefix={tmp_path / 'new'}") == 7
    signed.sign(FIRST, SECOND, by=NEW)
    (mirror / "2.root.json").unlink()
    assert signed.run("install") == 0, "the second root is not needed again"


def test_projects_have_roots_of_their_own(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    signed.sign(FIRST, SECOND, by=NEW)
    assert signed.run() == 0
    theirs = root(NEW, root_keys=[NEW.public], release_keys=[NEW.public], threshold=1)
    monkeypatch.setattr(cli, "shipped", lambda name: theirs)
    signed.sign(theirs, by=NEW)
    (signed.folder / "2.root.json").unlink()
    assert signed.run() == 0, signed.machine.err
    assert len(list((signed.machine.home / STORED).glob("*.json"))) == 2


def test_a_root_is_kept_even_if_the_one_after_it_is_forged(signed: Signed) -> None:
    signed.sign(FIRST, SECOND, by=NEW)
    (signed.folder / "3.root.json").write_bytes(root(ALICE, before=SECOND))
    assert "3.root.json is signed by 1" in signed.refused()
    assert the_root_of(signed).read_bytes() == SECOND
    (signed.folder / "3.root.json").unlink()
    signed.sign()
    (signed.folder / "2.root.json").unlink()
    assert "by 2.root.json" in signed.refused()


@pytest.mark.parametrize("damage", [b"[" * 100_000, SECOND[:-9], SECOND.replace(b"targets", b"tarGets", 1)])
def test_a_damaged_root_is_told_with_what_is_at_risk(signed: Signed, damage: bytes) -> None:
    """To go on with the client's own root would be what a mirror with a revoked key wants."""
    signed.sign(FIRST, SECOND, by=NEW)
    assert signed.run() == 0
    file = the_root_of(signed)
    file.write_bytes(damage)
    told = signed.refused()
    assert str(file) in told
    assert "keys that were revoked" in told
    assert file.read_bytes() == damage
    file.unlink()
    assert signed.run() == 0
    assert file.read_bytes() == SECOND


def test_a_home_that_cannot_be_written_or_read_is_told(signed: Signed) -> None:
    """The client works there as before; what it does not remember is said."""
    state = signed.machine.home / "state"
    signed.machine.env = {**signed.machine.env, "XDG_STATE_HOME": str(state)}
    signed.machine.home.mkdir(exist_ok=True)
    state.write_text("a file in its place")
    assert signed.run() == 0
    assert "keys that were revoked" in signed.machine.err
    state.unlink()
    assert signed.run() == 0
    file = the_root_of(signed, "state/ortpacks/roots")
    file.unlink()
    file.mkdir()
    assert signed.run() == 0
    assert f"{file} cannot be read" in signed.machine.err


def test_a_state_folder_follows_the_variables() -> None:
    """On Windows it is in ``LOCALAPPDATA``; a relative path counts for nothing."""
    home = Path("/home")
    assert state_folder({"LOCALAPPDATA": "/l"}, home) == Path("/l/ortpacks")
    assert state_folder({"XDG_STATE_HOME": "/x", "LOCALAPPDATA": "/l"}, home) == Path("/x/ortpacks")
    assert state_folder({"XDG_STATE_HOME": "relative"}, home) == Path("/home/.local/state/ortpacks")


def test_an_unreadable_root_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: one refusal to read it, and the client stored its own root, with the revoked key."""
    file, said = tmp_path / "x.json", list[str]()
    file.write_bytes(SECOND)
    trust = Trust(FIRST, NOW, Prefix(tmp_path), file, said.append)
    there = {TARGETS: targets({"index.json": b"{}"}, now=NOW)}
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", Mock(side_effect=PermissionError(13, "Permission denied")))
        trust.require_release("here", there.get)
    assert said[0].startswith(f"{file} cannot be read (Permission denied)")
    assert file.read_bytes() == SECOND
    with pytest.raises(IntegrityError, match=r"by 2\.root\.json"):
        trust.require_release("here", there.get)


def test_a_slower_client_does_not_store_an_older_root_than_a_faster_one(tmp_path: Path) -> None:
    """While one client asks its mirror for root 2, another has stored root 3."""
    trust = Trust(FIRST, NOW, Prefix(tmp_path), tmp_path / "state" / "roots" / "x.json")
    third = root(ALICE, BOB, before=SECOND)
    roots = {"2.root.json": SECOND, "3.root.json": third}
    there = {TARGETS: targets({"index.json": b"{}"}, FIRST, SECOND, by=NEW, now=NOW)}

    def slow(name: str) -> bytes | None:
        if name == "2.root.json":
            trust.require_release("elsewhere", {**there, **roots}.get)
        return {**there, "2.root.json": SECOND}.get(name)

    trust.require_release("here", slow)
    assert (tmp_path / "state/roots/x.json").read_bytes() == third
    assert sorted(path.name for path in (tmp_path / "state/roots").iterdir()) == ["lock", "x.json"]


def test_an_older_release_whose_signature_was_renewed_is_no_newer_one(signed: Signed, tmp_path: Path) -> None:
    """A mirror that serves the old release in the newest one's place is refused by file and by HTTP."""
    signed.sign_other(now=NOW - timedelta(days=710))
    shutil.copytree(signed.folder, tmp_path / "old")
    signed.sign_other(now=NOW - timedelta(days=9))
    with serving(signed.folder) as server:
        places = (f"{server.url}/index.json", str(signed.folder))
        for place in places:
            assert signed.run("install", place) == 0
        shutil.copytree(tmp_path / "old", signed.folder, dirs_exist_ok=True)
        signed.sign(now=NOW)
        for place in places:
            assert "is older than the release that was taken from there before" in signed.refused(
                "install", place
            )


def test_what_is_not_signed_is_taken_when_the_user_says_so(signed: Signed) -> None:
    (signed.folder / TARGETS).unlink()
    assert "is not signed: there is no targets.json beside it" in signed.refused()
    assert signed.run("select", signed.folder, "--trust-unsigned") == 0
