"""Files of a release in an OCI registry are read at addresses like ``oci://HOST/NAME:TAG/FILE``.

Sources: OCI Distribution Specification 1.1, "Pulling manifests" and "Pulling blobs"; Docker Registry, "Token
Authentication Specification".
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Dict, Mapping, Optional, Tuple, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import parse_http_list, parse_keqv_list
from urllib.response import addinfourl

from builder.errors import TransferError
from builder.files.digest import named_digest, other_bytes
from builder.files.http_client import NotThereError, read_body, too_large
from builder.files.http_opener import Open, Response, basic_login
from builder.formats.index import INDEX_LIMIT
from builder.formats.oci import (
    DIGEST_FORM,
    MANIFEST_LIMIT,
    MANIFEST_TYPE,
    RELEASE_TYPE,
    TITLE,
    OciAddress,
    is_loopback,
    is_oci,
    parse_address,
    registry_host,
)

_TOKEN_LIMIT = 2**16

_DOCUMENT = ".json"
"""The ending of small files, whose digest is compared here with the manifest's. The index names the digests
of archives."""

_WRITTEN = "Check the name and the tag."


def bearer_parameters(challenge: str) -> Mapping[str, str]:
    """Return ``realm``, ``service`` and ``scope`` of a registry's challenge; empty for another scheme."""
    kind, _, rest = challenge.partition(" ")
    if kind.lower() != "bearer":
        return {}
    return parse_keqv_list([one for one in parse_http_list(rest) if one.partition("=")[2]])


@dataclass(frozen=True)
class _Layer:
    digest: str
    size: int


class OciOpener:
    """An ``Open`` that also reads files in registries; any other URL is passed to ``open_http``.

    A call raises the errors of ``open_http``, ``NotThereError`` for an unknown tag or file, ``TransferError``
    and ``ConfigError``.
    """

    def __init__(self, open_http: Open) -> None:
        self._open_http = open_http
        self._artifacts: Dict[str, _Artifact] = {}

    def __call__(self, url: str, headers: Dict[str, str]) -> Response:
        """Send a request for one file of a release."""
        if not is_oci(url):
            return self._open_http(url, headers)
        base, _, name = url.rpartition("/")
        if base not in self._artifacts:
            self._artifacts[base] = _Artifact(parse_address(base), self._open_http)
        return self._artifacts[base].open(name, headers)


