"""Tests of a registry's repository: logins, reading images, and writing an index with attestations.

``tests/images`` tests against Debian's ``docker-registry``.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
import requests
from docker.auth import AuthConfig

from builder.errors import ConfigError, TransferError
from builder.io.docker.registry import IndexEntry, Registry, cli_logins, may_get_login, push_index, read_image
from tests.doubles.loopback import listening
from tests.doubles.registry import IMAGE, Served, digest
from tests.support.messages import Refused, Told
from tests.support.tables import table
from tests.support.tls_server import unknown_tls_server

AMD64, ARM64 = "linux/amd64", "linux/arm64"


@pytest.fixture
def served() -> Iterator[Served]:
    server = Served()
    with listening(server):
        yield server


ADA = {"username": "ada", "password": "secret"}


def registry(served: Served, login: dict[str, str] | None = None, *, insecure: bool = True) -> Registry:
    return by_logins(served, AuthConfig({"auths": {served.host: login or {}}}), insecure=insecure)


def by_logins(served: Served, logins: AuthConfig, *, insecure: bool = True) -> Registry:
    return Registry(f"{served.host}/owner/name", logins, insecure=insecure)


def test_an_image_is_read_and_of_an_index_the_one_for_the_platform(served: Served, refused: Refused) -> None:
    images = {AMD64: served.image("a", "sha256:1", "sha256:3"), ARM64: served.image("b", "sha256:2")}
    found = read_image(registry(served), "a", AMD64)
    assert (found.digest, found.layers, found.sizes) == (images[AMD64], ("sha256:1", "sha256:3"), (5, 5))
    push_index(registry(served), ["1"], [IndexEntry(one, platform, ()) for platform, one in images.items()])
    of_arm = read_image(registry(served), "1", ARM64)
    assert (of_arm.digest, of_arm.layers) == (digest(served.manifests["1"][1]), ("sha256:2",))
    with refused(TransferError):
        read_image(registry(served), "1", "linux/s390x")


def test_an_index_names_images_and_behind_them_their_attestations(served: Served, told: Told) -> None:
    """The form is that of moby/buildkit, docs/attestations/attestation-storage.md."""
    image = served.image("a", "sha256:1")
    statement = {"predicateType": "https://spdx.dev/Document", "predicate": {}}
    push_index(registry(served), ["1", "latest"], [IndexEntry(image, AMD64, (statement,))])
    kind, data = served.manifests["1"]
    assert served.manifests["latest"] == (kind, data)
    first, second = json.loads(data)["manifests"]
    assert (first["digest"], first["size"]) == (image, len(served.manifests[image][1]))
    of_second, attestation = served.manifests[second["digest"]]
    layer, config = (json.loads(attestation)[key] for key in ("layers", "config"))
    assert json.loads(served.blobs[layer[0]["digest"]]) == statement
    told(f"{kind}\n{data.decode()}\n{of_second}\n{attestation.decode()}")
    told(served.blobs[config["digest"]].decode())


@pytest.mark.parametrize(
    ("kind", "login", "asked"),
    [
        ("Basic", ADA, ""),
        # docker-py's spelling of a credential helper's answer
        ("Basic", {"Username": "ada", "Password": "secret"}, ""),
        ("Bearer", ADA, "GET ada:secret"),
        ("Bearer", {"IdentityToken": "kept"}, "'refresh_token', ['kept']"),
    ],
)
def test_the_docker_clis_login_is_used(served: Served, kind: str, login: dict[str, str], asked: str) -> None:
    served.login = kind
    image = served.image("a", "sha256:1")
    push_index(registry(served, login), ["1"], [IndexEntry(image, AMD64, ())])
    assert "1" in served.manifests
    assert all(asked in one and "repository:owner/name:pull,push" in one for one in served.asked)
    assert bool(asked) == bool(served.asked)


@pytest.mark.parametrize("login", [ADA, {"identitytoken": "kept"}])
def test_an_expired_token_is_not_shown_to_the_token_service(served: Served, login: dict[str, str]) -> None:
    served.login = "Bearer"
    image = served.image("a", "sha256:1")
    served.fail("put-manifest", "expire")
    push_index(registry(served, login), ["1"], [IndexEntry(image, AMD64, ())])
    assert len(served.asked) == 2
    assert not any("Bearer" in one for one in served.asked)


EVE = {"username": "eve", "password": "guess"}

ELSEWHERE = "http://localhost:1/token"

REFUSALS: dict[str, tuple[dict[str, object], dict[str, str]]] = {
    "nobody": ({"login": "Basic"}, {}),
    "a guess": ({"login": "Basic"}, EVE),
    "a guess, by a token": ({"login": "Bearer"}, EVE),
    "no service for tokens": ({"login": "Bearer", "realm": ""}, {}),
    "none of that scheme": ({"login": "Bearer", "realm": "ftp://host"}, {}),
    "a password for another host": ({"login": "Bearer", "realm": ELSEWHERE}, ADA),
    "a token for another host": ({"login": "Bearer", "realm": ELSEWHERE}, {"identitytoken": "kept"}),
    "a strange token": ({"login": "Bearer", "anonymous": True, "token": ["secret"]}, {}),
    "no image": ({"manifests": {}}, {}),
    "a page in its place": ({"manifests": {"1": (IMAGE, b"<html>")}}, {}),
    "too many requests": ({"faults": {"manifest": "429"}}, {}),
    "out of order": ({"faults": {"manifest": "503"}}, {}),
    "no right to write": ({"faults": {"put-manifest": "403"}}, {}),
}
"""What the registry is like, and the login."""


@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_is_refused_is_told_and_no_password_is_shown(
    served: Served, refused: Refused, refusal: str
) -> None:
    changes, login = REFUSALS[refusal]
    image = served.image("1", "sha256:1")
    for name, value in changes.items():
        setattr(served, name, value)
    with refused(TransferError):
        read_image(registry(served, login), "1", AMD64)
        push_index(registry(served, login), ["1"], [IndexEntry(image, AMD64, ())])


def test_without_a_login_any_service_for_tokens_is_asked(served: Served) -> None:
    served.image("1", "sha256:1")
    served.login, served.anonymous = "Bearer", True
    served.realm = served.realm.replace("127.0.0.1", "localhost")
    read_image(registry(served), "1", AMD64)
    assert served.asked


def test_a_host_that_is_not_trusted_without_tls_gets_no_login(served: Served) -> None:
    served.login = "Basic"
    with pytest.raises(TransferError, match=r"owner/name does not answer: .*insecure-registries"):
        read_image(registry(served, ADA, insecure=False), "1", AMD64)
    assert served.asked == []


def test_the_login_is_not_sent_to_a_host_that_stores_uploads(served: Served) -> None:
    store = Served()
    store.uploads, store.blobs = served.uploads, served.blobs
    served.login, served.storage = "Basic", f"http://{store.host}"
    with listening(store):
        found = registry(served, ADA).put_blob(b"x", "text/plain")
    assert served.blobs[str(found["digest"])] == b"x"
    assert (store.logins, "" in served.logins[1:]) == ([""], False)


@pytest.mark.parametrize(
    "text", ["[]", '{"auths": 3}', '{"auths": {"h": {"auth": "YQ=="}}}', '{"credHelpers": 3}']
)
def test_a_configuration_of_docker_in_another_form_is_told(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "config.json").write_text(text)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    served.login = "Basic"
    with pytest.raises(ConfigError, match=r"config\.json cannot be read: .* folder DOCKER_CONFIG"):
        read_image(by_logins(served, cli_logins()), "1", AMD64)


def test_a_login_is_sent_over_tls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = requests.Response()
    answer.status_code = 401
    answer.headers["WWW-Authenticate"] = 'Bearer realm="http://registry.example/token"'
    send = Mock(return_value=answer)
    monkeypatch.setattr(requests.Session, "send", send)
    logins = AuthConfig({"auths": {"registry.example": ADA}})
    with pytest.raises(TransferError, match="as the place to log in: a login is sent over https only"):
        Registry("registry.example/owner/name", logins, insecure=False).get("manifests/1")
    assert [call.args[0].url for call in send.call_args_list] == ["https://registry.example/v2/"]


def test_a_helper_that_keeps_passwords_and_fails_is_told(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    served.login = "Basic"
    helper = tmp_path / "docker-credential-locked"
    helper.write_text("#!/bin/sh\necho the keychain is locked; exit 1\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with refused(TransferError):
        read_image(by_logins(served, AuthConfig({"credsStore": "locked"})), "1", AMD64)


def test_a_registry_whose_certificate_nobody_knows_gets_no_login(tmp_path: Path) -> None:
    with unknown_tls_server(tmp_path) as port:
        found = Registry(f"127.0.0.1:{port}/owner/name", AuthConfig({}), insecure=True)
        with pytest.raises(TransferError, match=r"the TLS certificate was not accepted: .*machine's clock"):
            read_image(found, "1", AMD64)


@pytest.mark.parametrize(("host", "realm", "allowed"), table("docker/realms.txt"))
def test_a_login_goes_to_the_token_service_of_the_registrys_domain_alone(
    host: str, realm: str, allowed: str
) -> None:
    assert may_get_login(realm, host) == (allowed == "yes")
