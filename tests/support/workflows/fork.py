"""A fork of the project on the double of GitHub, in which workflows are walked."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.doubles.github import GitHubDouble
from tests.support.checkout import copy_checkout
from tests.support.factories.sources import commit
from tests.support.workflows.actions import Place
from tests.support.workflows.runner import Runners, runners
from tests.support.workflows.walk import Event, Walk

_TWO_ARCHITECTURES = {
    "sm: [50, 52, 60, 61, 70]": "sm: [50, 52]",
    "generations: [Maxwell, Pascal, Volta]": "generations: [Maxwell]",
}
"""Replacements in ``variants.yaml`` that leave variant ``legacy`` two architectures."""


@dataclass(frozen=True)
class Fork:
    """A repository with the project's files and ``legacy`` for two architectures."""

    folder: Path
    """Has the fork's files, the artifacts of the last walk, and the runners' folders."""
    sha: str
    github: GitHubDouble
    runners: Runners

    def walk(
        self,
        workflow: str,
        event: str,
        *,
        ref: str = "refs/heads/main",
        inputs: Mapping[str, object] | None = None,
        instead: Mapping[str, str] | None = None,
    ) -> Walk:
        """Run a workflow to its end, as ``event`` starts it, and return it.

        ``instead``: what takes the place of scripts that cannot run here, by the step's name.
        """
        artifacts = self.folder / "artifacts"
        shutil.rmtree(artifacts, ignore_errors=True)
        walk = Walk(
            self.folder / f"fork/.github/workflows/{workflow}.yml",
            Event(
                name=event,
                ref=ref,
                sha=self.sha,
                repository=self.github.repository,
                token=self.github.token,
                inputs=inputs or {},
            ),
            self.runners,
            Place(
                workspace=self.folder / "work/ortpacks/ortpacks",
                temp=self.folder / "work/_temp",
                artifacts=artifacts,
                repository=self.folder / "fork",
                kept={".venv": self.runners.environment},
            ),
            instead or {},
        )
        walk.run()
        return walk


@contextmanager
def forked(folder: Path) -> Iterator[Fork]:
    """Fork the project inside the block."""
    double = GitHubDouble(folder / "github")
    with double.running(), runners(folder) as made:
        sha = _commit(folder / "fork", {**_TWO_ARCHITECTURES, "https://api.github.com": double.url})
        yield Fork(folder, sha, double, made)


def _commit(folder: Path, changes: Mapping[str, str]) -> str:
    """Write the project's files into ``folder`` and return their commit.

    ``changes`` replace text in ``variants.yaml``, each once.
    """
    written = copy_checkout(folder) / "variants.yaml"
    text = written.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    written.write_text(text, encoding="utf-8")
    return commit(folder)
