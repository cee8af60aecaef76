"""Tests of a client with a root: what it installs, and what it refuses with exit code 7."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from http.client import HTTPMessage
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.response import addinfourl

import pytest

from builder.adapters.archive.client_zipapp import build_client
from builder.client import cli
from builder.client.install.prefix import Prefix
from builder.client.install.signed import Beside, Trust
from builder.client.install.source import FilesBeside, locate
from builder.errors import IntegrityError, TransferError
from builder.files.http_client import Web
from builder.files.http_opener import open_url
from builder.formats.trust import TARGETS, SignedRelease
from tests.doubles.machine import NOW
from tests.doubles.release import FILES, serving, write_release
from tests.support import ROOT
from tests.support.factories.signing import ALICE, BOB, CI, FIRST, key, root, targets
from tests.support.faults.client import Quick

NEW = key("new")


class Signed:
    """A signed release in a folder, and a machine whose client came with the first root."""

    def __init__(self, folder: Path) -> None:
        self.folder = write_release(folder / "release").parent
        self.machine = Quick(
            folder / "home", env={"ORTPACKS_FORCE_CC": "5.2", "ORTPACKS_FORCE_DRIVER": "550.54.14"}
        )
        self.sign()

    def sign(self, *roots: bytes, by: object = CI, now: datetime = NOW) -> None:
        for number, content in enumerate(roots or (FIRST,), start=1):
            (self.folder / f"{number}.root.json").write_bytes(content)
        made = [file for file in self.folder.iterdir() if not file.name.endswith((TARGETS, ".root.json"))]
        files = {file.name: file.read_bytes() for file in made}
        file = self.folder / TARGETS
        before = file.read_bytes() if file.is_file() else b""
        file.write_bytes(targets(files, *roots, by=by, now=now, before=before))  # type: ignore[arg-type]

    def sign_other(self, now: datetime) -> None:
        """Sign a release of other files at the time ``now``."""
        (self.folder / "notes.txt").write_text(str(now))
        self.sign(now=now)

    def run(self, command: str = "select", place: str | Path = "", *flags: str) -> int:
        return self.machine.run(command, "--index", str(place or self.folder), *flags)

    def refused(self, command: str = "select", place: str | Path = "") -> str:
        assert self.run(command, place) == 7, self.machine.out
        return self.machine.err


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signed:
    monkeypatch.setattr(cli, "shipped", lambda name: FIRST)
    return Signed(tmp_path)


def test_a_signed_release_is_installed_from_a_folder_and_a_server(signed: Signed) -> None:
    assert signed.run() == 0
    with serving(signed.folder) as server:
        assert signed.run("install", f"{server.url}/index.json") == 0, signed.machine.err
    assert "legacy" in signed.machine.out
    (remembered,) = json.loads((signed.machine.prefix / ".ortpacks/signed.json").read_text()).values()
    assert remembered == int(NOW.timestamp())


def test_a_client_with_its_root_in_it_refuses_an_index_that_was_changed(tmp_path: Path) -> None:
    signed = Signed(tmp_path)
    signed.sign(now=datetime.now(UTC))  # the client's clock is this machine's
    client = build_client(ROOT, tmp_path / "ortpacks.pyz", None, FIRST)

    def select() -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-I", "-S", str(client), "select", "--index", str(signed.folder)]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ORTPACKS_FORCE_CC": "5.2"}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    assert select().returncode == 0
    index = signed.folder / "index.json"
    index.write_text(index.read_text().replace("legacy", "modern"))
    refused = select()
    assert (refused.returncode, "index.json is not what was signed" in refused.stderr) == (7, True)


@pytest.mark.parametrize("name", [TARGETS, "index.json"])
def test_what_is_missing_is_refused(signed: Signed, name: str) -> None:
    (signed.folder / name).unlink()
    assert signed.run() in {7, 10}
    assert name in signed.machine.err


def test_only_release_keys_sign_releases(signed: Signed) -> None:
    strangers = root(NEW, root_keys=[NEW.public], release_keys=[NEW.public], threshold=1)
    signed.sign(strangers, by=NEW)
    assert "signed by 0 of the keys that are trusted" in signed.refused()
    second = root(NEW, before=strangers, threshold=1)
    signed.sign(strangers, second, by=NEW)
    assert "2.root.json is signed by 0 of the keys" in signed.refused()


def test_a_client_follows_roots_to_new_keys_and_leaves_old_ones(signed: Signed) -> None:
    second = root(ALICE, BOB, before=FIRST, release_keys=[NEW.public])
    signed.sign(FIRST, second, by=NEW)
    assert signed.run() == 0
    signed.sign()  # signed by the old key, although the second root is there
    assert "signed by 0 of the keys" in signed.refused()


def test_an_expired_release_is_refused(signed: Signed) -> None:
    signed.sign_other(now=NOW - timedelta(days=731))
    assert "was signed until" in signed.refused()


def test_an_older_release_than_the_one_before_is_refused(signed: Signed) -> None:
    assert signed.run("install") == 0
    signed.sign_other(now=NOW - timedelta(days=9))
    assert "is older than the release that was taken from there before" in signed.refused("install")
    assert signed.run("install", signed.folder, "--trust-unsigned") == 0


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


def test_folders_whose_names_have_the_same_beginning_are_different_places(
    signed: Signed, tmp_path: Path
) -> None:
    """Defect: a path ended at its first #, so the releases of two such folders counted as those of one."""
    new = shutil.copytree(signed.folder, tmp_path / "release #2")
    signed.sign_other(now=NOW - timedelta(days=9))
    old = shutil.copytree(signed.folder, tmp_path / "release #1")
    for place in (new, old):
        assert signed.run("install", place) == 0, signed.machine.err
    (old / TARGETS).unlink()
    assert f"{old / 'index.json'} is not signed" in signed.refused("install", old)


