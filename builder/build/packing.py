"""This module makes one variant's packages: gather, check, pack, verify, and move to ``dist``.

The provenance of each package and the record of its build are written to the same folder.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from builder.build.check_tools import CheckTools
from builder.compile.artifact import Artifact
from builder.compile.plan import PlanOptions
from builder.config.build_plan import NO_BASE, BuildPlan, Rendered, Workplace, package_name, planned_units
from builder.config.inputs import Input
from builder.config.variants import Origin
from builder.console import Reporter
from builder.contents.build_record import loads_compile, record_name, record_of
from builder.contents.check import check, say_report
from builder.contents.cuobjdump import Inspector
from builder.contents.integrity import update_checksums
from builder.contents.package_manifest import BinaryReport, Member
from builder.contents.provenance import (
    PackageRun,
    Resource,
    base_parts,
    base_revision,
    provenance_json,
    provenance_name,
    used_inputs,
    utc,
)
from builder.farm.drive import SHARED
from builder.files.atomic_write import write_file
from builder.files.digest import LocalFile, file_digest
from builder.formats.json_values import json_text
from builder.formats.manifest import Manifest
from builder.formats.package_names import CUDA
from builder.io.git import revision_of
from builder.io.store import FileStore
from builder.io.wheel import record_text
from builder.io.wiring import Wiring
from builder.package.bundle import (
    BundlePorts,
    CheckedContent,
    PackageSources,
    bundle,
    discard,
    gather,
    originals,
    our_licence,
)
from builder.prove.verify import Verifier
from builder.publish.image import PLATFORMS


@dataclass(frozen=True, kw_only=True)
class Packer:
    """The packing of one build. After a failure ``dist`` holds no package of it."""

    wiring: Wiring
    place: Workplace
    plan: BuildPlan
    rendered: Rendered
    plan_options: PlanOptions
    began: float
    """Start of the build, in seconds since 1970."""
    tools: CheckTools | None
    """Tools that check the package; with ``None`` nothing in the package is run."""
    store: FileStore
    reporter: Reporter

    def prepare(self) -> None:
        """Check that our licence is there and that cuobjdump works, before hours of compiling.

        Raises ``ConfigError`` without the licence.
        """
        our_licence(self._licence)
        _ = self._inspector

    @property
    def _licence(self) -> Path:
        return self.wiring.root / self.plan.project.bundle.licence

    @cached_property
    def _inspector(self) -> Inspector | None:
        """The tool cuobjdump for packages with device code; ``None`` for other packages and without tools."""
        return self.tools.inspector() if self.tools and self.plan.variant.provider == CUDA else None

    def check(self) -> tuple[tuple[Member, ...], BinaryReport]:
        """Return the members that the package needs, and the report on all members.

        The report is made by our reader and by cuobjdump. Raises ``CheckFailedError`` for libraries that were
        compiled for another plan.
        """
        artifact = Artifact(self.wiring, self.place, self.rendered, self.reporter)
        sources = PackageSources(
            tree=self.store.unpack,
            artifact=artifact.folder() if self.plan.origin is Origin.SOURCE else None,
            licence=self._licence,
            directml=self.wiring.templates / "directml.txt",
            relocate=self.wiring.patchelf.with_runpath,
        )
        members = gather(self.plan, sources)
        variant, limits = self.plan.variant, self.wiring.project.check
        units = planned_units(self.plan) if self.plan.origin is Origin.SOURCE else None
        report = check(members, variant, limits, self._inspector, self.reporter, leave_out=True, stated=units)
        for path in report.unneeded:
            self.reporter.say(f"left out {path}: nothing in the package needs it")
        say_report(report, variant, self.reporter)
        return tuple(member for member in members if member.path not in report.unneeded), report

    def pack(self) -> tuple[LocalFile, ...]:
        """Check, pack and verify in the variant's folder, then move the packages to ``dist`` and return them.

        The variant's earlier packages are removed first.
        """
        for layout in self.plan.possible_layouts:
            discard(package_name(self.plan, layout), self.wiring.dist)
        members, report = self.check()
        checked = CheckedContent(
            plan=self.plan,
            members=members,
            originals=originals(self.plan, members, self.store.unpack),
            report=report,
            record=lambda key: record_text(self.store.unpack(Input.parse(key))),
            lock=self.wiring.lock,
            revision=self._base_revision(),
        )
        with self.reporter.step(f"bundle {self.plan.variant.name}"):
            ports = BundlePorts(
                writer=self.wiring.package_writer(self.reporter),
                reporter=self.reporter,
                dist=self.place.unverified,
                work=self.place.root,
            )
            bundled = bundle(checked, ports)
        bench = self.tools.selftest_bench() if self.tools else None
        verifier = Verifier(self.wiring, self.reporter, bench)
        manifests = [verifier.verify(packed.path) for packed in bundled]
        if self.plan.variant.provider == CUDA:
            write_record(
                bundled[0],
                manifests[0],
                self.wiring.dist,
                command=command_of(self.plan, self.plan_options),
                artifact=self.place.artifact if self.plan.origin is Origin.SOURCE else None,
                finished=time.time(),
            )
        return tuple(map(self._publish_to_dist, bundled, manifests))

    @property
    def _base_parts(self) -> tuple[Resource, ...]:
        return base_parts(self.plan, self.wiring.lock, self.rendered.system)

    def _base_revision(self) -> str | None:
        """Return the digest of the base's parts.

        ``None`` if nothing was compiled, a part is not pinned, or ``variants.yaml`` names another source.
        """
        if self.plan_options.source:
            return None
        parts = [(part.uri, digest) for part in self._base_parts for digest in part.digest.values()]
        return base_revision(parts) if len(parts) == len(self._base_parts) > 0 else None

    def _publish_to_dist(self, one: LocalFile, manifest: Manifest) -> LocalFile:
        """Move a verified package to ``dist``, write its provenance and checksums, and return it."""
        dist = self.wiring.dist
        provenance = dist / provenance_name(one.name)
        write_file(provenance, self._provenance(one, manifest).encode())
        package = one.path.replace(dist / one.name)
        update_checksums(dist, put={one.name: one.sha256, provenance.name: file_digest(provenance).sha256})
        return replace(one, path=package)

    def _provenance(self, one: LocalFile, manifest: Manifest) -> str:
        pins, root = self.wiring.lock.pins, self.wiring.root
        used = {item: pins[item.key] for item in used_inputs(self.plan, self.rendered) if item.key in pins}
        run = PackageRun(
            command=command_of(self.plan, self.plan_options),
            started=self.began,
            finished=time.time(),
            revision=revision_of(root, self.wiring.runner),
            config_sha256=hashlib.sha256((root / "variants.yaml").read_bytes()).hexdigest(),
            shared_objects=self.plan.origin is Origin.SOURCE and (self.place.artifact / SHARED).is_file(),
        )
        subjects = {one.name: one.sha256}
        return provenance_json(self.plan, manifest, used, subjects, run, self._base_parts)


_COMPILE_RECORD = "record.json"
"""File name of the record that the build container writes to the libraries' folder."""