@dataclass
class _Artifact:
    """A release in a registry, with the manifest that the first request read."""

    address: OciAddress
    open_http: Open
    _layers: Optional[Dict[str, _Layer]] = None
    _scheme: str = "https"
    _login: Dict[str, str] = field(default_factory=dict)
    """The headers that log this user in to the registry."""

    def open(self, name: str, headers: Dict[str, str]) -> Response:
        if self._layers is None:
            self._layers = self._read_manifest()
        layer = self._layers.get(name)
        if layer is None:
            raise NotThereError(f"{self.address.shown} holds no file {name}.", advice=_WRITTEN)
        answer = self._get(f"blobs/{layer.digest}", headers)
        if not name.endswith(_DOCUMENT) or answer.status != HTTPStatus.OK:
            return answer
        return _verified(answer, layer, f"{self.address.shown}: {name}")

    def _read_manifest(self) -> Dict[str, _Layer]:
        reference, shown = self.address.reference or "latest", self.address.shown
        try:
            answer = self._get(f"manifests/{reference}", {"Accept": MANIFEST_TYPE})
        except HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            error.close()
            what = f"{shown}: the registry has no {reference} there, or hides it without a login."
            raise NotThereError(what, advice=_WRITTEN) from error
        content = read_body(answer, MANIFEST_LIMIT)
        digest = named_digest(content)
        if ":" in reference and digest != reference:
            raise other_bytes(f"{shown}: not the manifest that was named", reference, digest)
        return _layers_in(content, shown)

    def _get(self, path: str, headers: Dict[str, str]) -> Response:
        try:
            return self._send(path, headers)
        except HTTPError as error:
            if error.code != HTTPStatus.UNAUTHORIZED:
                raise self._refusal(error) from error
            error.close()
            self._log_in(error.headers.get("WWW-Authenticate", ""))
        try:
            return self._send(path, headers)
        except HTTPError as error:
            raise self._refusal(error) from error

    def _send(self, path: str, headers: Dict[str, str]) -> Response:
        rest = f"://{registry_host(self.address.host)}/v2/{self.address.name}/{path}"
        try:
            return self.open_http(f"{self._scheme}{rest}", {**headers, **self._login})
        except URLError as error:
            if self._scheme == "http" or not (is_loopback(self.address.host) and _speaks_no_tls(error)):
                raise
            self._scheme = "http"
            return self.open_http(f"{self._scheme}{rest}", {**headers, **self._login})

    def _log_in(self, challenge: str) -> None:
        """Get a token from the service that the registry names, anonymously where no login is given."""
        basic = {"Authorization": basic_login(self.address.login)} if self.address.login else {}
        wanted = bearer_parameters(challenge)
        if not wanted:
            self._login = basic
            return
        realm = wanted.get("realm", "")
        if not realm.startswith(f"{self._scheme}://"):
            what = f"{self.address.shown}: the registry sends us to {realm!r} for a token."
            raise TransferError(
                what, advice="Its administrator must name a URL as safe as the registry's own."
            )
        asked = {
            "service": wanted.get("service", ""),
            "scope": wanted.get("scope") or f"repository:{self.address.name}:pull",
        }
        try:
            answer = self.open_http(f"{realm}?{urlencode(asked)}", basic)
        except HTTPError as error:
            raise self._refusal(error) from error
        self._login = {"Authorization": f"Bearer {_token(read_body(answer, _TOKEN_LIMIT), realm)}"}

    def _refusal(self, error: HTTPError) -> Exception:
        if error.code not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return error
        error.close()
        who = "with this login" if self.address.login else "without a login"
        return TransferError(
            f"{self.address.shown}: the registry lets nobody read there {who} (HTTP {error.code}).",
            advice="A login, or a token as its password, goes into the address: oci://USER:PASSWORD@HOST/NAME:TAG.",
        )


def _layers_in(content: bytes, shown: str) -> Dict[str, _Layer]:
    """Return the files that a manifest names. Raises ``TransferError`` where it is no release's manifest."""
    try:
        manifest = json.loads(content)
        layers = manifest["layers" if manifest["artifactType"] == RELEASE_TYPE else "none of ours"]
        return dict(map(_named_layer, layers))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"{shown} is no release of ortpacks: its manifest names no files of a release."
        raise TransferError(what, advice=_WRITTEN) from error


def _named_layer(layer: Mapping[str, object]) -> Tuple[str, _Layer]:
    notes, digest, size = layer.get("annotations"), layer["digest"], layer["size"]
    if not (isinstance(digest, str) and DIGEST_FORM.fullmatch(digest) and type(size) is int and size >= 0):
        raise ValueError(digest)
    return (str(notes.get(TITLE)) if isinstance(notes, dict) else "", _Layer(digest, size))


def _verified(answer: Response, layer: _Layer, shown: str) -> Response:
    """Return the response with its body in memory, whose digest is the manifest's."""
    if layer.size > INDEX_LIMIT:
        answer.close()
        raise too_large(shown, INDEX_LIMIT)
    content = read_body(answer, layer.size)
    digest = named_digest(content)
    if digest != layer.digest:
        raise other_bytes(f"{shown} is not what the manifest names", layer.digest, digest)
    return cast("Response", addinfourl(io.BytesIO(content), answer.headers, shown, HTTPStatus.OK))


def _token(content: bytes, realm: str) -> str:
    try:
        answer = json.loads(content)
        token = answer.get("token") or answer["access_token"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        token = None
    if not isinstance(token, str) or not token.isprintable() or not token.isascii():
        raise TransferError(f"{realm} answered without a token.", advice="Try again later.")
    return token


def _speaks_no_tls(error: URLError) -> bool:
    """Return whether a server answered without TLS; false for a certificate that cannot be verified."""
    return type(error.reason).__name__ in {"SSLError", "SSLZeroReturnError", "SSLEOFError"}
