"""This module keeps compiled libraries and checks whether they, and packages made of them, are up to date.

The key of compiled libraries is a sha256 over all inputs (``artifact.key``). The key of packages covers what
makes and proves them (``package_sources``); it is stored with the sha256 of their files (``built.json``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from builder.compile.stages import StageBuild, container_programs, export, virtual_card
from builder.config.build_plan import BuildPlan, Rendered, Workplace
from builder.config.inputs import Lock
from builder.config.variants import Project
from builder.console import Reporter
from builder.errors import CheckFailedError, IntegrityError
from builder.files.atomic_write import write_file
from builder.files.digest import file_digest
from builder.io.archive.client_zipapp import imported_modules
from builder.io.wiring import Wiring


class Artifact:
    """ONNX Runtime's compiled libraries in ``dist/<variant>/artifact``, and the key of their inputs."""

    def __init__(self, wiring: Wiring, place: Workplace, rendered: Rendered, reporter: Reporter) -> None:
        self._wiring = wiring
        self._place = place
        self._rendered = rendered
        self._reporter = reporter

    def make(self, stage_build: StageBuild, *, anew: bool) -> None:
        """Compile, unless the libraries in the folder were compiled for the same plan.

        ``anew`` always compiles.
        """
        if self._is_current() and not anew:
            self._reporter.say(f"{self._place.artifact} was compiled for this plan")
            return
        self.discard()
        where = f" on {stage_build.builder}" if stage_build.builder else ""
        with self._reporter.step(f"compile {self._place.root.name}{where}"):
            export("artifact", self._place.artifact, self._rendered, self._place, stage_build, anew=anew)
        self._place.artifact_key.write_text(self._key(), encoding="utf-8")

    def discard(self) -> None:
        """Remove the key, so that the next build compiles."""
        self._place.artifact_key.unlink(missing_ok=True)

    def folder(self) -> Path:
        """Return the libraries' folder.

        Raises ``CheckFailedError`` if the libraries are absent or were compiled for another plan.
        """
        if not self._is_current():
            raise CheckFailedError(
                f"{self._place.artifact} was not compiled for this plan: base, profile, host, version or "
                "templates differ, or nothing was compiled. `./run build` with the same flags compiles it."
            )
        return self._place.artifact

    def _is_current(self) -> bool:
        held = self._place.artifact_key
        there = self._place.artifact.is_dir() and held.is_file()
        return there and held.read_bytes() == self._key().encode()

    def _key(self) -> str:
        return artifact_key(self._rendered, self._wiring.lock, self._place.context)


def artifact_key(rendered: Rendered, lock: Lock, context: Path) -> str:
    """Return a hex sha256 over all inputs of a compile: the Dockerfile and each file that it reads.

    The packages of the root file system are included, since the manifest's base revision is a digest of them.
    """
    inputs = {*rendered.debs, *rendered.sources, *rendered.contexts.values()}
    pins = sorted(str(lock.pins.get(item.key)) for item in inputs)
    files = sorted([*(context / "farm").glob("*"), *(context / "patches").glob("*")])
    # the table of costs changes no library
    ours = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.suffix != ".tsv"]
    system = [f"{package.path} {package.sha256}" for package in rendered.system]
    return hashlib.sha256("\n".join([rendered.dockerfile, *pins, *ours, *system]).encode()).hexdigest()


_BUILT = "built.json"

_PACKING = ("builder/build/packing.py", "builder/prove/virtualcard/worker.py")
"""The modules that start all work on a package: the second one runs in a process of its own."""


def package_sources(root: Path, project: Project) -> list[Path]:
    """Return the project's files that make or prove a package, besides its plan and the pins of its inputs.

    They are the modules that packing imports, directly or not, the programs of the build container and of the
    virtual card, the templates that one of these files names, the patches, our licence and our tools' lock.
    """
    modules = [root / name for name in imported_modules(root, *_PACKING)]
    code = [*{*modules, *container_programs(root), *virtual_card(root)}]
    patches = [root / patch for patch in project.patches]
    named = [root / project.bundle.licence, root / "requirements.lock", *patches]
    return [*code, *_templates(root / "templates", code), *filter(Path.is_file, named)]


def _templates(folder: Path, code: Sequence[Path]) -> list[Path]:
    others = {file for file in folder.iterdir() if file.is_file()}
    templates: list[Path] = []
    new = [*code]
    while new:
        text = "\n".join(file.read_text(encoding="utf-8") for file in new)
        new = [file for file in others if file.name in text]
        templates += new
        others.difference_update(new)
    return templates


def built_key(plan: BuildPlan, lock: Lock, sources: Iterable[Path]) -> str:
    """Return a hex sha256 over the plan, the pins, and the files in ``sources`` (``package_sources``).

    The reason for a base is left out, since a registry's message differs each time for the same failure.
    """
    hasher = hashlib.sha256(repr(replace(plan, base_reason="")).encode())
    for key, pin in sorted(lock.pins.items()):
        hasher.update(f"{key}={pin}\n".encode())
    for file in sorted(sources):
        hasher.update(f"{file.name} {file_digest(file).sha256}\n".encode())
    return hasher.hexdigest()


def read_built(folder: Path, key: str, dist: Path) -> tuple[Path, ...]:
    """Return the verified packages that were built under ``key``.

    Empty if a byte of their files has changed.
    """
    try:
        stamp = json.loads((folder / _BUILT).read_text(encoding="utf-8"))
        same = stamp["key"] == key and all(
            file_digest(dist / name).sha256 == sha256 for name, sha256 in stamp["packages"].items()
        )
        return tuple(dist / name for name in stamp["packages"]) if same else ()
    except (OSError, IntegrityError, ValueError, KeyError, TypeError, AttributeError):
        return ()


def write_built(folder: Path, key: str, packages: Sequence[Path]) -> None:
    """Record that ``packages`` were built under ``key`` and verified."""
    stamp = {"key": key, "packages": {package.name: file_digest(package).sha256 for package in packages}}
    write_file(folder / _BUILT, json.dumps(stamp, indent=2).encode() + b"\n")
