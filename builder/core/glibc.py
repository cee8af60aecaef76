"""Whether a package loads with a system's C library."""

from __future__ import annotations

import re
from typing import Optional, Tuple

from builder.core.index import IndexPackage

MUSL = ""
"""What stands for a Linux system without glibc, where ``None`` stands for one nobody has asked."""

_VERSION = re.compile(r"\d+(?:\.\d+)+")
_KNOWN_BY = {
    "2.17": "CentOS 7",
    "2.23": "Ubuntu 16.04",
    "2.24": "Debian 9",
    "2.26": "Amazon Linux 2",
    "2.27": "Ubuntu 18.04",
    "2.28": "Debian 10",
    "2.31": "Ubuntu 20.04",
    "2.34": "RHEL 9",
    "2.35": "Ubuntu 22.04",
    "2.36": "Debian 12",
    "2.39": "Ubuntu 24.04",
    "2.41": "Debian 13",
}
"""A system of this glibc that people know by name. Source: the distributions' package lists."""


def glibc_refusal(package: IndexPackage, glibc: Optional[str]) -> Optional[str]:
    """Why the package does not load with this glibc; ``None`` when it does, or when ``glibc`` is not known.

    ``glibc``: the system's version, ``MUSL``, or ``None``.
    """
    if glibc == MUSL and package.platform.startswith("linux"):
        return "it is built for glibc, and this system's C library is musl"
    needed, found = _numbers(package.glibc), _numbers(glibc)
    if needed is None or found is None or found >= needed:
        return None
    return f"it needs glibc {package.glibc}, this system has {glibc}{_of(glibc)}"


def _numbers(version: Optional[str]) -> Optional[Tuple[int, ...]]:
    match = _VERSION.match(version or "")
    return tuple(int(part) for part in match[0].split(".")) if match else None


def _of(glibc: Optional[str]) -> str:
    system = _KNOWN_BY.get(glibc or "")
    return f" ({system}'s)" if system else ""
