"""The work of the verbs plan, builds, client, variant, install, cache, clean, bake and render --explain."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from builder.app.verb_answers import CleanAnswer, clean_answer
from builder.builds.disk_needs import by_step, disk_lines
from builder.builds.python_wheels import MODELS, RUNTIME, SERVICE
from builder.builds.variant_build import BuildOptions, VariantBuild, joint_disk_needs
from builder.builds.wiring import Wiring
from builder.config.new_variant import with_variant
from builder.console import Console
from builder.errors import ConfigError, NothingToDoError, ToolMissingError, ValidationError
from builder.files.atomic_write import scratch_folder, write_file
from builder.files.digest import LocalFile
from builder.files.disk import absolute, remove
from builder.formats import index as index_format
from builder.formats.index import build_index
from builder.formats.manifest import Manifest
from builder.formats.package_names import (
    ARCHIVE_SUFFIXES,
    CHECKSUMS,
    CLIENT,
    INDEX,
    LINUX_ARM64,
    PARTS_SUFFIX,
    PLATFORMS,
    Layout,
    PackageName,
    stem,
)
from builder.formats.trust import TARGETS, root_name
from builder.onnxruntime.explain import Explanation, explain
from builder.package.archive import manifest_of
from builder.package.build_record import SUFFIX, BuildRecord, builds_page, contradictions, loads, record_name
from builder.pipeline.bake import BAKE_FILE, write_bake
from builder.pipeline.client_zipapp import INSPECTOR, build_client, build_inspector
from builder.ports import CompileCache, EngineResource
from builder.project.build_plan import BuildPlan
from builder.project.variants import on_platform
from builder.release.dist_files import archives_in, stored
from builder.release.licences_page import LICENCES_PAGE
from builder.release.prepare import ROOTS, SBOM_SUFFIX
from builder.release.signing import roots_in
from builder.report.card_grid import SUFFIX as CARDS_SUFFIX
from builder.wheels.distribution import STEM
from builder.wheels.package_wheels import WHEELS

BUILDS_PAGE = "docs/builds.md"

_BAKE = "bake"

_INPUTS = ("incoming", "made", "relocated", "requirements", "rootfs", "store", "trees", "unpacked")
"""Subfolders of the input cache whose contents can be fetched or made again."""

_FILES = (
    *(CLIENT, INSPECTOR, INDEX, CHECKSUMS, LICENCES_PAGE, TARGETS, root_name("[0-9]*")),
    *("atlas.html", "atlas.json", f"{STEM}-*"),
    *(f"ortpacks_{project}-*.whl" for project in (RUNTIME, SERVICE)),
)
"""Names, or patterns of names, of files in ``dist`` that are not a package's."""

_MADE_BY_US = ("Dockerfile", "built.json", BAKE_FILE)
"""Files of which each of our folders has at least one; a package without CUDA has no Dockerfile."""


def write_builds_page(wiring: Wiring, folders: Sequence[Path]) -> None:
    """Write docs/builds.md from every package in ``folders`` that has a build record in its folder.

    Rows of commands that made none of these packages stay. A package whose record is missing or does not
    match the package is left out with a warning. Raises ``NothingToDoError`` for a folder without packages
    and ``IntegrityError`` for a damaged package.
    """
    packages = [package for folder in folders for package in _recorded(archives_in(folder))]
    found = {}
    for package in packages:
        build = _recorded_build(wiring, package)
        if isinstance(build, str):
            wiring.reporter.warn(f"left out: {package.name}: {build}")
        else:
            found[build[1].sha256] = build
    path = wiring.root / BUILDS_PAGE
    page = builds_page(found.values(), path.read_text(encoding="utf-8") if path.exists() else "")
    write_file(path, page.encode())
    wiring.reporter.say(f"{path}: {len(found)} of {len(packages)} packages")


