"""Text for messages: names of unknown origin, lists, sizes, URLs without passwords."""

from __future__ import annotations

import re
import textwrap
from typing import Dict, Iterable, List, Optional, Sequence, Tuple, TypeVar

from builder.errors import ConfigError, one_line

K = TypeVar("K")
V = TypeVar("V")

_LONGEST = 121
"""The most characters of a name in a message: names in C++ templates have thousands."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""A code that JSON can spell and UTF-8 cannot; in a path, Python's form of a byte that is not valid text."""


printable = one_line
"""The function that makes a name of unknown origin one line of text."""

_COMMAND = re.compile(r"((?:^|\r)\s*):(?=:)|#(?=#\[)", re.MULTILINE)
"""The beginning of a command to GitHub's runner, which reads commands in the output of every program:
``::name`` at the start of a line, after blanks too, and ``##[name]`` anywhere in it."""


def commandless(text: str) -> str:
    """Return output in which nothing is a command to GitHub's runner; JSON stays the same JSON."""
    return _COMMAND.sub(lambda match: "\\u0023" if match[1] is None else f"{match[1]}\\u003a", text)


def shown(text: str) -> str:
    """Return output as ``printable`` and ``commandless`` do, with its line breaks kept."""
    return commandless("\n".join(map(printable, text.split("\n"))))


def wrapped(text: str, columns: int) -> str:
    """Return the text in lines of at most ``columns`` characters, where its words and `commands` fit."""
    whole = re.sub("`[^`\n]+`", lambda match: match[0].replace(" ", "\xa0"), text)
    fit = textwrap.TextWrapper(
        columns, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    ).fill
    lines = (fit(line) if len(line) > columns else line for line in whole.split("\n"))
    return "\n".join(lines).replace("\xa0", " ")


def elided(text: str, most: int) -> str:
    """Return the text, or its beginning and end around an ellipsis, with at most ``most`` characters."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def shortened(text: str) -> str:
    """Return the text as ``printable`` does, cut after ``_LONGEST`` characters."""
    return printable(f"{text[:_LONGEST]}…" if len(text) > _LONGEST else text)


def listed(names: Sequence[str], most: Optional[int] = None) -> str:
    """Return names as a list in a sentence: ``a, b and c``, or ``a, b and 3 more`` if ``most`` is 2."""
    rest = len(names) - most if most else 0
    *first, last = [*names[:most], f"{rest:,} more"] if rest > 0 else names or [""]
    return f"{', '.join(first)} and {last}" if first else last


def grouped(pairs: Iterable[Tuple[K, V]]) -> Dict[K, List[V]]:
    """Group pairs: return the second values by their first value, both in the pairs' order."""
    groups: Dict[K, List[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def abridged(names: Sequence[str], most: int) -> str:
    """Return names separated by commas, the first ``most`` of them as ``listed`` does."""
    return listed(names, most) if len(names) > most else ", ".join(names)


_MAY_CARRY_A_TOKEN = re.compile(r"https://|http://(?:localhost|127\.0\.0\.1)(?::\d+)?(?:/|\Z)")

_USERINFO = re.compile(r"(?:(?<=://)|(?<=[a-z]{2}:/))(?:[^/?#\s]*|[^/?#\s:\[]*:(?!\d*(?:[/?#\s]|\Z)).*)@")
"""Userinfo of a URL, up to the last ``@`` before the path, because a password may contain ``@``. Behind a
colon that no port follows, up to the last ``@`` of the line: a password with a slash or a blank is hidden
too, though the URL is invalid. ``Path`` leaves one of its two slashes."""

_LOGIN = re.compile(
    r"(?<![a-z])((?!ssh:)[a-z][a-z0-9+.-]{1,20}:/{1,2})(?!USER:PASSWORD@)[^/?#\s]+@", re.IGNORECASE
)
"""A login in a whole message, whose advice may hold a placeholder and any ``@`` further on. For ssh it is
a name."""

_WORD = re.compile(r"[^\s'\"]+")

_SIGNATURE = re.compile(
    r"([?&][^?=&#]{0,40}?(?:sig|token|key|credential|secret|passw|auth)[^?=&#]{0,40}=)[^&#]*", re.IGNORECASE
)
"""A value in a URL's query that may be a secret: stores of artifacts sign addresses there."""


def may_carry_a_token(url: str) -> bool:
    """Return whether a token is safe in a request to ``url``: over https, or to this machine."""
    return _MAY_CARRY_A_TOKEN.match(url) is not None


def redacted(text: str) -> str:
    """Return the text with ``…`` for logins (``user:password@``) and signatures of queries in every URL."""
    return _unsigned(_USERINFO.sub("…@", text))


def redacted_message(text: str) -> str:
    """Return a message as ``redacted`` does; a login that is no valid part of a URL stays."""
    return _unsigned(_LOGIN.sub(r"\1…@", text))


def _unsigned(text: str) -> str:
    return _WORD.sub(lambda word: _SIGNATURE.sub(r"\1…", word[0]) if "://" in word[0] else word[0], text)


def refuse_registry(address: str) -> None:
    """Raise ``ConfigError`` for ``oci://HOST/NAME``, which may have a login."""
    if address.lower().startswith("oci:"):
        raise ConfigError(
            "Addresses like oci://HOST/NAME are not supported",
            cause="a registry is slow as a compile cache, and oras carries releases through one",
            advice="Fetch a release by `oras pull HOST/NAME:TAG` and name its folder (docs/mirrors.md, "
            "Through a registry); a compile cache is a folder, or on Redis or S3.",
        )


def amount(size: int) -> str:
    """Return a size in bytes as ``123 MiB`` or ``2.9 GiB``. A release's sizes are never below 1 MiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def nearest(word: str, words: Iterable[str]) -> str:
    """Return ``Did you mean legacy?`` for ``legcy``; ``""`` where no word is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 -- the client starts without it

    close = get_close_matches(word, list(words), n=1)
    return f"Did you mean {close[0]}?" if close else ""
