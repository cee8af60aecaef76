"""Readers of the sources of ``inspect``, and checks of its arguments before the sources are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from builder.adapters.untrusted.opener import Opener, is_library_or_archive, is_url, require_path, shown
from builder.errors import ValidationError
from builder.files.disk import disk_errors
from builder.package.promise import InspectedSource
from builder.pipeline.inspect import inspect_source

_TWO = 2


def require_two(sources: Sequence[str]) -> None:
    """Raise ``ValidationError`` unless there are two sources to compare."""
    if len(sources) != _TWO:
        raise ValidationError(
            f"--diff compares two sources, and {len(sources)} {'is' if len(sources) == 1 else 'are'} named",
            advice="Name the old one and the new one: inspect OLD NEW --diff",
        )


def inspect_sources(
    opener: Opener, sources: Sequence[str], *, deep: bool = False
) -> tuple[InspectedSource, ...]:
    """Return each source (file, folder or URL) inspected; with ``deep``, its images are unpacked.

    Raises as ``Opener.files`` does.
    """
    for source in sources:
        if not is_url(source):
            require_path(source)  # before other sources take minutes
    return tuple(_read(opener, source, deep=deep) for source in sources)


def _read(opener: Opener, source: str, *, deep: bool) -> InspectedSource:
    with opener.files(source) as files:
        return inspect_source(shown(source), files.libraries, files.manifests, deep=deep)


def require_places(places: Mapping[str, Path | None]) -> None:
    """Raise ``ValidationError`` for a path that no file can be written to, or that two flags name.

    ``places``: the path by the flag that names it, ``None`` for a flag that is not given.
    """
    flags: dict[Path, str] = {}
    for flag, path in places.items():
        if path is None:
            continue
        with disk_errors(path):
            _require_place(path)
        other = flags.setdefault(path.parent.resolve() / path.name, flag)
        if other != flag:
            raise ValidationError(
                f"{other} and {flag} both name {path}", advice="Give each a file of its own."
            )


def _require_place(path: Path) -> None:
    if path.is_dir():
        raise ValidationError(f"{path} is a folder", advice="Name a file in it.")
    if path.exists() and not path.is_file():
        raise ValidationError(f"{path} is no regular file", advice="Name one that may be replaced.")
    if path.exists() and is_library_or_archive(path):
        raise ValidationError(
            f"{path} is a library or an archive, and would be replaced", advice="Name a file for the result."
        )
    if not path.parent.is_dir():
        raise ValidationError(
            f"{path.parent} is no folder, so {path.name} cannot be written there", advice="Make it first."
        )