def _recorded(packages: Sequence[Path]) -> Iterator[Path]:
    """Yield the packages that should have a record: of packages with the same compiled libraries, the first.

    A package without CUDA has no record, since nothing is compiled for it.
    """
    stems = {stem(package.name) for package in packages}
    for package in packages:
        name = PackageName.parse(package.name)
        full = str(replace(name, layout=Layout.FULL.value))
        first = next(one for one in packages if stem(one.name) == str(name))
        if package == first and name.cuda and (str(name) == full or full not in stems):
            yield package


def _recorded_build(wiring: Wiring, package: Path) -> tuple[Manifest, BuildRecord, int] | str:
    """Return the manifest, record and size in bytes of a package, or why its record cannot be used."""
    file = package.with_name(record_name(package.name))
    if not file.is_file():
        return f"no {file.name} lies beside it"
    try:
        record = loads(file.read_bytes(), file.name)
    except ConfigError as error:
        return "; ".join(error.problems)
    with wiring.reporter.step(f"read {package.name}"):
        archive = wiring.archive(wiring.reporter)
        manifest = manifest_of(package, archive)
        digest = archive.whole(package)
    unlike = contradictions(record, manifest, package.name.removesuffix(PARTS_SUFFIX), digest.sha256)
    return "; ".join(unlike) or (manifest, record, digest.size)


def add_variant(wiring: Wiring, name: str, sm: Sequence[str], options: BuildOptions) -> None:
    """Show the plan of a new variant, then add the variant to ``variants.yaml``.

    Nothing is written if the file or the plan refuses the variant. Raises what ``with_variant`` and
    ``VariantBuild.show_plan`` do.
    """
    path = wiring.root / "variants.yaml"
    text, wiring.project = with_variant(path.read_bytes().decode(), path.name, name, sm)
    VariantBuild(wiring, wiring.project.variants[name], options, wiring.reporter).show_plan()
    write_file(path, text.encode())
    wiring.reporter.say(
        f"{path.name} has {name}; what follows from it: `./run docs`, `./run render --golden`"
    )


def write_client(wiring: Wiring, index: str | None) -> Path:
    """Write ``dist/ortpacks.pyz`` with the default index ``index``, and return its path.

    Without ``index`` the client is for ``dist`` and verifies no signature.
    """
    roots = roots_in(wiring.root / ROOTS) if index else []
    return build_client(wiring.root, wiring.dist / CLIENT, index, roots[-1] if roots else None)


def make_client(wiring: Wiring) -> Path:
    """Write client, inspector, and ``dist/index.json`` over the packages in ``dist``; return the client."""
    packages = archives_in(wiring.dist)
    client = write_client(wiring, None)
    inspector = build_inspector(wiring.root, wiring.dist / INSPECTOR)
    archive = wiring.archive(wiring.reporter)
    listed = [(manifest_of(package, archive), stored(LocalFile.of(package))) for package in packages]
    index = build_index("local", listed, wiring.project.models)
    write_file(wiring.dist / INDEX, index_format.dumps(index).encode())
    wiring.reporter.say(f"{client.name}, {inspector.name} and {INDEX} in {wiring.dist}")
    return client


def install(wiring: Wiring, index: str | None, prefix: str | None, layout: str) -> int:
    """Run the client on this machine and return its exit code."""
    program = ["-m", "builder.client"] if index else [str(make_client(wiring))]
    where = ["--index", index or str(wiring.dist), *(["--prefix", prefix] if prefix else [])]
    argv = [sys.executable, *program, "install", *where, "--layout", layout]
    return wiring.runner.run(argv, cwd=wiring.root, on_line=wiring.console.show, check=False).code


