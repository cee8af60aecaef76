"""Which of many files are reported on as libraries."""

from __future__ import annotations

import re

HEAD = 4
"""Bytes at the start of a file that ``is_library`` has to see."""
_MAGICS = (b"\x7fELF", b"\x50\xed\x55\xba")
"""An ELF file of any kind; a fatbin by itself, as ``nvcc --fatbin`` writes it."""
_NAME = re.compile(r"\.so(?:\.\d+[a-z]?)*\Z")
"""``libfoo.so``, ``libfoo.so.1.2``, ``libcrypto.so.1.0.2k``; not ``ld.so.conf``."""


def is_library(name: str, head: bytes) -> bool:
    """Whether a file belongs into a report, by its first bytes or else by its name.

    The name alone is enough: an empty ``libfoo.so`` is a library that cannot be read, and is said to be one.
    """
    return head.startswith(_MAGICS) or is_named_like_a_library(name)


def is_named_like_a_library(name: str) -> bool:
    """Whether the loader would look for a file of this name."""
    return _NAME.search(name) is not None
