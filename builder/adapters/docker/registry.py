"""Client of a repository in an OCI registry: manifests, blobs and tags are read and written.

The protocol is that of the OCI Distribution Specification. Logins are those of the Docker CLI, credential
helpers included; they leave this module only in requests to the registry and to the token service that the
registry names.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeVar
from urllib.parse import parse_qsl, urljoin, urlsplit

import requests
from docker.auth import AuthConfig, load_config
from docker.errors import DockerException
from pydantic import BaseModel, ValidationError
from requests.adapters import HTTPAdapter

from builder.adapters.http_session import (
    TRANSIENT,
    Bearer,
    CheckedSession,
    certificate_refused,
    is_untrusted,
    named_wait,
    read_at_most,
    system_error,
)
from builder.adapters.retries import FileBody
from builder.errors import ConfigError, TransferError
from builder.files.digest import named_digest
from builder.files.http_client import SIZE, TRANSIENT_STATUS
from builder.files.oci_opener import bearer_parameters
from builder.formats.oci import MANIFEST_LIMIT, MANIFEST_TYPE, OciAddress, is_loopback, registry_host

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"

_DOCKERS = "application/vnd.docker.distribution.manifest"

_ACCEPT = f"{MANIFEST_TYPE}, {INDEX_TYPE}, {_DOCKERS}.v2+json, {_DOCKERS}.list.v2+json"

BYTES_TYPE = "application/octet-stream"
"""The media type of a file of no particular kind."""

_EMPTY = b"{}"

_TO_CONNECT, _TO_ANSWER = 30, 300
"""The longest waits in seconds: for a connection, and between two bytes."""

_CONNECTIONS = 64
"""The most connections that are kept open, since several threads send requests at once."""

_BYTES = {"Content-Type": BYTES_TYPE}

_PAGE = 1000
"""The tags that one request asks for; a registry may return fewer."""

_NONE = (404,)

_BAD_REQUEST, _NOT_ALLOWED = 400, 405

_SHOWN = 300
"""The most characters of a registry's refusal that an error shows."""

_OTHER_FORM = (DockerException, AttributeError, TypeError, ValueError)
"""Errors of docker-py, which does not check the types of values in the CLI's configuration."""

M = TypeVar("M", bound=BaseModel)

_LOGIN = ("no basic auth", "unauthorized", "authorization", "denied", "authentication")


class _Tags(BaseModel):
    tags: list[str] | None = None


class _Token(BaseModel):
    """A token service's answer, which has one of the two fields."""

    token: str = ""
    access_token: str = ""


class PassingError(TransferError):
    """A request that failed temporarily; ``wait`` is the pause in seconds that the registry names, if any."""

    wait: float | None = None


class RefusedError(TransferError):
    """A request that was refused, which another attempt does not change."""


class _Reason(BaseModel):
    code: str = ""
    message: str = ""


class _Refusal(BaseModel):
    """The body of a registry's refusal."""

    errors: list[_Reason]


