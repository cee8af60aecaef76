"""What a variant's compile gives: made where needed, kept while it still follows from the same inputs.

Are a variant's packages up to date? A key over all they follow from, and their files' own sha256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from builder.builds.workshop import Workshop
from builder.errors import CheckFailedError, IntegrityError
from builder.files.atomic_write import part_file
from builder.files.digest import file_digest
from builder.files.file_lock import exclusive
from builder.pipeline.compile import Means, export
from builder.ports import Reporter
from builder.project.inputs import Lock
from builder.project.plan import BuildPlan, Rendered, Workplace


class Artifact:
    """ORT's libraries in ``dist/<variant>/artifact``, and the key that ties them to what made them."""

    def __init__(self, shop: Workshop, place: Workplace, rendered: Rendered, reporter: Reporter) -> None:
        self._shop = shop
        self._place = place
        self._rendered = rendered
        self._reporter = reporter

    def make(self, means: Means, *, anew: bool) -> None:
        """Compile, unless an interrupted run had compiled for this very plan; ``anew`` compiles anyway."""
        if self._is_current() and not anew:
            self._reporter.say(f"{self._place.artifact} was compiled for this plan")
            return
        self.doubt()
        with self._one_at_a_time(), self._reporter.step(f"compile {self._place.root.name}"):
            export("artifact", self._place.artifact, self._rendered, self._place, means)
        self._place.artifact_key.write_text(self._key(), encoding="utf-8")

    def doubt(self) -> None:
        """Let the next build compile anew."""
        self._place.artifact_key.unlink(missing_ok=True)

    def folder(self) -> Path:
        """Where the libraries lie. Raises ``CheckFailedError`` when they are of another plan or not there."""
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
        return artifact_key(self._rendered, self._shop.lock, self._place.context)

    def _one_at_a_time(self) -> AbstractContextManager[None]:
        """Variants are compiled one after the other: each uses all cores by itself."""
        waits = "another variant is being compiled: waiting"
        return exclusive(self._shop.lock_of("compile"), lambda: self._reporter.say(waits))


def artifact_key(rendered: Rendered, lock: Lock, context: Path) -> str:
    """What compiling follows from: the Dockerfile, with flags and versions, and the bytes of all it reads.

    The packages of the root file system are among them: the manifest's revision speaks of what compiled.
    """
    inputs = (*rendered.debs, *rendered.sources, *rendered.contexts.values())
    pins = sorted(str(lock.pins.get(item.key)) for item in inputs)
    ours = [hashlib.sha256(file.read_bytes()).hexdigest() for file in _programs_and_patches(context)]
    system = [f"{package.path} {package.sha256}" for package in rendered.system]
    return hashlib.sha256("\n".join([rendered.dockerfile, *pins, *ours, *system]).encode()).hexdigest()


def _programs_and_patches(context: Path) -> list[Path]:
    """What we wrote ourselves; the table of costs decides when a unit is compiled, not what comes of it."""
    files = [*(context / "inside").glob("*"), *(context / "patches").glob("*")]
    return sorted(file for file in files if file.suffix != ".tsv")


_NAME = "built.json"


def stamp_key(plan: BuildPlan, lock: Lock, sources: Iterable[Path]) -> str:
    """Hex sha256 over the plan, the pins, and the code and templates in ``sources``.

    Why a base was chosen is not part of it: a registry fails in changing words.
    """
    hasher = hashlib.sha256(repr(replace(plan, base_reason="")).encode())
    for key, pin in sorted(lock.pins.items()):
        hasher.update(f"{key}={pin}\n".encode())
    for file in sorted(sources):
        hasher.update(f"{file.name} {file_digest(file).sha256}\n".encode())
    return hasher.hexdigest()


def read_stamp(folder: Path, key: str, dist: Path) -> tuple[Path, ...]:
    """The packages that were built under ``key`` and verified, if the bytes of all of their files still are.

    Else none.
    """
    try:
        stamp = json.loads((folder / _NAME).read_text(encoding="utf-8"))
        same = stamp["key"] == key and all(
            file_digest(dist / name).sha256 == sha256 for name, sha256 in stamp["files"].items()
        )
        packages = tuple(dist / str(name) for name in stamp["packages"])
    except (OSError, IntegrityError, ValueError, KeyError, TypeError, AttributeError):
        return ()
    return packages if same and all(package.name in stamp["files"] for package in packages) else ()


def write_stamp(folder: Path, key: str, packages: Sequence[Path], files: Sequence[Path]) -> None:
    """Remember that ``packages``, which consist of ``files``, were built under ``key`` and verified."""
    stamp = {
        "key": key,
        "packages": [package.name for package in packages],
        "files": {file.name: file_digest(file).sha256 for file in files},
    }
    with part_file(folder / _NAME) as file:
        file.write(json.dumps(stamp, indent=2).encode() + b"\n")