def write_record(
    packed: LocalFile,
    manifest: Manifest,
    dist: Path,
    *,
    command: str,
    artifact: Path | None,
    finished: float,
) -> Path:
    """Write the build record of a verified package into ``dist`` and return its path.

    ``artifact`` is the folder of the compiled libraries, ``None`` for origin wheel; ``finished`` is the
    end of the build in seconds since 1970. Raises ``ConfigError`` for a compile's record that cannot be
    read, and ``DiskError``.
    """
    file, date = artifact / _COMPILE_RECORD if artifact else None, utc(finished)
    took = loads_compile(file.read_bytes(), str(file)) if file and file.is_file() else None
    record = record_of(manifest, packed.name, packed.sha256, date=date, command=command, compiled=took)
    path = dist / record_name(packed.name)
    write_file(path, json_text(record).encode())
    return path


def command_of(plan: BuildPlan, plan_options: PlanOptions) -> str:
    """Return the command that makes the plan's package on any machine.

    The command names a base where the base determines the version. Other flags are included if they were
    given and differ from variants.yaml. Profile and host are included whenever they were given and the origin
    is ``auto``, since asking for either means compiling.
    """
    ours = plan.project.onnxruntime
    origin = plan_options.origin or ours.origin
    flags = {"variant": plan.variant.name}
    if plan.variant.form is not plan.project.packages[plan.variant.name].form:
        flags["form"] = plan.variant.form.value
    asked = {"profile": (plan_options.profile, ours.profile), "host": (plan_options.host, ours.host)}
    for flag, (given, usual) in asked.items():
        if given and plan.profile and (given is not usual or origin is Origin.AUTO):
            flags[flag] = given.value
    if origin is not ours.origin:
        flags["origin"] = origin.value
    words = [*(f"--{flag} {value}" for flag, value in flags.items()), *_version_flags(plan)]
    words += ["--release"] if plan_options.release else []
    if plan_options.source:  # all bases have it, and it gives a repacked wheel its version
        base = next(iter(plan.project.bases.values()))
        named = (one.partition("=")[0] for one in plan_options.dependencies)
        words.append(f"--source {base.source.item.public}")
        words += [f"--dependency {name}={base.dependencies[name].public}" for name in named]
    if plan.cuda_reason:
        words.append(f"--cuda {plan.on.toolkit.version.partition('.')[0]}")
    if plan_options.widen and not plan.project.packages[plan.variant.name].widen:
        words.append("--widen")
    if plan.variant.platform != plan.project.packages[plan.variant.name].platform:
        return " ".join(["./run image", *words, f"--platform {PLATFORMS[plan.variant.platform]}"])
    return " ".join(["./run build", *words])


def _version_flags(plan: BuildPlan) -> Iterator[str]:
    """Yield the flags that determine the ORT version; none if variants.yaml names the wheel."""
    if plan.variant.wheel is not None or (plan.variant.toolkit and plan.base == NO_BASE):
        return
    bases = plan.project.bases
    possible = [*bases] if plan.base == NO_BASE else [plan.base]
    if plan.variant.toolkit:
        yield f"--base {plan.base}"
        return
    fitting = [base for base in possible if bases[base].ort_version == plan.ort_version]
    yield f"--base {(fitting or possible)[0]}"
    if not fitting:
        yield "--mixed"