def test_a_root_that_has_expired_is_refused(tmp_path: Path) -> None:
    trust = Trust(FIRST, NOW + timedelta(days=3655), Prefix(tmp_path))
    made = {TARGETS: targets({"index.json": b"{}"}, now=NOW + timedelta(days=3600))}
    with pytest.raises(IntegrityError, match=r"1\.root\.json was signed until"):
        trust.require_signed("index.json", b"{}", "here", made.get)


CLOCKS = {
    "1970": (datetime(1970, 1, 1, tzinfo=UTC), "is a time in the future; today is 1970-01-01"),
    "2020": (datetime(2020, 1, 1, tzinfo=UTC), "is a time in the future; today is 2020-01-01"),
    "three days behind": (NOW - timedelta(days=3), "is a time in the future"),
    "a day behind": (NOW - timedelta(days=1), ""),
    "right": (NOW, ""),
    "729 days ahead": (NOW + timedelta(days=729), ""),
    "730 days ahead": (NOW + timedelta(days=730), "was signed until"),
    "2100": (datetime(2100, 1, 1, tzinfo=UTC), "was signed until .*, and today is 2100-01-01"),
}
"""This machine's clock, and what it says about a release that is signed now."""


@pytest.mark.parametrize(("now", "why"), CLOCKS.values(), ids=CLOCKS)
def test_a_clock_that_is_wrong_is_told(tmp_path: Path, now: datetime, why: str) -> None:
    """By a clock of 1970 no signature ever expires."""
    trust = Trust(FIRST, now, Prefix(tmp_path))
    made = {TARGETS: targets({"index.json": b"{}"}, now=NOW)}
    with pytest.raises(IntegrityError, match=why) if why else contextlib.nullcontext():
        trust.require_signed("index.json", b"{}", "here", made.get)


def test_a_stolen_key_cannot_make_all_later_releases_look_old(signed: Signed) -> None:
    """A release of the year 2100 would be newer than any that the project signs after the theft."""
    signed.sign_other(now=datetime(2100, 1, 1, tzinfo=UTC))
    assert "is a time in the future" in signed.refused("install")
    signed.sign_other(now=NOW)
    assert signed.run("install") == 0


