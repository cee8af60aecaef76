"""Tests of signed releases: the files that publish writes and uploads, the permitted signers, and
key files."""

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from socketserver import BaseRequestHandler, UnixStreamServer

import pytest
from invoke.collection import Collection
from invoke.context import Context

from builder.build.verbs.command_line import program
from builder.build.verbs.flags import make_wiring, verb
from builder.errors import CheckFailedError, ConfigError, IntegrityError, ToolMissingError
from builder.formats.ed25519 import verify
from builder.formats.trust import TARGETS, read_root, read_targets
from builder.io.process import ProcessRunner
from builder.io.wiring import SECRETS, SIGNING_KEY, Wiring
from builder.publish.prepare import ROOTS, PublishOptions
from builder.publish.signing import (
    RootChange,
    Signer,
    Signing,
    agent_signer,
    key_id,
    next_root,
    public_key,
    read_roots,
    roots_in,
    signers,
    with_signatures,
)
from tests.support import ROOT
from tests.support.factories.project_copy import Place
from tests.support.factories.publishing import TAG, Desk, bytes_in
from tests.support.factories.releases import write_two_packages
from tests.support.factories.signing import ALICE, BOB, CI, FIRST, NOW, key, root, signing, targets
from tests.support.messages import Told


def test_the_same_release_is_not_signed_anew(desk: Desk) -> None:
    desk.publish()
    before = (desk.dist / TARGETS).read_bytes()
    desk.signing = signing(now=NOW + timedelta(days=300))
    assert desk.publish().state == "unchanged"
    assert desk.status().state == "published"
    assert (desk.dist / TARGETS).read_bytes() == before
    desk.signing = signing(now=NOW + timedelta(days=701))
    assert desk.publish(PublishOptions(replace=True)).state == "published", "29 days are left"


def test_a_renewed_signature_keeps_its_version() -> None:
    """An old release stays older than those after it, also if another key signs it now."""
    files, later = {"index.json": b"old"}, NOW + timedelta(days=705)
    second = root(ALICE, BOB, before=FIRST, release_keys=[BOB.public])
    before = targets(files)
    by_ci = targets(files, before=before, now=later)
    by_bob = targets(files, FIRST, second, by=BOB, before=before, now=later)
    assert version_of(by_ci, FIRST) == version_of(by_bob, second) == version_of(before, FIRST)
    assert read_targets(by_ci, TARGETS, read_root(FIRST, "root")).expires == later + timedelta(days=730)
    other = targets({"index.json": b"new"}, before=before, now=later)
    assert version_of(other, FIRST) > version_of(before, FIRST)


def version_of(content: bytes, by: bytes) -> int:
    return read_targets(content, TARGETS, read_root(by, "root")).version


def test_a_release_that_nobody_signs_is_refused_before_anything_is_asked(desk: Desk) -> None:
    desk.signing = signing(by=ALICE)
    with pytest.raises(CheckFailedError, match=r"R016 targets.json: .* signed by 0 of the keys"):
        desk.publish()
    assert desk.github.requests == []
    assert desk.publish(PublishOptions(dry_run=True)).state == "dry-run", "it shows what would go up"
    assert "not signed" in desk.output


def two_of_two(by: Signer, days: int = 0) -> Signing:
    both = root(ALICE, root_keys=[ALICE.public], release_keys=[ALICE.public, BOB.public], release_threshold=2)
    return signing(both, by=by, now=NOW + timedelta(days=days))


def begun_by_alice(desk: Desk) -> bytes:
    """Return ``targets.json`` with one of two signatures, which are all that a release waits for."""
    desk.signing = two_of_two(ALICE)
    with pytest.raises(CheckFailedError, match=r"R016 targets.json: .* signed by 1 of .*, 2 are needed"):
        desk.publish()
    assert desk.github.requests == []
    return (desk.dist / TARGETS).read_bytes()


