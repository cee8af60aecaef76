"""Factories of plans and of the unpacked wheels that they pack, with a few bytes in each file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builder.binary.coverage import Support
from builder.binary.elf import Elf
from builder.binary.library import HostNeeds
from builder.config.build_plan import BuildPlan
from builder.config.inputs import Input, InputKind, Lock, Pin
from builder.config.load import load_project
from builder.config.variants import Origin, Project, Variant, all_inputs
from builder.contents.package_manifest import BinaryReport
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.ort.source import Dependency, SourceFacts
from builder.finding import Finding
from builder.formats.package_names import Host, Profile
from tests.doubles.wheels import record_row
from tests.support.factories.libraries import coverage as library_coverage
from tests.support.tables import data_text

PROVIDER = "lib/libonnxruntime_providers_cuda.so"

ORT = "onnxruntime-gpu==1.21.0"

WHEELS: Mapping[str, Sequence[str]] = json.loads(data_text("formats/wheels-for-cuda.json"))
"""Files of each wheel, copied from the lists of the real wheels; licence texts lie in ``dist-info``."""


@dataclass(frozen=True)
class Trees:
    """The wheels of ``WHEELS``, unpacked below ``folder``; a call does what ``Store.unpack`` does."""

    folder: Path
    content: Callable[[str, str], bytes] = lambda spec, path: f"{spec} {path}\n".encode()
    """Function from a wheel and a path to the file's bytes."""

    def __call__(self, wheel: Input) -> Path:
        return self.folder / wheel.spec

    def lay(self) -> Trees:
        """Write every file and every ``RECORD``."""
        for spec, names in WHEELS.items():
            info = f"{spec.replace('-', '_').replace('==', '-')}.dist-info"
            paths = [f"{info}/{name}" if name.endswith("icense.txt") else name for name in names]
            lay_wheel(self.folder / spec, info, {path: self.content(spec, path) for path in paths})
        return self


def lay_wheel(root: Path, info: str, files: Mapping[str, bytes]) -> None:
    """Write the files of a wheel below ``root`` as pip does, and their ``RECORD`` in the folder ``info``."""
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    rows = [record_row(path, data) for path, data in files.items()]
    (root / info).mkdir(exist_ok=True)
    (root / info / "RECORD").write_text("\n".join([*rows, f"{info}/RECORD,,"]) + "\n")


PROJECT = replace(load_project(data_text("config/packaged.yaml"), "packaged.yaml"), variants={})

LIMITS = PROJECT.check


def pinned(project: Project) -> Lock:
    """Return a lock with a made-up pin for every input of a project, empty for git and images.

    The sources download what their bases have in its place.
    """
    named = (InputKind.GIT, InputKind.IMAGE)
    pin = Pin(filename="file.whl", size=1, sha256="0" * 64)
    return Lock(
        {item.key: Pin() if item.kind in named else pin for item in all_inputs(project, Lock(pins={}))},
        {
            base.source.item.key: SourceFacts(base.ort_version, tuple(map(_archive, base.dependencies)))
            for base in project.bases.values()
        },
    )


def _archive(name: str) -> Dependency:
    return Dependency(name, name, f"https://host.example/{name}.zip", "0" * 40, 1)


def lock() -> Lock:
    """Return a lock with a made-up pin for each wheel of ``WHEELS``."""
    pins = {
        f"wheel:{spec}": Pin(filename=f"{spec.replace('==', '-')}-py3-none-any.whl", size=9, sha256="5" * 64)
        for spec in WHEELS
    }
    return Lock(pins=pins)


def artifact(folder: Path) -> Path:
    """Write the compile stage's files for ``host: wheel`` into the new ``folder``, and return ``folder``."""
    folder.mkdir(parents=True)
    for name in ("libonnxruntime_providers_cuda.so", "libonnxruntime_providers_shared.so"):
        (folder / name).write_bytes(f"built {name}\n".encode())
    return folder


def plan(**changes: object) -> BuildPlan:
    """Return the plan of legacy, compiled lean on the assembled base; ``changes`` replace fields."""
    made = BuildPlan(
        project=PROJECT,
        variant=Variant(
            name="legacy",
            sm=tuple(map(Arch.parse, ("50", "52", "60", "61", "70"))),
            generations=("Maxwell", "Pascal", "Volta"),
        ),
        base="assembled",
        base_reason="nvidia/cuda:12.9.1-devel-ubuntu22.04 is out of reach",
        origin=Origin.SOURCE,
        origin_reason="the official wheel has no sm_50",
        profile=Profile.LEAN,
        host=Host.WHEEL,
        ort_version="1.21.0",
        ort_wheel=Input.wheel(ORT),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def official(**changes: object) -> BuildPlan:
    """Return the plan of modern, which repacks the official wheel; ``changes`` replace fields."""
    modern = Variant(name="modern", sm=(Arch(7, 5), Arch(8, 0), Arch(8, 6)), generations=("Turing", "Ampere"))
    return plan(**{"origin": Origin.WHEEL, "profile": None, "variant": modern, **changes})


NEEDS = HostNeeds(glibc="2.17", glibcxx=None)


def report(*findings: Finding) -> BinaryReport:
    """Return a check's report on the package of ``plan``, with these findings."""
    sass = tuple(map(Arch.parse, ("50", "52", "60", "61", "70")))
    native = {Capability(5, 0): Support.NATIVE, Capability(7, 0): Support.NATIVE}
    support = {**native, Capability(7, 5): Support.NONE, Capability(12, 1): Support.NONE}
    elf = Elf(
        sections=(),
        soname=None,
        needed=("libcudart.so.12", "libcudnn.so.9", "libc.so.6"),
        runpath="$ORIGIN",
        rpath=None,
        glibc="2.17",
        glibcxx=None,
    )
    read = library_coverage(containers=54, native="5.0 7.0")
    provider = replace(read, path=PROVIDER, sass=sass, ptx=())
    return BinaryReport(
        findings=findings, coverage=(provider,), capabilities=support, elf={PROVIDER: elf}, needs=NEEDS
    )
