"""Tests of faults in a real build: kill -9 in each stage, Ctrl-C, two builds, a dying engine, a full disk.

After each fault every file with a final name is whole, and the same command succeeds at the next try.
"""

import os
import random
import re
import shutil
import signal
import time
import zlib
from pathlib import Path

import pytest

from tests.integration.faults_run import (
    VARIANTS,
    Run,
    assert_nothing_half_made,
    litter,
    orphaned_containers,
    promised,
)
from tests.integration.faults_world import (
    NO_OBJECTS,
    copy_for_compiling,
    copy_for_thin_packages,
    dying_engine,
    need_root,
    networks,
    replace,
    small_disk,
)
from tests.support import ROOT
from tests.support.fakes.verbs import thin_of
from tests.support.real_packages import sha256

pytestmark = pytest.mark.thorough

KILL, INTERRUPT = signal.SIGKILL, signal.SIGINT
EVERYTHING, ALONE = True, False
FAULTS = [
    ("legacy", "plan legacy", 0.01, KILL, EVERYTHING),
    ("legacy", "plan legacy", 0.01, KILL, ALONE),
    ("legacy", "render legacy", 0.02, KILL, EVERYTHING),
    ("legacy", "render legacy", 0.02, KILL, ALONE),
    ("legacy", "compile legacy", 1, KILL, EVERYTHING),
    ("legacy", "compile legacy", 1, KILL, ALONE),
    ("modern", "make cuobjdump and try it", 0.3, KILL, ALONE),
    ("modern", "check modern", 1, KILL, EVERYTHING),
    ("modern", "check modern", 1, INTERRUPT, ALONE),
    ("modern", "bundle modern", 2, KILL, EVERYTHING),
    ("modern", "bundle modern", 2, INTERRUPT, ALONE),
    ("modern", "complete the package", 2, INTERRUPT, EVERYTHING),
    ("legacy", "run models", 1, KILL, EVERYTHING),
]
"""Variant, step, least seconds that the step takes, signal, and whether the whole process group gets it.

A step without child processes needs one entry only.
"""


