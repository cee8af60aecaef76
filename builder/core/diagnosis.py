"""What to do about a compile that failed, from its last lines.

Each sign is what the tool itself prints: nvcc 12.4 and GCC 12, tried with a planted fault
(tests/integration/test_compile_faults.py). nvcc starts cicc and ptxas by a shell, and that says ``Killed``.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Pattern, Tuple


class _Sign(NamedTuple):
    pattern: Pattern[str]
    advice: str


_SIGNS: Tuple[_Sign, ...] = (
    _Sign(
        re.compile(
            r"^Killed$|died due to signal 9\b|Killed signal terminated program|virtual memory exhausted|"
            r"out of memory allocating \d+ bytes",
            re.MULTILINE,
        ),
        "A compiler was killed: the machine ran out of memory. Nothing is wrong with the source. Run the "
        "same command with --jobs {fewer}; finished units are kept.",
    ),
    _Sign(
        re.compile(r"unsupported GNU version! .*not supported"),
        "This nvcc refuses the host compiler. Name an older one in variants.yaml, "
        "bases.<base>.packages (nvcc 12.4 takes g++ up to 13).",
    ),
    _Sign(
        re.compile(r"Unsupported gpu architecture|is not defined for option 'gpu-"),
        "The toolchain does not know an architecture of the set: see variants.<name>.sm and `./run lint`.",
    ),
    _Sign(
        re.compile(r"bases\.\w+\.patches: \S+ does not apply"),
        "Make the patch anew against this version's source, or take it out of variants.yaml.",
    ),
    _Sign(
        re.compile(
            r"died due to signal (?!9\b)\d+|internal compiler error|"
            r"^(?:Segmentation fault|Aborted|Bus error|Illegal instruction)(?: \(core dumped\))?$",
            re.MULTILINE,
        ),
        "A compiler crashed. Run the same command again: finished units are kept. If the same unit crashes "
        "again, it is a fault of the compiler: another version of it, or a patch to that unit, is needed.",
    ),
)


def advice(log: str, jobs: int) -> Optional[str]:
    """What a user can do about it; ``None`` where the log shows no known cause. ``jobs``: so many ran."""
    for sign in _SIGNS:
        if sign.pattern.search(log):
            return sign.advice.format(fewer=max(1, jobs // 2))
    return None
