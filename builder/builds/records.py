"""Files beside a package in ``dist``: its provenance, the record of its build, and docs/builds.md."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from builder.adapters.git import revision_of
from builder.builds.workshop import Workshop
from builder.errors import ConfigError
from builder.files.atomic_write import part_file
from builder.formats.manifest import Manifest
from builder.formats.manifest import loads as loads_manifest
from builder.formats.package_names import PARTS_SUFFIX, Host, Layout, PackageName, Profile, stem
from builder.package.build_record import (
    BuildRecord,
    Compile,
    builds_page,
    contradictions,
    dumps,
    loads,
    loads_compile,
    record_name,
    record_of,
)
from builder.package.provenance import (
    Resource,
    Run,
    Subject,
    base_parts,
    base_revision,
    describe_provenance,
    image_revision,
    provenance_json,
    provenance_name,
    used_inputs,
)
from builder.pipeline.bundle import Bundled
from builder.pipeline.plan import Wishes
from builder.project.plan import NO_BASE, BuildPlan, Rendered, Workplace
from builder.project.variants import Origin
from builder.release.options import archives_in


@dataclass(frozen=True, kw_only=True)
class Making:
    """How a variant's packages were made."""

    shop: Workshop
    place: Workplace
    plan: BuildPlan
    rendered: Rendered
    wishes: Wishes
    began: float
    """Seconds since 1970."""

    @property
    def base_parts(self) -> tuple[Resource, ...]:
        """What the assembled base that compiled it consists of."""
        return base_parts(self.plan, self.shop.lock.pins, self.rendered.system)

    @property
    def base_revision(self) -> str | None:
        """The base image's digest; of an assembled base that compiled anything, its parts'."""
        if self.plan.base == "nvidia":
            return image_revision(self.plan, self.shop.lock)
        parts = [(part.uri, part.digest["sha256"]) for part in self.base_parts]
        return base_revision(parts) if parts else None

    @property
    def command(self) -> str:
        """What makes them again."""
        return command_of(self.plan, self.wishes)


def record(one: Bundled, manifest: Manifest, making: Making) -> Path:
    """Write what building took: once a build, beside the first of its packages."""
    return note(
        one,
        manifest,
        making.shop.dist,
        command=making.command,
        artifact=making.place.artifact if making.plan.origin is Origin.SOURCE else None,
        clock=time.time,
    )


def vouch(one: Bundled, manifest: Manifest, making: Making) -> Path:
    """Write a package's provenance."""
    pins = making.shop.lock.pins
    used = {item: pins[item.key] for item in used_inputs(making.plan, making.rendered) if item.key in pins}
    statement = describe_provenance(
        making.plan, manifest, used, list(_subjects(one)), _run(making), making.base_parts
    )
    path = making.shop.dist / provenance_name(one.archive)
    with part_file(path) as file:
        file.write(provenance_json(statement).encode())
    return path


def _subjects(one: Bundled) -> Iterator[Subject]:
    """The archive, then the parts it was cut into."""
    yield Subject(one.archive, one.package.sha256)
    for file in one.files[:-1]:
        yield Subject(file.name, one.sums[file.name])


def _run(making: Making) -> Run:
    shop = making.shop
    return Run(
        command=making.command,
        started=making.began,
        finished=time.time(),
        revision=revision_of(shop.root, shop.runner),
        config_sha256=hashlib.sha256((shop.root / "variants.yaml").read_bytes()).hexdigest(),
    )


PAGE = "docs/builds.md"

_TOOK = "record.json"
"""What the build container leaves beside the libraries it compiled."""


