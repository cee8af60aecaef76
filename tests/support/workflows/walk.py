"""A walk through a workflow: each ``run:`` step of each job in order, on new hosted runners.

It does what GitHub documents for the keys that this project's workflows use; another key of a job or a step
is refused. Jobs run one after the other.
"""

import hashlib
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from operator import ne
from pathlib import Path
from typing import Any

import yaml

from tests.support.workflows.actions import STAND_INS, ActionFailedError, Place
from tests.support.workflows.expressions import filled, holds, text_of
from tests.support.workflows.runner import Runner, Runners

Values = dict[str, Any]
"""A mapping of a workflow, or of GitHub's contexts."""

_SHELLS = {
    "": ("bash", "-e"),
    "bash": ("bash", "--noprofile", "--norc", "-eo", "pipefail"),
}
"""Source: docs.github.com, "Workflow syntax", ``jobs.<job_id>.steps[*].shell``."""

_JOB_KEYS = {
    *("name", "runs-on", "timeout-minutes", "permissions", "environment"),
    *("needs", "if", "strategy", "outputs", "env", "steps"),
}
_STEP_KEYS = {"name", "id", "if", "env", "continue-on-error", "uses", "with", "run", "shell"}

_COMMANDS = ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")


@dataclass(frozen=True, kw_only=True)
class Event:
    """What starts a workflow, and what its repository's settings say."""

    name: str
    """``push``, ``workflow_dispatch`` …"""
    ref: str
    """``refs/tags/…`` or ``refs/heads/…``."""
    sha: str
    repository: str
    token: str
    inputs: Mapping[str, object] = field(default_factory=dict)
    """Those that are not given have their defaults, if the workflow is started by hand."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What became of a step."""

    job: str
    step: str
    """An action's name, or a script's."""
    outcome: str
    """``success``, ``failure`` or ``skipped``."""
    instead: str = ""
    """What took the step's place; empty if the step itself ran."""
    output: str = ""
    given: Mapping[str, str] = field(default_factory=dict)
    """The inputs of an action."""


@dataclass
class _Job:
    """A job of one leg of its matrix, while it runs."""

    name: str
    contexts: Values
    env: dict[str, str]
    failed: bool = False


class Walk:
    """A run of one workflow."""

    def __init__(
        self, workflow: Path, event: Event, runners: Runners, place: Place, instead: Mapping[str, str]
    ) -> None:
        """``instead``: what takes the place of scripts that cannot run here, by the step's name."""
        self._workflow: Values = yaml.safe_load(workflow.read_text(encoding="utf-8"))
        self._event, self._runners, self._place, self._instead = event, runners, place, instead
        self.told: list[Told] = []
        self.results: dict[str, str] = {}
        """``success``, ``failure`` or ``skipped`` of each job."""
        self.outputs: dict[str, dict[str, str]] = {}
        inputs = _inputs(self._workflow, event)
        github = {
            "event_name": event.name,
            "ref": event.ref,
            "ref_name": event.ref.split("/", 2)[2],
            "repository": event.repository,
            "sha": event.sha,
            "token": event.token,
        }
        self._contexts: Values = {
            "github": github,
            "inputs": inputs,
            "vars": {},
            "secrets": {},
        }
        self.env = self._texts(self._workflow.get("env", {}), self._contexts)

    def run(self) -> None:
        """Run every job; see ``results`` and ``told``."""
        jobs: Values = self._workflow["jobs"]
        while left := [name for name in jobs if name not in self.results]:
            name = next(one for one in left if set(_needs(jobs[one])) <= set(self.results))
            self._run_job(name, jobs[name])

    def script(self, step: str) -> list[Told]:
        """Return what became of a step, for each job that has it."""
        return [one for one in self.told if one.step == step]

    def _run_job(self, name: str, job: Values) -> None:
        _refuse_unknown(job, _JOB_KEYS)
        needs = {
            one: {"result": self.results[one], "outputs": self.outputs.get(one, {})} for one in _needs(job)
        }
        contexts = {**self._contexts, "needs": needs}
        results = [one["result"] for one in needs.values()]
        functions = _status(failed="failure" in results, succeeded=set(results) <= {"success"})
        if not holds(str(job.get("if", "success()")), contexts, functions):
            self.results[name] = "skipped"
            return
        legs = _legs(filled_in(job.get("strategy", {}).get("matrix", {}), contexts))
        ends = {self._run_leg(name, job, {**contexts, "matrix": leg}) for leg in legs}
        self.results[name] = "failure" if "failure" in ends else "success"

    def _run_leg(self, name: str, job: Values, contexts: Values) -> str:
        env = self.env | self._texts(job.get("env", {}), contexts)
        for folder in (self._place.workspace, self._place.temp):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        running = _Job(name, {**contexts, "steps": {}}, env)
        with self._runners.started() as runner:
            for step in job["steps"]:
                self._run_step(running, step, runner)
        self.outputs[name] = self._texts(job.get("outputs", {}), running.contexts)
        return "failure" if running.failed else "success"

    def _run_step(self, job: _Job, step: Values, runner: Runner) -> None:
        _refuse_unknown(step, _STEP_KEYS)
        contexts = {**job.contexts, "env": job.env}
        outputs: Mapping[str, str] = {}
        functions = {**_status(failed=job.failed, succeeded=not job.failed), "hashFiles": self._hash_files}
        title = _title(step)
        if not holds(str(step.get("if", "success()")), contexts, functions):
            why = f"nothing: `{step.get('if', 'success()')}` does not hold"
            told = Told(job=job.name, step=title, outcome="skipped", instead=why)
        elif "uses" in step:
            told, outputs = self._act(job, title, self._texts(step.get("with", {}), contexts))
        elif title in self._instead:
            told = Told(job=job.name, step=title, outcome="success", instead=self._instead[title])
        else:
            env = job.env | self._texts(step.get("env", {}), contexts)
            told, outputs = self._run_script(job, step, env, runner)
        self.told.append(told)
        if told.outcome == "failure" and not step.get("continue-on-error"):
            job.failed = True
        if "id" in step:
            job.contexts["steps"][step["id"]] = {"outputs": outputs, "outcome": told.outcome}

    def _act(self, job: _Job, title: str, given: Mapping[str, str]) -> tuple[Told, Mapping[str, str]]:
        stand_in = STAND_INS[title]
        told = Told(job=job.name, step=title, outcome="success", instead=stand_in.instead, given=given)
        try:
            return told, stand_in.act(self._place, given)
        except ActionFailedError as error:
            return replace(told, outcome="failure", output=str(error)), {}

    def _run_script(
        self, job: _Job, step: Values, env: Mapping[str, str], runner: Runner
    ) -> tuple[Told, dict[str, str]]:
        temp = self._place.temp
        shutil.rmtree(temp / "_runner", ignore_errors=True)
        (temp / "_runner").mkdir(parents=True)
        files = {name: temp / "_runner" / name for name in _COMMANDS}
        for file in files.values():
            file.touch()
        script = temp / "_runner" / f"{uuid.uuid4()}.sh"
        script.write_text(step["run"], encoding="utf-8")
        done = runner.run(
            [*_SHELLS[step.get("shell", "")], str(script)],
            self._place.workspace,
            {**self._of_github(), **{name: str(file) for name, file in files.items()}, **env},
        )
        job.env |= _assigned(files["GITHUB_ENV"])
        assert not files["GITHUB_PATH"].read_text(encoding="utf-8"), "no walk has needed it yet"
        outcome = "success" if done.returncode == 0 else "failure"
        told = Told(job=job.name, step=_title(step), outcome=outcome, output=done.stdout)
        return told, _assigned(files["GITHUB_OUTPUT"])

    def _of_github(self) -> dict[str, str]:
        """Return those variables that GitHub documents for every step which scripts here can use."""
        return {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": self._event.name,
            "GITHUB_REF": self._event.ref,
            "GITHUB_REF_NAME": self._contexts["github"]["ref_name"],
            "GITHUB_REPOSITORY": self._event.repository,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_SHA": self._event.sha,
            "GITHUB_WORKSPACE": str(self._place.workspace),
            "RUNNER_OS": "Linux",
            "RUNNER_TEMP": str(self._place.temp),
        }

    def _texts(self, values: Values, contexts: Values) -> dict[str, str]:
        return {name: text_of(value) for name, value in filled_in(values, contexts).items()}

    def _hash_files(self, pattern: object) -> str:
        """Return GitHub's hash over one file's sha256; empty text if it is not there."""
        file = self._place.workspace / text_of(pattern)
        if not file.is_file():
            return ""
        return hashlib.sha256(hashlib.sha256(file.read_bytes()).digest()).hexdigest()


