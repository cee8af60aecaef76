"""Tests of signed releases: the files that publish writes and uploads, the permitted signers, and
key files."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from invoke.collection import Collection
from invoke.context import Context

from builder.build.verbs.command_line import program
from builder.build.verbs.flags import make_wiring, verb
from builder.errors import CheckFailedError, ConfigError, IntegrityError, ToolMissingError
from builder.formats.ed25519 import verify
from builder.formats.trust import TARGETS, read_root, read_targets
from builder.io.docker.registry import Registry, cli_logins
from builder.io.process import ProcessRunner
from builder.io.wiring import SECRETS, SIGNING_KEY, Wiring
from builder.publish.prepare import ROOTS, PublishOptions
from builder.publish.signing import (
    Signer,
    Signing,
    key_id,
    public_key,
    read_roots,
    roots_in,
    signers,
    with_signatures,
)
from tests.doubles.loopback import listening
from tests.doubles.registry import Served
from tests.support import ROOT
from tests.support.factories.project_copy import Place
from tests.support.factories.publishing import TAG, Desk
from tests.support.factories.releases import write_two_packages
from tests.support.factories.signing import ALICE, BOB, FIRST, NOW, key, root, signing, targets

NOBODY = key("nobody")


def test_every_file_of_a_signed_release_is_named_and_goes_up(desk: Desk) -> None:
    desk.signing = signing()
    desk.publish()
    there = desk.github.contents(TAG)
    found = read_targets(there[TARGETS], TARGETS, read_root(FIRST, "root"))
    assert found.files.keys() == there.keys() - {TARGETS, "1.root.json"}
    for name, target in found.files.items():
        assert target.length == len(there[name])
    assert there["1.root.json"] == FIRST


def test_the_same_release_is_not_signed_anew(desk: Desk) -> None:
    desk.signing = signing()
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


def test_a_release_that_needs_two_signatures_gets_them_one_after_the_other(desk: Desk) -> None:
    desk.signing = two_of_two(ALICE)
    with pytest.raises(CheckFailedError, match=r"R016 targets.json: .* signed by 1 of .*, 2 are needed"):
        desk.publish()
    assert desk.github.requests == []
    begun = (desk.dist / TARGETS).read_bytes()
    desk.signing = two_of_two(BOB, days=1)
    assert desk.publish().state == "published"
    whole = json.loads(desk.github.contents(TAG)[TARGETS])
    assert whole["signed"] == json.loads(begun)["signed"], "Bob signs what Alice has signed"
    assert {one["keyid"] for one in whole["signatures"]} == {key_id(ALICE.public), key_id(BOB.public)}


def test_a_second_signer_does_not_sign_what_has_changed(desk: Desk) -> None:
    """Else Alice's signature alone would bring her files with Bob's."""
    desk.signing = two_of_two(ALICE)
    with pytest.raises(CheckFailedError, match="R016"):
        desk.publish()
    begun = json.loads((desk.dist / TARGETS).read_bytes())
    begun["signed"]["targets"]["index.json"]["hashes"]["sha256"] = "0" * 64
    changed = with_signatures(json.dumps(begun).encode(), [ALICE])
    (desk.dist / TARGETS).write_bytes(changed)
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


def test_an_expiring_release_keeps_its_version_while_two_renew_it() -> None:
    files, later = {"index.json": b"x"}, NOW + timedelta(days=710)
    (ours,) = two_of_two(ALICE).roots
    first = targets(files, ours, by=(ALICE, BOB))
    half = targets(files, ours, by=ALICE, before=first, now=later)
    with pytest.raises(IntegrityError, match="signed by 1 of"):
        targets(files, ours, by=NOBODY, before=half, now=later)
    whole = targets(files, ours, by=BOB, before=half, now=later + timedelta(days=1))
    assert version_of(whole, ours) == version_of(first, ours)
    assert read_targets(whole, TARGETS, read_root(ours, "root")).expires == later + timedelta(days=730)


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


def test_keys_of_openssl_and_openssh_sign(keys: dict[str, Path]) -> None:
    for name in ("pem", "ssh"):
        (signer,) = signers([keys[name]], {})
        assert signer.public == public_key(keys[f"{name}.pub"]) == public_key(keys[name])
        assert verify(signer.public, b"message", signer.sign(b"message"))


def test_a_secret_of_ci_signs(keys: dict[str, Path]) -> None:
    (signer,) = signers([], {SIGNING_KEY: keys["pem"].read_text()})
    assert signer.public == public_key(keys["pem.pub"])


def test_the_secret_is_in_no_message_no_file_and_no_program_that_publish_starts(
    desk: Desk, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = keys["pem"].read_text()
    monkeypatch.setenv(SIGNING_KEY, text)
    wiring = Wiring(ROOT, dist=desk.dist, reporter=desk.reporter)
    (signer,) = signers([], wiring.env)
    ours = root(ALICE, root_keys=[ALICE.public], release_keys=[signer.public], threshold=1)
    desk.signing = replace(signing(ours), signers=(signer,))
    assert desk.publish().state == "published"
    environment = wiring.runner.run(["env"], env=wiring.env).stdout
    assert "PATH=" in environment
    folders = (desk.dist, desk.github.root)
    files = [path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()]
    seen = b"\n".join([desk.output.encode(), environment.encode(), *files])
    body = text.splitlines()[1]
    seed = base64.b64decode(body)[-32:]
    assert key_id(signer.public).encode() in seen
    for form in (SIGNING_KEY.encode(), body.encode(), seed, seed.hex().encode(), base64.b64encode(seed)):
        assert form not in seen


HELPER = """\
#!/bin/sh
tr '\\0' '\\n' </proc/$PPID/cmdline >"$0.parent"
env >"$0.saw"
echo '{"ServerURL": "x", "Username": "ada", "Secret": "secret"}'
"""


def test_a_credential_helper_of_docker_gets_no_key(
    keys: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-here"
    helper.write_text(HELPER)
    helper.chmod(0o755)
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "here"}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv(SIGNING_KEY, keys["pem"].read_text())
    found: list[object] = []

    @verb()
    def ask(_context: Context) -> None:
        """Write to a registry with a login."""
        registry = Registry(f"{served.host}/owner/name", cli_logins(), insecure=True)
        found.append(registry.put_blob(b"x", "text/plain")["size"])
        found.extend(signer.public for signer in signers([], make_wiring().env))

    with listening(served := Served()):
        served.login = "Basic"
        program(Collection(ask)).run(["ortpacks", "ask"], exit=False)
    assert found == [1, public_key(keys["pem.pub"])], "the verb itself signs"
    assert served.logins[-1].startswith("Basic "), "the helper was asked"
    saw = Path(f"{helper}.saw").read_text()
    assert "DOCKER_CONFIG=" in saw
    assert SIGNING_KEY not in saw
    assert "PRIVATE" not in saw + Path(f"{helper}.parent").read_text()
    assert os.environ[SIGNING_KEY] == keys["pem"].read_text()


LOGINS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
"""The secrets that obstore and the Docker CLI's credential helpers read."""


