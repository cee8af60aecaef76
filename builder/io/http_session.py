"""Parts of the clients of GitHub and of registries: authorization, answers, and failures of requests."""

from __future__ import annotations

from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter
from requests.auth import AuthBase

from builder.errors import TransferError

_REFUSED_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"


class CheckedSession(requests.Session):
    """A session that refuses a host with an empty or long part, for which urllib3 has an error of its own."""

    def get_adapter(self, url: str) -> BaseAdapter:
        """See ``requests.Session``; it asks for each request and redirect. Raises ``InvalidURL``."""
        try:
            (urlsplit(url).hostname or "").encode("idna")
        except UnicodeError as error:
            raise requests.exceptions.InvalidURL(str(error)) from error
        return super().get_adapter(url)


class Bearer(AuthBase):
    """An Authorization header, set as ``auth`` so that a ``.netrc`` cannot replace it."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Set the header of a request; see ``AuthBase``."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def is_untrusted(error: requests.RequestException) -> bool:
    """Return whether the host's certificate was refused; a cut connection is an ``SSLError`` too."""
    return isinstance(error, requests.exceptions.SSLError) and _REFUSED_CERTIFICATE in str(error)


def system_error(error: BaseException) -> str:
    """Return the operating system's message in a chain of exceptions, else the text of the last exception."""
    while not (isinstance(error, OSError) and error.strerror):
        deeper = error.__cause__ or error.__context__
        if deeper is None:
            return str(error)
        error = deeper
    return error.strerror


def certificate_refused(what: str, reason: str) -> TransferError:
    """Return the error for a refused certificate; ``what`` names the host or its repository."""
    return TransferError(
        f"{what}: the TLS certificate was not accepted",
        cause=reason,
        advice="Check this machine's clock and certificates, or name its own in REQUESTS_CA_BUNDLE.",
    )
