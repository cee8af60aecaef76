"""Tests of the build records beside packages, and of the commands in them."""

import json
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path

import pytest

from builder.build.packing import command_of, write_record
from builder.compile.plan import PlanOptions
from builder.config.variants import Origin, Project
from builder.errors import ConfigError
from builder.files.digest import LocalFile
from builder.formats.manifest import Manifest
from builder.formats.package_names import Host, PackageName, Profile
from builder.package.bundle import discard
from tests.support.factories import records
from tests.support.factories.packages import plan
from tests.support.factories.records import LEGACY, MODERN, PROVIDER, package

TOOK = {
    **vars(records.TOOK),
    "units": 1528,
    "compilations": 1528,
    "cache_hits": 0,
    "cpu_s": 3391,
    "wall_s": 1748,
    "longest_unit_s": 761,
}
"""Record of a compile in the form that the build container writes."""

MIDNIGHT = 1763683200.0
"""Fri Nov 21 00:00:00 UTC 2025 in Unix seconds (``date -u -d @1763683200``)."""

FILES = {PROVIDER: b"the provider", "licenses/onnxruntime.txt": b"MIT"}

COMMAND = "./run build --variant legacy --base assembled"


def artifact(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_text(json.dumps({**TOOK, **changes}))
    return folder


def built(dist: Path, manifest: Manifest = LEGACY) -> Path:
    """Write a package and its record into ``dist`` and return its path."""
    packed = package(dist, manifest, FILES)
    compiled = artifact(dist / "artifact") if manifest is LEGACY else None
    write_record(packed, manifest, dist, command=COMMAND, artifact=compiled, finished=MIDNIGHT)
    return packed.path


def record_of(path: Path) -> Path:
    return path.with_name(path.name.replace(".tar.zst", ".build.json"))


def test_the_record_says_what_was_packed_and_what_compiling_took(tmp_path: Path) -> None:
    packed = LocalFile(tmp_path / "unverified" / f"{LEGACY.name}.tar.zst", 9, "ab" * 32)
    more = {"command": COMMAND, "artifact": artifact(tmp_path / "artifact"), "finished": MIDNIGHT}
    written = partial(write_record, packed, LEGACY, tmp_path, **more)  # type: ignore[arg-type]
    path = written()
    assert path == tmp_path / "ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.build.json"
    record = json.loads(path.read_text())
    assert record["package"] == "ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.tar.zst"
    assert (record["sha256"], record["date"], record["command"]) == (
        "ab" * 32,
        "2025-11-21T00:00:00Z",
        COMMAND,
    )
    assert record["compile"] == TOOK
    artifact(tmp_path / "artifact", units="many")
    with pytest.raises(ConfigError, match=r"artifact/record\.json: units: a whole number is wanted"):
        written()


@pytest.mark.parametrize(
    ("ours", "given", "command"),
    [
        ("auto lean", {"profile": Profile.FULL}, "--variant legacy --profile full"),
        ("auto lean", {"origin": Origin.AUTO, "host": Host.SOURCE}, "--variant legacy --host source"),
        # The flags equal variants.yaml, but this command compiles what would otherwise be repacked:
        ("auto lean", {"profile": Profile.LEAN}, "--variant legacy --profile lean"),
        ("source lean", {"profile": Profile.LEAN, "host": Host.WHEEL}, "--variant legacy"),
        ("wheel lean", {"origin": Origin.SOURCE}, "--variant legacy --origin source"),
    ],
)
def test_the_command_names_what_variants_yaml_does_not_say(
    project: Project, ours: str, given: dict[str, Enum], command: str
) -> None:
    origin, profile = ours.split()
    said = replace(project.onnxruntime, origin=Origin(origin), profile=Profile(profile))
    plan_options = PlanOptions(**given)  # type: ignore[arg-type]
    decided = plan(project=replace(project, onnxruntime=said), profile=plan_options.profile or said.profile)
    assert command_of(decided, plan_options) == f"./run build {command} --base assembled"


@pytest.mark.parametrize("said", [True, False])
def test_the_command_names_widening_that_variants_yaml_does_not_ask_for(project: Project, said: bool) -> None:
    legacy = replace(project.variants["legacy"], widen=said)
    decided = plan(project=replace(project, variants={"legacy": legacy}), variant=legacy)
    assert command_of(decided, PlanOptions(widen=True)).endswith(" --widen") == (not said)
    assert "--widen" not in command_of(decided, PlanOptions())


@pytest.mark.parametrize(
    ("name", "base", "version", "said"),
    [
        ("cpu", "none", "1.21.0", "--base assembled"),
        ("cpu", "none", "1.22.0", "--base nvidia --mixed"),
        ("directml", "none", "1.24.4", ""),
    ],
)
def test_the_command_makes_the_package_of_this_version_again_and_names_nothing_of_compiling(
    project: Project, name: str, base: str, version: str, said: str
) -> None:
    wheel = plan(project=project, origin=Origin.WHEEL, profile=None, base=base, ort_version=version)
    decided = replace(wheel, variant=project.packages[name])
    plan_options = PlanOptions(mixed=True, profile=Profile.LEAN, host=Host.SOURCE)
    assert command_of(decided, plan_options) == f"./run build --variant {name} {said}".rstrip()
    tried = command_of(decided, replace(plan_options, source="..."))
    assert tried.endswith(" --source https://github.com/microsoft/onnxruntime@v1.30.0")


def test_a_record_goes_with_its_package(tmp_path: Path) -> None:
    legacy, modern = built(tmp_path), built(tmp_path, MODERN)
    discard(PackageName.parse(legacy.name), tmp_path)
    left = {path.name for path in tmp_path.iterdir() if path.name.startswith("ortpacks-")}
    assert left == {modern.name, record_of(modern).name}
