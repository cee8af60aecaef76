"""Text that comes from files which anyone may have made, as it is shown."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text on one line, with control characters and bytes that are no text written as escapes."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
