"""What ``ldd`` says of a package's libraries in a bare container, and how that is judged. Pure.

The listing is the self-test script's: a line ``ldd PATH`` for each library, below it what ldd said.
Source of ldd's lines: glibc's ``elf/rtld.c`` and ``elf/ldd.bash.in``.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Mapping, Tuple

from builder.core.checks import Code, Finding
from builder.core.content import is_users

_HEAD = "ldd "
_DRIVER = "libcuda.so.1"
_FOUND = re.compile(r"\t(?:\S+ => )?\S+ \(0x[0-9a-f]+\)|\tstatically linked")
_NOT_FOUND = re.compile(r"\t(?P<name>\S+) => not found")


def judge_loader(listing: str, package: str) -> Tuple[Finding, ...]:
    """B018 for each library that ldd found no answer for, or not all of its needs.

    The driver is the host's and TensorRT the user's: these alone may be missing.
    """
    said = _by_library(listing)
    if not said:
        return (Finding(Code.B018, package, "ldd was asked about no library", got=listing[:200]),)
    return tuple(finding for path, lines in said.items() for finding in _judge(path, lines))


def _by_library(listing: str) -> Mapping[str, List[str]]:
    said: Dict[str, List[str]] = {}
    lines: List[str] = []
    for line in listing.splitlines():
        if line.startswith(_HEAD):
            lines = said.setdefault(line[len(_HEAD) :], [])
        else:
            lines.append(line)
    return said


def _judge(path: str, lines: List[str]) -> Iterator[Finding]:
    name = path.rpartition("/")[2]
    if not lines:
        yield Finding(Code.B018, f"lib/{name}", "ldd said nothing of it")
    for line in dict.fromkeys(lines):
        missing = _NOT_FOUND.fullmatch(line)
        if missing and not (missing["name"] == _DRIVER or is_users(name, missing["name"])):
            what = f"needs {missing['name']}, which the loader does not find in a bare container"
            yield Finding(Code.B018, f"lib/{name}", what, wanted=f"lib/{missing['name']}")
        elif not missing and not _FOUND.fullmatch(line):
            yield Finding(Code.B018, f"lib/{name}", "ldd could not list its needs", got=line.strip()[:300])
