"""This module publishes the wheels in ``dist``: as a package index, among a release's files, on a mirror.

An index is a folder for any static web server, or for ``--find-links``. Each variant's wheels are in it with
their properties inside, the CPU's wheels unchanged. An index is written whole or not at all.

Pages are HTML (PEP 503); metadata lies beside its wheel (PEP 714).

``labels`` finds properties by which an installer chooses the wheel that ``select`` chooses for a GPU.
NVIDIA's provider (``nvidia-variant-provider``, built into uv) gives a GPU of capability 8.6 these values of
``sm_arch``, best first: ``86_real``, ``85_real`` … ``80_real``, ``80_virtual``. Its driver gets the values of
``cuda_version_lower_bound`` up to its CUDA version, which have priority over ``sm_arch``. So 12.1 also
accepts ``120_real``, whatever code the wheel has: a value is used only if each GPU that accepts it is served.
Sources: drafts PEP 825 and PEP 850, variantlib 0.2.2, uv 0.13.9.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from hashlib import sha256
from html import escape
from itertools import groupby
from pathlib import Path

from builder.client.selection.select import select
from builder.contents.integrity import read_checksums, update_checksums
from builder.errors import NothingToDoError, ParseError, ReleaseConflictError, ValidationError
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.compatibility import NATIVE, cuda_of_driver, dotted, version_of
from builder.facts.gpu.devices import Device
from builder.facts.gpu.table import LISTED_GPUS
from builder.files.atomic_write import replace_folder, scratch_folder, write_file
from builder.files.digest import file_digest
from builder.files.disk import disk_errors
from builder.formats import index as index_format
from builder.formats.index import Index, IndexPackage
from builder.formats.package_names import CUDA, LINUX
from builder.io.archive.zip_file import WheelWriter
from builder.io.wheel import opened_wheel, prove_wheel
from builder.io.wiring import Wiring
from builder.publish.locations import archives_in
from builder.publish.mirror import SIMPLE, MirrorFolder
from builder.publish.wheels.distribution import STEM, STEMS, info_folder
from builder.publish.wheels.package_wheels import WHEELS, copy_members, make_missing_wheels, source_package

SCHEMA = "https://variants-schema.wheelnext.dev/v0.2.0.json"

_PROVIDER = {
    "requires": ["nvidia-variant-provider>=0.0.1,<1.0.0"],
    "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
}

_NAMESPACE = "nvidia"

CARDS = tuple(gpu.capability for gpu in LISTED_GPUS if not gpu.module)
"""GPUs that NVIDIA lists, without Jetson modules, which do not install wheels for x86-64."""

Properties = Mapping[str, tuple[str, ...]]
"""Values by feature, of NVIDIA's namespace."""


@dataclass(frozen=True)
class Labels:
    """The properties of each variant by its name, and the GPUs for which no property was found."""

    properties: Mapping[str, Properties]
    lost: tuple[str, ...]
    """A sentence for each GPU for which no installer would choose the variant that serves it."""


def labels(index: Index) -> Labels:
    """Return the properties of the index's packages for CUDA.

    Raises ``ValidationError`` for two packages of one variant.
    """
    for_cuda = [package for package in index.packages if package.provider == CUDA]
    packages = {package.variant: package for package in for_cuda}
    if len(packages) != len(for_cuda):
        raise ValidationError("Two packages are of one variant: an index of wheels takes one.")
    floors = sorted({_floor(package) for package in packages.values()}, key=version_of)
    served = {device for device in CARDS if floors and _choose(device, floors[-1], index)}
    by_package: dict[str, set[str]] = {name: set() for name in packages}
    lost: dict[str, None] = {}
    for device, floor in ((device, floor) for floor in floors for device in CARDS):
        choice = _choose(device, floor, index)
        if choice is None:
            continue
        name, native = choice
        value = f"{device.number}_real" if native else f"{device.major}0_virtual"
        takers = (card for card in CARDS if card.major == device.major)  # the provider gives them this value
        takers = (taker for taker in takers if not native or taker.minor >= device.minor)
        if others := ", ".join(str(card) for card in takers if card not in served):
            lost[f"{name} serves {device}, and no wheel is chosen for it: {others} would take it too"] = None
        else:
            by_package[name].add(value)
    properties = {
        name: {
            "cuda_version_lower_bound": (dotted(cuda_of_driver(_floor(packages[name]))),),
            "sm_arch": tuple(sorted(values)),
        }
        for name, values in by_package.items()
        if values
    }
    return Labels(properties, tuple(lost))


