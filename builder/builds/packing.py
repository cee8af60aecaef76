"""One variant's packages: gathered files are checked, packed, verified, and moved to ``dist``.

Beside each package lie its provenance and the record of its build.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from builder.adapters.git import revision_of
from builder.adapters.wheel import record_text
from builder.builds.check_tools import CheckTools
from builder.builds.proving import verifier
from builder.builds.wiring import Wiring
from builder.files.atomic_write import part_file
from builder.files.digest import file_digest
from builder.formats.manifest import Manifest
from builder.formats.package_names import CUDA, Host, Profile
from builder.package.archive import Member
from builder.package.build_record import CompileRecord, dumps, loads_compile, record_name, record_of
from builder.package.provenance import (
    BuilderRun,
    Resource,
    base_parts,
    base_revision,
    image_revision,
    provenance_json,
    provenance_name,
    used_inputs,
)
from builder.pipeline.bundle import Bundled, BundlePorts, CheckedContent, bundle, discard
from builder.pipeline.check import CheckReport, check, say_report
from builder.pipeline.gather import originals
from builder.pipeline.plan import Wishes
from builder.pipeline.selftest import SelftestBench
from builder.pipeline.verify import verify
from builder.ports import Inspector, Reporter, Store
from builder.project.build_plan import NO_BASE, BuildPlan, Rendered, Workplace, package_name
from builder.project.inputs import Input
from builder.project.variants import Origin


class Packer:
    """The packing of one build. After a failure ``dist`` holds no package of it."""

    def __init__(self, run: BuildRun, tools: CheckTools | None, store: Store, reporter: Reporter) -> None:
        """Without ``tools`` nothing of a package is run."""
        self._run = run
        self._tools = tools
        self._store = store
        self._reporter = reporter

    def clear(self) -> None:
        """Remove the variant's earlier packages."""
        bench = self._bench(self._run.wiring.dist)
        for layout in self._run.plan.possible_layouts:
            discard(package_name(self._run.plan, layout), bench)

    def check(self, members: Sequence[Member]) -> tuple[tuple[Member, ...], CheckReport]:
        """The members that something needs, and the report on them by our reader and by cuobjdump."""
        variant = self._run.plan.variant
        inspector = self._inspector()
        report = check(members, variant, self._run.wiring.project.check, inspector, self._reporter)
        for path in report.unneeded:
            self._reporter.say(f"left out {path}: nothing in the package needs it")
        needed = report.without(report.unneeded)
        say_report(needed, variant, self._reporter)
        return tuple(member for member in members if member.path not in report.unneeded), needed

    def pack(self, members: Sequence[Member]) -> tuple[Bundled, ...]:
        """Check, pack and verify in the variant's folder, then move the packages to ``dist``."""
        goods = self._goods(*self.check(members))
        with self._reporter.step(f"bundle {goods.plan.variant.name}"):
            bundled = bundle(goods, self._bench(self._run.place.unverified))
        prove = verifier(self._run.wiring, self._reporter, self._trial())
        manifests = [verify(one.package.path, prove) for one in bundled]
        if goods.plan.variant.provider == CUDA:
            write_build_record(bundled[0], manifests[0], self._run)
        return tuple(
            _settle(one, manifest, self._run) for one, manifest in zip(bundled, manifests, strict=True)
        )

    def _inspector(self) -> Inspector | None:
        """The cuobjdump of the base, for packages with CUDA code."""
        if self._tools is None or self._run.plan.variant.provider != CUDA:
            return None
        with self._reporter.step("make the image that has cuobjdump"):
            return self._tools.inspector()

    def _trial(self) -> SelftestBench | None:
        """The container image and models of the self-test."""
        if self._tools is None:
            return None
        with self._reporter.step("make what it is tried out with"):
            return self._tools.bench()

    def _goods(self, members: tuple[Member, ...], report: CheckReport) -> CheckedContent:
        plan, lock = self._run.plan, self._run.wiring.lock
        return CheckedContent(
            plan=plan,
            members=members,
            originals=originals(plan, members, self._store.unpack),
            report=report,
            record=lambda key: record_text(self._store.unpack(Input.parse(key))),
            lock=lock,
            revision=self._run.base_revision,
        )

    def _bench(self, dist: Path) -> BundlePorts:
        wiring = self._run.wiring
        return BundlePorts(
            archive=wiring.archive(self._reporter),
            bom=wiring.bom,
            checksums=wiring.checksums,
            reporter=self._reporter,
            dist=dist,
            work=self._run.place.root,
        )


def _settle(one: Bundled, manifest: Manifest, run: BuildRun) -> Bundled:
    """Move a verified package to ``dist`` and write its provenance and checksums."""
    dist, checksums = run.wiring.dist, run.wiring.checksums
    provenance = write_provenance(one, manifest, run)
    files = tuple(dist / file.name for file in one.files)
    for old, new in zip(one.files, files, strict=True):
        os.replace(old, new)  # noqa: PTH105 - a rename over what may be there, in one step
    checksums.update(dist, put={**one.sums, provenance.name: file_digest(provenance).sha256})
    return replace(one, package=replace(one.package, path=files[-1]), files=files)


