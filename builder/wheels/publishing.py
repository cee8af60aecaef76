"""A package index over the wheels in ``dist``: a folder for any static web server, or for ``--find-links``.

Each variant's wheels are there with their properties inside, the CPU's as they are. Whole or not at all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from packaging.version import Version

from builder.adapters.archive.wheel_file import WheelWriter
from builder.adapters.wheel import opened_wheel, prove_wheel, recorded
from builder.builds.wiring import Wiring
from builder.errors import NothingToDoError, ValidationError
from builder.files.atomic_write import part_file, scratch_folder
from builder.files.digest import file_digest
from builder.files.disk import disk_errors
from builder.formats import index as index_format
from builder.formats.index import Index, IndexPackage
from builder.formats.package_names import CUDA
from builder.wheels.distribution import DESCRIPTION, DISTRIBUTION, STEM, info_folder
from builder.wheels.making import WHEELS
from builder.wheels.simple_pages import ListedFile, project_html, project_json, root_html, root_json
from builder.wheels.variant_properties import Properties, labels, variants_json

_HTML, _JSON = "index.html", "index.json"

_VARIANT = "variant.json"
"""The file of ``.dist-info`` with the properties of the wheel."""


@dataclass(frozen=True)
class _Made:
    """A wheel in ``dist`` and the package that it was made of."""

    file: Path
    package: IndexPackage

    @property
    def version(self) -> str:
        return self.package.onnxruntime.version


def write_index(wiring: Wiring, to: Path) -> Path:
    """Write the index of ``dist/wheels`` into the folder ``to``; its own project there is replaced.

    Raises ``NothingToDoError`` without wheels, ``ValidationError`` for a version without one for the CPU and
    a folder of something else, ``IntegrityError`` and ``DiskError``.
    """
    found = _wheels_in(wiring.dist / WHEELS)
    _require_ours(to)
    project = to / DISTRIBUTION
    with (
        wiring.reporter.step(f"index of {len(found)} wheels"),
        scratch_folder(project, needed=sum(one.file.stat().st_size for one in found)) as fresh,
    ):
        fresh.mkdir()
        for _, of_version in groupby(found, key=lambda one: one.version):
            _write_version(wiring, tuple(of_version), fresh)
        _write_pages(fresh, sorted({one.version for one in found}, key=Version))
        with disk_errors(project):
            if project.exists():
                shutil.rmtree(project)
            fresh.rename(project)
    for name, text in ((_HTML, root_html()), (_JSON, root_json())):
        with part_file(to / name) as file:
            file.write(text.encode())
    wiring.reporter.say(str(to))
    return to


def _wheels_in(folder: Path) -> tuple[_Made, ...]:
    """The wheels of every variant, by version."""
    found = [_Made(file, _package_of(file)) for file in sorted(folder.glob(f"*/{STEM}-*.whl"))]
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


def _package_of(file: Path) -> IndexPackage:
    """What the wheel says of its package. Raises ``ConfigError`` where it is none of ours."""
    with opened_wheel(file) as archive:
        path = f"{'-'.join(file.name.split('-')[:2])}.dist-info/{DESCRIPTION}"
        if path not in archive.namelist():
            raise ValidationError(f"{file} has no {path}: it is no wheel of ./run wheel. Take it away.")
        package = json.loads(archive.read(path))["package"]
    value = {"format": index_format.FORMAT, "tag": WHEELS, "packages": [package], "models": []}
    return index_format.loads(json.dumps(value), f"{file}: {DESCRIPTION}").packages[0]


def _require_ours(to: Path) -> None:
    if to.is_file() or (to.is_dir() and any(to.iterdir()) and not (to / DISTRIBUTION).is_dir()):
        raise ValidationError(
            f"--index {to} holds something else than an index of wheels.", advice="Name a new folder."
        )


def _write_version(wiring: Wiring, found: Sequence[_Made], folder: Path) -> None:
    """The wheels of one version, and the document that tells their variants."""
    packages = {one.package.name: one.package for one in found}
    index = Index(index_format.FORMAT, WHEELS, tuple(packages.values()), ())
    given = labels(index)
    for sentence in given.lost:
        wiring.reporter.warn(f"{sentence}.")
    for one in found:
        variant = one.package.variant
        if one.package.provider != CUDA:
            _with_metadata(Path(shutil.copyfile(one.file, folder / one.file.name)))
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
    """A variant's name as installers spell it: without dashes, which end a part of a wheel's name."""
    return variant.replace("-", "_")


def _labelled(one: _Made, properties: Mapping[str, Properties], folder: Path) -> Path:
    """The wheel with its properties inside, and its label in its name."""
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
    """Write its METADATA beside a wheel, so that installers need not fetch the wheel to read it."""
    with opened_wheel(wheel) as archive:
        info = "-".join(wheel.name.split("-")[:2])
        content = archive.read(f"{info}.dist-info/METADATA")
    wheel.with_name(f"{wheel.name}.metadata").write_bytes(content)


def _write_pages(folder: Path, versions: Sequence[str]) -> None:
    files = tuple(_listed(folder))
    (folder / _HTML).write_text(project_html(files), encoding="utf-8")
    (folder / _JSON).write_text(project_json(versions, files), encoding="utf-8")


def _listed(folder: Path) -> Iterator[ListedFile]:
    for file in sorted([*folder.glob("*.whl"), *folder.glob("*-variants.json")]):
        digest = file_digest(file)
        beside = file.with_name(f"{file.name}.metadata")
        if beside.is_file():
            content = beside.read_bytes()
            python = HeaderParser().parsestr(content.decode())["Requires-Python"] or ""
            hashed = sha256(content).hexdigest()
            yield ListedFile(file.name, digest.size, digest.sha256, python, hashed)
        else:
            yield ListedFile(file.name, digest.size, digest.sha256)
