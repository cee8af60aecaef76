"""Whether a manifest's absent files can be fetched safely: its words become paths, and may be anybody's."""

from __future__ import annotations

import re
from typing import Iterator, Optional

from builder.core.checks import Code, Finding
from builder.core.manifest import FileEntry, Manifest, WheelEntry

_LIBRARY = re.compile(r"lib/[A-Za-z0-9][A-Za-z0-9._+-]*")
_SOURCE = re.compile(r"wheel:[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?==[0-9][A-Za-z0-9.+]*")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\.whl")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def check_absent(manifest: Manifest) -> Iterator[Finding]:
    """B004 for each absent file without a plain library name, a plain place in a wheel, or a pinned wheel."""
    wheels = {wheel.source: wheel for wheel in manifest.wheels}
    for entry in manifest.absent:
        if not _is_plain(entry) or not _is_pinned(wheels.get(entry.source)):
            yield Finding(
                code=Code.B004,
                path=entry.path,
                message="the manifest does not say safely where it comes from: nothing is fetched",
                wanted="lib/NAME, a path inside its wheel, and that wheel with file name, size and sha256",
                got=f"{entry.member!r} of {entry.source!r}",
            )


def _is_plain(entry: FileEntry) -> bool:
    member = entry.member or ""
    parts = member.split("/")
    inside = all(part not in {"", ".", ".."} for part in parts) and not set(member) & set("\\:\0")
    return inside and _LIBRARY.fullmatch(entry.path) is not None


def _is_pinned(wheel: Optional[WheelEntry]) -> bool:
    return (
        wheel is not None
        and _SOURCE.fullmatch(wheel.source) is not None
        and _FILE.fullmatch(wheel.file) is not None
        and _SHA256.fullmatch(wheel.sha256) is not None
    )
