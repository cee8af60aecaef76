"""Who may ask: under which names of this machine, from which pages, and with which key."""

from __future__ import annotations

import hmac
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from ortpacks_service.errors import RequestError
from ortpacks_service.options import API_KEY, OPEN, Options

_OPEN_PATHS = (
    *("/", "/openapi.json", "/ping", "/healthz", "/readyz", "/health"),
    *("/v2/health/live", "/v2/health/ready"),
)
"""Paths that need no key to be read: the page, the description of the routes, and what probes ask."""

_ANY = "*"


class Access:
    """The rules of one service."""

    def __init__(self, options: Options) -> None:
        self._names = {"localhost", options.host.lower(), *options.allowed_hosts}
        self._sites = options.allowed_hosts - {_ANY}
        self._keys = options.api_key
        self._open = {*_OPEN_PATHS, "/metrics"} if options.metrics == OPEN else set(_OPEN_PATHS)

    def require(self, scope: Scope) -> None:
        """Raise ``RequestError`` unless the request may be served."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host"), headers.get("origin")
        name = _name_of(host or "")
        if host is not None and not (_is_address(name) or _is_among(name, self._names)):
            ways = "Ask by localhost or an IP address, or name this host in --allowed-hosts."
            raise RequestError(f"Host: {name[:100]!r} is no name of this service. {ways}", 421)
        # A page of another site cannot be told apart by its address: every browser says where it is from.
        if origin is not None and not self._is_own_page(origin, host or ""):
            what = f"Origin: {origin[:100]!r} is another site; name its host in --allowed-hosts if it may ask"
            raise RequestError(what, 403)
        readable = scope["method"] in ("GET", "HEAD") and scope["path"] in self._open
        if not readable and not self.has_key(scope):
            what = f"Authorization: Bearer KEY is wanted, with one of the keys in {API_KEY} of the service"
            raise RequestError(what, 401, headers={"WWW-Authenticate": "Bearer"})

    def has_key(self, scope: Scope) -> bool:
        """Return whether the request has a key, or none is needed."""
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        key = given.strip().encode("latin-1") if scheme.lower() == "bearer" else b""
        equal = [hmac.compare_digest(key, known) for known in self._keys]  # takes as long for each key
        return any(equal) or not self._keys

    def _is_own_page(self, origin: str, host: str) -> bool:
        site = origin.partition("://")[2].lower()
        return bool(site) and (site == host.lower() or _is_among(_name_of(site), self._sites))


def _is_among(name: str, patterns: AbstractSet[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _name_of(host: str) -> str:
    """Return the name or address in ``NAME:PORT``; empty if there is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:  # half a bracket
        return ""


def _is_address(name: str) -> bool:
    """Return whether it is an IP address. No other site can make a browser take one for its own."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
