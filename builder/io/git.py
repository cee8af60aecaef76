"""Git lookups: the commit of a reference, its tree as a tar file, and the commit of a folder."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from urllib.parse import unquote

from builder.config.inputs import Input, Pin
from builder.contents.provenance import Revision
from builder.errors import CommandError, IntegrityError, ToolMissingError, TransferError, ValidationError
from builder.formats.text import nearest
from builder.io.process import ProcessRunner

_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "30",
}
"""Variables that keep git from asking for a password and end it after 30 s below 1,000 bytes a second."""

_FETCH_ENVIRONMENT = {**_ENVIRONMENT, "GIT_HTTP_LOW_SPEED_TIME": "300"}
"""The same for a fetch: a server under load sends next to nothing while it counts a tree's objects."""


_UNREAD = (":(exclude,glob)**/*.onnx", ":(exclude,glob)**/*.ort")
"""Models of ONNX Runtime's tests: no build reads them, and a filtered clone may lack them."""


def commit_of(runner: ProcessRunner, spec: str) -> Pin:
    """Return the pin of a reference, ``URL@REF``: a tag, annotated or not, a branch, ``HEAD`` or a commit.

    A commit is itself, and is looked for when its tree is fetched. Raises ``ValidationError`` for what the
    repository does not have, ``TransferError`` when its host is out of reach and ``ToolMissingError`` without
    git.
    """
    url, _, ref = spec.rpartition("@")
    if _COMMIT.fullmatch(ref):
        return Pin(revision=ref)
    tag = f"refs/tags/{ref}"
    listed = _listed(runner, url, "HEAD", tag, f"{tag}^{{}}", f"refs/heads/{ref}")
    if commit := listed.get(f"{tag}^{{}}") or listed.get(tag):  # an annotated tag's second line is its commit
        return Pin(revision=commit)
    name = ref if ref == "HEAD" else f"refs/heads/{ref}"
    if name not in listed:
        raise _unknown(runner, url, ref)
    return Pin(revision=listed[name], ref=name)


def download_tree(runner: ProcessRunner, item: Input, pin: Pin | None, folder: Path) -> Path:
    """Download a commit's tree as a tar file (``io.store.Source``); ``pin`` has the commit.

    Git runs on this machine, so the engine needs no git and the steps of a build need no network. A
    repository of this machine is read where it is, also one that is bare or shallow. Submodules and models
    are left out. Raises ``ValidationError`` for a commit that such a repository lacks, ``IntegrityError``
    when the reference leads to another commit and the pinned one cannot be had, ``TransferError`` when the
    host is out of reach and ``ToolMissingError`` without git.
    """
    url, _, ref = item.spec.rpartition("@")
    wanted = pin.revision if pin and pin.revision else ""
    repository, tar = folder / "repository", folder / item.file_name
    here = ["git", "--git-dir", str(_folder_of(url) if item.is_here else repository)]
    if item.is_here:
        if runner.run([*here, "cat-file", "-e", f"{wanted}^{{commit}}"], env=_ENVIRONMENT, check=False).code:
            raise ValidationError(
                f"{url} has no commit {wanted}",
                advice="Correct it. In a shallow clone, `git fetch --unshallow` brings older ones.",
            )
    else:
        runner.run([*here, "init", "--quiet", "--bare"], env=_ENVIRONMENT)
        _fetch(
            runner, here, item, (pin and pin.ref) or (ref if ref == wanted else f"refs/tags/{ref}"), wanted
        )
    runner.run([*here, "archive", f"--output={tar}", wanted, "--", ".", *_UNREAD], env=_ENVIRONMENT)
    shutil.rmtree(repository, ignore_errors=True)
    return tar


