"""Text for people (names of unknown origin, sizes), and the addresses that a token may go to."""

from __future__ import annotations

import re
from typing import Iterable

_LONGEST = 121
"""Characters of a name that a message has room for: C++ templates have names of thousands."""


def printable(text: str) -> str:
    """The text on one line, with control characters and bytes that are no text written as escapes."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shown(text: str) -> str:
    """As ``printable``, with its lines kept."""
    return "\n".join(map(printable, text.split("\n")))


def shortened(text: str) -> str:
    """As ``printable``, with the end of a long text left out."""
    return printable(f"{text[:_LONGEST]}…" if len(text) > _LONGEST else text)


API = re.compile(
    r"(?:https://[A-Za-z0-9.-]+|http://(?:localhost|127\.0\.0\.1))(?::\d+)?(?:/[A-Za-z0-9._-]+)*"
)
"""Base of a GitHub API. A token goes there, so plain http is for this machine only."""

API_FORM = "https://host/path without a closing slash; http:// for localhost only"

REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*/(?!\.{1,2}\Z)[A-Za-z0-9._-]+")
"""``owner/name``: two segments of a path, so neither may be a way up."""

_MAY_CARRY_A_TOKEN = re.compile(r"https://|http://(?:localhost|127\.0\.0\.1)(?::\d+)?(?:/|\Z)")

_USERINFO = re.compile(r"(?<=://)(?:[^/?#\s]*|[^/?#\s:\[]*:(?!\d*(?:[/?#\s]|\Z)).*)@")
"""Up to the last ``@`` before the path: a password may hold one. Behind a colon with no port it is the line's
last ``@``: a password with a slash or a blank makes it no URL, and is not to be shown either."""


def may_carry_a_token(url: str) -> bool:
    """Whether nobody on the way reads along: https, or no way at all."""
    return _MAY_CARRY_A_TOKEN.match(url) is not None


def without_userinfo(text: str) -> str:
    """The text with ``user:password@`` taken out of every URL in it."""
    return _USERINFO.sub("…@", text)


def amount(size: int) -> str:
    """``123 MiB`` or ``2.9 GiB``, of a size in bytes; those of a release are never small."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def nearest(word: str, words: Iterable[str]) -> str:
    """``Did you mean legacy?`` for ``legcy``; ``""`` where nothing is near."""
    from difflib import get_close_matches  # noqa: PLC0415 -- the client starts without it

    close = get_close_matches(word, list(words), n=1)
    return f"Did you mean {close[0]}?" if close else ""
