"""Client of an image's repository in an OCI registry: an image is read by its tag, an index is written.

The protocol is that of the OCI Distribution Specification, the form of attestations that of BuildKit. Logins
are those of the Docker CLI, credential helpers included; they leave this module only in requests to the
registry and to the token service that the registry names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar
from urllib.parse import urljoin, urlsplit
from urllib.request import parse_http_list, parse_keqv_list

import requests
from docker.auth import AuthConfig, load_config
from docker.errors import DockerException
from pydantic import BaseModel, ValidationError

from builder.errors import ConfigError, TransferError
from builder.files.digest import named_digest
from builder.files.http_client import TRANSIENT_STATUS
from builder.io.http_session import (
    Bearer,
    CheckedSession,
    certificate_refused,
    is_untrusted,
    system_error,
)

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"

_DOCKERS = "application/vnd.docker.distribution.manifest"

_ACCEPT = f"{MANIFEST_TYPE}, {INDEX_TYPE}, {_DOCKERS}.v2+json, {_DOCKERS}.list.v2+json"

_CONFIG = "application/vnd.oci.image.config.v1+json"

_IN_TOTO = "application/vnd.in-toto+json"

_NO_PLATFORM = {"os": "unknown", "architecture": "unknown"}

_TIMEOUT = (30, 300)
"""The longest waits in seconds: for a connection, and between two bytes."""

_BYTES = {"Content-Type": "application/octet-stream"}

_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"

_LOOPBACK = re.compile(r"(?:localhost|127(?:\.[0-9]{1,3}){3})(?::[0-9]+)?")

_REALM = re.compile(rf"https?://({_HOST})(?:[/?]|\Z)")

_DOCKER_HUB = {"docker.io": "registry-1.docker.io"}

_SHOWN = 300
"""The most characters of a registry's refusal that an error shows."""

_OTHER_FORM = (DockerException, AttributeError, TypeError, ValueError)
"""Errors of docker-py, which does not check the types of values in the CLI's configuration."""

M = TypeVar("M", bound=BaseModel)

_LOGIN = ("no basic auth", "unauthorized", "authorization", "denied", "authentication")


class _Token(BaseModel):
    """A token service's answer, which has one of the two fields."""

    token: str = ""
    access_token: str = ""


class _Reason(BaseModel):
    code: str = ""
    message: str = ""


class _Refusal(BaseModel):
    errors: list[_Reason]


@dataclass(frozen=True)
class PushedImage:
    """An image in a registry."""

    digest: str
    """The ``sha256:`` digest of the image's manifest, or of the index that the image's tag names."""
    layers: tuple[str, ...]
    """The digest of each uncompressed layer, as ``DockerEngine.layers`` returns them."""
    sizes: tuple[int, ...]
    """The size of each compressed layer in bytes."""


@dataclass(frozen=True)
class IndexEntry:
    """An image in a registry that an index lists, with its attestations."""

    digest: str
    """The ``sha256:`` digest of the image's manifest."""
    platform: str
    statements: tuple[Mapping[str, object], ...]
    """In-toto Statements as JSON objects."""