def test_an_archive_that_changes_after_its_signature_was_verified_is_refused(
    signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = next(signed.folder.glob("ortpacks-legacy-*.tar.zst"))
    other = write_release(tmp_path / "other", files={**FILES, "LICENSE": b"BSD\n"}).parent

    def verified(trust: Trust, file: Path, beside: Beside) -> SignedRelease:
        found = original(trust, file, beside)
        shutil.copyfile(other / file.name, file)
        return found

    original = Trust.require_archive
    monkeypatch.setattr(Trust, "require_archive", verified)
    web = Web(open=open_url, sleep=lambda _: None, progress=lambda _done, _total: None)
    with pytest.raises(IntegrityError, match="names no file of these bytes"):
        locate(archive, web, Trust(FIRST, NOW, Prefix(tmp_path)))


def test_each_document_of_a_release_is_read_once(signed: Signed) -> None:
    """What was verified is what is used: a server has no second chance to answer otherwise."""
    with serving(signed.folder) as server:
        assert signed.run("install", f"{server.url}/index.json") == 0
    paths = [path for path, _ in server.requests]
    assert sorted(paths) == sorted(set(paths)), "nothing is asked for twice"
    assert {"/index.json", "/targets.json", "/2.root.json"} <= set(paths)


@pytest.mark.parametrize(("code", "accepted"), [(404, True), (403, True), (401, False), (500, False)])
def test_only_a_root_that_is_not_there_is_no_newer_root(tmp_path: Path, code: int, accepted: bool) -> None:
    """S3 answers 403 for a missing file, 500 says nothing about it."""
    there = targets({"index.json": b"{}"}, now=NOW)

    def answer(url: str, _headers: dict[str, str]) -> Any:  # noqa: ANN401 - urllib's answer
        if url.endswith(TARGETS):
            return addinfourl(io.BytesIO(there), HTTPMessage(), url, 200)
        raise HTTPError(url, code, "no", HTTPMessage(), None)

    web = Web(open=answer, sleep=lambda _: None, progress=lambda _done, _total: None)
    trust = Trust(FIRST, NOW, Prefix(tmp_path))
    with contextlib.nullcontext() if accepted else pytest.raises(TransferError, match=f"HTTP {code}"):
        trust.require_signed("index.json", b"{}", "here", FilesBeside("https://host/index.json", web))


def test_what_is_not_signed_is_taken_when_the_user_says_so(signed: Signed) -> None:
    (signed.folder / TARGETS).unlink()
    assert "is not signed: there is no targets.json beside it" in signed.refused()
    assert signed.run("select", signed.folder, "--trust-unsigned") == 0


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


def test_uninstall_removes_the_memory_too(signed: Signed) -> None:
    """Defect: it stayed, and uninstall called the folder with it one of others."""
    assert signed.run("install") == 0
    assert signed.machine.run("uninstall", "--yes") == 0
    assert "Not ours" not in signed.machine.out
    assert not signed.machine.prefix.exists()


def test_a_memory_that_cannot_be_read_is_no_memory(signed: Signed) -> None:
    memory = signed.machine.prefix / ".ortpacks/signed.json"
    memory.parent.mkdir(parents=True)
    for content in (b"", b"[]", b"\xff", b'{"x": "y"}'):
        memory.write_bytes(content)
        assert signed.run() == 0


def test_verifying_takes_no_time_that_is_felt(tmp_path: Path) -> None:
    """Verification of a release with 200 files takes at most 50 ms of CPU time, including the roots."""
    files = {f"{number}.tar.zst": os.urandom(9) for number in range(200)} | {"index.json": b"{}"}
    there = {TARGETS: targets(files, now=NOW)}
    trust = Trust(FIRST, NOW, Prefix(tmp_path))
    began = time.process_time()
    trust.require_signed("index.json", b"{}", "here", there.get)
    assert time.process_time() - began < 0.05
    digest = hashlib.sha256(b"{}").hexdigest()
    with pytest.raises(IntegrityError, match=digest):
        trust.require_signed("index.json", b"[]", "here", there.get)