def variants_json(properties: Mapping[str, Properties]) -> str:
    """Return the JSON document of a version's variants for an index, or of one variant for its wheel."""
    document = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": [_NAMESPACE]},
        "providers": {_NAMESPACE: _PROVIDER},
        "variants": {name: {_NAMESPACE: dict(values)} for name, values in sorted(properties.items())},
    }
    return json.dumps(document, indent=2) + "\n"


def _choose(device: Capability, driver: str, index: Index) -> tuple[str, bool] | None:
    """Return the variant that ``select`` chooses, and whether it is native.

    ``None`` means that no variant is chosen, or one that runs on the CPU.
    """
    machine = Device(0, "", "a GPU", device, None, driver)
    choice = select([machine], index, LINUX)
    if choice.package is None or not choice.on_gpu:
        return None
    return choice.package.variant, choice.support == NATIVE


def _floor(package: IndexPackage) -> str:
    return package.driver.floor if package.driver else "0"


_ENDS = (".whl", "-variants.json")
"""Ends of the names of files that an index lists."""

_PAGE = "index.html"

_API = "1.1"
"""The version of the repository API that pages have."""

_VARIANT = "variant.json"
"""File of ``.dist-info`` with the properties of the wheel."""


@dataclass(frozen=True)
class _Made:
    file: Path
    package: IndexPackage

    @property
    def version(self) -> str:
        return self.package.onnxruntime.version

    @property
    def stem(self) -> str:
        return self.file.name.partition("-")[0]


def write_index(wiring: Wiring, to: Path) -> Path:
    """Write the index of ``dist/wheels`` into the folder ``to``, in place of an earlier one; return ``to``.

    Raises ``NothingToDoError`` without wheels, ``ValidationError`` for a version without a wheel for the CPU
    and for a folder with other files, ``IntegrityError`` and ``DiskError``.
    """
    made = _wheels_in(wiring.dist / WHEELS)
    if not _is_free(to):
        raise ValidationError(
            f"--index {to} holds something else than an index of wheels.", advice="Name a new folder."
        )
    names = [stem.replace("_", "-") for stem in dict.fromkeys(wheel.stem for wheel in made)]
    for name in names:
        _write_project(wiring, to / name, [one for one in made if one.stem.replace("_", "-") == name])
    write_file(to / _PAGE, _root_page(names).encode())
    wiring.reporter.say(str(to))
    return to


def _write_project(wiring: Wiring, project: Path, made: Sequence[_Made]) -> None:
    """Write the wheels of one distribution and their page into the folder ``project``."""
    with (
        wiring.reporter.step(f"index of {len(made)} wheels"),
        scratch_folder(project, needed=sum(wheel.file.stat().st_size for wheel in made)) as fresh,
    ):
        _write_files(wiring, made, fresh)
        listed = sorted(path for path in fresh.iterdir() if path.name.endswith(_ENDS))
        page = _page(project.name, [_link(file, file_digest(file).sha256) for file in listed])
        (fresh / _PAGE).write_text(page, encoding="utf-8")
        with disk_errors(project):
            replace_folder(project, fresh)