class Registry:
    """The repository ``HOST/NAME``; ``insecure`` allows plain HTTP where the host has no TLS.

    Every method raises ``TransferError``.
    """

    def __init__(self, repository: str, logins: AuthConfig, *, insecure: bool) -> None:
        self.repository = repository
        self._host, _, self._name = repository.partition("/")
        self._logins = logins
        self._schemes = ("https", "http") if insecure else ("https",)
        self._session = CheckedSession()

    def put_manifest(self, reference: str, manifest: bytes, media_type: str = MANIFEST_TYPE) -> None:
        """Write a manifest, or an index, under a tag or its digest."""
        where = f"{self._base}manifests/{reference}"
        self._ask("PUT", where, data=manifest, headers={"Content-Type": media_type})

    def put_blob(self, data: bytes, media_type: str) -> dict[str, object]:
        """Write a small blob, and return its descriptor."""
        blob = descriptor(data, media_type)
        begun = self._ask("POST", f"{self._base}blobs/uploads/")
        place = urljoin(begun.url, begun.headers.get("Location", begun.url))
        self._ask("PUT", place, params={"digest": str(blob["digest"])}, data=data, headers=_BYTES)
        return blob

    def get(self, path: str) -> requests.Response:
        """Return the answer for a manifest, ``manifests/REFERENCE``, or a small blob, ``blobs/DIGEST``."""
        return self._ask("GET", self._base + path, headers={"Accept": _ACCEPT})

    def _ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> requests.Response:
        """Send a request and return the answer. An expired token is renewed. Raises ``TransferError``."""
        auth = None if self._is_own(url) else _nobody  # an upload may go to a storage host

        def once() -> requests.Response:
            return self._session.request(
                method, url, headers=headers, params=params, data=data, auth=auth, timeout=_TIMEOUT
            )

        try:
            answer = once()
            if answer.status_code == requests.codes.unauthorized:
                self._log_in(answer.headers.get("WWW-Authenticate", ""))
                answer = once()
        except requests.RequestException as error:
            raise self._unanswered(error) from error
        return self._accepted(answer)

    def _accepted(self, answer: requests.Response) -> requests.Response:
        if answer.ok:
            return answer
        said = ": ".join(filter(None, (f"{answer.status_code} {answer.reason}", _reason(answer))))
        what = f"{self.repository}: {answer.request.method} was refused"
        if answer.status_code in TRANSIENT_STATUS:
            raise TransferError(what, cause=said, advice="Run the same command again later.")
        raise refused(what, self._host, said)

    def _unanswered(self, error: requests.RequestException) -> TransferError:
        said = " ".join(system_error(error).split())
        if is_untrusted(error):
            return certificate_refused(self.repository, said)
        return refused(f"{self.repository} does not answer", self._host, said)

    @cached_property
    def _base(self) -> str:
        """Log in to the registry, and return the repository's base URL. Raises ``TransferError``."""
        failed: requests.RequestException | None = None
        for scheme in self._schemes:
            root = f"{scheme}://{_registry_host(self._host)}/v2/"
            try:
                answer = self._session.get(root, timeout=_TIMEOUT)
                if answer.status_code == requests.codes.unauthorized:
                    self._log_in(answer.headers.get("WWW-Authenticate", ""))
            except requests.RequestException as error:
                failed = error
                if is_untrusted(error):
                    break
            else:
                return f"{root}{self._name}/"
        raise self._unanswered(failed or requests.RequestException()) from failed

    def _is_own(self, url: str) -> bool:
        """Return whether ``url`` is the registry's, and may be sent the session's login."""
        parts = urlsplit(url)
        return parts.scheme in self._schemes and parts.netloc == _registry_host(self._host)

    def _log_in(self, challenge: str) -> None:
        try:
            kept = self._logins.resolve_authconfig(self._host) or {}
        except DockerException as error:  # from a credential helper
            what = f"{self.repository}: the login cannot be read"
            raise refused(what, self._host, f"authentication: {error}") from error
        except _OTHER_FORM as error:
            raise _no_configuration(error) from error
        login = {key.lower(): value for key, value in kept.items()}  # helpers' keys are capitalised
        password = (login["username"], login["password"]) if "password" in login else None
        named = bearer_parameters(challenge)
        if not named:
            self._session.auth = password
            return
        realm = named.get("realm", "")
        if urlsplit(realm).scheme not in self._schemes:
            raise TransferError(
                f"{self.repository}: the registry names {realm!r} as the place to log in",
                cause="a login is sent over https only",
                advice="Check the registry's name, or tell its administrator.",
            )
        if (password or "identitytoken" in login) and not may_get_login(realm, self._host):
            raise TransferError(
                f"{self.repository}: the registry names {realm!r} as the place to log in",
                cause="a login is sent to hosts of the registry's own domain only",
                advice=f"Check the registry's name. `docker logout {self._host}` reads what is public.",
            )
        wanted = {"service": named.get("service", ""), "scope": f"repository:{self._name}:pull,push"}
        if "identitytoken" in login:
            grant = {"grant_type": "refresh_token", "refresh_token": login["identitytoken"]}
            form = {**wanted, **grant, "client_id": "ortpacks"}
            answer = self._session.post(
                realm, data=form, auth=_nobody, timeout=_TIMEOUT, allow_redirects=False
            )
        else:
            auth = password or _nobody
            answer = self._session.get(realm, params=wanted, auth=auth, timeout=_TIMEOUT)
        given = read_answer(_Token, self._accepted(answer))
        self._session.auth = Bearer(given.token or given.access_token)