def clean(wiring: Wiring, *, caches: bool, inputs: bool, dry: bool) -> CleanAnswer:
    """Report the size of our results and caches, by kind, and return it for each.

    Remove them from ``dist`` and the engine unless ``dry``.

    ``caches`` includes the compile caches on the engine, ``inputs`` the downloaded inputs on this machine.
    """
    kept = [path for path in (wiring.cache / name for name in _INPUTS) if path.exists()] if inputs else []
    kinds = {f"results in {wiring.dist}": _results(wiring), f"inputs in {wiring.cache}": kept}
    sizes = {path: _own_bytes(path) for paths in kinds.values() for path in paths}
    for kind, paths in kinds.items():
        if paths:
            wiring.reporter.say(f"{kind}: {_gb(sum(sizes[path] for path in paths))}")
    held = _held(wiring, caches=caches)
    for kind, things in groupby(held, key=lambda thing: thing.kind):
        taken = [thing.size for thing in things]
        wiring.reporter.say(f"{kind}s on the engine: {len(taken)}, {_gb(sum(taken))}")
    if not dry:
        for path in sizes:
            remove(path)
            wiring.reporter.say(f"removed {path}")
        for thing in held:
            wiring.reporter.say(wiring.engine.remove(thing))
    return clean_answer(sizes, held, removed=not dry)


def _held(wiring: Wiring, *, caches: bool) -> list[EngineResource]:
    try:
        return [thing for thing in wiring.engine.resources() if caches or thing.kind != "cache"]
    except ToolMissingError as error:
        wiring.reporter.warn(f"nothing is removed from an engine: {error}")
        return []


def _own_bytes(path: Path) -> int:
    """Return the bytes that removing a path frees: those of files without another hard link."""
    files = path.rglob("*") if path.is_dir() and not path.is_symlink() else (path,)
    found = (file.lstat() for file in files)
    return sum(one.st_blocks * 512 for one in found if stat.S_ISREG(one.st_mode) and one.st_nlink == 1)


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"


def show_caches(wiring: Wiring, shared: CompileCache | None, *, as_json: bool) -> None:
    """Print the compile caches of the engine, the shared one, and their share in the builds of dist.

    Raises ``ToolMissingError`` without an engine, and what ``CompileCache.usage`` does, once the engine's are
    told.
    """
    wiring.engine.facts()
    mounts = sorted(
        (held for held in wiring.engine.resources() if held.kind == "cache"), key=lambda mount: mount.name
    )
    files = sorted(wiring.dist.glob(f"*{SUFFIX}"))
    records = [loads(file.read_bytes(), file.name) for file in files]
    builds = [(record.package, record.compile) for record in records if record.compile]
    if as_json:
        usage = shared.usage() if shared else None
        document = {
            "engine": [{"name": one.name, "bytes": one.size, "last_used": one.used} for one in mounts],
            "shared": {"address": shared.name, "objects": usage[0], "bytes": usage[1]}
            if shared and usage
            else None,
            "builds": [
                {"package": name, "units": done.compilations, "cache_hits": done.cache_hits}
                for name, done in builds
            ],
        }
        wiring.console.show(json.dumps(document))
        return
    for one in mounts:
        wiring.console.show(f"{one.size / 1e6:>9,.1f} MB  {one.name}, used {one.used or 'never'}")
    total = sum(one.size for one in mounts) / 1e6
    wiring.console.show(f"{total:>9,.1f} MB  on the engine; ./run clean --cache drops all of it")
    if shared:
        objects, size = shared.usage()
        drops = "its server drops" if "://" in shared.name else "nothing here drops"
        wiring.console.show(f"{size / 1e6:>9,.1f} MB  {shared.name}: {objects:,} objects; {drops} them")
    for name, done in builds:
        wiring.console.show(f"{name}: {done.cache_hits:,} of {done.compilations:,} units from ccache")