def add_wheels(wiring: Wiring) -> None:
    """Add the wheels of the packages in ``dist`` to the release's files if ``bundle.wheels`` is set.

    Missing wheels are made; files of earlier wheels are removed from the release. Raises what ``make_wheels``
    and ``write_index`` do.
    """
    dist = wiring.dist
    put: dict[str, str] = {}
    variants = make_missing_wheels(wiring, archives_in(dist)) if wiring.project.bundle.wheels else ()
    if variants:
        made = _wheels_in(dist / WHEELS, variants)
        with (
            wiring.reporter.step(f"{len(made)} wheels for the release"),
            scratch_folder(dist / STEM, needed=sum(wheel.file.stat().st_size for wheel in made)) as fresh,
        ):
            _write_files(wiring, made, fresh)
            put = {file.name: file_digest(file).sha256 for file in sorted(fresh.iterdir())}
            with disk_errors(dist):
                for name in put:
                    (fresh / name).replace(dist / name)
    old = {name for name in read_checksums(dist) if name.startswith(STEMS)} - put.keys()
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
    """Write the index pages of the wheels of a mirror's releases; without wheels there are none.

    Call ``require_place`` before. Raises ``ReleaseConflictError`` and ``DiskError``.
    """
    place = mirror.root / SIMPLE
    links: dict[str, list[str]] = {name: [] for name in _names_in(place)}
    for (stem, _), several in _wheels_on(mirror).items():
        links.setdefault(stem.replace("_", "-"), []).extend(several)
    pages = {
        f"{SIMPLE}/{name}/{_PAGE}": _page(name, of_name) if of_name else None
        for name, of_name in links.items()
    }
    if pages:
        root = _root_page(sorted(name for name, of_name in links.items() if of_name))
        mirror.write_pages({**pages, f"{SIMPLE}/{_PAGE}": root if any(links.values()) else None})


def _names_in(folder: Path) -> list[str]:
    """Return the names of our distributions that have a folder in the folder of an index."""
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(name for name in names if f"{name.replace('-', '_')}-".startswith(STEMS))


def _wheels_on(mirror: MirrorFolder) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Return the links to the wheels on a mirror by stem and version: of the release that is public last."""
    links: dict[tuple[str, str], tuple[str, ...]] = {}
    for release in mirror.listing().releases:
        links = {**_released(mirror.root / release.tag), **links}
    return links


def _released(folder: Path) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Return the links to the wheels in a release's folder on a mirror, by stem and version.

    Digests are those of ``SHA256SUMS``: where it is damaged, the release has none until it is repaired.
    """
    try:
        sums = read_checksums(folder)
    except ParseError:
        return {}
    names = sorted(name for name in sums if name.startswith(STEMS) and name.endswith(_ENDS))
    links: dict[tuple[str, str], list[str]] = {}
    for name in names:
        if (folder / name).is_file():
            link = _link(folder / name, sums[name], f"../../{folder.name}/")
            stem, version, *_ = name.split("-")
            links.setdefault((stem, version), []).append(link)
    return {key: tuple(files) for key, files in links.items()}


def _wheels_in(folder: Path, variants: Collection[str] | None = None) -> tuple[_Made, ...]:
    """Return the wheels of ``variants``, or of every variant, sorted by version.

    Raises ``NothingToDoError`` without wheels, and ``ValidationError`` for a version without one for the CPU.
    """
    files = sorted(file for file in folder.glob("*/*.whl") if file.name.startswith(STEMS))
    chosen = (file for file in files if variants is None or file.parent.name in variants)
    made = [_Made(file, source_package(file)) for file in chosen]
    if not made:
        raise NothingToDoError(
            f"{folder} has no wheels.", advice="./run wheel --variant NAME makes those of a package."
        )
    hosts = [wheel for wheel in made if wheel.package.plugin is None]
    for version in {wheel.version for wheel in hosts}:
        if all(wheel.package.provider == CUDA for wheel in hosts if wheel.version == version):
            raise ValidationError(
                f"{folder} has no wheels of {version} for the CPU, which pip takes, and a machine whose GPU "
                "no variant serves.",
                advice=f"./run wheel --variant cpu makes them of a package of ONNX Runtime {version}.",
            )
    return tuple(
        sorted(made, key=lambda one: (one.stem != STEM, one.version, one.file.name, one.package.variant))
    )


