"""What the kernel's files say of the NVIDIA driver: its version alone."""

from __future__ import annotations

import re
from pathlib import Path

from builder.client.probes import Outcome, Probe

VERSION = Path("proc/driver/nvidia/version")
MODULE = Path("sys/module/nvidia/version")
"""It is there where a container hides ``/proc/driver``."""
_NUMBER = re.compile(r"(?:^|\s)(\d{3}\.\d+(?:\.\d+)?)(?:\s|$)")


def probe(path: Path) -> Probe:
    """The version in the first line.

    ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.07  …``, which is longer for the open module, or
    the number alone.
    """
    name = str(path)
    try:
        first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError as error:
        return Probe(name, Outcome.MISSING, error.strerror or str(error))
    match = _NUMBER.search(first)
    if match is None:
        return Probe(name, Outcome.FAILED, f"no version in {first!r}")
    return Probe(name, Outcome.FOUND, f"driver {match[1]}", driver=match[1])