@dataclass(frozen=True, kw_only=True)
class BuildRun:
    """The facts of one build that its record and provenance tell."""

    wiring: Wiring
    place: Workplace
    plan: BuildPlan
    rendered: Rendered
    wishes: Wishes
    began: float
    """Seconds since 1970."""

    @property
    def base_parts(self) -> tuple[Resource, ...]:
        """The parts of the assembled base that compiled the libraries."""
        return base_parts(self.plan, self.wiring.lock.pins, self.rendered.system)

    @property
    def base_revision(self) -> str | None:
        """The base image's digest, or the digest of the assembled base's parts if it compiled anything."""
        if self.plan.base == "nvidia":
            return image_revision(self.plan, self.wiring.lock)
        parts = [(part.uri, part.digest["sha256"]) for part in self.base_parts]
        return base_revision(parts) if parts else None

    @property
    def command(self) -> str:
        """The command that makes the packages again."""
        return command_of(self.plan, self.wishes)


def write_build_record(one: Bundled, manifest: Manifest, run: BuildRun) -> Path:
    """Write the record of the build, beside the first of its packages."""
    return write_record(
        one,
        manifest,
        run.wiring.dist,
        command=run.command,
        artifact=run.place.artifact if run.plan.origin is Origin.SOURCE else None,
        clock=time.time,
    )


def write_provenance(one: Bundled, manifest: Manifest, run: BuildRun) -> Path:
    """Write a package's provenance; its path."""
    pins = run.wiring.lock.pins
    used = {item: pins[item.key] for item in used_inputs(run.plan, run.rendered) if item.key in pins}
    parts = {file.name: one.sums[file.name] for file in one.files[:-1]}
    subjects = {one.archive: one.package.sha256, **parts}
    text = provenance_json(run.plan, manifest, used, subjects, _provenance_run(run), run.base_parts)
    path = run.wiring.dist / provenance_name(one.archive)
    with part_file(path) as file:
        file.write(text.encode())
    return path


def _provenance_run(run: BuildRun) -> BuilderRun:
    wiring = run.wiring
    return BuilderRun(
        command=run.command,
        started=run.began,
        finished=time.time(),
        revision=revision_of(wiring.root, wiring.runner),
        config_sha256=hashlib.sha256((wiring.root / "variants.yaml").read_bytes()).hexdigest(),
    )


_COMPILE_RECORD = "record.json"
"""The record that the build container writes beside the libraries."""


def write_record(
    packed: Bundled,
    manifest: Manifest,
    dist: Path,
    *,
    command: str,
    artifact: Path | None,
    clock: Callable[[], float],
) -> Path:
    """Write the build record of a verified package into ``dist``; its path.

    ``artifact`` is the folder of the compiled libraries, ``None`` for origin wheel; ``clock`` gives seconds
    since 1970. Raises ``ConfigError`` for a compile's record that cannot be read, and ``DiskError``.
    """
    write_build_record = record_of(
        manifest,
        packed.archive,
        packed.package.sha256,
        date=datetime.fromtimestamp(clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=command,
        compiled=_took(artifact / _COMPILE_RECORD) if artifact else None,
    )
    path = dist / record_name(packed.archive)
    with part_file(path) as file:
        file.write(dumps(write_build_record).encode())
    return path


def _took(file: Path) -> CompileRecord | None:
    return loads_compile(file.read_bytes(), str(file)) if file.is_file() else None


def command_of(plan: BuildPlan, wishes: Wishes) -> str:
    """The command that makes the plan's package on any machine. It always names a base.

    Other flags are included where they were given and differ from variants.yaml. Profile and host are
    included whenever they were given and the origin is ``auto``, since asking for either means compiling.
    """
    ours = plan.project.onnxruntime
    origin = wishes.origin or ours.origin
    flags = {"variant": plan.variant.name}
    if wishes.profile and plan.profile and _is_named(wishes.profile, ours.profile, origin):
        flags["profile"] = wishes.profile.value
    if wishes.host and plan.profile and _is_named(wishes.host, ours.host, origin):
        flags["host"] = wishes.host.value
    if origin is not ours.origin:
        flags["origin"] = origin.value
    words = [*(f"--{flag} {value}" for flag, value in flags.items()), *_version_flags(plan)]
    words += ["--release"] if wishes.release else []
    if wishes.widen and not plan.project.packages[plan.variant.name].widen:
        words.append("--widen")
    return " ".join(["./run build", *words])


def _version_flags(plan: BuildPlan) -> Iterator[str]:
    """The flags that determine the ORT version; none where variants.yaml names the wheel."""
    if plan.variant.wheel is not None:
        return
    possible = ("nvidia", "assembled") if plan.base == NO_BASE else (plan.base,)
    bases = plan.project.bases
    fitting = [base for base in possible if bases.ort_version(base) == plan.ort_version]
    yield f"--base {(fitting or possible)[0]}"
    if not fitting:
        yield "--mixed"


def _is_named(given: Profile | Host, ours: Profile | Host, origin: Origin) -> bool:
    return given is not ours or origin is Origin.AUTO
