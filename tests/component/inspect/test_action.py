"""Tests of ``action.yml``: its step runs with the shell and the environment that a runner provides."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.support import ROOT, ran
from tests.support.factories.binaries import PTX, SASS, container, elf, image
from tests.support.runner_commands import commands
from tests.support.tables import table

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())

_EXPRESSION = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")

_SHELLS = {"bash": ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail"]}
"""Command lines of shells in GitHub's documentation of ``jobs.<job_id>.steps[*].shell``."""


def runner(folder: Path, given: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the action's step in ``folder`` with the inputs ``given`` and defaults for all others."""
    defaults = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
    assert given.keys() <= defaults.keys()
    values = {**defaults, **given}
    (step,) = ACTION["runs"]["steps"]
    env = {name: _EXPRESSION.sub(lambda found: values[found[1]], text) for name, text in step["env"].items()}
    assert "${{" not in step["run"] + "".join(env.values())
    script = folder / "step.sh"
    script.write_text(step["run"])
    return ran(
        [*_SHELLS[step["shell"]], script],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "GITHUB_ACTION_PATH": str(ROOT), **env},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    library = elf({".nv_fatbin": container(image(SASS, 75), image(PTX, 75))})
    for name in ("liba.so", 'it\'s $(touch gone) "b".so'):
        (tmp_path / name).write_bytes(library)
    (tmp_path / "builder.py").write_text("raise SystemExit('a module of the caller')")
    return tmp_path


@pytest.mark.parametrize(("given", "code"), table("inspect/action.txt"))
def test_the_exit_code_is_that_of_inspect(folder: Path, given: str, code: str) -> None:
    done = runner(folder, json.loads(given))
    assert done.returncode == int(code), done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(("path", "code"), [("-h", 2), ("-a.so", 0), ("--json\nliba.so", 2)])
def test_a_path_is_no_flag(folder: Path, path: str, code: int) -> None:
    (folder / "-a.so").write_bytes((folder / "liba.so").read_bytes())
    assert runner(folder, {"path": path, "require": "7.5"}).returncode == code


def test_several_paths_are_a_line_each_and_no_name_is_a_command(folder: Path) -> None:
    done = runner(folder, {"path": 'liba.so\nit\'s $(touch gone) "b".so\n'})
    assert done.returncode == 0, done.stdout
    assert [line for line in done.stdout.splitlines() if line.endswith(".so")] == [
        "liba.so",
        'it\'s $(touch gone) "b".so',
    ]
    assert not (folder / "gone").exists()


def test_findings_are_written_for_code_scanning(folder: Path) -> None:
    assert runner(folder, {"path": "liba.so", "require": "9.0", "sarif": "found.sarif"}).returncode == 6
    assert '"A009"' in (folder / "found.sarif").read_text()


def obeyed(output: str) -> list[str]:
    """Return the commands that the runner carries out: after ``stop-commands`` none but its word."""
    heard = re.sub(r"^::stop-commands::(.+)$(?:\n.*)*?\n::\1::$", "", output, flags=re.MULTILINE)
    assert "::stop-commands::" not in heard, "commands of later steps are obeyed again"
    return commands(heard)


def test_no_archive_speaks_to_the_runner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = ["::error file=x::y", "##[error]y", "::stop-commands::mine", "::mine::", "::add-mask::y"]
    program = folder / "builder/inspect/__main__.py"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"import sys\nfor one in {spoken}: print(one); print(one, file=sys.stderr)\nsys.exit(6)\n"
    )
    monkeypatch.setattr("tests.component.inspect.test_action.ROOT", folder)
    done = runner(folder, {"path": "liba.so"})
    assert (done.returncode, obeyed(done.stdout), done.stderr) == (6, [], "")
    assert all(done.stdout.count(f"{one}\n") == 2 for one in spoken)


def test_the_word_that_lets_commands_through_again_is_another_each_time(folder: Path) -> None:
    (folder / "secrets.py").write_text("def token_hex(size): return 'known'")
    words = {
        runner(folder, {"path": path}).stdout.splitlines()[0] for path in ("liba.so", "liba.so", "no.so")
    }
    assert len(words) == 3
    assert all(re.fullmatch("::stop-commands::[0-9a-f]{32}", word) for word in words)
