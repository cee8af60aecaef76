"""The workflows hold to what docs/releasing.md promises of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

WORKFLOWS = ("check", "release")
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def text(root: Path, name: str) -> str:
    return (root / f".github/workflows/{name}.yml").read_text()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_action_is_pinned_by_commit_with_its_version_beside_it(root: Path, name: str) -> None:
    uses = [line.strip(" -") for line in text(root, name).splitlines() if "uses:" in line]
    assert uses
    assert [line for line in uses if PINNED.fullmatch(line) is None] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_nothing_is_permitted_but_what_a_job_asks_for(root: Path, name: str) -> None:
    assert yaml.safe_load(text(root, name))["permissions"] == {}


def test_only_the_publishing_job_may_write_and_no_release_is_cancelled(root: Path) -> None:
    release = yaml.safe_load(text(root, "release"))
    writers = [name for name, job in release["jobs"].items() if "write" in job["permissions"].values()]
    assert writers == ["publish"]
    assert release["concurrency"]["cancel-in-progress"] is False


def test_what_check_installs_and_asks_for_is_in_the_guide(root: Path) -> None:
    (job,) = yaml.safe_load(text(root, "check"))["jobs"].values()
    words = " ".join(step.get("run", "") for step in job["steps"]).split()
    assert {"mmdebstrap", "uidmap", "debian-archive-keyring"} <= set(words)
    (variable,) = job["steps"][-1]["env"]
    assert job["steps"][-1]["env"][variable] == f"${{{{ vars.{variable} }}}}"
    assert f"`{variable}`" in (root / "docs" / "releasing.md").read_text()


def test_the_matrix_is_every_variant(root: Path) -> None:
    variants = yaml.safe_load((root / "variants.yaml").read_text())["variants"]
    release = yaml.safe_load(text(root, "release"))
    assert release["jobs"]["build"]["strategy"]["matrix"]["variant"] == list(variants)
