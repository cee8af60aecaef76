"""This module makes the wheels of a package, one for each Python of the official wheel: all or none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from zipfile import ZipFile

from packaging.tags import Tag

from builder.config.inputs import OFFICIAL_WHEELS, Input, Lock, Pin
from builder.config.load import pick_variants
from builder.config.variants import WITHOUT_GPU_WHEEL, Variant
from builder.contents.reading import read_file
from builder.contents.required_files import ORT_LICENCE, ORT_NOTICES
from builder.contents.required_files import OUR_LICENCE as OUR_TEXT
from builder.contents.supported_gpus import coverage_entry, coverage_line
from builder.errors import ConfigError, IntegrityError, NothingToDoError, ValidationError
from builder.files.atomic_write import replace_folder, scratch_folder
from builder.files.digest import Digest, LocalFile, file_digest
from builder.files.disk import disk_errors
from builder.finding import Code, Finding, require_no_errors
from builder.formats import index as index_format
from builder.formats.index import IndexPackage, entry_of
from builder.formats.json_values import to_json
from builder.formats.manifest import FileEntry, Manifest, PluginEntry
from builder.formats.package_names import Form, form_of
from builder.formats.stored_file import StoredFile
from builder.io.archive.unpacking import manifest_of, members_of, unpack
from builder.io.archive.zip_file import EXECUTABLE, WheelWriter
from builder.io.cyclonedx import render_bom
from builder.io.wheel import opened_wheel, prove_wheel, recorded
from builder.io.wiring import Wiring
from builder.publish.locations import archives_in, stored
from builder.publish.wheels.distribution import (
    CAPI,
    DESCRIPTION,
    LICENCES,
    OUR_LICENCE,
    PLUGIN_MODULE,
    OfficialWheel,
    describe_wheel,
    description_json,
    folder_of,
    info_folder,
    is_wheeled,
    metadata_text,
    module_text,
    plugin_metadata,
    plugin_tag,
    replaced,
    runpath,
    stem_of,
    unlinked,
    wheel_name,
    wheel_tags,
    wheel_text,
)

WHEELS = "wheels"
"""Subfolder of ``dist`` with a folder of wheels for each variant."""

SBOM = "sboms/ortpacks.cdx.json"

_COPIED = ("entry_points.txt", "top_level.txt")
"""Files of ``.dist-info`` that are copied from the official wheel."""

_MB = 1_000_000


@dataclass(frozen=True)
class _Source:
    manifest: Manifest
    archive: StoredFile
    taken: Mapping[FileEntry, Path]
    """Files that replace the official wheel's, by their entries in the manifest."""
    licence: bytes
    page: str
    """URL of the project's home page."""

    @property
    def info(self) -> str:
        """Name of ``.dist-info``."""
        return info_folder(self.manifest.onnxruntime.version, stem_of(self.manifest))


def wheeled_packages(wiring: Wiring, variants: Sequence[str], paths: Sequence[str]) -> tuple[Path, ...]:
    """Return the packages at ``paths``, and those of ``variants`` in ``dist``.

    Raises ``NothingToDoError`` and ``ValidationError``.
    """
    if not variants and not paths:
        known = ", ".join(wiring.project.packages)
        raise NothingToDoError(
            "No package is named", advice=f"Name one, or a variant's: --variant ({known})."
        )
    for path in paths:
        if not Path(path).is_file():
            raise ValidationError(f"{path}: there is no such package.", advice="Check the path.")
    picked = pick_variants(wiring.project, variants, all_=False) if variants else ()
    return (*map(Path, paths), *(package_of(wiring, variant) for variant in picked))


def make_missing_wheels(wiring: Wiring, packages: Sequence[Path]) -> tuple[str, ...]:
    """Make the wheels of each variant's best package unless they exist; return the folders that have wheels.

    Packages that no wheels can be made of are left out. Raises what ``make_wheels`` does.
    """
    by_variant: dict[str, list[tuple[Path, Manifest]]] = {}
    for package in packages:
        manifest = manifest_of(package)
        if is_wheeled(manifest):
            by_variant.setdefault(folder_of(manifest), []).append((package, manifest))
    made = []
    for variant, several in by_variant.items():
        package, manifest = min(several, key=_rank)
        number = 1 if manifest.plugin else len(wiring.lock.python_wheels(_requirement(manifest)))
        if not number:
            wiring.reporter.warn(
                f"{variant} gets no wheels: inputs.lock has none of {_requirement(manifest)}."
            )
            continue
        if not _are_of(wiring.dist / WHEELS / variant, package, number):
            make_wheels(wiring, package)
        made.append(variant)
    return tuple(made)