def test_a_release_that_needs_two_signatures_gets_them_one_after_the_other(desk: Desk) -> None:
    begun = json.loads(begun_by_alice(desk))
    desk.signing = two_of_two(BOB, days=1)
    assert desk.publish().state == "published"
    whole = json.loads(desk.github.contents(TAG)[TARGETS])
    assert whole["signed"] == begun["signed"], "Bob signs what Alice has signed"
    assert {one["keyid"] for one in whole["signatures"]} == {key_id(ALICE.public), key_id(BOB.public)}


def test_a_second_signer_does_not_sign_what_has_changed(desk: Desk) -> None:
    """Else Alice's signature alone would bring her files with Bob's."""
    begun = json.loads(begun_by_alice(desk))
    begun["signed"]["targets"]["index.json"]["hashes"]["sha256"] = "0" * 64
    (desk.dist / TARGETS).write_bytes(with_signatures(json.dumps(begun).encode(), [ALICE]))
    desk.signing = two_of_two(BOB)
    with pytest.raises(CheckFailedError, match=r"signed by 1 of"):
        desk.publish()
    assert "0" * 64 not in (desk.dist / TARGETS).read_text()


@pytest.mark.parametrize(
    ("member", "value"),
    [("version", int(NOW.timestamp()) + 10**6), ("expires", "2100-01-01T00:00:00Z")],
    ids=["version", "expires"],
)
def test_a_stolen_key_lets_nobody_sign_for_longer(member: str, value: object) -> None:
    """With a version or an end far ahead, no later release would be newer."""
    files = {"index.json": b"x"}
    (ours,) = two_of_two(ALICE).roots
    begun = json.loads(targets(files, ours, by=ALICE))
    begun["signed"][member] = value
    forged = with_signatures(json.dumps(begun).encode(), [ALICE])
    made = json.loads(targets(files, ours, by=BOB, before=forged))
    assert made["signed"][member] != value
    assert [one["keyid"] for one in made["signatures"]] == [key_id(BOB.public)]