def test_a_secret_reaches_what_needs_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nested build without a cache's key would use objects that were stored without it."""
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
        env = {**wiring.env, "PATH": f"{tmp_path}:{wiring.env['PATH']}"}

        def got(runner: ProcessRunner, name: str) -> set[str]:
            said = runner.run([name], env=env).stdout
            return {line.partition("=")[0] for line in said.splitlines() if line.endswith("=hush")}

        seen.update({name: got(wiring.runner, name) for name in programs})
        seen["build"] = got(wiring.build_runner, "python")
        seen["here"] = {name for name, value in os.environ.items() if value == "hush"}

    program(Collection(ask)).run(["ortpacks", "ask"], exit=False)
    builds = {"ORTPACKS_COMPILE_CACHE_KEY", "REDISCLI_AUTH", *LOGINS}
    needed = {"docker": LOGINS, "build": builds, "here": LOGINS}
    assert seen == {name: needed.get(name, set()) for name in (*programs, "build", "here")}
    assert os.environ["REDISCLI_AUTH"] == "hush"


@pytest.mark.parametrize("name", ["locked", "ed448", "text", "nowhere", "/dev/zero"])
def test_what_is_no_key_is_told_without_its_content(keys: dict[str, Path], tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        signers([keys.get(name, tmp_path / name)], {})
    assert "PRIVATE" not in str(caught.value)
    with pytest.raises(ConfigError):
        signers([], {SIGNING_KEY: "-----BEGIN PRIVATE KEY-----\nsecret"})


def test_a_key_in_place_of_its_files_name_is_not_shown(keys: dict[str, Path], copied: Place) -> None:
    """``--sign "$KEY"`` where the file's name is wanted: logs of CI are public."""
    for name in ("pem", "ssh"):
        text = keys[name].read_text()
        told = copied.fails(2, "root", f"--sign={text}")
        assert "not the key itself" in told
        assert not any(line in told for line in text.splitlines())


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Start an SSH agent and return its environment."""
    path = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as process:
        try:
            while not answers(path):
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


def test_roots_are_made_and_signed_in_turn(keys: dict[str, Path], place: Place) -> None:
    """Two maintainers sign on separate machines; then a third key replaces one of theirs."""
    pem, ssh = (public_key(keys[f"{name}.pub"]) for name in ("pem", "ssh"))
    who = [
        f"--root-key={keys['pem.pub']}",
        f"--root-key={keys['ssh.pub']}",
        f"--release-key={keys['pem.pub']}",
    ]
    assert "2 are needed" in place.run("root", *who, "--threshold=2", f"--sign={keys['pem']}").stdout
    assert "commit it" in place.run("root", f"--sign={keys['ssh']}").stdout
    assert read_roots(roots_in(place.folder / ROOTS))[0].root.threshold == 2
    both = [f"--sign={keys[name]}" for name in ("pem", "ssh")]
    assert "commit it" in place.run("root", f"--release-key={keys['ssh.pub']}", *both).stdout
    first, second = read_roots(roots_in(place.folder / ROOTS))
    assert first.targets.keys.keys() == {key_id(pem)}
    assert second.targets.keys.keys() == {key_id(ssh)}
    two = [f"--release-key={keys[name]}" for name in ("pem.pub", "ssh.pub")]
    assert "commit it" in place.run("root", *two, "--release-threshold=2", *both).stdout
    assert "commit it" in place.run("root", "--threshold=1", *both).stdout
    third, fourth = read_roots(roots_in(place.folder / ROOTS))[2:]
    assert (third.targets.threshold, fourth.targets.threshold) == (2, 2), "as before unless given"
    assert "could sign nothing" in place.fails(2, "root", "--release-threshold=3")
    assert "--release-threshold '0'" in place.fails(2, "root", "--release-threshold=0")
    assert "Nothing is to be changed or signed" in place.fails(3, "root")
    assert "could sign nothing" in place.fails(2, "root", "--threshold=3")
    assert "No such file" in place.fails(2, "root", "--sign=/nowhere")


def test_no_root_follows_one_that_still_needs_signatures(keys: dict[str, Path], place: Place) -> None:
    """A second root would be the newest, and nobody could sign the first one any more."""
    who = [f"--root-key={keys['pem.pub']}", f"--root-key={keys['ssh.pub']}"]
    mine = f"--sign={keys['pem']}"
    place.run("root", *who, f"--release-key={keys['pem.pub']}", "--threshold=2", mine)
    told = place.fails(7, "root", "--threshold=1", mine)
    assert "still needs signatures, so none can follow it: 1.root.json is signed by 1" in told
    assert [path.name for path in (place.folder / ROOTS).iterdir()] == ["1.root.json"]
    assert "commit it" in place.run("root", f"--sign={keys['ssh']}").stdout


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"signed": 1, "signatures": []}'])
def test_a_damaged_root_is_named_and_left_as_it_is(
    keys: dict[str, Path], place: Place, damage: bytes
) -> None:
    (place.folder / ROOTS).mkdir()
    file = place.folder / ROOTS / "1.root.json"
    file.write_bytes(damage)
    for change in ((), ("--threshold=1",)):
        assert str(file) in place.fails(7, "root", *change, f"--sign={keys['pem']}")
    assert file.read_bytes() == damage


@pytest.mark.parametrize("verb", ["root", "mirror"])
def test_a_missing_root_is_told_before_anything_is_written_or_not_signed(
    keys: dict[str, Path], place: Place, verb: str
) -> None:
    """Who removes 1.root.json as outdated would publish without signatures, or begin a second first root."""
    (place.folder / ROOTS).mkdir()
    (place.folder / ROOTS / "2.root.json").write_bytes(FIRST)
    (place.folder / "dist").mkdir()
    write_two_packages(place.folder / "dist")
    key = f"--root-key={keys['pem.pub']}"
    words = {"root": [key, f"--release-key={keys['pem.pub']}"], "mirror": ["--to=mirror"]}
    told = place.fails(7, verb, *words[verb])
    assert "has 2.root.json and no file 1.root.json. `git restore trust` brings it back" in told
    assert [path.name for path in (place.folder / ROOTS).iterdir()] == ["2.root.json"]


def test_a_key_that_was_taken_out_of_a_root_by_hand_does_not_count(
    keys: dict[str, Path], place: Place
) -> None:
    (place.folder / ROOTS).mkdir()
    root = json.loads(FIRST)
    root["signed"]["keys"] = {}
    (place.folder / ROOTS / "1.root.json").write_text(json.dumps(root))
    told = place.fails(2, "root", f"--release-key={keys['pem.pub']}")
    assert (
        "A root with 0 root keys and threshold 2, 1 release keys and threshold 1 could sign nothing" in told
    )


@pytest.mark.parametrize("damage", [b"", b"{", b'{"signed": {}}'])
def test_a_damaged_signature_in_dist_is_made_anew(desk: Desk, damage: bytes) -> None:
    (desk.dist / TARGETS).write_bytes(damage)
    desk.signing = signing()
    desk.publish()
    assert read_targets(desk.github.contents(TAG)[TARGETS], TARGETS, read_root(FIRST, "root")).files
