"""The work of the verb clean, which removes the results of our verbs and nothing else."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from builder.build.own_programs import BESIDE_CLIENT, MODELS, RUNTIME, SERVICE
from builder.build.verbs.verb_answers import CleanAnswer, EngineThing, Result
from builder.compile.estimate import gigabytes
from builder.config.variants import on_platform
from builder.contents.build_record import SUFFIX
from builder.contents.card_grid import SUFFIX as CARDS_SUFFIX
from builder.errors import ToolMissingError
from builder.files.disk import remove
from builder.formats.package_names import (
    ARCHIVE_SUFFIXES,
    CHECKSUMS,
    CLIENT,
    INDEX,
    LINUX_ARM64,
    PLATFORMS,
    PackageForm,
)
from builder.formats.trust import TARGETS, root_name
from builder.io.archive.client_zipapp import INSPECTOR
from builder.io.docker.engine import EngineResource
from builder.io.wiring import Wiring
from builder.publish.prepare import LICENCES_PAGE, SBOM_SUFFIX
from builder.publish.wheels.distribution import STEMS
from builder.publish.wheels.package_wheels import WHEELS

_INPUTS = ("incoming", "made", "relocated", "requirements", "rootfs", "rules", "store", "trees", "unpacked")
"""Subfolders of the input cache whose contents can be fetched or made again."""

_FILES = (
    *(CLIENT, INSPECTOR, INDEX, CHECKSUMS, LICENCES_PAGE, TARGETS, root_name("[0-9]*")),
    *("atlas.html", "atlas.json", *(f"{stem}*" for stem in STEMS), *BESIDE_CLIENT),
    *(f"ortpacks_{project}-*.whl" for project in (RUNTIME, SERVICE)),
)
"""Names, or patterns of names, of files in ``dist`` that are not a package's."""

_MADE_BY_US = ("Dockerfile", "built.json")
"""Files of which each of our folders has at least one; a package without CUDA has no Dockerfile."""


def clean(wiring: Wiring, *, caches: bool, inputs: bool, dry: bool) -> CleanAnswer:
    """Report the sizes of our results and caches by kind; return each of them with its size.

    Unless ``dry``, remove them from ``dist`` and the engine. ``caches`` includes the compile caches on the
    engine, ``inputs`` the downloaded inputs on this machine.
    """
    kept = [path for path in (wiring.cache / name for name in _INPUTS) if path.exists()] if inputs else []
    kinds = {f"results in {wiring.dist}": _results(wiring), f"inputs in {wiring.cache}": kept}
    sizes = {path: _own_bytes(path) for paths in kinds.values() for path in paths}
    for kind, paths in kinds.items():
        if paths:
            wiring.reporter.say(f"{kind}: {gigabytes(sum(sizes[path] for path in paths))} GB")
    held = _held(wiring, caches=caches)
    for kind, things in groupby(held, key=lambda thing: thing.kind):
        taken = [thing.size for thing in things]
        many = "copies of libraries" if kind == "copy" else f"{kind}s"
        wiring.reporter.say(f"{many} on the engine: {len(taken)}, {gigabytes(sum(taken))} GB")
    if not dry:
        for path in sizes:
            remove(path)
            wiring.reporter.say(f"removed {path}")
        for thing in held:
            wiring.reporter.say(wiring.engine.remove(thing))
    return CleanAnswer(
        format=1,
        removed=not dry,
        paths=tuple(Result(path=str(path), size=size) for path, size in sizes.items()),
        engine=tuple(EngineThing(kind=one.kind, name=one.name, size=one.size) for one in held),
    )


def _held(wiring: Wiring, *, caches: bool) -> list[EngineResource]:
    try:
        return [thing for thing in wiring.engine.resources() if caches or thing.kind != "cache"]
    except ToolMissingError as error:
        wiring.reporter.warn(f"nothing is removed from an engine: {error}")
        return []


def _own_bytes(path: Path) -> int:
    """Return the bytes that removing a path frees: those of files without another hard link."""
    files = path.rglob("*") if path.is_dir() and not path.is_symlink() else (path,)
    stats = (file.lstat() for file in files)
    return sum(
        status.st_blocks * 512 for status in stats if stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    )


def _results(wiring: Wiring) -> list[Path]:
    """Return the results of our verbs in ``dist``, by their names. Other files are not included."""
    dist = wiring.dist
    ends = (*ARCHIVE_SUFFIXES, SUFFIX, CARDS_SUFFIX, SBOM_SUFFIX)
    packed = (f"ortpacks-*-{platform}{end}*" for platform in PLATFORMS for end in ends)
    files = (path for name in (*packed, *_FILES) for path in sorted(dist.glob(name)))
    ours = (path for path in _workplaces(wiring) if any((path / name).is_file() for name in _MADE_BY_US))
    wheels = sorted({wheel.parent for stem in STEMS for wheel in dist.glob(f"{WHEELS}/*/{stem}*.whl")})
    return [*files, *ours, *wheels, *_models(dist / MODELS)]


def _workplaces(wiring: Wiring) -> Iterator[Path]:
    """Yield the folders of variants, also those that only images are made of, and of bases."""
    variants = wiring.project.packages.values()
    plugins = (replace(one, form=PackageForm.PLUGIN) for one in variants if not one.is_official)
    images = (on_platform(variant, LINUX_ARM64) for variant in variants)
    folders = (place.folder for place in (*variants, *images, *plugins))
    yield from (wiring.place(folder).root for folder in dict.fromkeys(folders))
    yield from (wiring.check_tools_place(base).root for base in wiring.project.bases)


def _models(folder: Path) -> list[Path]:
    """Return the service's models in ``folder``, which may hold the user's own too."""
    if not folder.is_dir():
        return []
    # Imported late: onnx is slow to import.
    from builder.prove.sample_models import DETECTOR, EMBEDDER  # noqa: PLC0415

    return [folder / name for name in (EMBEDDER, DETECTOR) if (folder / name).is_dir()]
