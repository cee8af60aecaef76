"""This module publishes the wheels in ``dist``: as a package index, among a release's files, on a mirror.

An index is a folder for any static web server, or for ``--find-links``. Each variant's wheels are in it with
their properties inside, the CPU's wheels unchanged. An index is written whole or not at all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from builder.adapters.archive.wheel_file import WheelWriter
from builder.adapters.mirror.folder import MirrorFolder
from builder.adapters.wheel import opened_wheel, prove_wheel, recorded
from builder.builds.wiring import Wiring
from builder.errors import NothingToDoError, ParseError, ReleaseConflictError, ValidationError
from builder.files.atomic_write import replace_folder, scratch_folder, write_file
from builder.files.digest import file_digest
from builder.files.disk import disk_errors
from builder.formats import index as index_format
from builder.formats.index import Index, IndexPackage
from builder.formats.package_names import CUDA
from builder.package.checksums import read_checksums, update_checksums
from builder.release.dist_files import archives_in
from builder.release.mirror import SIMPLE
from builder.wheels.distribution import DISTRIBUTION, STEM, info_folder
from builder.wheels.package_wheels import WHEELS, make_missing_wheels, source_package
from builder.wheels.simple_pages import ListedFile, project_pages, root_pages
from builder.wheels.variant_properties import Properties, labels, variants_json

_ENDS = (".whl", "-variants.json")
"""Ends of the names of files that an index lists."""

_VARIANT = "variant.json"
"""File of ``.dist-info`` with the properties of the wheel."""


@dataclass(frozen=True)
class _Made:
    """A wheel in ``dist`` and the package that it was made of."""

    file: Path
    package: IndexPackage

    @property
    def version(self) -> str:
        return self.package.onnxruntime.version


def write_index(wiring: Wiring, to: Path) -> Path:
    """Write the index of ``dist/wheels`` into the folder ``to``, in place of an earlier one; return ``to``.

    Raises ``NothingToDoError`` without wheels, ``ValidationError`` for a version without a wheel for the CPU
    and for a folder with other files, ``IntegrityError`` and ``DiskError``.
    """
    found = _wheels_in(wiring.dist / WHEELS)
    if not _is_free(to):
        raise ValidationError(
            f"--index {to} holds something else than an index of wheels.", advice="Name a new folder."
        )
    project = to / DISTRIBUTION
    with (
        wiring.reporter.step(f"index of {len(found)} wheels"),
        scratch_folder(project, needed=sum(one.file.stat().st_size for one in found)) as fresh,
    ):
        _write_files(wiring, found, fresh)
        pages = project_pages(_list_files(fresh))
        for name, text in pages.items():
            (fresh / name).write_text(text, encoding="utf-8")
        with disk_errors(project):
            replace_folder(project, fresh)
    for name, text in root_pages().items():
        write_file(to / name, text.encode())
    wiring.reporter.say(str(to))
    return to


def add_wheels(wiring: Wiring) -> None:
    """Add the wheels of the packages in ``dist`` to the release's files if ``bundle.wheels`` is set.

    Missing wheels are made; files of earlier wheels are removed from the release. Raises what ``make_wheels``
    and ``write_index`` do.
    """
    dist = wiring.dist
    put: dict[str, str] = {}
    variants = make_missing_wheels(wiring, archives_in(dist)) if wiring.project.bundle.wheels else ()
    if variants:
        found = _wheels_in(dist / WHEELS, variants)
        with (
            wiring.reporter.step(f"{len(found)} wheels for the release"),
            scratch_folder(dist / STEM, needed=sum(one.file.stat().st_size for one in found)) as fresh,
        ):
            _write_files(wiring, found, fresh)
            put = {file.name: file_digest(file).sha256 for file in sorted(fresh.iterdir())}
            with disk_errors(dist):
                for name in put:
                    (fresh / name).replace(dist / name)
    old = {name for name in read_checksums(dist) if name.startswith(STEM)} - put.keys()
    for name in old:
        (dist / name).unlink(missing_ok=True)
    update_checksums(dist, put=put, drop=tuple(old))


def require_place(mirror: MirrorFolder, *, wheels: bool) -> None:
    """Raise ``ReleaseConflictError`` if a mirror gets pages and their folder has other files.

    ``wheels`` says whether the next release has wheels; the releases before it may have some, too.
    """
    place = mirror.root / SIMPLE
    if (wheels or _wheels_on(mirror)) and not _is_free(place):
        raise ReleaseConflictError(
            f"{place} is not the index of wheels that a mirror has there.",
            advice="Move it away, or pass another folder.",
        )


def write_mirror_pages(mirror: MirrorFolder) -> None:
    """Write the pages over the wheels of a mirror's releases; without wheels there are no pages.

    Call ``require_place`` before. Raises ``ReleaseConflictError`` and ``DiskError``.
    """
    files = _wheels_on(mirror)
    if not files and not (mirror.root / SIMPLE / DISTRIBUTION).is_dir():
        return
    of_project = project_pages(file for listed in files.values() for file in listed)
    pages = {**{f"{DISTRIBUTION}/{name}": text for name, text in of_project.items()}, **root_pages()}
    mirror.write_pages({f"{SIMPLE}/{name}": text if files else None for name, text in pages.items()})


def _wheels_on(mirror: MirrorFolder) -> Mapping[str, tuple[ListedFile, ...]]:
    """Return the wheels on a mirror by version: those of the release that became public last."""
    found: dict[str, tuple[ListedFile, ...]] = {}
    for release in mirror.listing().releases:
        found = {**_released(mirror.root / release.tag), **found}
    return found


def _released(folder: Path) -> Mapping[str, tuple[ListedFile, ...]]:
    """Return the wheels in a release's folder on a mirror, by version, with digests from ``SHA256SUMS``.

    A release whose ``SHA256SUMS`` is damaged has none until it is repaired.
    """
    try:
        sums = read_checksums(folder)
    except ParseError:
        return {}
    names = sorted(name for name in sums if name.startswith(f"{STEM}-") and name.endswith(_ENDS))
    found: dict[str, list[ListedFile]] = {}
    for name in names:
        if (folder / name).is_file():
            listed = _list_file(folder / name, sums[name], f"../../{folder.name}/")
            found.setdefault(name.split("-")[1], []).append(listed)
    return {version: tuple(files) for version, files in found.items()}


def _wheels_in(folder: Path, variants: Collection[str] | None = None) -> tuple[_Made, ...]:
    """Return the wheels of ``variants``, or of every variant, sorted by version.

    Raises ``NothingToDoError`` without wheels, and ``ValidationError`` for a version without one for the CPU.
    """
    files = sorted(folder.glob(f"*/{STEM}-*.whl"))
    chosen = (file for file in files if variants is None or file.parent.name in variants)
    found = [_Made(file, source_package(file)) for file in chosen]
    if not found:
        raise NothingToDoError(
            f"{folder} has no wheels.", advice="./run wheel --variant NAME makes those of a package."
        )
    for version in {one.version for one in found}:
        if all(one.package.provider == CUDA for one in found if one.version == version):
            raise ValidationError(
                f"{folder} has no wheels of {version} for the CPU, which pip takes, and a machine whose GPU "
                "no variant serves.",
                advice=f"./run wheel --variant cpu makes them of a package of ONNX Runtime {version}.",
            )
    return tuple(sorted(found, key=lambda one: (one.version, one.file.name, one.package.variant)))


def _is_free(to: Path) -> bool:
    """Return whether the path does not exist, or is an index of wheels or a folder without other files.

    A killed ``write_index`` leaves its scratch folder there, which the next one removes.
    """
    if not to.is_dir():
        return not os.path.lexists(to)
    return (to / DISTRIBUTION).is_dir() or all(
        path.name.startswith(f"{DISTRIBUTION}.part-") for path in to.iterdir()
    )


def _write_files(wiring: Wiring, found: Sequence[_Made], fresh: Path) -> None:
    """Write all files of an index except its pages into the new folder ``fresh``."""
    fresh.mkdir()
    for _, of_version in groupby(found, key=lambda one: one.version):
        _write_version(wiring, tuple(of_version), fresh)


def _write_version(wiring: Wiring, found: Sequence[_Made], folder: Path) -> None:
    """Write the wheels of one version, and the document with the properties of their variants."""
    packages = {one.package.name: one.package for one in found}
    index = Index(index_format.FORMAT, WHEELS, tuple(packages.values()), ())
    given = labels(index)
    for sentence in given.lost:
        wiring.reporter.warn(f"{sentence}.")
    for one in found:
        variant = one.package.variant
        if one.package.provider != CUDA:
            wheel = Path(shutil.copyfile(one.file, folder / one.file.name))
            prove_wheel(wheel)
            _with_metadata(wheel)
        elif variant in given.properties:
            _with_metadata(_labelled(one, {_label(variant): given.properties[variant]}, folder))
        else:
            wiring.reporter.warn(f"{one.file.name} of {variant} is left out: no GPU would take it.")
    named = {_label(variant): values for variant, values in given.properties.items()}
    text = variants_json(named)
    (folder / f"{STEM}-{found[0].version}-variants.json").write_text(text, encoding="utf-8")
    for label, values in named.items():
        described = "; ".join(f"{feature} {' '.join(several)}" for feature, several in values.items())
        wiring.reporter.say(f"{found[0].version} {label}: {described}")


def _label(variant: str) -> str:
    """Return a variant's name in the spelling of installers.

    It has no dashes, which separate the parts of a wheel's name.
    """
    return variant.replace("-", "_")


def _labelled(one: _Made, properties: Mapping[str, Properties], folder: Path) -> Path:
    """Write the wheel with its properties inside and its label in its name; return its path."""
    (label,) = properties
    info = info_folder(one.version)
    wheel = folder / f"{one.file.stem}-{label}.whl"
    with opened_wheel(one.file) as archive, wheel.open("wb") as stream, WheelWriter(stream, info) as writer:
        known = recorded(archive, info)
        for member in archive.infolist():
            if member.filename in known:
                writer.copy(archive, member, known[member.filename])
        writer.add(f"{info}/{_VARIANT}", variants_json(properties).encode())
    prove_wheel(wheel)
    return wheel


def _with_metadata(wheel: Path) -> None:
    """Write a wheel's METADATA to a file of its own, which installers read without fetching the wheel."""
    with opened_wheel(wheel) as archive:
        info = "-".join(wheel.name.split("-")[:2])
        content = archive.read(f"{info}.dist-info/METADATA")
    wheel.with_name(f"{wheel.name}.metadata").write_bytes(content)


def _list_files(folder: Path) -> Iterator[ListedFile]:
    for file in sorted(path for path in folder.iterdir() if path.name.endswith(_ENDS)):
        yield _list_file(file, file_digest(file).sha256)


def _list_file(file: Path, digest: str, folder: str = "") -> ListedFile:
    size, beside = file.stat().st_size, file.with_name(f"{file.name}.metadata")
    if not beside.is_file():
        return ListedFile(file.name, size, digest, folder=folder)
    content = beside.read_bytes()
    python = HeaderParser().parsestr(content.decode(errors="replace"))["Requires-Python"] or ""
    return ListedFile(file.name, size, digest, python, sha256(content).hexdigest(), folder)