def _rank(packed: tuple[Path, Manifest]) -> tuple[str, int]:
    """Return the sort key of a package: full before thin, then the forms in the order of ``Form``."""
    package, manifest = packed
    return manifest.layout, list(Form).index(form_of(package.name))


def _are_of(folder: Path, package: Path, number: int) -> bool:
    """Return whether ``folder`` has this number of wheels, one for each Python, made of this package."""
    wheels = sorted(folder.glob("*.whl"))
    try:
        return (
            len(wheels) == number and source_package(wheels[0]).sha256 == stored(LocalFile.of(package)).sha256
        )
    except ConfigError:
        return False


def source_package(wheel: Path) -> IndexPackage:
    """Return the entry of the package that a wheel was made of.

    Raises ``ConfigError`` if ``./run wheel`` did not make the wheel, ``IntegrityError`` for a damaged one.
    """
    path = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info/{DESCRIPTION}"
    with opened_wheel(wheel) as archive:
        try:
            package = json.loads(archive.read(path))["package"]
        except (KeyError, TypeError, ValueError) as error:
            raise ValidationError(
                f"{wheel} names no package in {path}: it is no wheel of ./run wheel", advice="Take it away."
            ) from error
    value = {"format": index_format.FORMAT, "tag": WHEELS, "packages": [package], "models": []}
    return index_format.loads(json.dumps(value), f"{wheel}: {DESCRIPTION}").packages[0]


def package_of(wiring: Wiring, variant: Variant) -> Path:
    """Return the variant's package in ``dist``, the full one if there are both layouts.

    Raises ``NothingToDoError`` if there is none, or if there are packages of several versions.
    """
    packages = [(path, manifest_of(path)) for path in archives_in(wiring.dist)]
    wanted = (variant.name, variant.form)
    ours = [(path, manifest) for path, manifest in packages if (manifest.variant, manifest.form) == wanted]
    names = {manifest.onnxruntime.version for _, manifest in ours}
    if len(names) != 1:
        has = f"packages of {', '.join(sorted(names))}" if names else "no package of it"
        raise NothingToDoError(
            f"{wiring.dist} has {has} for {variant.name}, and wheels are made of one.",
            advice=f"./run build --variant {variant.name} makes it; ./run wheel PATH names one.",
        )
    return min(ours, key=_rank)[0]


def make_wheels(wiring: Wiring, package: Path) -> tuple[Path, ...]:
    """Write the wheels of ``package`` to ``dist/wheels/<variant>``, all or none, in place of earlier ones.

    Of a plug-in it is one, in ``dist/wheels/<variant>-plugin``. Returns their paths. Raises
    ``NothingToDoError`` for a package of another platform or provider, or of an ONNX Runtime whose wheels are
    not pinned, ``IntegrityError``, ``CheckFailedError`` and ``DiskError``.
    """
    manifest = manifest_of(package)
    officials = {} if manifest.plugin else official_wheels(wiring.lock, manifest, package.name)
    store = wiring.store(wiring.lock, wiring.reporter)
    folder = wiring.dist / WHEELS / folder_of(manifest)
    needed = 2 * sum(pin.size for pin in officials.values()) or manifest.unpacked_size
    with (
        wiring.reporter.step(f"wheels of {manifest.name}"),
        scratch_folder(folder, needed=needed) as fresh,
    ):
        unpacked = fresh.with_name("package")
        for new in (fresh, unpacked):
            new.mkdir()
        source = _source(wiring, package, manifest, unpacked)
        made: list[Path] = []
        if manifest.plugin:
            made.append(_plugin_wheel(source, manifest.plugin, fresh, unpacked))
        for item, pin in officials.items():
            made.append(_wheel(source, (item, pin), store.fetch(item), fresh, made))
        for one in made:
            wiring.reporter.say(f"{one.name}  {one.stat().st_size / _MB:,.1f} MB")
        with disk_errors(folder):
            replace_folder(folder, fresh)
    return tuple(folder / wheel.name for wheel in made)


