"""Tests of the walk through a workflow, in this machine's shell: what ran, in which order, with which values.
Expectations are GitHub's page "Workflow syntax", and the READMEs of its artifact actions."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.workflows.actions import STAND_INS, ActionFailedError, Place
from tests.support.workflows.walk import Event, Walk

WORKFLOW = """\
name: try
on:
  workflow_dispatch:
    inputs:
      who: {default: nobody}
      quiet: {type: boolean, default: true}
env:
  WHO: ${{ inputs.who || 'a tag' }}
jobs:
  first:
    outputs: {legs: "${{ steps.asked.outputs.legs }}"}
    env: {LEVEL: job}
    steps:
      - id: asked
        run: |
          echo 'legs={"include": [{"n": "1"}, {"n": "2"}]}' >> "$GITHUB_OUTPUT"
          printf 'TEXT<<END\\na\\nb\\nEND\\n' >> "$GITHUB_ENV"
      - name: say
        env: {LEVEL: step, QUIET: "${{ inputs.quiet }}", NOTHING: "${{ vars.NONE }}"}
        run: echo "$WHO $LEVEL $QUIET [$NOTHING] $TEXT $GITHUB_REF_NAME $GITHUB_SHA"
      - {name: plain, run: "false | true"}
      - {name: strict, shell: bash, continue-on-error: true, run: "false | true"}
  each:
    needs: first
    strategy: {matrix: "${{ fromJSON(needs.first.outputs.legs) }}"}
    steps:
      - {name: fails, run: "echo ${N}; [ $N != 2 ]", env: {N: "${{ matrix.n }}"}}
      - {name: after, run: "true"}
      - {name: mourn, if: failure(), run: "true"}
      - {name: ever, if: "always() && hashFiles('none') == ''", run: "true"}
  skipped: {needs: [each], steps: [{run: "true"}]}
  last:
    needs: [first, each]
    if: "!cancelled() && needs.first.result == 'success'"
    steps: [{name: end, run: "true"}]
"""


class Here:
    """A runner on this machine, and what starts it."""

    @contextmanager
    def started(self) -> Iterator[Here]:
        yield self

    def run(
        self, argv: Sequence[str], folder: Path, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        given = {"PATH": os.environ["PATH"], **env}
        return subprocess.run(argv, cwd=folder, env=given, capture_output=True, text=True, check=False)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "work", tmp_path / "temp", tmp_path / "artifacts", tmp_path, {})


def walked(place: Place, text: str = WORKFLOW, event: str = "workflow_dispatch", **inputs: object) -> Walk:
    file = place.repository / "try.yml"
    file.write_text(text)
    started = Event(name=event, ref="refs/tags/v1", sha="4" * 40, repository="o/r", token="t", inputs=inputs)
    walk = Walk(file, started, Here(), place, {})  # type: ignore[arg-type]
    walk.run()
    return walk


def test_steps_run_in_order_with_the_values_and_shells_of_github(place: Place) -> None:
    walk = walked(place, who="me", quiet=False)
    (said,) = walk.script("say")
    assert said.output == f"me step false [] a\nb v1 {'4' * 40}\n"
    assert [walk.script(one)[0].outcome for one in ("plain", "strict")] == ["success", "failure"]
    assert walk.results == {"first": "success", "each": "failure", "skipped": "skipped", "last": "success"}
    assert [(one.step, one.outcome) for one in walk.told if one.job == "each"] == [
        *[("fails", "success"), ("after", "success"), ("mourn", "skipped"), ("ever", "success")],
        *[("fails", "failure"), ("after", "skipped"), ("mourn", "success"), ("ever", "success")],
    ]


def test_inputs_have_defaults_by_hand_alone(place: Place) -> None:
    for event, said in (("workflow_dispatch", "nobody step true"), ("push", "a tag step  []")):
        assert walked(place, event=event).script("say")[0].output.startswith(said)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("shell: bash", "working-directory: /"),
        ("needs: first", "container: debian"),
        ("shell: bash", "shell: pwsh"),
        ("inputs.who ||", "github.actor ||  contains(inputs.who, 'x') ||"),
        ("echo 'legs=", "echo '"),
    ],
)
def test_what_the_walk_does_not_know_ends_it(place: Place, old: str, new: str) -> None:
    assert WORKFLOW.count(old) == 1
    with pytest.raises(Exception):  # noqa: B017, PT011 - whichever: no walk goes on
        walked(place, WORKFLOW.replace(old, new))


def uploaded(place: Place, name: str, path: str, **given: str) -> list[str]:
    upload = {"name": name, "path": path, "if-no-files-found": "error", **given}
    STAND_INS["actions/upload-artifact"].act(place, upload)
    folder = place.artifacts / name
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_a_job_finds_nothing_of_another_one(place: Place) -> None:
    left = '[ -z "$(ls)$(ls -A "$RUNNER_TEMP" | grep -v _runner)" ] && touch here "$RUNNER_TEMP/there"'
    jobs = {
        name: {"steps": [{"run": left}], "needs": needs} for name, needs in (("one", []), ("two", ["one"]))
    }
    walk = walked(place, json.dumps({"name": "x", "on": "push", "jobs": jobs}), event="push")
    assert walk.results == {"one": "success", "two": "success"}


def test_an_artifact_begins_below_what_its_paths_have_in_common_and_has_no_hidden_file(place: Place) -> None:
    for name in ("dist/one-a.tar", "dist/sums", "dist/other", "dist/one.d/b", "dist/one.d/.c", ".d/e"):
        (place.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (place.workspace / name).touch()
    assert uploaded(place, "several", "dist/one*\ndist/sums\n") == ["one-a.tar", "one.d/b", "sums"]
    assert uploaded(place, "folder", "dist/one.d") == ["b"]
    assert uploaded(place, "file", "dist/sums") == ["sums"]
    with pytest.raises(ActionFailedError):
        uploaded(place, "file", "dist/sums")
    assert uploaded(place, "file", "dist/other", overwrite="true") == ["other"]
    with pytest.raises(ActionFailedError):
        uploaded(place, "none", ".d/*")


def test_an_artifact_alone_lies_in_the_folder_and_of_several_each_in_its_own(place: Place) -> None:
    download = STAND_INS["actions/download-artifact"].act
    for name in ("p-one", "p-two", "other"):
        (place.artifacts / name).mkdir(parents=True)
        (place.artifacts / name / "file").write_text(name)
    download(place, {"pattern": "p-*", "path": "both"})
    download(place, {"pattern": "p-o*", "path": "one"})
    download(place, {"pattern": "q-*", "path": "none"})
    found = {str(file.relative_to(place.workspace)) for file in place.workspace.rglob("*") if file.is_file()}
    assert found == {"both/p-one/file", "both/p-two/file", "one/file"}
    with pytest.raises(ActionFailedError):
        download(place, {"name": "q", "path": "."})