def note(
    packed: Bundled,
    manifest: Manifest,
    dist: Path,
    *,
    command: str,
    artifact: Path | None,
    clock: Callable[[], float],
) -> Path:
    """Write the record of a verified package where it stands or will stand, in ``dist``.

    ``artifact`` is where its compile left its libraries, ``None`` for origin wheel; ``clock`` tells seconds
    since 1970. Raises ``ConfigError`` for a compile's record that cannot be read, and ``DiskError``.
    """
    record = record_of(
        manifest,
        packed.archive,
        packed.package.sha256,
        date=datetime.fromtimestamp(clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=command,
        compiled=_took(artifact / _TOOK) if artifact else None,
    )
    path = dist / record_name(packed.archive)
    with part_file(path) as file:
        file.write(dumps(record).encode())
    return path


def _took(file: Path) -> Compile | None:
    return loads_compile(file.read_bytes(), str(file)) if file.is_file() else None


def command_of(plan: BuildPlan, wishes: Wishes) -> str:
    """The command that makes the plan's package on any machine: a base is named, whatever chose it here.

    Of the other flags those that were given and say something else than variants.yaml. Profile and host are
    named even where they do not: while the origin is open, asking for either means compiling.
    """
    ours = plan.project.onnxruntime
    origin = wishes.origin or ours.origin
    flags = {"variant": plan.variant.name}
    if wishes.profile and plan.profile and _tells(wishes.profile, ours.profile, origin):
        flags["profile"] = wishes.profile.value
    if wishes.host and plan.profile and _tells(wishes.host, ours.host, origin):
        flags["host"] = wishes.host.value
    if origin is not ours.origin:
        flags["origin"] = origin.value
    words = [*(f"--{flag} {value}" for flag, value in flags.items()), *_version(plan)]
    words += ["--release"] if wishes.release else []
    if wishes.widen and not plan.project.packages[plan.variant.name].widen:
        words.append("--widen")
    return " ".join(["./run build", *words])


def _version(plan: BuildPlan) -> Iterator[str]:
    """The flags that the ORT version follows from; none where the wheel in variants.yaml says it."""
    if plan.variant.wheel is not None:
        return
    possible = ("nvidia", "assembled") if plan.base == NO_BASE else (plan.base,)
    bases = plan.project.bases
    fitting = [base for base in possible if bases.ort_version(base) == plan.ort_version]
    yield f"--base {(fitting or possible)[0]}"
    if not fitting:
        yield "--mixed"


def _tells(given: Profile | Host, ours: Profile | Host, origin: Origin) -> bool:
    return given is not ours or origin is Origin.AUTO


def write_page(shop: Workshop, folders: Sequence[Path]) -> None:
    """Make docs/builds.md anew from every package of ``folders`` that has its record beside it.

    A package whose record is missing or of other bytes is left out with a warning. Raises
    ``NothingToDoError`` for a folder without packages and ``IntegrityError`` for a damaged one.
    """
    packages = [package for folder in folders for package in _recorded(archives_in(folder))]
    found = {}
    for package in packages:
        build = _read(shop, package)
        if isinstance(build, str):
            shop.reporter.warn(f"left out: {package.name}: {build}")
        else:
            found[build[1].sha256] = build
    path = shop.root / PAGE
    with part_file(path) as file:
        file.write(builds_page(found.values()).encode())
    shop.reporter.say(f"{path}: {len(found)} of {len(packages)} packages")


def _recorded(packages: Sequence[Path]) -> Iterator[Path]:
    """The packages that a record may be of: one of those a build made of the same libraries.

    A package without CUDA has none: nothing is compiled for it.
    """
    stems = {stem(package.name) for package in packages}
    for package in packages:
        name = PackageName.parse(package.name)
        full = str(replace(name, layout=Layout.FULL.value))
        first = next(one for one in packages if stem(one.name) == str(name))
        if package == first and name.cuda and (str(name) == full or full not in stems):
            yield package


def _read(shop: Workshop, package: Path) -> tuple[Manifest, BuildRecord, int] | str:
    """Manifest, record and bytes of a package, or why its record cannot be used."""
    file = package.with_name(record_name(package.name))
    if not file.is_file():
        return f"no {file.name} lies beside it"
    try:
        record = loads(file.read_bytes(), file.name)
    except ConfigError as error:
        return "; ".join(error.problems)
    with shop.reporter.step(f"read {package.name}"):
        archive = shop.archive(shop.reporter)
        manifest = loads_manifest(archive.read_manifest(package), package.name)
        digest = archive.whole(package)
    unlike = contradictions(record, manifest, package.name.removesuffix(PARTS_SUFFIX), digest.sha256)
    return "; ".join(unlike) or (manifest, record, digest.size)