def _nobody(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Return a request unchanged, as the authentication of a request that must not use the session's."""
    return request


def cli_logins() -> AuthConfig:
    """Return the Docker CLI's logins. Raises ``ConfigError`` for a ``config.json`` of another form."""
    try:
        return load_config(config_dict=None)
    except _OTHER_FORM as error:
        raise _no_configuration(error) from error


def _no_configuration(error: Exception) -> ConfigError:
    return ConfigError(
        "The Docker CLI's config.json cannot be read",
        cause=str(error),
        advice="Correct it: it is in the folder DOCKER_CONFIG, else in ~/.docker.",
    )


def bearer_parameters(challenge: str) -> Mapping[str, str]:
    """Return ``realm``, ``service`` and ``scope`` of a registry's challenge; empty for another scheme."""
    kind, _, rest = challenge.partition(" ")
    if kind.lower() != "bearer":
        return {}
    return parse_keqv_list([parameter for parameter in parse_http_list(rest) if parameter.partition("=")[2]])


def may_get_login(realm: str, registry: str) -> bool:
    """Return whether the token service at the URL ``realm`` may get the login of ``registry``.

    It must be on the registry's host, at any port, or in its domain, as ``auth.docker.io`` and
    ``registry-1.docker.io`` are: a registry could otherwise have its users' logins sent anywhere.
    """
    match = _REALM.match(realm)
    host, own = (
        one.partition(":")[0].lower() for one in (match[1] if match else "", _registry_host(registry))
    )
    domain = own.partition(".")[2]
    below = "." in domain and not domain[-1].isdigit() and f".{host}".endswith(f".{domain}")
    return host == own or below


def _registry_host(host: str) -> str:
    """Return the server of the registry ``host``, which differs for Docker Hub."""
    return _DOCKER_HUB.get(host, host)


def is_loopback(host: str) -> bool:
    """Return whether ``host``, with or without a port, is this machine, where plain HTTP is allowed."""
    return _LOOPBACK.fullmatch(host) is not None


def refused(what: str, host: str, said: str) -> TransferError:
    """Return the error for a registry's message ``said``.

    Its advice is to log in if the message is about authorization, else to check name and network.
    """
    advice = (
        f"Log in with `docker login {host}`, as a user who may write there"
        if any(word in said.lower() for word in _LOGIN)
        else f"Check the name and the network, and that the engine may use {host} "
        "(HTTPS, or insecure-registries)"
    )
    return TransferError(what, cause=said, advice=f"{advice}. Then run the same command again.")


def read_answer(model: type[M], answer: requests.Response) -> M:
    """Return the document in an answer. Raises ``TransferError`` for one of another form."""
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        what = f"{answer.url.partition('?')[0]} is not what a registry answers"
        cause = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise TransferError(what, cause=cause, advice="Check the registry's name.") from error


def _reason(answer: requests.Response) -> str:
    """Return the text of a registry's refusal, at most 300 characters."""
    try:
        said = _Refusal.model_validate_json(answer.content).errors
    except ValueError:
        return answer.text[:_SHOWN]
    return ", ".join(f"{problem.code} {problem.message}".strip() for problem in said)[:_SHOWN]


def json_bytes(document: Mapping[str, object]) -> bytes:
    """Return a document as it is stored."""
    return json.dumps(document, ensure_ascii=False).encode()


def descriptor(data: bytes, media_type: str) -> dict[str, object]:
    """Return the entry that names a blob or manifest in another manifest."""
    return {"mediaType": media_type, "digest": named_digest(data), "size": len(data)}


class _Descriptor(BaseModel):
    """The fields that are read of a descriptor in a manifest or an index."""

    digest: str
    size: int
    platform: dict[str, str] = {}


class _Document(BaseModel):
    """An image's manifest, or the index that names manifests."""

    manifests: list[_Descriptor] = []
    layers: list[_Descriptor] = []
    config: _Descriptor | None = None


class _RootFs(BaseModel):
    diff_ids: list[str]


class _Config(BaseModel):
    rootfs: _RootFs


def read_image(registry: Registry, tag: str, platform: str) -> PushedImage:
    """Return the image for a platform under a tag. Raises ``TransferError``, also for a missing image."""
    top = registry.get(f"manifests/{tag}")
    document = read_answer(_Document, top)
    for manifest in document.manifests:
        if platform == "/".join((manifest.platform.get("os", ""), manifest.platform.get("architecture", ""))):
            document = read_answer(_Document, registry.get(f"manifests/{manifest.digest}"))
    if document.config is None:
        raise TransferError(f"{registry.repository}:{tag} has no image for {platform}")
    config = read_answer(_Config, registry.get(f"blobs/{document.config.digest}"))
    return PushedImage(
        digest=named_digest(top.content),
        layers=tuple(config.rootfs.diff_ids),
        sizes=tuple(layer.size for layer in document.layers),
    )


def push_index(registry: Registry, tags: Sequence[str], images: Sequence[IndexEntry]) -> str:
    """See ``DockerEngine.publish``."""
    entries = [_image_entry(registry, image) for image in images]
    entries += [_attestation_entry(registry, pushed) for pushed in images]
    index = json_bytes({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries})
    for tag in tags:
        registry.put_manifest(tag, index, INDEX_TYPE)
    return named_digest(index)


def _image_entry(registry: Registry, image: IndexEntry) -> dict[str, object]:
    answer = registry.get(f"manifests/{image.digest}")
    system, _, architecture = image.platform.partition("/")
    return {
        **descriptor(answer.content, answer.headers.get("Content-Type", MANIFEST_TYPE)),
        "platform": {"os": system, "architecture": architecture},
    }


def _attestation_entry(registry: Registry, image: IndexEntry) -> dict[str, object]:
    layers = [_put_statement(registry, statement) for statement in image.statements]
    files = {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]}
    config = registry.put_blob(json_bytes({**_NO_PLATFORM, "config": {}, "rootfs": files}), _CONFIG)
    manifest = json_bytes(
        {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": layers}
    )
    registry.put_manifest(named_digest(manifest), manifest)
    notes = {"reference.type": "attestation-manifest", "reference.digest": image.digest}
    return {
        **descriptor(manifest, MANIFEST_TYPE),
        "platform": _NO_PLATFORM,
        "annotations": {f"vnd.docker.{name}": value for name, value in notes.items()},
    }


def _put_statement(registry: Registry, statement: Mapping[str, object]) -> dict[str, object]:
    kind = {"in-toto.io/predicate-type": statement["predicateType"]}
    return {**registry.put_blob(json_bytes(statement), _IN_TOTO), "annotations": kind}
