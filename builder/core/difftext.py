"""A difference between two packages, told in lines."""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence, Tuple

from builder.core.changes import Change, Difference, FileChange, Size

_SHA256 = "sha256"
_SHOWN = 12
"""Hex digits of a sha256 that tell two apart."""


def tell(found: Difference) -> Sequence[str]:
    """A title, then each group that has a change with a line for each; sizes last."""
    title = f"{found.a} → {found.b}"
    if found.equal:
        return (title, "no difference: the same files, versions, architectures and licences", *_sizes(found))
    return (title, *_groups(found), *_sizes(found))


def _groups(found: Difference) -> Iterator[str]:
    for name, changes in (
        ("versions", found.versions),
        ("architectures", found.architectures),
        ("licences", found.licences),
        ("models", found.models),
    ):
        yield from _group(name, [_line(change) for change in changes])
    yield from _group("files", list(_files(found)))


def _group(name: str, lines: List[str]) -> Iterator[str]:
    if lines:
        yield name
        yield from (f"  {line}" for line in lines)


def _files(found: Difference) -> Iterator[str]:
    yield from (f"+ {file.path}  {file.size:,} bytes" for file in found.added)
    yield from (f"- {file.path}  {file.size:,} bytes" for file in found.removed)
    yield from (f"~ {_changed(file)}" for file in found.changed)
    yield from (f"> {_line(change)}" for change in found.moved)


def _changed(file: FileChange) -> str:
    return f"{file.path}  {', '.join(_line(change) for change in file.changes)}"


def _line(change: Change) -> str:
    a, b = (_value(change.what, value) for value in (change.a, change.b))
    return f"{change.what}  {a} → {b}"


def _value(what: str, value: Optional[str]) -> str:
    if value is None:
        return "none"
    if what.endswith(_SHA256):
        return value[:_SHOWN]
    return f"{int(value):,}" if what == "size" else value


def _sizes(found: Difference) -> Iterator[str]:
    yield from _group("bytes", [_size(size.what, pair) for size in found.sizes if (pair := _known(size))])


def _known(size: Size) -> Optional[Tuple[int, int]]:
    return None if size.a is None or size.b is None else (size.a, size.b)


def _size(what: str, pair: Tuple[int, int]) -> str:
    a, b = pair
    if a == b:
        return f"{what}  {a:,} in both"
    share = f" ({(b - a) / a:+.1%})" if a else ""
    return f"{what}  {a:,} → {b:,}{share}"