def official_wheels(lock: Lock, manifest: Manifest, package: str) -> Mapping[Input, Pin]:
    """Return the pinned official wheels of the package's ONNX Runtime, one for each Python.

    Raises ``NothingToDoError`` for a package that no wheels are made of, or if none is pinned.
    """
    version = manifest.onnxruntime.version
    if not is_wheeled(manifest):
        raise NothingToDoError(
            f"{package} is for {manifest.provider} on {manifest.platform}: wheels are made for "
            f"{' and '.join(OFFICIAL_WHEELS)} on linux-x64."
        )
    wheels = lock.python_wheels(_requirement(manifest))
    if not wheels:
        raise NothingToDoError(
            f"{package} has ONNX Runtime {version}, and inputs.lock has no wheels of "
            f"{_requirement(manifest)}.",
            advice="Name the version in variants.yaml and run ./run lock, or take a package of one it has. "
            f"{WITHOUT_GPU_WHEEL}",
        )
    return wheels


def _requirement(manifest: Manifest) -> str:
    return f"{OFFICIAL_WHEELS[manifest.provider]}=={manifest.onnxruntime.version}"


def _source(wiring: Wiring, package: Path, manifest: Manifest, folder: Path) -> _Source:
    """Extract what wheels need from the package, verify its digests, and set the provider's RUNPATH."""
    entries = {entry.path: entry for entry in manifest.files}
    texts = {ORT_LICENCE, ORT_NOTICES} if manifest.plugin else set()
    wanted = {OUR_TEXT, *texts, *(entry.path for entry in replaced(manifest))}
    digests = {path: unpack(folder, path, chunks) for path, chunks in members_of(package) if path in wanted}
    for path in sorted(wanted):
        entry = entries[path]
        if digests.get(path) != Digest(entry.size, entry.sha256):
            raise IntegrityError(
                f"{package}: {path} is not the file that its manifest names.",
                advice="Build the package again, or copy it again.",
            )
    relocate = partial(wiring.patchelf.with_runpath, runpath=runpath(manifest), needed=unlinked(manifest))
    taken = {entry: relocate(folder / entry.path) for entry in replaced(manifest)}
    _require_coverage(manifest, taken)
    archive = stored(LocalFile.of(package))
    page = f"https://github.com/{wiring.project.publish.repository}"
    return _Source(manifest, archive, taken, (folder / OUR_TEXT).read_bytes(), page)


def _require_coverage(manifest: Manifest, taken: Mapping[FileEntry, Path]) -> None:
    """Raise ``CheckFailedError`` with B007 if a library for the wheel has other code than promised."""
    claimed = {entry.path: coverage_line(entry) for entry in manifest.coverage}
    findings = []
    for entry, file in taken.items():
        coverage = read_file(entry.path, file, symbols=False).coverage
        read = coverage_line(coverage_entry(entry.path, coverage)) if coverage else ""
        if read != claimed.get(entry.path, ""):
            message = "the library for the wheel holds other code than the manifest says"
            findings.append(Finding(Code.B007, entry.path, message, claimed.get(entry.path, ""), read))
    require_no_errors(findings, f"{manifest.name} gets no wheels")


