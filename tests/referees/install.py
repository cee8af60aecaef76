"""The referees: programs of others that judge our GitHub client. Installed from npm, once, into the cache."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.files.file_lock import exclusive

HERE = Path(__file__).parent
_TAKEN_ALONG = ("package.json", "package-lock.json", ".npmrc")
_DESCRIPTION = "node_modules/@octokit/openapi/generated/api.github.com.json"
_UNREACHABLE = re.compile(r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|E50[234])\b")
_INSTALL_SECONDS = 300


class UnavailableError(Exception):
    """This machine cannot have the referees; the message is the reason of a skipped test."""


@dataclass(frozen=True, kw_only=True)
class Referees:
    """What is installed, and the ``node`` that runs it."""

    node: str
    folder: Path

    @property
    def prism(self) -> Path:
        """Stoplight's judge of requests by an OpenAPI description."""
        return self.folder / "node_modules/@stoplight/prism-cli/dist/index.js"

    @property
    def emulate(self) -> Path:
        """Vercel's server that keeps releases as GitHub does, but for what assets hold."""
        return self.folder / "node_modules/emulate/dist/index.js"

    @property
    def description(self) -> Path:
        """GitHub's own OpenAPI description, whole."""
        return self.folder / _DESCRIPTION


def install(cache: Path, env: Mapping[str, str]) -> Referees:
    """The referees below ``cache``. Raises ``UnavailableError``: no node, no npm, no registry.

    Anything else that goes wrong is an ``AssertionError`` with npm's words: what is pinned has changed.
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
    )  # half a second; without it, a minute to the same end
    done = _run((npm, "ci", "--ignore-scripts", "--prefer-offline"), folder, env)
    assert done.returncode == 0, f"npm ci exited with {done.returncode}:\n{done.stderr[-3000:]}"


def _run(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        argv,
        cwd=folder,
        env=dict(env),
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
        check=False,
    )
    unreachable = _UNREACHABLE.search(done.stderr) if done.returncode else None
    if unreachable:
        raise UnavailableError(f"npm's registry is out of reach ({unreachable[0]})")
    return done


def _keep_one(description: Path) -> None:
    """Remove GitHub's other descriptions: four fifths of all bytes that npm brought."""
    for path in description.parent.iterdir():
        if path != description:
            path.unlink()