def _results(wiring: Wiring) -> list[Path]:
    """Return the results of our verbs in ``dist``, by their names. Other files are not included."""
    dist = wiring.dist
    ends = (*ARCHIVE_SUFFIXES, ".zip", SUFFIX, CARDS_SUFFIX, SBOM_SUFFIX)
    packed = (f"ortpacks-*-{platform}{end}*" for platform in PLATFORMS for end in ends)
    files = (path for name in (*packed, *_FILES) for path in sorted(dist.glob(name)))
    ours = (path for path in _workplaces(wiring) if any((path / name).is_file() for name in _MADE_BY_US))
    wheels = sorted({wheel.parent for wheel in dist.glob(f"{WHEELS}/*/{STEM}-*.whl")})
    return [*files, *ours, *wheels, *_models(dist / MODELS)]


def _workplaces(wiring: Wiring) -> Iterator[Path]:
    """Yield the folders of variants, also those that only images are made of, of bases, and of ``bake``."""
    variants = wiring.project.packages.values()
    folders = (one.folder for variant in variants for one in (variant, on_platform(variant, LINUX_ARM64)))
    yield from (wiring.place(folder).root for folder in dict.fromkeys(folders))
    yield from (wiring.kit_place(base).root for base in wiring.project.bases)
    yield wiring.dist / _BAKE


def _models(folder: Path) -> list[Path]:
    """Return the service's models in ``folder``, which may hold the user's own too."""
    if not folder.is_dir():
        return []
    # Imported late: onnx is slow to import.
    from builder.adapters.test_models.service_models import DETECTOR, EMBEDDER  # noqa: PLC0415

    return [folder / name for name in (EMBEDDER, DETECTOR) if (folder / name).is_dir()]


def bake(wiring: Wiring, builds: Mapping[str, VariantBuild], out: str | None) -> None:
    """Write or replace the folder ``out``, from which ``docker buildx bake`` compiles variants.

    Raises ``NothingToDoError`` if none of the variants is compiled, and ``ValidationError`` if ``out`` holds
    something other than bake's files.
    """
    folder = absolute(Path(out)) if out else wiring.dist / _BAKE
    is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not is_free and not (folder / BAKE_FILE).is_file():
        raise ValidationError(
            f"--out {folder}", cause="what lies there is not bake's", advice="Name a folder that is new."
        )
    with scratch_folder(folder, needed=0) as fresh:
        laid_out = {name: build.lay_out(fresh / name) for name, build in builds.items()}
        rendered = {name: one for name, one in laid_out.items() if one is not None}
        if not rendered:
            raise NothingToDoError("There is nothing to bake: none of these variants is compiled.")
        write_bake(fresh, rendered, wiring.store(wiring.lock))
        remove(folder)
        fresh.rename(folder)
    wiring.reporter.say(
        f"{folder}: `docker buildx bake --file {BAKE_FILE}` there compiles {' '.join(rendered)}"
    )


def plans_json(builds: Mapping[str, VariantBuild]) -> str:
    """Return the plans as one JSON document (``docs/schemas/plan.schema.json``)."""
    plans = [one.forecast() for one in builds.values()]
    together = [
        {"variant": need.step, "bytes": need.size, "folder": str(need.folder)}
        for need in by_step(joint_disk_needs(builds))
        if need.size
    ]
    return json.dumps({"format": 1, "plans": plans, "together": together}, indent=2)


def show_plans(wiring: Wiring, builds: Mapping[str, VariantBuild]) -> None:
    """Report each plan and, if there are several, the disk space that their builds take together."""
    for one in builds.values():
        one.show_plan()
    if len(builds) > 1:
        for line in disk_lines(joint_disk_needs(builds)):
            wiring.reporter.say(line)


def show_explanation(console: Console, plans: Iterable[BuildPlan]) -> None:
    """Print each plan's differences from the official build, a line each, then the version's notes."""
    for plan in plans:
        console.show("\n".join(_lines(explain(plan))))


def _lines(explained: Explanation) -> Iterator[str]:
    yield explained.title
    if not explained.differences:
        yield "  no option differs"
    yield from (f"  {line}" for line in explained.differences)
    yield from (f"  note: {note}" for note in explained.notes)
