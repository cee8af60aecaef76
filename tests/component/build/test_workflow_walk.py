"""Tests of the walk through a workflow, in this machine's shell: what ran, in which order, with which values.
Expectations are GitHub's page "Workflow syntax", and the READMEs of its artifact actions."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.workflows.actions import Place
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


def test_steps_run_in_order_with_the_values_and_shells_of_github(tmp_path: Path) -> None:
    place = Place(tmp_path / "work", tmp_path / "temp", tmp_path / "artifacts", tmp_path, {})
    file = place.repository / "try.yml"
    file.write_text(WORKFLOW)
    started = Event(
        name="workflow_dispatch",
        ref="refs/tags/v1",
        sha="4" * 40,
        repository="o/r",
        token="t",
        inputs={"who": "me", "quiet": False},
    )
    walk = Walk(file, started, Here(), place, {})  # type: ignore[arg-type]
    walk.run()
    (said,) = walk.script("say")
    assert said.output == f"me step false [] a\nb v1 {'4' * 40}\n"
    assert [walk.script(one)[0].outcome for one in ("plain", "strict")] == ["success", "failure"]
    assert walk.results == {"first": "success", "each": "failure", "skipped": "skipped", "last": "success"}
    assert [(one.step, one.outcome) for one in walk.told if one.job == "each"] == [
        *[("fails", "success"), ("after", "success"), ("mourn", "skipped"), ("ever", "success")],
        *[("fails", "failure"), ("after", "skipped"), ("mourn", "success"), ("ever", "success")],
    ]
