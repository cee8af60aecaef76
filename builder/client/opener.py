"""How urllib is asked: redirects only to what is as safe, and no waiting for ever."""

from __future__ import annotations

import urllib.request
from http.client import HTTPConnection, HTTPMessage, HTTPResponse
from typing import IO, Callable, List, Optional, Type
from urllib.error import URLError
from urllib.parse import urlsplit

from builder.client.pace import Clock, paced


def opener(clock: Clock) -> urllib.request.OpenerDirector:
    """With the proxies of the environment. What it opens raises ``TooSlowError`` by ``clock``."""
    return urllib.request.build_opener(_Redirects(), *(kind(clock) for kind in _KINDS))


def require_http(url: str) -> None:
    """``URLError`` for any other scheme."""
    if urlsplit(url).scheme not in {"http", "https"}:
        raise URLError(f"{url}: only http and https are fetched")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Followed, but never from https to less: the index is trusted by its connection."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> Optional[urllib.request.Request]:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise URLError(f"{req.full_url} redirects to {newurl}, which is not encrypted")
        require_http(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Patient(urllib.request.AbstractHTTPHandler):
    """Connections that end when next to nothing comes."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def do_open(
        self, http_class: Callable[..., HTTPConnection], req: urllib.request.Request, **named: object
    ) -> HTTPResponse:
        return super().do_open(paced(http_class, self._clock), req, **named)


class _Http(_Patient, urllib.request.HTTPHandler):
    """In the clear."""


_KINDS: List[Type[_Patient]] = [_Http]

if hasattr(urllib.request, "HTTPSHandler"):  # a Python may have been built without

    class _Https(_Patient, urllib.request.HTTPSHandler):
        """Encrypted."""

    _KINDS.append(_Https)
