"""``NOTICE``: which file is whose, under which licence, from which wheel."""

from __future__ import annotations

from itertools import groupby
from typing import Iterator, Sequence

from builder.core.package import Member

_HEAD = """\
{name}

This package holds files of several owners. Each is listed below under the text of its licence.

LICENSE covers only the files listed under it. It does not cover NVIDIA's files, and nothing in this package
puts them under an open-source licence. They are NVIDIA's, byte for byte as in the wheels named here, under
the CUDA Toolkit End User License Agreement and the cuDNN licence: they may be passed on as part of an
application that uses them, not as a product of their own and not modified, for systems with NVIDIA GPUs.

manifest.json has each file's size and sha256.
"""


def notice(name: str, members: Sequence[Member]) -> str:
    """The text for a package called ``name``, the same for the same members."""
    ordered = sorted(members, key=lambda member: (member.licence, member.path))
    sections = [
        "\n".join([f"{licence} ({', '.join(sorted({member.vendor for member in group}))})", *_lines(group)])
        for licence, group in (
            (key, list(found)) for key, found in groupby(ordered, key=lambda member: member.licence)
        )
    ]
    return "\n\n".join([_HEAD.format(name=name).rstrip(), *sections]) + "\n"


def _lines(group: Sequence[Member]) -> Iterator[str]:
    width = max(len(member.path) for member in group)
    for member in group:
        changed = "; RUNPATH set to $ORIGIN" if member.modified else ""
        yield f"  {member.path:<{width}}  {member.source}{changed}"