def _is_free(to: Path) -> bool:
    """Return whether the path does not exist, or is an index of wheels or a folder without other files.

    A killed ``write_index`` leaves its scratch folder there, which the next one removes.
    """
    if not to.is_dir():
        return not os.path.lexists(to)
    parts = tuple(f"{stem[:-1].replace('_', '-')}.part-" for stem in STEMS)
    return bool(_names_in(to)) or all(path.name.startswith(parts) for path in to.iterdir())


def _write_files(wiring: Wiring, made: Sequence[_Made], fresh: Path) -> None:
    fresh.mkdir()
    for _, of_version in groupby(made, key=lambda wheel: (wheel.stem, wheel.version)):
        _write_version(wiring, tuple(of_version), fresh)


def _write_version(wiring: Wiring, made: Sequence[_Made], folder: Path) -> None:
    """Write the wheels of one version, and the document with the properties of their variants."""
    packages = {one.package.name: one.package for one in made}
    alike = tuple(replace(one, plugin=None) for one in packages.values())  # chosen by GPU, as hosts are
    index = Index(index_format.FORMAT, WHEELS, alike, ())
    given = labels(index)
    for sentence in given.lost:
        wiring.reporter.warn(f"{sentence}.")
    for one in made:
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
    (folder / f"{made[0].stem}-{made[0].version}-variants.json").write_text(text, encoding="utf-8")
    for label, values in named.items():
        described = "; ".join(f"{feature} {' '.join(several)}" for feature, several in values.items())
        wiring.reporter.say(f"{made[0].version} {label}: {described}")


def _label(variant: str) -> str:
    """Return a variant's name in the spelling of installers.

    It has no dashes, which separate the parts of a wheel's name.
    """
    return variant.replace("-", "_")


def _labelled(made: _Made, properties: Mapping[str, Properties], folder: Path) -> Path:
    """Write the wheel with its properties inside and its label in its name; return its path."""
    (label,) = properties
    info = info_folder(made.version, made.stem)
    wheel = folder / f"{made.file.stem}-{label}.whl"
    with opened_wheel(made.file) as archive, wheel.open("wb") as stream, WheelWriter(stream, info) as writer:
        copy_members(writer, archive, info)
        writer.add(f"{info}/{_VARIANT}", variants_json(properties).encode())
    prove_wheel(wheel)
    return wheel


def _with_metadata(wheel: Path) -> None:
    """Write a wheel's METADATA to a file of its own, which installers read without fetching the wheel."""
    with opened_wheel(wheel) as archive:
        info = "-".join(wheel.name.split("-")[:2])
        content = archive.read(f"{info}.dist-info/METADATA")
    wheel.with_name(f"{wheel.name}.metadata").write_bytes(content)


def _link(file: Path, digest: str, folder: str = "") -> str:
    """Return a page's link to a file with the sha256 ``digest``; ``folder`` is relative to the page."""
    attributes = ""
    beside = file.with_name(f"{file.name}.metadata")
    if beside.is_file():
        content = beside.read_bytes()
        python = HeaderParser().parsestr(content.decode(errors="replace"))["Requires-Python"] or ""
        attributes = f' data-requires-python="{escape(python)}"' if python else ""
        attributes += f' data-core-metadata="sha256={sha256(content).hexdigest()}"'
    return f'<a href="{folder}{file.name}#sha256={digest}"{attributes}>{file.name}</a>'


def _page(title: str, links: Iterable[str]) -> str:
    version = f'<meta name="pypi:repository-version" content="{_API}">'
    head = f'<meta charset="utf-8">{version}<title>{title}</title>'
    body = "\n".join(f"{link}<br>" for link in links)
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{body}\n</body>\n</html>\n'


def _root_page(names: Iterable[str]) -> str:
    """Return the page above the pages of distributions."""
    return _page("Simple index", [f'<a href="{name}/">{name}</a>' for name in names])
