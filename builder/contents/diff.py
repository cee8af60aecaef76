"""This module finds the differences of two packages from their manifests, as values, JSON and text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import cast

from builder.formats.json_values import to_json
from builder.formats.manifest import FileEntry, Manifest, WheelEntry

_ARCHITECTURES = ("sm", "generations", "driver")

_APART = ("format", "name", "capabilities", "coverage", "models", "wheels", "files", *_ARCHITECTURES)
"""Keys of a manifest that are compared in their own way; every other key is a version."""

_CANNOT_RUN = "onnxruntime.cannot_run"
"""A key of the versions that has a line for each domain."""

_FILE_APART = ("path", "packed", "licence")

_Texts = Mapping[str, str | None]
"""Values as text, by their keys."""


def difference(
    a: Manifest, b: Manifest, size_a: int | None = None, size_b: int | None = None
) -> PackageDifference:
    """Return the difference from ``a`` to ``b``. ``size_a`` and ``size_b`` are their archives' bytes."""
    mine = {entry.path: entry for entry in a.files}
    theirs = {entry.path: entry for entry in b.files}
    both = sorted(mine.keys() & theirs.keys())
    of_files = {
        path: _compared(*(_texts_but(side[path], _FILE_APART) for side in (mine, theirs))) for path in both
    }
    places = (
        {path: "packed" if side[path].packed else "fetched" for path in both} for side in (mine, theirs)
    )
    return PackageDifference(
        a=a.name,
        b=b.name,
        versions=(*_compared(_versions(a), _versions(b)), *_compared(_wheels(a.wheels), _wheels(b.wheels))),
        architectures=_compared(_architectures(a), _architectures(b)),
        licences=_compared(*(_licences(side, both) for side in (mine, theirs))),
        models=_compared(_models(a), _models(b)),
        added=tuple(FileSize(path, theirs[path].size) for path in sorted(theirs.keys() - mine.keys())),
        removed=tuple(FileSize(path, mine[path].size) for path in sorted(mine.keys() - theirs.keys())),
        changed=tuple(FileChange(path, changes) for path, changes in of_files.items() if changes),
        moved=_compared(*places),
        sizes=(
            Change("archive", size_a, size_b),
            Change("unpacked", a.unpacked_size, b.unpacked_size),
            Change("installed", a.installed_size, b.installed_size),
        ),
    )


def document(package_difference: PackageDifference) -> dict[str, object]:
    """Return the JSON form: ``packages`` of ``docs/schemas/inspect-diff.schema.json``."""
    return {"equal": package_difference.equal, **cast("dict[str, object]", to_json(package_difference))}


def _compared(a: _Texts, b: _Texts) -> tuple[Change, ...]:
    return tuple(
        Change(key, a.get(key), b.get(key)) for key in dict.fromkeys((*a, *b)) if a.get(key) != b.get(key)
    )


def _versions(manifest: Manifest) -> _Texts:
    texts = _texts_but(manifest, _APART)
    del texts[_CANNOT_RUN]
    for missing in manifest.onnxruntime.cannot_run:
        texts[f"{_CANNOT_RUN} {missing.title}"] = " ".join(missing.operators) or "every operator"
    return texts


def _wheels(wheels: Iterable[WheelEntry]) -> _Texts:
    """Return version and sha256 of each wheel by its project, so that an update is one changed line."""
    texts = {}
    for wheel in wheels:
        name, _, version = wheel.source.partition("==")
        texts[name] = version
        texts[f"{name} sha256"] = wheel.sha256
    return texts


def _architectures(manifest: Manifest) -> _Texts:
    texts = {key: text for name in _ARCHITECTURES for key, text in _flat(name, getattr(manifest, name))}
    texts.update((f"capabilities.{device}", support) for device, support in manifest.capabilities.items())
    for entry in manifest.coverage:
        texts[f"{entry.path} SASS"] = " ".join(entry.sass) or "none"
        texts[f"{entry.path} PTX"] = " ".join(entry.ptx) or "none"
        texts[f"{entry.path} containers"] = str(entry.containers)
    return texts


def _licences(files: Mapping[str, FileEntry], paths: Iterable[str]) -> _Texts:
    """Return the licence text of each of ``paths``, and the sha256 of those that are licence texts."""
    texts = {entry.licence for entry in files.values()}
    licences = {path: files[path].licence for path in paths}
    return {**licences, **{f"{path} sha256": files[path].sha256 for path in paths if path in texts}}