def test_without_a_root_a_release_is_not_signed_and_says_so(desk: Desk) -> None:
    desk.signing = None
    desk.publish()
    assert TARGETS not in desk.github.contents(TAG)
    assert "unsigned: trust/ holds no root" in desk.output


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return key files by name, made with the programs that users have."""
    folder = tmp_path_factory.mktemp("keys")
    pem, ssh = folder / "pem", folder / "ssh"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", pem], check=True)
    subprocess.run(["openssl", "pkey", "-in", pem, "-pubout", "-out", folder / "pem.pub"], check=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh], check=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", folder / "locked"], check=True)
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed448", "-out", folder / "ed448"], check=True)
    (folder / "text").write_text("no key")
    return {file.name: file for file in folder.iterdir()}


def test_keys_of_openssl_and_openssh_and_a_secret_of_ci_sign(keys: dict[str, Path]) -> None:
    for name in ("pem", "ssh"):
        (signer,) = signers([keys[name]], {})
        assert signer.public == public_key(keys[f"{name}.pub"]) == public_key(keys[name])
        assert verify(signer.public, b"message", signer.sign(b"message"))
    (signer,) = signers([], {SIGNING_KEY: keys["pem"].read_text()})
    assert signer.public == public_key(keys["pem.pub"])


def test_nobody_sees_the_secret(desk: Desk, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    text = keys["pem"].read_text()
    monkeypatch.setenv(SIGNING_KEY, text)
    (signer,) = signers([], Wiring(ROOT).env)
    ours = root(ALICE, root_keys=[ALICE.public], release_keys=[signer.public], threshold=1)
    desk.signing = replace(signing(ours), signers=(signer,))
    assert desk.publish().state == "published"
    files = [*bytes_in(desk.dist).values(), *bytes_in(desk.github.root).values()]
    seen = b"\n".join([desk.output.encode(), *files])
    body = text.splitlines()[1]
    seed = base64.b64decode(body)[-32:]
    assert key_id(signer.public).encode() in seen
    for form in (body.encode(), seed, seed.hex().encode(), base64.b64encode(seed)):
        assert form not in seen


def test_a_secret_reaches_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told) -> None:
    """A nested build without a cache's key would use objects that were stored without it.

    AWS's are those that obstore and the Docker CLI's credential helpers read.
    """
    programs = ("git", "gh", "docker", "mmdebstrap", "cuobjdump", "patchelf", "python")
    for program_name in programs:
        (tmp_path / program_name).write_text("#!/bin/sh\nexec env\n")
        (tmp_path / program_name).chmod(0o755)
    for name in SECRETS:
        monkeypatch.setenv(name, "hush")
    seen: dict[str, set[str]] = {}

    @verb()
    def ask(_context: Context) -> None:
        """Start programs."""
        wiring = make_wiring()
        seen["verb"] = {name for name, value in wiring.env.items() if value == "hush"}
        env = {**wiring.env, "PATH": f"{tmp_path}:{wiring.env['PATH']}"}

        def got(runner: ProcessRunner, name: str) -> set[str]:
            said = runner.run([name], env=env).stdout
            return {line.partition("=")[0] for line in said.splitlines() if line.endswith("=hush")}

        seen.update({name: got(wiring.runner, name) for name in programs})
        seen["build"] = got(wiring.build_runner, "python")
        seen["here"] = {name for name, value in os.environ.items() if value == "hush"}

    program(Collection(ask)).run(["ortpacks", "ask"], exit=False)
    told("\n".join(" ".join([f"{name}:", *sorted(secrets)]) for name, secrets in seen.items()))
    assert os.environ["REDISCLI_AUTH"] == "hush"


@pytest.mark.parametrize("name", ["locked", "ed448", "text", "nowhere", "/dev/zero"])
def test_what_is_no_key_is_told_without_its_content(keys: dict[str, Path], tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        signers([keys.get(name, tmp_path / name)], {})
    assert "PRIVATE" not in str(caught.value)


def test_a_key_in_place_of_its_files_name_is_not_shown(keys: dict[str, Path], copied: Place) -> None:
    """``--sign "$KEY"`` where the file's name is wanted: logs of CI are public."""
    text = keys["ssh"].read_text()
    told = copied.fails(2, "root", f"--sign={text}")
    assert "not the key itself" in told
    assert not any(line in told for line in text.splitlines())


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Start an SSH agent and return its environment."""
    path = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as process:
        try:
            while not path.is_socket():
                time.sleep(0.01)
            yield {"SSH_AUTH_SOCK": str(path), "PATH": "/usr/bin:/bin"}
        finally:
            process.terminate()


def test_an_agent_signs_for_a_public_key(keys: dict[str, Path], agent: dict[str, str]) -> None:
    (signer,) = signers([keys["ssh.pub"]], agent)
    with pytest.raises(ToolMissingError, match="did not sign"):
        signer.sign(b"message")
    subprocess.run(["ssh-add", "-q", keys["ssh"]], check=True, env=agent)
    assert verify(signer.public, b"message", signer.sign(b"message"))
    with pytest.raises(ToolMissingError, match="SSH_AUTH_SOCK is not set"):
        signers([keys["ssh.pub"]], {})


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "does not answer"),
        (b"\0\0\0\x53\x0e\0\0", "does not answer"),
        (b"\0\0\0\x01\x05", "did not sign"),
    ],
    ids=["dies", "dies half way", "refuses"],
)
def test_an_agent_that_does_not_sign_is_told(tmp_path: Path, answer: bytes, why: str) -> None:
    class Agent(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.request.sendall(answer)

    path = str(tmp_path / "agent")
    with UnixStreamServer(path, Agent) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.handle_request)
        with pytest.raises(ToolMissingError, match=f"SSH agent.* {why}"):
            agent_signer(CI.public, path).sign(b"message")


def test_roots_are_made_and_signed_in_turn(keys: dict[str, Path], place: Place) -> None:
    """Two maintainers sign on separate machines; then a third key replaces one of theirs.

    No root follows one that still needs signatures: nobody could sign that one any more.
    """
    folder = place.folder / ROOTS
    pem, ssh = (public_key(keys[f"{name}.pub"]) for name in ("pem", "ssh"))
    who = [f"--root-key={keys['pem.pub']}", f"--root-key={keys['ssh.pub']}"]
    mine, theirs = (f"--sign={keys[name]}" for name in ("pem", "ssh"))
    release = f"--release-key={keys['pem.pub']}"
    assert "2 are needed" in place.run("root", *who, release, "--threshold=2", mine).stdout
    told = place.fails(7, "root", "--threshold=1", mine)
    assert "still needs signatures, so none can follow it: 1.root.json is signed by 1" in told
    assert [path.name for path in folder.iterdir()] == ["1.root.json"]
    for words in (
        [theirs],
        [f"--release-key={keys['ssh.pub']}", mine, theirs],
        [release, f"--release-key={keys['ssh.pub']}", "--release-threshold=2", mine, theirs],
        ["--threshold=1", mine, theirs],
    ):
        assert "commit it" in place.run("root", *words).stdout
    roots = read_roots(roots_in(folder))
    assert [one.root.threshold for one in roots] == [2, 2, 2, 1]
    assert [one.targets.threshold for one in roots] == [1, 1, 2, 2], "as before unless given"
    assert [one.targets.keys.keys() for one in roots[:2]] == [{key_id(pem)}, {key_id(ssh)}]
    for code, words, said in (
        (2, ["--release-threshold=3"], "could sign nothing"),
        (2, ["--threshold=3"], "could sign nothing"),
        (2, ["--release-threshold=0"], "--release-threshold '0'"),
        (3, [], "Nothing is to be changed or signed"),
        (2, ["--sign=/nowhere"], "No such file"),
    ):
        assert said in place.fails(code, "root", *words)


@pytest.mark.parametrize(
    "words", [["root", "--threshold=1"], ["mirror", "--to=mirror"]], ids=["root", "mirror"]
)
def test_a_missing_root_is_told_before_anything_is_written(place: Place, words: list[str]) -> None:
    """Who removes 1.root.json as outdated would publish without signatures, or begin a second first root."""
    for name in (ROOTS, "dist"):
        (place.folder / name).mkdir()
    (place.folder / ROOTS / "2.root.json").write_bytes(FIRST)
    write_two_packages(place.folder / "dist")
    told = place.fails(7, *words)
    assert "has 2.root.json and no file 1.root.json. `git restore trust` brings it back" in told
    assert [path.name for path in (place.folder / ROOTS).iterdir()] == ["2.root.json"]


def test_a_key_that_was_taken_out_of_a_root_by_hand_does_not_count() -> None:
    root = json.loads(FIRST)
    root["signed"]["keys"] = {}
    with pytest.raises(ConfigError, match=r"^A root with 0 root keys and threshold 2, 1 release keys"):
        next_root(json.dumps(root).encode(), RootChange(release_keys=[CI.public]), NOW)


@pytest.mark.parametrize("damage", [b"{", b'{"signed": {}}'])
def test_a_damaged_signature_in_dist_is_made_anew(desk: Desk, damage: bytes) -> None:
    (desk.dist / TARGETS).write_bytes(damage)
    desk.publish()
    assert read_targets(desk.github.contents(TAG)[TARGETS], TARGETS, read_root(FIRST, "root")).files


def test_an_expiring_release_keeps_its_version_while_two_renew_it() -> None:
    files, later = {"index.json": b"x"}, NOW + timedelta(days=710)
    (ours,) = two_of_two(ALICE).roots
    first = targets(files, ours, by=(ALICE, BOB))
    half = targets(files, ours, by=ALICE, before=first, now=later)
    with pytest.raises(IntegrityError, match="signed by 1 of"):
        targets(files, ours, by=key("nobody"), before=half, now=later)
    whole = targets(files, ours, by=BOB, before=half, now=later + timedelta(days=1))
    assert version_of(whole, ours) == version_of(first, ours)
    assert read_targets(whole, TARGETS, read_root(ours, "root")).expires == later + timedelta(days=730)
