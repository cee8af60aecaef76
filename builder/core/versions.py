"""Versions as text: the newest of several, and whether libraries that belong together are of one."""

from __future__ import annotations

import re
from typing import Iterable, Iterator, List, Mapping, Optional, Tuple

from builder.core.checks import Code, Finding, Severity

_WHEEL_VERSION = re.compile(r"==(\d+\.\d+\.\d+)(?:\D|$)")


def numbers(version: str) -> Tuple[int, ...]:
    """``(2, 35)`` of ``2.35``: what versions are compared by."""
    return tuple(int(part) for part in version.split("."))


def highest(versions: Iterable[Optional[str]]) -> Optional[str]:
    """The newest one; ``None`` where there is none."""
    return max((version for version in versions if version), key=numbers, default=None)


def wheel_version(source: str) -> Optional[str]:
    """``9.10.2`` of ``wheel:nvidia-cudnn-cu12==9.10.2.21``; ``None`` where the source is no wheel."""
    match = _WHEEL_VERSION.search(source)
    return match[1] if match else None


def of_one_version(code: Code, what: str, versions: Mapping[str, Optional[str]]) -> Iterator[Finding]:
    """``code`` where the libraries of ``what`` differ, and as a warning, those whose version nothing tells.

    ``versions``: by member path; ``None`` where it cannot be told. One library alone always agrees. The
    finding is about a library of the version that fewest have.
    """
    if len(versions) <= 1:
        return
    told = sorted({version for version in versions.values() if version}, key=numbers)
    if len(told) > 1:
        odd = min(told, key=lambda version: len(_paths(versions, version)))
        yield Finding(
            code=code,
            path=_paths(versions, odd)[0],
            message=f"{what} of {len(told)} versions are mixed in this package",
            wanted=f"all of {what} from one release",
            got="; ".join(f"{version}: {', '.join(_paths(versions, version))}" for version in told),
        )
    silent = _paths(versions, None)
    if silent:
        yield Finding(
            code=code,
            path=silent[0],
            message=f"nothing tells the version of {len(silent)} of {what}: it is not in their bytes, and no "
            "manifest names their wheel",
            wanted=f"a package with its manifest, to compare all of {what}",
            got=", ".join(silent),
            severity=Severity.WARNING,
        )


def _paths(versions: Mapping[str, Optional[str]], wanted: Optional[str]) -> List[str]:
    return [path for path, version in versions.items() if version == wanted]