@pytest.fixture(scope="module")
def chance() -> random.Random:
    """Return the random numbers for the moments of faults.

    A failed test prints their seed: ORTPACKS_FAULT_SEED=... repeats them.
    """
    seed = os.environ.get("ORTPACKS_FAULT_SEED") or str(time.time_ns())
    print(f"ORTPACKS_FAULT_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
    return random.Random(seed)  # noqa: S311 - the moment is no secret


@pytest.fixture(scope="module")
def battered(module_folder: Path) -> Path:
    """Return a ``dist`` folder that all kills and the full disk of this module share, one after the other."""
    return module_folder


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the project by variant: for ``modern``, with 2.9 GB, a copy that packs thin packages only."""
    thin = tmp_path_factory.mktemp("thin") / "project"
    copy_for_thin_packages(thin)
    return {"legacy": ROOT, "modern": thin}


@pytest.mark.parametrize(
    ("variant", "step", "lasts", "number", "group"),
    FAULTS,
    ids=lambda value: value.name if isinstance(value, signal.Signals) else None,
)
def test_a_kill_leaves_nothing_half_made(
    battered: Path,
    projects: dict[str, Path],
    chance: random.Random,
    variant: str,
    step: str,
    lasts: float,
    number: signal.Signals,
    group: bool,
) -> None:
    """With ``ALONE`` the child processes get no signal, and must end by themselves."""
    compiles = ["--force"] if step.startswith("compile") else []  # else libraries of the run before are taken
    run = Run(battered, variant, *compiles, root=projects[variant])
    run.until(rf"^• {step}")
    delay = chance.uniform(0, lasts)
    time.sleep(delay)
    run.signal(number, group=group)
    _assert_ended_by(run, number)
    assert_nothing_half_made(battered, f"{number.name} {delay:.3f} s after {step}, in {run.stage}")


@pytest.mark.parametrize(("number", "group"), [(KILL, EVERYTHING), (INTERRUPT, ALONE)])
def test_a_kill_while_2_9_gb_are_packed_leaves_nothing_half_made(
    tmp_path: Path, chance: random.Random, number: signal.Signals, group: bool
) -> None:
    """The full package of ``modern`` is packed, which lasts at least 5 seconds."""
    run = Run(tmp_path, "modern")
    run.until("^• bundle modern")
    delay = chance.uniform(0, 5)
    time.sleep(delay)
    run.signal(number, group=group)
    _assert_ended_by(run, number)
    assert promised(tmp_path) == {}
    assert_nothing_half_made(tmp_path, f"{number.name} {delay:.3f} s after the start of packing")


def _assert_ended_by(run: Run, number: signal.Signals) -> None:
    """Assert that the run and all its processes end by the signal, soon even on a loaded machine."""
    code = run.wait(timeout=30)
    if number is INTERRUPT:
        assert code == 130, run.text
        assert run.lines[-1] == "interrupted; the same command goes on from here"
        assert "Traceback" not in run.text
    else:
        assert code == -number, run.text
    assert run.survivors() == []


def test_a_full_disk_is_a_message_and_loses_nothing(
    battered: Path, projects: dict[str, Path], tmp_path: Path
) -> None:
    """Two disk sizes are too small; the result is copied into the folder of the other faults."""
    need_root("mounts a file system")
    with small_disk(tmp_path / "small", megabytes=600) as disk:
        refused = Run(disk.folder, "modern", root=projects["modern"])
        assert refused.wait() == 11, refused.text
        assert re.search(
            rf"about [\d.]+ GB \(.*\) are needed in {disk.folder}, 0.6 GB are free", refused.text
        )
        assert "• bundle" not in refused.text
        disk.resize(megabytes=6000)
        run = Run(disk.folder, "modern", root=projects["modern"])
        run.until("^• bundle modern")
        time.sleep(0.5)
        disk.resize(megabytes=disk.used_megabytes() + 50)
        _assert_full(run, disk.folder)
        shutil.copytree(disk.folder, battered, dirs_exist_ok=True, copy_function=_copy_anew)


def _copy_anew(source: str, target: str) -> None:
    """Copy a file over a removed target, which may be a link into the input cache."""
    Path(target).unlink(missing_ok=True)
    shutil.copy2(source, target)


def _assert_full(run: Run, dist: Path) -> None:
    assert run.wait() == 11, run.text
    error = run.text[run.text.index("error: ") :]
    assert error.startswith(f"error: {dist}/"), "the path"
    assert re.search(r"[\d,]+ bytes.*[\d,]+ (bytes )?(are|were) free", error), "what it needs, what there is"
    assert "Traceback" not in run.text
    assert promised(dist) == {}
    assert list(dist.glob("*.tar.zst*")) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_after_all_faults_two_builds_at_once_give_the_same_bytes(
    battered: Path, projects: dict[str, Path], variant: str, request: pytest.FixtureRequest
) -> None:
    """The builds run without a network, and their bytes equal those of an undisturbed build."""
    undisturbed: Path = request.getfixturevalue(f"{variant}_package")
    orphaned = orphaned_containers()
    runs = [Run(battered, variant, "--offline", root=projects[variant]) for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0], "\n---\n".join(run.text for run in runs)
    said = sorted(run.text for run in runs)
    waits = f"another process works in {battered / variant}: waiting"
    assert sum(waits in text for text in said) == 1
    assert sum("is up to date" in text for text in said) == 1, "the second one found it done"
    assert_nothing_half_made(battered, "two builds at once")
    listed = {name: sha for name, sha in promised(battered).items() if f"-{variant}-" in name}
    thin = thin_of(undisturbed)
    packages = [thin, thin.with_name(thin.name.replace(".tar.zst", ".tar.gz"))]
    if projects[variant] == ROOT:
        packages.append(undisturbed)
    assert listed.keys() == {f"{file.name}{end}" for file in packages for end in ("", ".provenance.json")}
    assert [listed[package.name] for package in packages] == [sha256(package) for package in packages]
    assert (battered / variant / "built.json").exists(), "the packages were verified"
    assert [name for name in litter(battered) if variant in name] == []
    assert orphaned_containers() & {*orphaned, *(run.process for run in runs)} == set()


@pytest.fixture
def other_project(tmp_path: Path) -> Path:
    """Return a copy of the project whose compile step begins with an empty Ninja tree and an empty ccache."""
    project = tmp_path / "project"
    tree = f"ortpacks-faults-{zlib.crc32(bytes(ROOT)):08x}"
    copy_for_compiling(project, tree)
    template = project / "templates/variant.Dockerfile.j2"
    mine = f"/build/{time.time_ns()}"
    new = f"[ -e {mine} ] || {{ {NO_OBJECTS} && rm -rf /ccache/* && touch {mine}; }}"
    replace(template, "type=cache,id=ortpacks-ccache", f"type=cache,id={tree}-ccache")
    replace(template, "cmake -C /src/options.cmake", f"{new}\ncmake -C /src/options.cmake")
    _cheapest_first(project / "builder/farm/costs.tsv")
    return project


def _cheapest_first(table: Path) -> None:
    """Reverse the order of the units, so that three of them are finished within seconds."""
    row = re.compile(r"^(\S+\t)([0-9.]+)", re.MULTILINE)
    text, count = row.subn(lambda found: f"{found[1]}{1000 / float(found[2]):.2f}", table.read_text())
    assert count > 100
    table.write_text(text)


def test_an_interrupted_compile_goes_on_where_it_was(
    other_project: Path, tmp_path: Path, chance: random.Random
) -> None:
    """Ctrl-C sends the signal to the whole group, the cancellation of a CI runner to the command alone."""
    dist = tmp_path / "dist"
    units, finished = [], []
    for group in (EVERYTHING, ALONE):
        run = Run(dist, root=other_project)
        _await_units(run, dist)
        time.sleep(chance.uniform(0, 2))
        run.signal(INTERRUPT, group=group)
        _assert_ended_by(run, INTERRUPT)
        assert litter(dist) == []
        units.append(_units(dist))
        finished.append(_finished(dist))
    run = Run(dist, root=other_project)
    _await_units(run, dist)
    run.signal(KILL, group=EVERYTHING)
    units.append(_units(dist))
    finished.append(_finished(dist))
    assert units[0] > units[1] > units[2] > 0, units
    assert all(finished)
    assert not finished[0] & finished[1] | finished[1] & finished[2] | finished[0] & finished[2], "twice"


def test_a_build_from_another_folder_waits_for_the_ninja_tree_and_takes_it(tmp_path: Path) -> None:
    """The first folder's compile empties the tree, and waits until the second one's has begun too."""
    projects = [tmp_path / "one", tmp_path / "two"]
    for project in projects:
        copy_for_compiling(project, f"ortpacks-faults-{zlib.crc32(bytes(ROOT)):08x}")
    cmake = "cmake -C /src/options.cmake"
    slow = f"{NO_OBJECTS}\necho 'ortpacks: the tree is empty'\nsleep 20\n{cmake}"
    replace(projects[0] / "templates/variant.Dockerfile.j2", cmake, slow)
    one, two = (tmp_path / f"dist-{project.name}" for project in projects)
    first = Run(one, "legacy", "--force", root=projects[0])
    first.until("the tree is empty")
    second = Run(two, "legacy", "--force", root=projects[1])
    second.until(r"\d+ units to compile")
    assert " 0 units to compile" in second.text, second.text
    assert " 323 units to compile" in first.text
    for run in (first, second):
        run.until("^✓ compile legacy")
    made = [
        {file.name: sha256(file) for file in (dist / "legacy/artifact").glob("*.so")} for dist in (one, two)
    ]
    assert len(made[0]) == 2
    assert made[0] == made[1]


def test_an_engine_that_dies_mid_build_is_a_message(tmp_path: Path) -> None:
    before = networks()
    with dying_engine() as engine:
        run = Run(tmp_path / "dist", env={"DOCKER_HOST": engine.host})
        run.until("^• compile legacy")
        time.sleep(2)
        engine.kill()
        assert run.wait(timeout=30) == 4, run.text
    assert "error: The Docker engine went away while building artifact" in run.text
    assert "Start it and run the same command again" in run.text
    assert "Traceback" not in run.text
    assert run.survivors() == []
    assert_nothing_half_made(tmp_path / "dist", "the engine's death")
    again = Run(tmp_path / "dist", env={"DOCKER_HOST": engine.host})
    assert again.wait(timeout=30) == 4, again.text
    assert f"o Docker engine answers at {engine.host}" in again.text
    assert networks() == before, "the machine's own engine keeps its bridge"


def _units(dist: Path) -> int:
    """Return the number of units that Ninja had to compile in the last build."""
    log = (dist / "legacy" / "build.log").read_text()
    return max(int(total) for total in re.findall(r"\[\d+/(\d+)\] Building", log))


def _await_units(run: Run, dist: Path) -> None:
    """Wait until three units are compiled."""
    run.until("^• compile legacy")
    while len(_finished(dist)) < 3:
        assert run.goes_on, run.text
        time.sleep(0.1)


def _finished(dist: Path) -> set[str]:
    """Return the objects that the last build's log lists; Ninja prints each when it exists."""
    log = dist / "legacy" / "build.log"
    made = re.compile(r"\[\d+/\d+\] Building \w+ object (\S+)")
    return set(made.findall(log.read_text())) if log.exists() else set()