def _fetch(runner: ProcessRunner, here: list[str], item: Input, name: str, wanted: str) -> None:
    """Fetch a reference; where it leads to another commit than the pinned one, that one."""
    url, _, ref = item.spec.rpartition("@")
    fetch = [*here, "fetch", "--quiet", "--depth=1", url]
    try:
        runner.run([*fetch, name], env=_FETCH_ENVIRONMENT)
    except CommandError as error:
        raise _unreachable(url, error) from error
    got = runner.run([*here, "rev-parse", "FETCH_HEAD^{commit}"], env=_ENVIRONMENT).stdout.strip()
    if got != wanted and runner.run([*fetch, wanted], env=_FETCH_ENVIRONMENT, check=False).code:
        raise IntegrityError(
            f"{item.key}: wanted commit {wanted}, {ref} leads to {got}",
            advice="It was moved. Compare the two commits; `./run lock --refresh` pins the new one.",
        )


def _listed(runner: ProcessRunner, url: str, *names: str) -> dict[str, str]:
    """Return the commits of a repository's references by their full name; of all without ``names``."""
    try:
        done = runner.run(["git", "ls-remote", _address(url), *names], env=_ENVIRONMENT)
    except CommandError as error:
        raise _unreachable(url, error) from error
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {row[1]: row[0] for row in rows if len(row) == 2}  # noqa: PLR2004


def _address(url: str) -> str:
    return str(_folder_of(url)) if url.startswith(("/", "file://")) else url


def _folder_of(url: str) -> Path:
    """Return the git folder of a repository of this machine: that of its work tree, or the bare one."""
    path = Path(unquote(url.removeprefix("file://")) if url.startswith("file://") else url)
    return path / ".git" if (path / ".git").exists() else path


def _unknown(runner: ProcessRunner, url: str, ref: str) -> ValidationError:
    if ref == "HEAD":
        return ValidationError(f"{url} has no commit", advice="Name a tag, a branch or a commit after an @.")
    known = [name.split("/", 2)[2] for name in _listed(runner, url) if name.count("/") > 1]
    hint = nearest(ref, [name for name in known if not name.endswith("^{}")])
    advice = hint or "Name one that it has, or a commit by all of its 40 hex digits."
    return ValidationError(f"{url} has no tag or branch {ref}", advice=advice)


def _unreachable(url: str, error: CommandError) -> TransferError:
    """Take git's first complaint for the cause: "expected 'packfile'" follows a connection that broke."""
    complaints = [line for line in error.tail if line.startswith(("error: ", "fatal: "))]
    reason = next(iter((*complaints, *error.tail)), f"exit code {error.code}")
    advice = "Check the network, and the address."
    if url.startswith(("/", "file://")):
        advice = "Name the folder of a git repository; without an @ it is taken as it is."
    return TransferError(f"{url} cannot be reached", cause=reason, advice=advice)


_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

_QUIET = {"GIT_OPTIONAL_LOCKS": "0"}
"""Variables that keep git from writing anything, even its index."""


def revision_of(root: Path, runner: ProcessRunner) -> Revision | None:
    """Return the commit checked out in ``root``, and whether any file in ``root`` differs from it or is new.

    The result is ``None`` without git and when ``root`` itself is no work tree: a repository in a folder
    above, around an unpacked archive, is another project's.
    """
    here = ["git", "-C", str(root), "--git-dir=.git", "--work-tree=.", "-c", "core.fsmonitor=false"]
    try:
        head = runner.run([*here, "rev-parse", "--verify", "HEAD"], env=_QUIET, check=False)
        status = runner.run([*here, "status", "--porcelain"], env=_QUIET, check=False)
    except ToolMissingError:
        return None
    commit = head.stdout.strip()
    if head.code or status.code or not _COMMIT.fullmatch(commit):
        return None
    return Revision(commit=commit, dirty=bool(status.stdout.strip()))


_REPOSITORY = re.compile(r"(?:[a-z+]+://[^/]+/|[^/:]+:)(?P<name>[^/]+/[^/]+?)(?:\.git)?/?")


def origin_of(root: Path, runner: ProcessRunner) -> str | None:
    """Return ``owner/name`` of the remote ``origin``; ``None`` without git, a remote, or such an address."""
    try:
        done = runner.run(
            ["git", "-C", str(root), "--git-dir=.git", "remote", "get-url", "origin"], check=False
        )
    except ToolMissingError:
        return None
    match = _REPOSITORY.fullmatch(done.stdout.strip())
    return match["name"] if match and not done.code else None
