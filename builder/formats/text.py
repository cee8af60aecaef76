"""Text for people: names from files of unknown origin, and sizes."""

from __future__ import annotations

_LONGEST = 121
"""Characters of a name that a message has room for: C++ templates have names of thousands."""


def printable(text: str) -> str:
    """The text on one line, with control characters and bytes that are no text written as escapes."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shortened(text: str) -> str:
    """As ``printable``, with the end of a long text left out."""
    return printable(f"{text[:_LONGEST]}…" if len(text) > _LONGEST else text)


def mib(size: int) -> str:
    """``1234 MiB``, of a size in bytes; those of a release are never small."""
    return f"{size / 2**20:.0f} MiB"
