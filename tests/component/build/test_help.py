"""Tests of the command line's explanations: help, list of verbs, spelling suggestions, completion."""

import os
import sys
from pathlib import Path

import pytest
from invoke.collection import Collection

import tasks
from builder.build.verbs import command_line
from tests.support import ROOT, ran
from tests.support.factories.project_copy import Place, copied_to

VERBS = sorted(Collection.from_module(tasks).task_names)


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_a_line_for_each_flag(copied: Place, verb: str) -> None:
    done = copied.run(verb, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    head, _, options = done.stdout.partition("Flags:\n")
    what, example, *_ = head.split("\n\n")
    assert what.endswith((".", "..."))
    assert example.startswith(f"  ./run {verb}")
    flags = [line.split(maxsplit=1) for line in options.splitlines() if line.startswith("  --")]
    assert flags or verb == "docs"
    assert [words for words in flags if len(words) == 1] == []


def test_help_is_asked_for_in_three_ways(copied: Place) -> None:
    """Invoke would take ``--help`` for the value of a positional parameter, which ``inspect`` has."""
    assert copied.run("inspect", "-h") == copied.run("--help", "inspect") == copied.run("inspect", "--help")


def test_any_verb_may_be_quiet(copied: Place) -> None:
    loud, quiet = copied.run("render", "--variant", "cpu"), copied.run("render", "--variant", "cpu", "-q")
    assert (loud.returncode, quiet.returncode, bool(loud.stdout)) == (0, 0, True)
    assert (quiet.stdout, copied.run("--quiet", "matrix").stdout) == ("", copied.run("matrix").stdout)


def test_alone_it_shows_some_verbs_and_a_list_has_every_one(copied: Place) -> None:
    done = copied.run()
    assert "./run --list has every verb" in done.stdout
    assert copied.run("--help") == copied.run("-h") == done
    lines = copied.run("--list").stdout.splitlines()
    assert sorted(line.split()[0] for line in lines if line.startswith("  ") and line[2] != " ") == VERBS


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("builds", "the table in docs/performance.md"),
        ("bundle", "./run build --compiled"),
        ("check", "./run verify --read-only PACKAGE"),
        ("help", "./run VERB --help"),
        ("instal", "install?"),
    ],
)
def test_a_former_verb_is_told_with_what_took_its_place(copied: Place, word: str, said: str) -> None:
    done = copied.run(word)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{word!r} is no verb" in done.stderr
    assert said in done.stderr


def test_the_completion_of_bash_knows_verbs_and_flags(copied: Place) -> None:
    script = """
        complete -p ./run
        asked() { COMP_WORDS=("$@"); _complete_./run ./run "${!#}"; echo "${COMPREPLY[*]}"; }
        asked ./run inst
        asked ./run build --var
    """
    printed = copied.run("--print-completion-script", "bash").stdout
    # The script starts ./run, which may make .venv: this program replaces it and starts the command line as
    # ./run does.
    program = 'exec "$PYTHON" -m builder.build.verbs.command_line "$@"'
    done = ran(
        ["bash", "-c", f"function ./run {{ ( {program} ); }}\n{printed}\n{script}"],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable},
        check=True,
    )
    assert done.stdout == "complete -o default -F _complete_./run ./run\ninstall\n--variant\n"


def test_invoke_starts_run_with_the_same_words(tmp_path: Path) -> None:
    folder = copied_to(tmp_path).folder
    (folder / "run").write_text("#!/bin/sh\nprintf '[%s]' \"$@\"\n")
    (folder / "run").chmod(0o755)
    done = ran([sys.executable, "-m", "invoke", "verify", "a package", "b", "--card", "8.6"], cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[verify][a package][b][--card][8.6]"


def test_the_version_is_the_projects(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.program().run(["./run", "--version"])
    assert not ended.value.code
    assert f'\nversion = "{capsys.readouterr().out.split()[1]}"\n' in (ROOT / "pyproject.toml").read_text()