class Registry:
    """The repository ``HOST/NAME``; ``insecure`` allows plain HTTP where the host has no TLS.

    Every method raises ``TransferError``: its kind ``PassingError`` when another attempt may succeed,
    ``RefusedError`` when the registry refuses. ``reach`` is the advice when the registry does not answer,
    ``seconds`` the longest wait between two bytes. Several threads may use one instance.
    """

    def __init__(
        self,
        repository: str,
        logins: AuthConfig,
        *,
        insecure: bool,
        reach: str = "",
        seconds: float = _TO_ANSWER,
    ) -> None:
        self.repository = repository
        self._reach = reach
        self._host, _, self._name = repository.partition("/")
        self._logins = logins
        self._schemes = ("https", "http") if insecure else ("https",)
        self._timeout = (min(_TO_CONNECT, seconds), seconds)
        self._login_lock = threading.Lock()
        self._session = CheckedSession()
        for scheme in self._schemes:
            self._session.mount(f"{scheme}://", HTTPAdapter(pool_maxsize=_CONNECTIONS))

    def manifest(self, reference: str) -> bytes | None:
        """Return the bytes of the manifest of a tag or digest; ``None`` if there is none."""
        return self._read_small(f"manifests/{reference}", MANIFEST_LIMIT)

    def put_manifest(self, reference: str, manifest: bytes, media_type: str = MANIFEST_TYPE) -> None:
        """Write a manifest, or an index, under a tag or its digest."""
        where = f"{self._base}manifests/{reference}"
        self._ask("PUT", where, data=manifest, headers={"Content-Type": media_type})

    def tags(self) -> Sequence[str]:
        """Return all tags; none if the repository does not exist yet."""
        found: set[str] = set()
        page = {"n": str(_PAGE)}
        while page:
            answer = self._ask("GET", f"{self._base}tags/list", params=page, also=_NONE)
            new = {*((read_answer(_Tags, answer).tags if answer.ok else None) or ())} - found
            found |= new
            # Some registries go on by a mark of their own, so the link is what counts; its host is not asked
            link = answer.links.get("next", {}).get("url", "") if new else ""
            page = dict(parse_qsl(urlsplit(link).query))
        return sorted(found)

    def put_blob(self, data: bytes, media_type: str) -> dict[str, object]:
        """Write a small blob, and return its descriptor."""
        found = descriptor(data, media_type)
        self._ask(
            "PUT", self.begin_upload(), params={"digest": str(found["digest"])}, data=data, headers=_BYTES
        )
        return found

    def put_empty(self) -> dict[str, object]:
        """Write the empty configuration of an artifact, and return its descriptor."""
        return self.put_blob(_EMPTY, "application/vnd.oci.empty.v1+json")

    def blob_size(self, digest: str) -> int | None:
        """Return the size of a blob in bytes, -1 if the registry names none; ``None`` if there is no blob."""
        answer = self._ask("HEAD", f"{self._base}blobs/{digest}", also=_NONE)
        if answer.status_code in _NONE:
            return None
        size = answer.headers.get("Content-Length", "")
        return int(size) if SIZE.fullmatch(size) else -1

    def blob(self, digest: str, limit: int) -> bytes | None:
        """Return the bytes of a blob of at most ``limit`` bytes; ``None`` if there is none."""
        return self._read_small(f"blobs/{digest}", limit)

    def begin_upload(self) -> str:
        """Begin the upload of a blob, and return the URL to send its bytes to."""
        return _location(self._ask("POST", f"{self._base}blobs/uploads/"))

    def resume_upload(self, place: str) -> tuple[str, int]:
        """Return the URL at which an interrupted upload continues, and how many bytes the registry has."""
        answer = self._ask("GET", place)
        last = answer.headers.get("Range", "").rpartition("-")[2]
        return _location(answer), int(last) + 1 if last.isdecimal() and last != "0" else 0

    def send(self, place: str, body: FileBody) -> str:
        """Send the bytes of a blob from ``body.start`` on, and return the URL that finishes the upload."""
        span = f"{body.start}-{body.start + len(body) - 1}"
        return _location(self._ask("PATCH", place, data=body, headers={**_BYTES, "Content-Range": span}))

    def finish_upload(self, place: str, digest: str) -> bool:
        """Make an upload's bytes a blob. Return ``False`` if the registry got bytes of another digest."""
        answer = self._ask("PUT", place, params={"digest": digest}, headers=_BYTES, also=(_BAD_REQUEST,))
        return answer.status_code != _BAD_REQUEST

    def cancel_upload(self, place: str) -> None:
        """End an upload without a blob."""
        self._ask("DELETE", place, also=(*_NONE, _NOT_ALLOWED))

    def get(self, path: str) -> requests.Response:
        """Return the answer for a manifest, ``manifests/REFERENCE``, or a small blob, ``blobs/DIGEST``."""
        return self._ask("GET", self._base + path, headers={"Accept": _ACCEPT})

    def _read_small(self, path: str, limit: int) -> bytes | None:
        """Return the body at ``path``; ``None`` if there is none.

        Raises ``TransferError`` for more than ``limit`` bytes.
        """
        where = f"{self._base}{path}"
        try:
            with self._ask("GET", where, headers={"Accept": _ACCEPT}, also=_NONE, stream=True) as answer:
                return None if answer.status_code in _NONE else read_at_most(answer, limit)
        except requests.RequestException as error:
            raise self._unanswered(error) from error

    def _ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        data: bytes | FileBody | None = None,
        also: Sequence[int] = (),
        stream: bool = False,
    ) -> requests.Response:
        """Send a request and return the answer; a status in ``also`` is no error.

        An expired token is renewed. Raises ``TransferError``.
        """
        sent = self._session.auth

        auth = None if self._is_own(url) else _nobody  # an upload may go to a storage host

        def once() -> requests.Response:
            return self._session.request(
                method,
                url,
                headers=headers,
                params=params,
                data=data,
                auth=auth,
                stream=stream,
                timeout=self._timeout,
            )

        try:
            answer = once()
            if answer.status_code == requests.codes.unauthorized:
                with self._login_lock:
                    if self._session.auth is sent:  # no other thread has logged in meanwhile
                        self._log_in(answer.headers.get("WWW-Authenticate", ""))
                answer = once()
        except requests.RequestException as error:
            raise self._unanswered(error) from error
        return answer if answer.status_code in also else self._accepted(answer)

    def _accepted(self, answer: requests.Response) -> requests.Response:
        """Return the answer unless it is an error. Raises ``PassingError`` or ``RefusedError``."""
        if answer.ok:
            return answer
        said = ": ".join(filter(None, (f"{answer.status_code} {answer.reason}", _reason(answer))))
        what = f"{self.repository}: {answer.request.method} was refused"
        if answer.status_code not in TRANSIENT_STATUS:
            raise RefusedError(what, cause=said, advice=_advice(self._host, said, self._reach))
        passing = PassingError(what, cause=said, advice="Run the same command again later.")
        passing.wait = named_wait(answer.headers, time.time())
        raise passing

    def _unanswered(self, error: requests.RequestException) -> TransferError:
        said = " ".join(system_error(error).split())
        if is_untrusted(error):
            return certificate_refused(self.repository, said)
        what = f"{self.repository} does not answer"
        if isinstance(error, TRANSIENT) and "_base" in vars(self):
            return PassingError(what, cause=said)
        return refused(what, self._host, said, self._reach)

    @cached_property
    def _base(self) -> str:
        """Log in to the registry, and return the repository's base URL. Raises ``TransferError``."""
        failed: requests.RequestException | None = None
        for scheme in self._schemes:
            root = f"{scheme}://{registry_host(self._host)}/v2/"
            try:
                answer = self._session.get(root, timeout=self._timeout)
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
        return parts.scheme in self._schemes and parts.netloc == registry_host(self._host)

    def _log_in(self, challenge: str) -> None:
        """Log in with the password, or with a token from the service that ``challenge`` names."""
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
        wanted = {"service": named.get("service", ""), "scope": f"repository:{self._name}:pull,push"}
        if "identitytoken" in login:
            grant = {"grant_type": "refresh_token", "refresh_token": login["identitytoken"]}
            form = {**wanted, **grant, "client_id": "ortpacks"}
            answer = self._session.post(realm, data=form, auth=_nobody, timeout=self._timeout)
        else:
            auth = password or _nobody
            answer = self._session.get(realm, params=wanted, auth=auth, timeout=self._timeout)
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


