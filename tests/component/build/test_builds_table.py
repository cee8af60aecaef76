"""Tests of the build records beside packages and of the table of builds, which is made from them."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path

import pytest

from builder.build.packing import command_of, write_record
from builder.build.verbs.pages import add_build, builds_table, stored_rows
from builder.compile.plan import PlanOptions
from builder.config.variants import Origin, Project
from builder.contents.build_record import loads
from builder.errors import BuilderError, ConfigError
from builder.files.digest import LocalFile
from builder.formats.manifest import Manifest
from builder.formats.package_names import Host, PackageName, Profile
from builder.io.wiring import Wiring
from builder.package.bundle import discard
from tests.support.factories import records
from tests.support.factories.packages import plan
from tests.support.factories.records import LEGACY, MODERN, PROVIDER, package
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Told

TOOK = {
    **vars(records.TOOK),
    "format": 1,
    "units": 1528,
    "compilations": 1528,
    "cache_hits": 0,
    "cpu_s": 3390.6,
    "wall_s": 1748.2,
    "longest_unit_s": 760.9,
}
"""Record of a compile in the form that the build container writes."""

MIDNIGHT = 1763683200.0
"""Fri Nov 21 00:00:00 UTC 2025 in Unix seconds (``date -u -d @1763683200``)."""

FILES = {PROVIDER: b"the provider", "licenses/onnxruntime.txt": b"MIT"}

COMMAND = "./run build --variant legacy --base assembled"


@pytest.fixture
def shop(tmp_path: Path) -> Wiring:
    return Wiring(tmp_path, dist=tmp_path / "dist", reporter=FakeReporter())


def artifact(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_text(json.dumps({**TOOK, **changes}))
    return folder


def built(
    dist: Path,
    manifest: Manifest = LEGACY,
    files: Mapping[str, bytes] = FILES,
    took: Mapping[str, object] | None = None,
    command: str = COMMAND,
) -> Path:
    """Write a package and its record into ``dist`` and return its path; ``took`` changes the
    compile's record."""
    packed = package(dist, manifest, files)
    compiled = artifact(dist / "artifact", **(took or {})) if manifest is LEGACY else None
    write_record(packed, manifest, dist, command=command, artifact=compiled, finished=MIDNIGHT)
    return packed.path


def record_of(path: Path) -> Path:
    return path.with_name(path.name.replace(".tar.zst", ".build.json"))


def made(shop: Wiring, *packages: Path) -> str:
    """Add packages, without a name those of ``dist``, and return the table."""
    (shop.root / "docs").mkdir(exist_ok=True)
    for one in packages or sorted(shop.dist.glob("*.tar.zst")):
        add_build(shop, one)
    return "\n".join(builds_table(stored_rows(shop.root)))


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of the table in ``text``, each as its cells by column heading."""
    lines = [line.strip("|\n").split("|") for line in text.splitlines() if line.startswith("|")]
    head, _, *cells = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(head, line, strict=True)) for line in cells]


def test_the_record_says_what_was_packed_and_what_compiling_took(tmp_path: Path) -> None:
    packed = LocalFile(tmp_path / "unverified" / f"{LEGACY.name}.tar.zst", 9, "ab" * 32)
    more = {"command": COMMAND, "artifact": artifact(tmp_path / "artifact"), "finished": MIDNIGHT}
    written = partial(write_record, packed, LEGACY, tmp_path, **more)  # type: ignore[arg-type]
    path = written()
    assert path == tmp_path / "ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.build.json"
    record = loads(path.read_text(), path.name)
    assert record.package == "ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.tar.zst"
    assert (record.sha256, record.date, record.command) == ("ab" * 32, "2025-11-21T00:00:00Z", COMMAND)
    took = {**TOOK, "cpu_s": 3391, "wall_s": 1748, "longest_unit_s": 761}
    assert {"format": 1, **vars(record.compile)} == took
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


def test_a_package_has_a_row_of_what_it_is_and_what_it_took(shop: Wiring, tmp_path: Path, told: Told) -> None:
    """A repacked wheel compiled nothing."""
    noise = os.urandom(10_600_000)
    built(shop.dist, files={**FILES, PROVIDER: FILES[PROVIDER] + noise})
    told(made(shop))
    (row,) = rows(made(shop, built(tmp_path / "repacked", MODERN)))
    told(list(row.values()))


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"runs": 2}, "cold; in 2 runs"),
        ({"compilations": 1531}, "not cold: 3 compiled again"),
        ({"cache_hits": 1200, "compilations": 1529}, "not cold: 1,200 units from ccache, 1 compiled again"),
    ],
)
def test_a_build_that_was_not_cold_says_so(shop: Wiring, changes: dict[str, object], kind: str) -> None:
    built(shop.dist, took=changes)
    assert rows(made(shop))[0]["compile"] == kind


def test_a_compile_without_a_record_has_no_figures(shop: Wiring) -> None:
    packed = package(shop.dist, LEGACY, FILES)
    write_record(packed, LEGACY, shop.dist, command=COMMAND, artifact=shop.dist, finished=MIDNIGHT)
    (row,) = rows(made(shop))
    assert (row["units"], row["compile"]) == ("", "no record")


def test_a_record_that_is_not_of_these_bytes_makes_no_row(shop: Wiring) -> None:
    path = record_of(built(shop.dist))
    path.write_text(json.dumps({**json.loads(path.read_text()), "sha256": "0" * 64}))
    with pytest.raises(BuilderError, match=re.escape(path.name)):
        made(shop)
    assert stored_rows(shop.root) == []


def test_a_record_goes_with_its_package(tmp_path: Path) -> None:
    legacy, modern = built(tmp_path), built(tmp_path, MODERN)
    discard(PackageName.parse(legacy.name), tmp_path)
    left = {path.name for path in tmp_path.iterdir() if path.name.startswith("ortpacks-")}
    assert left == {modern.name, record_of(modern).name}


def test_rows_of_builds_that_lie_elsewhere_stay(shop: Wiring, tmp_path: Path) -> None:
    built(shop.dist)
    made(shop)
    other = built(tmp_path / "elsewhere", MODERN, command="./run build --variant modern")
    both = made(shop, other)
    assert [row["ORT"] for row in rows(both)] == ["1.21.0", "1.23.2"]
    assert made(shop) == both, "of a command that is made again the row is the new one alone"


@pytest.mark.parametrize("text", ["{", "{}", '[{"made by": "`./run build`"}]'])
def test_rows_that_cannot_be_read_are_not_written_over(shop: Wiring, text: str) -> None:
    built(shop.dist)
    path = shop.root / "docs/builds.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(BuilderError, match=r"docs/builds\.json"):
        made(shop)
    assert path.read_text() == text