def _models(manifest: Manifest) -> _Texts:
    lines = (dict(_flat("", rule)) for rule in manifest.models)
    return {
        f"models.{number}": ", ".join(f"{key[1:]} {text}" for key, text in line.items())
        for number, line in enumerate(lines)
    }


def _texts_but(record: Manifest | FileEntry, apart: Sequence[str]) -> dict[str, str | None]:
    names = (field.name for field in fields(record) if field.name not in apart)
    return {key: text for name in names for key, text in _flat(name, getattr(record, name))}


def _flat(name: str, value: object) -> Iterator[tuple[str, str | None]]:
    if is_dataclass(value):
        for field in fields(value):
            yield from _flat(f"{name}.{field.name}", getattr(value, field.name))
    elif isinstance(value, tuple):
        yield name, " ".join(map(str, value))
    else:
        yield name, None if value is None else str(value)


@dataclass(frozen=True)
class Change:
    """One key whose values differ; a value is ``None`` if that package lacks the key."""

    what: str
    a: str | int | None
    b: str | int | None


@dataclass(frozen=True)
class FileSize:
    """A file that only one of two packages has; ``size`` in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class FileChange:
    """A file of both packages, and the differences of its entries: size, sha256, source and so on."""

    path: str
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class PackageDifference:
    """All differences between package ``a`` and package ``b``."""

    a: str
    b: str
    versions: tuple[Change, ...]
    """Versions of ONNX Runtime, CUDA, cuDNN, toolkit, base and wheels, and how the package is made."""
    architectures: tuple[Change, ...]
    """Promised architectures, support of each device, each library's SASS and PTX, and driver limits."""
    licences: tuple[Change, ...]
    """Licence texts of files that both have, by the file's path, and the sha256 of these texts."""
    models: tuple[Change, ...]
    """Lines of the model table, by their number."""
    added: tuple[FileSize, ...]
    removed: tuple[FileSize, ...]
    changed: tuple[FileChange, ...]
    moved: tuple[Change, ...]
    """Files that are ``packed`` in one package and ``fetched`` from their wheel in the other."""
    sizes: tuple[Change, ...]
    """Bytes of ``archive``, ``unpacked`` (the files in it), ``installed`` (all files); ``None``: unknown."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs except possibly the archives' bytes and the packages' names."""
        return not any(
            (
                *(self.versions, self.architectures, self.licences, self.models),
                *(self.added, self.removed, self.changed, self.moved),
            )
        )


_SHA256 = "sha256"

_SHOWN = 12
"""Number of a sha256's hex digits that are shown."""


def difference_lines(package_difference: PackageDifference) -> Iterator[str]:
    """Yield the difference as text: a title, each group of changes with a line for each, then sizes."""
    yield f"{package_difference.a} → {package_difference.b}"
    if package_difference.equal:
        yield "no difference: the same files, versions, architectures and licences"
    for name, lines in (
        ("versions", map(_line, package_difference.versions)),
        ("architectures", map(_line, package_difference.architectures)),
        ("licences", map(_line, package_difference.licences)),
        ("models", map(_line, package_difference.models)),
        ("files", _files(package_difference)),
        ("bytes", _sizes(package_difference)),
    ):
        indented = [f"  {line}" for line in lines]
        yield from (name, *indented) if indented else ()


def _files(package_difference: PackageDifference) -> Iterator[str]:
    yield from (f"+ {file.path}  {file.size:,} bytes" for file in package_difference.added)
    yield from (f"- {file.path}  {file.size:,} bytes" for file in package_difference.removed)
    yield from (
        f"~ {file.path}  {', '.join(map(_line, file.changes))}" for file in package_difference.changed
    )
    yield from (f"> {_line(change)}" for change in package_difference.moved)


def _line(change: Change) -> str:
    a, b = (_value(change.what, value) for value in (change.a, change.b))
    return f"{change.what}  {a} → {b}"


def _value(what: str, value: str | int | None) -> str:
    if value is None:
        return "none"
    if what.endswith(_SHA256):
        return str(value)[:_SHOWN]
    return f"{int(value):,}" if what == "size" else str(value)


def _sizes(package_difference: PackageDifference) -> Iterator[str]:
    for size in package_difference.sizes:
        if isinstance(size.a, int) and isinstance(size.b, int):
            share = f" ({(size.b - size.a) / size.a:+.1%})" if size.a else ""
            changed = f"{size.a:,} → {size.b:,}{share}"
            yield f"{size.what}  {f'{size.a:,} in both' if size.a == size.b else changed}"
