"""Tests of mirror into a registry through the real publish stage, and of clients that install from there."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from pathlib import Path

import pytest
from jsonschema_rs import Draft202012Validator

from builder.app.releases.releasing import mirror_to_registry
from builder.builds.wiring import Wiring
from builder.client.index_address import mirrored, place
from builder.client.install.source import locate
from builder.errors import ConfigError, IntegrityError, ReleaseConflictError, TransferError
from builder.files.http_client import NotThereError
from builder.formats.oci import parse_address
from builder.release.mirror import registry_tag
from builder.release.preflight import Leniency
from builder.release.prepare import PublishOptions
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, write_release
from tests.support import ROOT
from tests.support.factories.fetching import fetched, web
from tests.support.factories.publishing import TAG, bytes_in
from tests.support.factories.registering import Counter, bundle
from tests.support.factories.releases import TEXTS, append_sum
from tests.support.factories.signing import FIRST, NOW, signing
from tests.support.fakes.ports import FakeReporter

NEWER = "gpu-libs-v1.23.2-2"

MEDIA_TYPE = {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}$",
}

ANNOTATIONS = {"type": "object", "additionalProperties": {"type": "string"}}

DESCRIPTOR = {
    "type": "object",
    "required": ["mediaType", "digest", "size"],
    "properties": {
        "mediaType": MEDIA_TYPE,
        "digest": {"type": "string", "pattern": "^sha256:[a-f0-9]{64}$"},
        "size": {"type": "integer", "minimum": 0},
        "annotations": ANNOTATIONS,
    },
}

MANIFEST = Draft202012Validator(
    {
        "type": "object",
        "required": ["schemaVersion", "mediaType", "artifactType", "config", "layers"],
        "properties": {
            "schemaVersion": {"const": 2},
            "mediaType": {"const": "application/vnd.oci.image.manifest.v1+json"},
            "artifactType": MEDIA_TYPE,
            "config": DESCRIPTOR,
            "layers": {"type": "array", "minItems": 1, "items": DESCRIPTOR},
            "annotations": ANNOTATIONS,
        },
    }
)
"""Schema after OCI's Image Specification 1.1: "Image Manifest", "Guidelines for Artifact Usage",
"Descriptor"."""


def test_all_of_dist_is_one_artifact_of_named_files(counter: Counter) -> None:
    done = counter.mirror()
    assert (done.state, done.url) == ("published", f"{counter.address}:{TAG}")
    assert counter.seen() == bytes_in(counter.dist)
    kind, content = counter.served.manifests[TAG]
    assert counter.served.manifests["latest"] == (kind, content)
    document = json.loads(content)
    MANIFEST.validate(document)
    assert kind == document["mediaType"]
    # "Guidance for an Empty Descriptor" has these two values.
    empty = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert document["config"] == {
        "mediaType": "application/vnd.oci.empty.v1+json",
        "digest": empty,
        "size": 2,
    }
    assert document["annotations"]["org.opencontainers.image.version"] == TAG
    kinds = {
        one["annotations"]["org.opencontainers.image.title"]: one["mediaType"] for one in document["layers"]
    }
    assert kinds["index.json"] == "application/json"
    assert kinds["ortpacks-legacy-1.23.2-cuda12.9-linux-x64.tar.zst"] == "application/zstd"


def test_again_writes_nothing_and_says_so(counter: Counter) -> None:
    counter.mirror()
    before = {route: counter.asked(route) for route in ("send", "finish", "put-manifest")}
    assert counter.mirror().state == "unchanged"
    assert {route: counter.asked(route) for route in before} == before
    assert "already published, nothing to do" in counter.output


def test_a_dry_run_leaves_nothing(counter: Counter) -> None:
    assert counter.mirror(PublishOptions(dry_run=True)).state == "dry-run"
    assert (counter.served.blobs, counter.served.manifests, counter.served.uploads) == ({}, {}, {})


def test_a_draft_is_seen_by_nobody_and_sent_once(counter: Counter) -> None:
    assert counter.mirror(PublishOptions(draft=True)).state == "draft"
    assert counter.served.manifests == {}
    sent = counter.asked("send")
    assert counter.mirror().state == "published"
    assert counter.asked("send") == sent
    assert "index.json is in the registry already" in counter.output
    assert counter.seen() == bytes_in(counter.dist)


def test_what_is_public_stays_until_it_is_replaced_and_only_what_differs_is_sent(counter: Counter) -> None:
    counter.mirror()
    before, sent = counter.seen(), counter.asked("send")
    bundle(counter.dist, padding=90_000)
    with pytest.raises(ReleaseConflictError, match=r"published with other files.*--replace"):
        counter.mirror()
    assert counter.mirror(PublishOptions(replace=True, draft=True)).state == "draft"
    assert counter.seen() == before
    counter.mirror(PublishOptions(replace=True))
    assert counter.seen() == counter.seen("latest") == bytes_in(counter.dist)
    # Two packages and the files that name them differ; SBOMs, the licences page and the client do not.
    assert counter.asked("send") == sent + 5


def test_a_blob_that_the_registry_lost_is_told_and_sent_again_when_asked(counter: Counter) -> None:
    counter.mirror()
    lost = hashlib.sha256((counter.dist / "index.json").read_bytes()).hexdigest()
    del counter.served.blobs[f"sha256:{lost}"]
    with pytest.raises(ReleaseConflictError, match="--replace"):
        counter.mirror()
    counter.mirror(PublishOptions(replace=True))
    assert counter.seen() == bytes_in(counter.dist)


def test_a_lost_index_of_the_release_before_is_told(counter: Counter) -> None:
    counter.mirror()
    lost = f"sha256:{hashlib.sha256((counter.dist / 'index.json').read_bytes()).hexdigest()}"
    del counter.served.blobs[lost]
    with pytest.raises(
        TransferError, match=rf"/name has lost index\.json \({lost}\)\. Mirror its release again"
    ):
        counter.mirror(PublishOptions(tag=NEWER))


def test_latest_is_the_last_that_became_public(counter: Counter) -> None:
    counter.mirror()
    counter.mirror(PublishOptions(tag=NEWER))
    newest = counter.served.manifests["latest"]
    bundle(counter.dist, padding=90_000)
    counter.mirror(PublishOptions(replace=True))
    assert counter.served.manifests["latest"] == newest == counter.served.manifests[NEWER]
    assert counter.seen() == bytes_in(counter.dist)


def test_an_image_under_the_tag_is_left_alone(counter: Counter) -> None:
    counter.served.image(TAG, "sha256:1")
    before = counter.served.manifests[TAG]
    with pytest.raises(ReleaseConflictError, match=rf"{TAG} is no release: an image has that tag"):
        counter.mirror(PublishOptions(replace=True))
    assert counter.served.manifests[TAG] == before


@pytest.mark.parametrize("options", [PublishOptions(), PublishOptions(dry_run=True)])
def test_an_image_under_latest_is_left_alone_before_anything_is_sent(
    counter: Counter, options: PublishOptions
) -> None:
    counter.served.image("latest", "sha256:1")
    before = dict(counter.served.manifests)
    with pytest.raises(ReleaseConflictError, match="latest is no release: an image has that tag"):
        counter.mirror(options)
    assert counter.served.manifests == before
    assert counter.asked("send") == 0


ENDLESS = f"""{{"artifactType": "application/vnd.ortpacks.release.v1", "layers": [
    {{"annotations": {{"org.opencontainers.image.title": "a"}}, "digest": "sha256:{"0" * 64}", "size": 1e999}}
]}}"""


@pytest.mark.parametrize("content", ["[" * 100_000, ENDLESS], ids=["nested", "endless"])
def test_nonsense_under_the_tag_is_left_alone(counter: Counter, content: str) -> None:
    counter.served.hold(TAG, "application/vnd.oci.image.manifest.v1+json", content.encode())
    with pytest.raises(ReleaseConflictError, match=rf"{TAG} is no release"):
        counter.mirror(PublishOptions(replace=True))


@pytest.mark.parametrize("tag", ["latest", "v1+cuda", "a/b", "v" * 129])
def test_a_tag_that_no_registry_can_have_is_refused(tag: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a tag in a registry"):
        registry_tag(tag)


def test_who_may_only_read_hears_so_before_anything_is_sent(counter: Counter) -> None:
    counter.served.may_write = False
    with pytest.raises(TransferError, match=r"403 Forbidden: DENIED requested access.*docker login"):
        counter.mirror()
    assert counter.asked("send") == 0


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("oci://host/name:tag", "without tag and login"),
        ("oci://ada:secret@host/name", "without tag and login"),
        ("oci://host/Name", "is no address in a registry.*lower case"),
    ],
)
def test_an_address_that_is_none_is_told_without_a_password(tmp_path: Path, to: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        mirror_to_registry(Wiring(ROOT, dist=tmp_path, reporter=FakeReporter()), PublishOptions(), to)
    assert "secret" not in str(caught.value)


def test_a_client_gets_every_package_by_tag_by_latest_and_by_digest(counter: Counter, tmp_path: Path) -> None:
    counter.mirror()
    digest = f"sha256:{hashlib.sha256(counter.served.manifests[TAG][1]).hexdigest()}"
    for number, end in enumerate((f":{TAG}", ":latest", "", f"@{digest}", f":{TAG}/index.json")):
        located = locate(place(counter.address + end), web())
        for package in located.index.packages:
            content = fetched(package, located, tmp_path / str(number) / package.variant)
            assert content == (counter.dist / package.file).read_bytes()


def test_a_mirror_in_a_registry_is_asked_for_the_clients_own_release_or_the_newest() -> None:
    index = f"https://github.com/o/r/releases/download/{TAG}/index.json"
    assert mirrored("oci://host/name", index) == f"oci://host/name:{TAG}/index.json"
    assert mirrored("oci://host/name/", None) == "oci://host/name:latest/index.json"


def test_a_signed_release_is_installed_from_a_registry_and_another_one_is_not(
    counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in counter.dist.iterdir():
        path.unlink()
    write_release(counter.dist, files={**FILES, **TEXTS})
    for package in sorted(counter.dist.glob("*.tar.zst")):
        append_sum(counter.dist, package)
    (counter.dist / "ortpacks.pyz").write_bytes(b"PK the client")
    counter.signing = signing(now=NOW - timedelta(days=3))  # the machine's clock says 21 November
    counter.mirror(PublishOptions(allow=Leniency(unresolved=True)))
    monkeypatch.setattr("builder.client.cli.shipped", {"root.json": FIRST}.get)
    machine = Machine(tmp_path / "machine")
    assert machine.run("install", "--index", f"{counter.address}:{TAG}") == 0, machine.err
    assert (machine.prefix / "current" / "lib").is_dir()
    changed = json.loads((counter.dist / "index.json").read_bytes())
    changed["models"] = []
    counter.replace("index.json", json.dumps(changed).encode())
    other = Machine(tmp_path / "other")
    assert other.run("install", "--index", f"{counter.address}:{TAG}") == 7
    assert "index.json is not what was signed" in other.err
    assert other.run("install", "--index", f"{counter.address}:{TAG}", "--trust-unsigned") == 0, other.err


def test_a_download_that_breaks_off_goes_on_where_it_was(counter: Counter, tmp_path: Path) -> None:
    counter.mirror()
    located = locate(place(f"{counter.address}:{TAG}"), web())
    package = located.index.packages[0]
    size = (counter.dist / package.file).stat().st_size
    counter.served.requests.clear()
    counter.served.fail("blob", "cut", after=size // 2)
    content = fetched(package, located, tmp_path / "prefix")
    assert content == (counter.dist / package.file).read_bytes()
    assert [one for one in counter.served.requests if one[0] == "blob"][-1] == ("blob", f"bytes={size // 2}-")


def test_tokens_are_taken_without_a_login_and_renewed_when_they_expire(
    counter: Counter, tmp_path: Path
) -> None:
    counter.served.login, counter.logins = "Bearer", {"username": "ada", "password": "secret"}
    counter.mirror()
    counter.served.anonymous, counter.logins = True, {}
    counter.served.asked.clear()
    located = locate(place(f"{counter.address}:{TAG}"), opener := web())
    counter.served.token = "the next one"
    assert fetched(located.index.packages[0], located, tmp_path / "prefix", opener)
    assert len(counter.served.asked) == 2
    assert "('scope', ['repository:owner/name:pull'])" in counter.served.asked[0]


def test_a_login_in_the_address_goes_to_the_token_service_and_into_no_message(counter: Counter) -> None:
    counter.served.login, counter.logins = "Bearer", {"username": "ada", "password": "secret"}
    counter.mirror()
    private = counter.address.replace("://", "://ada:secret@")
    assert locate(place(f"{private}:{TAG}"), web()).shown.endswith(f"@{counter.address[6:]}:{TAG}/index.json")
    for address in (counter.address, counter.address.replace("://", "://eve:guess@")):
        with pytest.raises(
            TransferError, match=r"lets nobody read there .*\(HTTP 401\).*oci://USER"
        ) as caught:
            locate(place(f"{address}:{TAG}"), web())
        assert "guess" not in str(caught.value)


def test_no_password_is_sent_to_a_token_service_of_another_kind(counter: Counter) -> None:
    counter.mirror()
    counter.served.login, counter.served.realm = "Bearer", "ftp://elsewhere/token"
    with pytest.raises(TransferError, match="sends us to 'ftp://elsewhere/token' for a token"):
        locate(place(f"{counter.address}:{TAG}"), web())


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (":nope", r"the registry has no nope there"),
        (f"/more:{TAG}", r"has no gpu-libs-v1.23.2 there"),
    ],
)
def test_what_is_not_there_is_told(counter: Counter, end: str, why: str) -> None:
    if end.startswith(":"):
        counter.mirror()
    with pytest.raises(NotThereError, match=why):
        locate(place(counter.address + end), web())


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"artifactType": "x", "layers": []}', b'{"layers": 1}'])
def test_what_is_no_release_is_told(counter: Counter, content: bytes) -> None:
    counter.served.hold(TAG, "application/vnd.oci.image.manifest.v1+json", content)
    with pytest.raises(TransferError, match="is no release of ortpacks"):
        locate(place(f"{counter.address}:{TAG}"), web())


def test_another_manifest_than_the_named_one_is_refused(counter: Counter) -> None:
    counter.mirror()
    named = f"sha256:{'0' * 64}"
    counter.served.manifests[named] = counter.served.manifests[TAG]
    with pytest.raises(IntegrityError, match="not the manifest that was named"):
        locate(place(f"{counter.address}@{named}"), web())


@pytest.mark.parametrize(
    "text",
    ["oci://", "oci://host", "oci://host/UPPER:1", "oci://host/name:", "oci://host/a//b:1", "oci://h/n:1/x"],
)
def test_a_broken_address_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="is no address in a registry"):
        place(text)


def test_an_address_has_four_parts() -> None:
    found = parse_address("oci://ada:p%2Fw@ghcr.io:443/owner/na.me/more:v1")
    assert (found.host, found.name, found.reference, found.login) == (
        "ghcr.io:443",
        "owner/na.me/more",
        "v1",
        "ada:p%2Fw",
    )
    assert found.shown == "oci://ghcr.io:443/owner/na.me/more:v1"