def _wheel(
    source: _Source,
    official: tuple[Input, Pin],
    file: Path,
    folder: Path,
    before: Sequence[Path],
) -> Path:
    """Write one wheel to ``folder`` and return its path.

    Libraries are compressed only for the first wheel.
    """
    manifest, theirs = source.manifest, f"{file.name.partition('-cp')[0]}.dist-info/"
    with opened_wheel(file) as archive:
        upstream = OfficialWheel(file.name, archive.read(f"{theirs}METADATA").decode())
        wheel = folder / wheel_name(manifest, upstream)
        with wheel.open("wb") as stream, WheelWriter(stream, source.info) as writer:
            taken = {f"{CAPI}{Path(entry.path).name}": entry for entry in source.taken}
            digests = {
                **copy_members(writer, archive, theirs.rstrip("/"), (theirs, *taken)),
                **_libraries(writer, source, taken, before),
            }
            metadata, tags = metadata_text(manifest, upstream, source.page), wheel_tags(manifest, upstream)
            copied = {name: archive.read(f"{theirs}{name}") for name in _COPIED}
            digests |= _add_texts(writer, source, metadata, tags, copied, map(archive.read, LICENCES))
            bom = describe_wheel(wheel.name, manifest, digests, taken, official)
            writer.add(f"{source.info}/{SBOM}", render_bom(bom))
    prove_wheel(wheel)
    return wheel


def _plugin_wheel(source: _Source, plugin: PluginEntry, folder: Path, package: Path) -> Path:
    """Write the wheel of a plug-in to ``folder`` and return its path; ``package`` has the licence texts."""
    manifest, tag = source.manifest, plugin_tag(source.manifest)
    wheel = folder / f"{source.info.removesuffix('.dist-info')}-{tag}.whl"
    with wheel.open("wb") as stream, WheelWriter(stream, source.info) as writer:
        taken = {f"{PLUGIN_MODULE}/{file.name}": entry for entry, file in source.taken.items()}
        digests = dict(_libraries(writer, source, taken, ()))
        module = f"{PLUGIN_MODULE}/__init__.py"
        digests[module] = writer.add(module, module_text(plugin).encode())
        licences = ((package / text).read_bytes() for text in (ORT_LICENCE, ORT_NOTICES))
        metadata = plugin_metadata(manifest, plugin, source.page)
        digests |= _add_texts(writer, source, metadata, [tag], {}, licences)
        bom = describe_wheel(wheel.name, manifest, digests, taken, None)
        writer.add(f"{source.info}/{SBOM}", render_bom(bom))
    prove_wheel(wheel)
    return wheel


def copy_members(
    writer: WheelWriter, archive: ZipFile, info: str, without: tuple[str, ...] = ()
) -> Mapping[str, Digest]:
    """Copy the files in another wheel's RECORD, except paths that begin with one of ``without``.

    ``info`` is the folder of RECORD. Returns the files' digests.
    """
    known = recorded(archive, info)
    kept = [one for one in archive.infolist() if one.filename in known]
    kept = [one for one in kept if not one.filename.startswith(without)]
    for member in kept:
        writer.copy(archive, member, known[member.filename])
    return {member.filename: known[member.filename] for member in kept}


def _libraries(
    writer: WheelWriter, source: _Source, taken: Mapping[str, FileEntry], before: Sequence[Path]
) -> Mapping[str, Digest]:
    """Write the package's libraries, ``taken`` by their paths, and return their digests.

    They are compressed for the first wheel and copied from it into the other wheels.
    """
    instead = {path: source.taken[entry] for path, entry in taken.items()}
    if not before:
        return {path: writer.add(path, copy, EXECUTABLE) for path, copy in instead.items()}
    digests = {path: file_digest(copy) for path, copy in instead.items()}
    with opened_wheel(before[0]) as first:
        for path, digest in digests.items():
            writer.copy(first, first.getinfo(path), digest)
    return digests


def _add_texts(
    writer: WheelWriter,
    source: _Source,
    metadata: str,
    tags: Iterable[Tag],
    copied: Mapping[str, bytes],
    licences: Iterable[bytes],
) -> Mapping[str, Digest]:
    """Write the files of ``.dist-info`` except SBOM and RECORD, and return their digests."""
    texts = {
        "METADATA": metadata.encode(),
        "WHEEL": wheel_text(tags).encode(),
        **copied,
        **{f"licenses/{path}": text for path, text in zip(LICENCES, licences, strict=True)},
        f"licenses/{OUR_LICENCE}": source.licence,
        DESCRIPTION: description_json(
            source.manifest, to_json(entry_of(source.manifest, source.archive))
        ).encode(),
    }
    paths = {f"{source.info}/{name}": text for name, text in texts.items()}
    return {path: writer.add(path, text) for path, text in paths.items()}
