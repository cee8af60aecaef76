"""Installation of the referees, programs from npm that check the GitHub client, once into the cache."""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.files.file_lock import exclusive
from tests.support import ran

HERE = Path(__file__).parent
_TAKEN_ALONG = ("package.json", "package-lock.json", ".npmrc")
_DESCRIPTION = "node_modules/@octokit/openapi/generated/api.github.com.json"
_UNREACHABLE = re.compile(r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|E50[234])\b")
_INSTALL_SECONDS = 300


class UnavailableError(Exception):
    """Referees that cannot be installed on this machine; the message is the reason of skipped tests."""


@dataclass(frozen=True, kw_only=True)
class Referees:
    """The installed programs in ``folder``, and the ``node`` that runs them."""

    node: str
    folder: Path

    @property
    def prism(self) -> Path:
        """Path of Stoplight's Prism, which checks requests by an OpenAPI description."""
        return self.folder / "node_modules/@stoplight/prism-cli/dist/index.js"

    @property
    def description(self) -> Path:
        """Path of GitHub's whole OpenAPI description."""
        return self.folder / _DESCRIPTION


def install(cache: Path, env: Mapping[str, str]) -> Referees:
    """Install the referees below ``cache`` if they are not there, and return them.

    Raises ``UnavailableError`` without node, npm or a reachable registry, and ``AssertionError`` with npm's
    output if npm fails for another reason, such as a changed package.
    """
    node, npm = (_program(name, env) for name in ("node", "npm"))
    folder = cache / "referees" / hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    with exclusive(folder.with_suffix(".lock"), lambda: None):
        if not folder.is_dir():
            _make(folder, npm, env)
    return Referees(node=node, folder=folder)


def _program(name: str, env: Mapping[str, str]) -> str:
    found = shutil.which(name, path=env.get("PATH", ""))
    if found is None:
        raise UnavailableError(f"no {name} on PATH: install Node.js 20 or later with npm")
    return found


def _make(folder: Path, npm: str, env: Mapping[str, str]) -> None:
    beside = folder.with_suffix(".part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    for name in _TAKEN_ALONG:
        shutil.copy(HERE / name, beside)
    _fetch(beside, npm, env)
    _keep_one(beside / _DESCRIPTION)
    beside.rename(folder)


def _fetch(folder: Path, npm: str, env: Mapping[str, str]) -> None:
    _run(
        (npm, "ping", "--fetch-retries=0"), folder, env
    )  # fails within half a second without a network, npm ci after a minute
    done = _run((npm, "ci", "--ignore-scripts", "--prefer-offline"), folder, env)
    assert done.returncode == 0, f"npm ci exited with {done.returncode}:\n{done.stderr[-3000:]}"


def _run(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    done = ran(argv, cwd=folder, env=env, timeout=_INSTALL_SECONDS)
    unreachable = _UNREACHABLE.search(done.stderr) if done.returncode else None
    if unreachable:
        raise UnavailableError(f"npm's registry is out of reach ({unreachable[0]})")
    return done


def _keep_one(description: Path) -> None:
    """Remove the package's other descriptions, four fifths of all bytes that npm installs."""
    for path in description.parent.iterdir():
        if path != description:
            path.unlink()
