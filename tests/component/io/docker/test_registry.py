"""Tests of a registry's repository: logins, reading images, and writing an index with attestations.

``tests/images`` tests against Debian's ``docker-registry``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import requests
from docker.auth import AuthConfig

from builder.errors import ConfigError, TransferError
from builder.io.docker.registry import (
    IndexEntry,
    Registry,
    bearer_parameters,
    cli_logins,
    push_index,
    read_image,
)
from tests.doubles.loopback import listening
from tests.doubles.registry import IMAGE, Handler, Served, digest
from tests.support.messages import Refused
from tests.support.tls_server import unknown_tls_server

INDEX = "application/vnd.oci.image.index.v1+json"

AMD64, ARM64 = "linux/amd64", "linux/arm64"


def registry(served: Served, **login: str) -> Registry:
    logins = AuthConfig({"auths": {served.host: login}})
    return Registry(f"{served.host}/owner/name", logins, insecure=True)


def test_an_image_is_read_from_its_manifest_and_configuration(served: Served) -> None:
    named = served.image("1", "sha256:1", "sha256:2")
    found = read_image(registry(served), "1", AMD64)
    assert (found.digest, found.layers, found.sizes) == (named, ("sha256:1", "sha256:2"), (5, 5))


def test_of_an_index_the_image_for_the_platform_is_read(served: Served) -> None:
    images = {AMD64: served.image("a", "sha256:1"), ARM64: served.image("b", "sha256:2")}
    push_index(registry(served), ["1"], [IndexEntry(one, platform, ()) for platform, one in images.items()])
    for platform, layer in ((AMD64, "sha256:1"), (ARM64, "sha256:2")):
        found = read_image(registry(served), "1", platform)
        assert found.digest == digest(served.manifests["1"][1])
        assert found.layers == (layer,)
    with pytest.raises(TransferError, match="name:1 has no image for linux/s390x"):
        read_image(registry(served), "1", "linux/s390x")


def test_an_index_names_images_and_behind_them_their_attestations_as_buildkit_does(served: Served) -> None:
    image = served.image("a", "sha256:1")
    statement = {"predicateType": "https://spdx.dev/Document", "predicate": {}}
    push_index(registry(served), ["1", "latest"], [IndexEntry(image, AMD64, (statement,))])
    kind, data = served.manifests["1"]
    assert served.manifests["latest"] == (kind, data)
    assert kind == INDEX
    first, second = json.loads(data)["manifests"]
    assert first == {
        "mediaType": IMAGE,
        "digest": image,
        "size": len(served.manifests[image][1]),
        "platform": {"os": "linux", "architecture": "amd64"},
    }
    # moby/buildkit, docs/attestations/attestation-storage.md
    assert second["platform"] == {"architecture": "unknown", "os": "unknown"}
    assert second["annotations"] == {
        "vnd.docker.reference.type": "attestation-manifest",
        "vnd.docker.reference.digest": image,
    }
    kind, data = served.manifests[second["digest"]]
    assert (second["mediaType"], second["size"]) == (kind, len(data))
    (layer,) = json.loads(data)["layers"]
    assert layer["mediaType"] == "application/vnd.in-toto+json"
    assert layer["annotations"] == {"in-toto.io/predicate-type": "https://spdx.dev/Document"}
    assert json.loads(served.blobs[layer["digest"]]) == statement
    config = json.loads(served.blobs[json.loads(data)["config"]["digest"]])
    assert config["rootfs"] == {"type": "layers", "diff_ids": [layer["digest"]]}


@pytest.mark.parametrize(
    ("kind", "login", "asked"),
    [
        ("Basic", {"username": "ada", "password": "secret"}, ""),
        # docker-py's spelling of a credential helper's answer
        ("Basic", {"Username": "ada", "Password": "secret"}, ""),
        ("Bearer", {"username": "ada", "password": "secret"}, "GET ada:secret"),
        ("Bearer", {"IdentityToken": "kept"}, "'refresh_token', ['kept']"),
    ],
)
def test_the_docker_clis_login_is_used_as_the_registry_wants_it(
    served: Served, kind: str, login: dict[str, str], asked: str
) -> None:
    served.login = kind
    image = served.image("a", "sha256:1")
    push_index(registry(served, **login), ["1"], [IndexEntry(image, AMD64, ())])
    assert "1" in served.manifests
    assert all(asked in one and "repository:owner/name:pull,push" in one for one in served.asked)
    assert bool(asked) == bool(served.asked)


@pytest.mark.parametrize("login", [{"username": "ada", "password": "secret"}, {"identitytoken": "kept"}])
def test_a_token_that_expired_is_not_shown_to_the_service_for_tokens(
    served: Served, login: dict[str, str]
) -> None:
    served.login = "Bearer"
    image = served.image("a", "sha256:1")
    served.fail("put-manifest", "expire")
    push_index(registry(served, **login), ["1"], [IndexEntry(image, AMD64, ())])
    assert len(served.asked) == 2
    assert not any("Bearer" in one for one in served.asked)


@pytest.mark.parametrize("kind", ["Basic", "Bearer"])
@pytest.mark.parametrize("login", [{}, {"username": "eve", "password": "guess"}])
def test_who_may_not_is_told_to_log_in_and_no_password_is_shown(
    served: Served, kind: str, login: dict[str, str]
) -> None:
    served.login = kind
    served.image("1", "sha256:1")
    with pytest.raises(TransferError, match=r"401 Unauthorized.*Log in with `docker login 127") as told:
        read_image(registry(served, **login), "1", AMD64)
    assert "guess" not in str(told.value)


def test_what_is_not_there_is_told(served: Served, refused: Refused) -> None:
    with refused(TransferError):
        read_image(registry(served), "1", AMD64)
    served.hold("1", IMAGE, b"<html>")
    with refused(TransferError):
        read_image(registry(served), "1", AMD64)


def test_a_host_that_is_not_trusted_without_tls_gets_no_login(served: Served) -> None:
    served.login = "Basic"
    logins = AuthConfig({"auths": {served.host: {"username": "ada", "password": "secret"}}})
    with pytest.raises(TransferError, match=r"owner/name does not answer: .*insecure-registries"):
        read_image(Registry(f"{served.host}/owner/name", logins, insecure=False), "1", AMD64)
    assert served.asked == []


def test_the_login_is_not_sent_to_a_host_that_stores_uploads(served: Served) -> None:
    store = Served()
    store.uploads, store.blobs = served.uploads, served.blobs
    served.login, served.storage = "Basic", f"http://{store.host}"
    with listening(store):
        found = registry(served, username="ada", password="secret").put_blob(b"x", "text/plain")
    assert served.blobs[str(found["digest"])] == b"x"
    assert (store.logins, "" in served.logins[1:]) == ([""], False)


@pytest.mark.parametrize(
    "text",
    [
        '{"auths": {"h": "x"}}',
        '{"auths": 3}',
        "[]",
        '{"auths": {"h": {"auth": "!!"}}}',
        '{"auths": {"h": {"auth": "YQ=="}}}',
        '{"credHelpers": 3}',
        '{"credsStore": 4}',
    ],
)
def test_a_configuration_of_docker_in_another_form_is_told(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "config.json").write_text(text)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    served.login = "Basic"
    with pytest.raises(ConfigError, match=r"config\.json cannot be read: .* folder DOCKER_CONFIG"):
        read_image(Registry(f"{served.host}/owner/name", cli_logins(), insecure=True), "1", AMD64)


def answered(monkeypatch: pytest.MonkeyPatch, status: int, headers: dict[str, str]) -> list[str]:
    """Let every server answer with this status and these headers; return the list of addresses asked for."""
    asked: list[str] = []

    def send(_session: requests.Session, request: requests.PreparedRequest, **_: object) -> requests.Response:
        asked.append(str(request.url))
        answer = requests.Response()
        answer.status_code, answer.url, answer.request = status, asked[-1], request
        answer.headers.update(headers)
        return answer

    monkeypatch.setattr(requests.Session, "send", send)
    return asked


def test_a_login_is_sent_over_tls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answered(monkeypatch, 401, {"WWW-Authenticate": 'Bearer realm="http://registry.example/token"'})
    logins = AuthConfig({"auths": {"registry.example": {"username": "ada", "password": "secret"}}})
    with pytest.raises(TransferError, match="as the place to log in: a login is sent over https only"):
        Registry("registry.example/owner/name", logins, insecure=False).get("manifests/1")
    assert asked == ["https://registry.example/v2/"]


def test_a_challenge_with_an_empty_value_names_nothing() -> None:
    assert bearer_parameters('Bearer realm=,service="registry"') == {"service": "registry"}


@pytest.mark.parametrize("realm", ["", "nonsense", "ftp://host"])
def test_a_registry_that_names_no_service_for_tokens_is_told(served: Served, realm: str) -> None:
    served.login, served.realm = "Bearer", realm
    with pytest.raises(TransferError, match=f"the registry names '{realm}' as the place to log in"):
        read_image(registry(served), "1", AMD64)


@pytest.mark.parametrize("login", [{"username": "ada", "password": "secret"}, {"identitytoken": "kept"}])
def test_a_login_goes_to_no_token_service_of_another_host(served: Served, login: dict[str, str]) -> None:
    served.image("1", "sha256:1")
    served.login, served.realm = "Bearer", served.realm.replace("127.0.0.1", "localhost")
    with pytest.raises(TransferError, match="as the place to log in"):
        read_image(registry(served, **login), "1", AMD64)
    assert served.asked == []
    served.anonymous = True
    read_image(registry(served), "1", AMD64)
    assert served.asked, "without a login there is nothing to keep"


def test_a_token_service_that_answers_something_else_is_told(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.login = "Bearer"
    monkeypatch.setattr(
        Handler, "give_token", lambda self, _: self.answer(200, "application/json", b'{"token": ["secret"]}')
    )
    with pytest.raises(TransferError, match="/token is not what a registry answers: ") as caught:
        read_image(registry(served), "1", AMD64)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_helper_that_keeps_passwords_and_fails_is_told(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    served.login = "Basic"
    helper = tmp_path / "docker-credential-locked"
    helper.write_text("#!/bin/sh\necho the keychain is locked; exit 1\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    logins = AuthConfig({"credsStore": "locked"})
    with refused(TransferError):
        read_image(Registry(f"{served.host}/owner/name", logins, insecure=True), "1", AMD64)


@pytest.mark.parametrize(
    ("route", "status"), [("manifest", "429"), ("manifest", "503"), ("put-manifest", "403")]
)
def test_a_refusal_says_whether_to_try_again_or_to_log_in(
    served: Served, refused: Refused, route: str, status: str
) -> None:
    image = served.image("1", "sha256:1")
    served.fail(route, status)
    with refused(TransferError):
        read_image(registry(served), "1", AMD64)
        push_index(registry(served), ["1"], [IndexEntry(image, AMD64, ())])


def test_a_registry_whose_certificate_nobody_knows_gets_no_login(tmp_path: Path) -> None:
    with unknown_tls_server(tmp_path) as port:
        found = Registry(f"127.0.0.1:{port}/owner/name", AuthConfig({}), insecure=True)
        with pytest.raises(TransferError, match=r"the TLS certificate was not accepted: .*machine's clock"):
            read_image(found, "1", AMD64)
