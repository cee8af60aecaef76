"""Stand-ins for the actions of others that the workflows use.

Artifacts are folders. Sources of their rules: the READMEs of actions/upload-artifact and
actions/download-artifact, and @actions/glob.
"""

import glob
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from builder.files.digest import file_digest


class ActionFailedError(Exception):
    """The action ends with an error."""


@dataclass(frozen=True)
class Place:
    """The folders that an action works with."""

    workspace: Path
    temp: Path
    artifacts: Path
    """Has a folder for each artifact of the run."""
    repository: Path
    """What is checked out."""
    kept: Mapping[str, Path]
    """Links that the checkout gets, by name: what a job would make anew or download."""


@dataclass(frozen=True)
class StandIn:
    """What takes an action's place."""

    instead: str
    act: Callable[[Place, Mapping[str, str]], Mapping[str, str]]
    """Takes the action's inputs and returns its outputs. Raises ``ActionFailedError``."""


def _checkout(place: Place, given: Mapping[str, str]) -> Mapping[str, str]:
    shutil.rmtree(place.workspace, ignore_errors=True)
    clone = ("git", "clone", "--quiet", place.repository, place.workspace)
    subprocess.run(clone, check=True, capture_output=True)
    for name, kept in place.kept.items():
        (place.workspace / name).symlink_to(kept)
    return {}


def _nothing(place: Place, given: Mapping[str, str]) -> Mapping[str, str]:
    return {}


def _upload(place: Place, given: Mapping[str, str]) -> Mapping[str, str]:
    patterns = [line.strip() for line in given["path"].splitlines() if line.strip()]
    found = [file for pattern in patterns for file in _matched(place.workspace, pattern)]
    if not found:
        if given["if-no-files-found"] == "error":
            raise ActionFailedError(f"no files were found with {patterns}")
        return {}
    searched = [_searched(place.workspace, pattern) for pattern in patterns]
    root = Path(os.path.commonpath(searched))
    root = root.parent if root.is_file() else root
    target = place.artifacts / given["name"]
    if target.exists() and given.get("overwrite") != "true":
        raise ActionFailedError(f"an artifact {given['name']} is there already")
    shutil.rmtree(target, ignore_errors=True)
    for file in found:
        name = file.relative_to(root)
        if forbidden := [one for one in '":<>|*?\r\n' if one in str(name)]:
            raise ActionFailedError(f"an artifact cannot hold {name}: {forbidden}")
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target / name)  # modes are lost
    return {}


def _searched(workspace: Path, pattern: str) -> Path:
    """Return the path of a pattern up to its first part with a wildcard."""
    before: list[str] = []
    for part in Path(pattern).parts:
        if glob.has_magic(part):
            break
        before.append(part)
    return workspace.joinpath(*before)


def _matched(workspace: Path, pattern: str) -> Iterator[Path]:
    """Yield the files of a pattern, and those below its folders; without hidden ones."""
    if pattern.startswith("!") or "**" in pattern:
        raise NotImplementedError(pattern)
    for path in map(Path, sorted(glob.glob(str(workspace / pattern)))):  # noqa: PTH207 - leaves hidden files out
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (
            file
            for file in files
            if file.is_file() and not any(part.startswith(".") for part in file.relative_to(workspace).parts)
        )


def _download(place: Place, given: Mapping[str, str]) -> Mapping[str, str]:
    """Copy artifacts: the only one lies in ``path`` itself, of several each in a folder of its name."""
    target = place.workspace / given["path"]
    there = sorted(place.artifacts.iterdir()) if place.artifacts.is_dir() else []
    if "name" in given:
        there = [one for one in there if one.name == given["name"]]
        if not there:
            raise ActionFailedError(f"no artifact {given['name']}")
    else:
        there = [one for one in there if fnmatch(one.name, given["pattern"])]
    for one in there:
        shutil.copytree(one, target if len(there) == 1 else target / one.name, dirs_exist_ok=True)
    return {}


def _attest(place: Place, given: Mapping[str, str]) -> Mapping[str, str]:
    """Read what the action would sign, and write it as a statement without a signature."""
    if "subject-path" in given:
        files = list(_matched(place.workspace, given["subject-path"]))
        subjects = {file.name: file_digest(file).sha256 for file in files}
    else:
        lines = (place.workspace / given["subject-checksums"]).read_text(encoding="utf-8").splitlines()
        subjects = {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}
    if not subjects:
        raise ActionFailedError("no subject to attest")
    for about in ("predicate-path", "sbom-path"):
        if about in given:
            said = json.loads((place.workspace / given[about]).read_bytes())
            if about == "sbom-path" and said.get("bomFormat") != "CycloneDX":
                raise ActionFailedError("no SBOM")
    bundle = place.temp / "attestation.json"
    named = [{"name": name, "digest": {"sha256": digest}} for name, digest in subjects.items()]
    bundle.write_text(json.dumps({"subject": named}) + "\n", encoding="utf-8")
    return {"bundle-path": str(bundle)}


_UNSIGNED = "are read and written as a statement without a signature"

STAND_INS = {
    "actions/checkout": StandIn(
        "`git clone` of the project, with this machine's `.venv` and cache of inputs", _checkout
    ),
    "actions/upload-artifact": StandIn("a copy into a folder, by the action's rules", _upload),
    "actions/download-artifact": StandIn("a copy from that folder, by the action's rules", _download),
    "actions/attest-build-provenance": StandIn(f"its subjects {_UNSIGNED}", _attest),
    "actions/attest": StandIn(f"its subjects, predicate and SBOM {_UNSIGNED}", _attest),
    "docker/setup-buildx-action": StandIn("the engine's own builder", _nothing),
}
