"""What changed between two packages, by their manifests. Values in, values out."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Iterable, Iterator, Mapping, Optional, Tuple

from builder.core.changes import Change, Difference, FileChange, FileSize, Size
from builder.core.difftext import tell
from builder.core.manifest import CoverageEntry, FileEntry, Manifest, WheelEntry
from builder.core.shape import to_json

__all__ = ["Difference", "difference", "dumps", "tell"]

FORMAT = 1
_PACKED, _FETCHED = "packed", "fetched"
_ARCHITECTURES = ("sm", "generations", "driver")
_APART = ("format", "name", "capabilities", "coverage", "models", "wheels", "files", *_ARCHITECTURES)
"""Keys of a manifest that are compared in their own way; every other one is a version."""
_CANNOT_RUN = "onnxruntime.cannot_run"
"""A version's key with a line for each domain."""
_FILE_APART = ("path", "packed", "licence")
_Texts = Mapping[str, Optional[str]]
"""Values as text by their keys."""


def difference(
    a: Manifest, b: Manifest, size_a: Optional[int] = None, size_b: Optional[int] = None
) -> Difference:
    """What it takes to come from ``a`` to ``b``. ``size_a`` and ``size_b`` are their archives' bytes."""
    mine = {entry.path: entry for entry in a.files}
    theirs = {entry.path: entry for entry in b.files}
    both = sorted(mine.keys() & theirs.keys())
    return Difference(
        a=a.name,
        b=b.name,
        versions=(*_compared(_versions(a), _versions(b)), *_compared(_wheels(a.wheels), _wheels(b.wheels))),
        architectures=_compared(_architectures(a), _architectures(b)),
        licences=_compared(*(_licences(side, both) for side in (mine, theirs))),
        models=_compared(_models(a), _models(b)),
        added=_sizes(theirs[path] for path in sorted(theirs.keys() - mine.keys())),
        removed=_sizes(mine[path] for path in sorted(mine.keys() - theirs.keys())),
        changed=tuple(_changed(mine, theirs, both)),
        moved=_compared(*({path: _place(side[path]) for path in both} for side in (mine, theirs))),
        sizes=(
            Size("archive", size_a, size_b),
            Size("unpacked", a.unpacked_size, b.unpacked_size),
            Size("installed", a.installed_size, b.installed_size),
        ),
    )


def dumps(found: Difference) -> str:
    """JSON text; its schema is ``docs/schemas/diff.schema.json``."""
    parts = {field.name: to_json(getattr(found, field.name)) for field in fields(found)}
    return json.dumps({"format": FORMAT, "equal": found.equal, **parts}, indent=2, ensure_ascii=False) + "\n"


def _compared(a: _Texts, b: _Texts) -> Tuple[Change, ...]:
    return tuple(
        Change(key, a.get(key), b.get(key)) for key in dict.fromkeys((*a, *b)) if a.get(key) != b.get(key)
    )


def _versions(manifest: Manifest) -> _Texts:
    keys = (field.name for field in fields(manifest) if field.name not in _APART)
    found = {key: text for name in keys for key, text in _flat(name, getattr(manifest, name))}
    del found[_CANNOT_RUN]
    for missing in manifest.onnxruntime.cannot_run:
        found[f"{_CANNOT_RUN} {missing.title}"] = " ".join(missing.operators) or "every operator"
    return found


def _wheels(wheels: Iterable[WheelEntry]) -> _Texts:
    """Version and sha256 of each by its project's name: an update is one line, not one gone and one new."""
    found = {}
    for wheel in wheels:
        name, _, version = wheel.source.partition("==")
        found[name] = version
        found[f"{name} sha256"] = wheel.sha256
    return found


def _architectures(manifest: Manifest) -> _Texts:
    found = {key: text for name in _ARCHITECTURES for key, text in _flat(name, getattr(manifest, name))}
    found.update((f"capabilities.{device}", support) for device, support in manifest.capabilities.items())
    for entry in manifest.coverage:
        found.update(_coverage(entry))
    return found


def _coverage(entry: CoverageEntry) -> Iterator[Tuple[str, str]]:
    yield f"{entry.path} SASS", " ".join(entry.sass) or "none"
    yield f"{entry.path} PTX", " ".join(entry.ptx) or "none"
    yield f"{entry.path} containers", str(entry.containers)


def _licences(files: Mapping[str, FileEntry], paths: Iterable[str]) -> _Texts:
    """Of the files at ``paths``: which text each stands under, and the texts' bytes."""
    texts = {entry.licence for entry in files.values()}
    found = {path: files[path].licence for path in paths}
    return {**found, **{f"{path} sha256": files[path].sha256 for path in paths if path in texts}}


def _models(manifest: Manifest) -> _Texts:
    lines = (dict(_flat("", rule)) for rule in manifest.models)
    return {
        f"models.{number}": ", ".join(f"{key[1:]} {text}" for key, text in line.items())
        for number, line in enumerate(lines)
    }


def _flat(name: str, value: object) -> Iterator[Tuple[str, Optional[str]]]:
    """A value's parts by their key paths, as text."""
    if is_dataclass(value):
        for field in fields(value):
            yield from _flat(f"{name}.{field.name}", getattr(value, field.name))
    elif isinstance(value, tuple):
        yield name, " ".join(map(str, value))
    else:
        yield name, None if value is None else str(value)


def _place(entry: FileEntry) -> str:
    return _PACKED if entry.packed else _FETCHED


def _sizes(entries: Iterable[FileEntry]) -> Tuple[FileSize, ...]:
    return tuple(FileSize(entry.path, entry.size) for entry in entries)


def _entry(entry: FileEntry) -> _Texts:
    names = (field.name for field in fields(entry) if field.name not in _FILE_APART)
    return {key: text for name in names for key, text in _flat(name, getattr(entry, name))}


def _changed(
    a: Mapping[str, FileEntry], b: Mapping[str, FileEntry], paths: Iterable[str]
) -> Iterator[FileChange]:
    for path in paths:
        changes = _compared(_entry(a[path]), _entry(b[path]))
        if changes:
            yield FileChange(path, changes)