def open_repository(address: OciAddress, seconds: float = _TO_ANSWER) -> Registry:
    """Return the repository at an address, with the Docker CLI's login; ``seconds`` as for ``Registry``."""
    return Registry(
        f"{address.host}/{address.name}",
        cli_logins(),
        insecure=is_loopback(address.host),
        reach="Check the name and the network; without TLS only registries on this machine are asked",
        seconds=seconds,
    )


def artifact(
    kind: str,
    config: Mapping[str, object],
    layers: Sequence[Mapping[str, object]],
    notes: Mapping[str, str],
) -> bytes:
    """Return the manifest of an artifact of a ``kind``. The same arguments give the same bytes."""
    return json_bytes(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": kind,
            "config": config,
            "layers": layers,
            "annotations": notes,
        }
    )


def refused(what: str, host: str, said: str, reach: str = "") -> TransferError:
    """Return the error for a registry's message ``said``.

    Its advice is to log in if the message is about authorization, else ``reach``.
    """
    return TransferError(what, cause=said, advice=_advice(host, said, reach))


def _advice(host: str, said: str, reach: str) -> str:
    login = f"Log in with `docker login {host}`, as a user who may write there"
    reach = reach or (
        f"Check the name and the network, and that the engine may use {host} (HTTPS, or insecure-registries)"
    )
    asked = any(word in said.lower() for word in _LOGIN)
    return f"{login if asked else reach}. Then run the same command again."


def read_answer(model: type[M], answer: requests.Response) -> M:
    """Return the document in an answer. Raises ``TransferError`` for one of another form."""
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        what = f"{answer.url.partition('?')[0]} is not what a registry answers"
        cause = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise TransferError(what, cause=cause, advice="Check the registry's name.") from error


def _location(answer: requests.Response) -> str:
    return urljoin(answer.url, answer.headers.get("Location", answer.url))


def _reason(answer: requests.Response) -> str:
    """Return the text of a registry's refusal, at most 300 characters."""
    try:
        said = _Refusal.model_validate_json(answer.content).errors
    except ValueError:
        return answer.text[:_SHOWN]
    return ", ".join(f"{one.code} {one.message}".strip() for one in said)[:_SHOWN]


def json_bytes(document: Mapping[str, object]) -> bytes:
    """Return a document as it is stored."""
    return json.dumps(document, ensure_ascii=False).encode()


def descriptor(data: bytes, media_type: str) -> dict[str, object]:
    """Return the entry that names a blob or manifest in another manifest."""
    return {"mediaType": media_type, "digest": named_digest(data), "size": len(data)}