def filled_in(value: Any, contexts: Values) -> Any:  # noqa: ANN401 - a part of a workflow
    """Return a value of a workflow with its expressions' values in their places."""
    if isinstance(value, str):
        return filled(value, contexts, {})
    if isinstance(value, dict):
        return {name: filled_in(one, contexts) for name, one in value.items()}
    return [filled_in(one, contexts) for one in value] if isinstance(value, list) else value


def _inputs(workflow: Values, event: Event) -> Values:
    """Return the values of ``inputs``: none but by hand."""
    if event.name != "workflow_dispatch":
        return {}
    triggers: Values = dict[Any, Any](workflow)[True]  # YAML 1.1 reads ``on`` as a truth value
    known: Values = triggers["workflow_dispatch"]["inputs"]
    assert set(event.inputs) <= set(known), event.inputs
    return {name: event.inputs.get(name, one.get("default")) for name, one in known.items()}


def _needs(job: Values) -> list[str]:
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else needs


def _refuse_unknown(part: Values, known: set[str]) -> None:
    assert set(part) <= known, set(part) - known


def _legs(matrix: Values) -> list[Values]:
    """Return the legs of a matrix: those of ``include`` alone, or the values of a single axis."""
    if not matrix:
        return [{}]
    ((axis, values),) = matrix.items()
    assert values, "GitHub fails a job without a leg"
    return list(values) if axis == "include" else [{axis: value} for value in values]


def _title(step: Values) -> str:
    """Return an action's name, or a script's: its own, or its first line."""
    if "uses" in step:
        return str(step["uses"]).partition("@")[0]
    return str(step.get("name") or step["run"].splitlines()[0])


def _status(*, failed: bool, succeeded: bool) -> Values:
    return {
        "success": lambda: succeeded,
        "failure": lambda: failed,
        "always": lambda: True,
        "cancelled": lambda: False,
    }


def _assigned(file: Path) -> dict[str, str]:
    """Return what a script wrote as ``name=value``, or as ``name<<END`` with lines up to ``END``."""
    return dict(_assignments(iter(file.read_text(encoding="utf-8").splitlines())))


def _assignments(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if several := re.fullmatch(r"([^=]+)<<(.+)", line):
            yield several[1], "\n".join(takewhile(partial(ne, several[2]), lines))
        else:
            name, sign, value = line.partition("=")
            assert sign, f"GitHub refuses the line {line!r}"
            yield name, value
