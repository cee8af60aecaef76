"""Tests of ./run in a copied folder, with stubs for all programs it calls.

They end at the decision to install an engine; test_run_install covers the installation.
"""

import re
import shutil
from pathlib import Path

import pytest

from builder.build.verbs.engine_need import needs_engine
from builder.config.variants import Project
from builder.io.wiring import SECRETS
from tests.component.build.run_machine import PYTHON, Machine, absent
from tests.support import ROOT
from tests.support.messages import Told
from tests.support.tables import table


@pytest.fixture
def machine(tmp_path: Path, root: Path) -> Machine:
    return Machine(tmp_path, root)


def test_run_and_the_program_have_one_list_of_secrets() -> None:
    (line,) = re.findall(r"^secrets=\(([^)]*)\)$", (ROOT / "run").read_text(), re.MULTILINE)
    assert tuple(line.split()) == SECRETS


@pytest.mark.parametrize("name", [SECRETS[0], SECRETS[-1]])
def test_a_secret_is_for_the_verb_alone(machine: Machine, name: str) -> None:
    """dockerd, which ./run may start, would keep it for as long as the machine runs."""
    note = f"""printf '%s %s\\n' "${{0##*/}}" "${{{name}-none}}" >>"$CALLS"\n"""
    (machine.bin / "python3").write_text(f"#!{shutil.which('bash')}\n{note}{PYTHON}")
    machine.stub("docker", f"{note}exit 1")
    (machine.bin / "dirname").unlink()  # a link to the real one
    machine.stub("dirname", note + 'echo "${1%/*}"')
    for program in ("apt-get", "dockerd", "setsid"):
        machine.stub(program, note)
    done = machine.run("rebuild", "TAG", DOCKER_HOST="", NEED_EXIT="1", **{name: "a\nsecret"})
    assert done.returncode == 0, done.stderr
    calls = machine.calls.read_text()
    assert calls.count(" none\n") >= 4
    assert calls.count("a\nsecret") == 1
    assert calls.rpartition("secret")[2].startswith("\npython -m builder.build.verbs.command_line")
    machine.run("build")
    assert "a\nsecret" not in machine.calls.read_text().removeprefix(calls)


COMMAND = "[-m][builder.build.verbs.command_line][--search-root][.]"


def test_with_a_running_engine_nothing_is_installed_and_arguments_pass_through_as_they_are(
    machine: Machine,
) -> None:
    words = ("build", "--only", "a b  c", "*", "$HOME", "", "--no-engine-install", "-k")
    done = machine.run(*words)
    assert done.stdout == f"{COMMAND}[build][--only][a b  c][*][$HOME][][-k]\n", done.stderr
    assert machine.installed() == []
    calls = machine.called("docker")
    assert machine.run().stdout == f"{COMMAND}\n"
    assert machine.called("docker") == calls, "alone it asks no engine"


def test_the_environment_is_made_once_and_anew_when_it_is_not_what_the_lock_says(machine: Machine) -> None:
    making = "run: making .venv with Python 3.12.0 and requirements.lock\n"
    failed = machine.run("--list", PIP_EXIT="1")
    assert failed.returncode == 4
    assert "run: installing requirements.lock failed (above). Check pip's index and run" in failed.stderr
    assert [machine.run("--list").stderr for _ in range(2)] == [making, ""]
    (machine.folder / ".venv" / "stale").touch()
    (machine.folder / "requirements.lock").write_text("invoke==2.2.1\n")
    assert machine.run("--list").stderr == making
    assert not (machine.folder / ".venv" / "stale").exists()
    (machine.folder / ".venv" / "bin" / "python").unlink()
    assert machine.run("--list").stderr == making
    installing = [call for call in machine.called("python") if call.startswith("-m pip")]
    flags = "--quiet --disable-pip-version-check --require-hashes -r requirements.lock"
    assert installing == [f"-m pip install {flags}"] * 4


def test_an_old_python_is_refused(machine: Machine, told: Told) -> None:
    machine.stub("python3", "exit 1")
    told(machine.refuses("--list"))


@pytest.mark.parametrize("words", ["plan --variant legacy", "--help build", "build -h", "test --fast"])
def test_verbs_that_need_no_engine_ask_for_none(machine: Machine, words: str) -> None:
    machine.no_engine()
    assert machine.run(*words.split()).returncode == 0
    assert (machine.called("docker"), machine.installed()) == ([], [])


DENIED = "permission denied while trying to connect to the Docker daemon socket"

OLD = "client version 1.41 is too old. Minimum supported API version is 1.44"


def speaking(*lines: str) -> str:
    """Return a docker program whose engine refuses with these lines."""
    said = "; ".join(f'echo "{line}" >&2' for line in lines)
    return f'case "$1" in version) echo Client: 20.10; {said}; exit 1 ;; esac; echo default'


@pytest.mark.parametrize(
    ("docker", "user", "words", "env"),
    [
        pytest.param(absent(), "0", "build --no-engine-install", {}, id="build"),
        pytest.param(absent(), "0", "test --no-engine-install", {}, id="test"),
        pytest.param(absent(), "0", "build", {"DOCKER_HOST": "ssh://builder"}, id="host"),
        pytest.param(absent(), "0", "build", {"DOCKER_CONTEXT": "remote"}, id="variable"),
        pytest.param(absent("remote"), "0", "build", {}, id="docker context use"),
        pytest.param(absent(), "1000", "build", {}, id="user"),
        pytest.param(speaking("a warning", "no space left"), "1000", "build", {}, id="last line"),
        pytest.param(speaking(DENIED), "0", "build --variant legacy", {}, id="denied"),
        pytest.param(speaking(OLD), "0", "build --variant legacy", {}, id="old"),
    ],
)
def test_where_no_engine_is_installed_it_is_told_why(
    machine: Machine,
    told: Told,
    docker: str,
    user: str,
    words: str,
    env: dict[str, str],
) -> None:
    """An engine that somebody named is respected, and one that refuses gets no second one."""
    machine.stub("docker", docker)
    machine.stub("id", f"echo {user}")
    told(machine.refuses(*words.split(), **env))


@pytest.mark.parametrize(
    ("verb", "user", "need"), [("build", 1000, 1), ("rebuild", 0, 1), ("rebuild", 1000, 0)]
)
def test_packages_that_no_container_makes_need_no_engine(
    machine: Machine, verb: str, user: int, need: int
) -> None:
    """Who cannot install an engine rebuilds without one: a build that needs one says so itself."""
    machine.no_engine()
    machine.stub("id", f"echo {user}")
    assert machine.run(verb, "--variant", "cpu", NEED_EXIT=str(need)).returncode == 0
    assert machine.installed() == []
    assert ("-m builder.build.verbs.engine_need" in machine.calls.read_text()) == (need == 1)


@pytest.mark.parametrize(("words", "needed"), table("build/engine.txt"))
def test_only_packages_for_cuda_on_this_platform_need_an_engine(
    project: Project, words: str, needed: str
) -> None:
    assert needs_engine(words.split(), project.packages) is (needed == "yes")


def test_clean_installs_no_engine_to_clean_it(machine: Machine) -> None:
    machine.no_engine()
    (machine.bin / "dockerd").unlink()
    assert machine.run("clean").returncode == 0
    assert machine.installed() == []
