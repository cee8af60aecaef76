"""Which commit a git tag stands for now; the clone itself happens inside the build."""

from __future__ import annotations

from builder.core.ports import Runner
from builder.errors import CommandError, TransferError, ValidationError

_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "30",
}
"""Never ask for a password; give up after 30 s of next to nothing."""


class GitTags:
    """Implements ``core.catalogue.Resolver`` for ``https://host/owner/name@tag``."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def __call__(self, spec: str) -> str:
        """The commit, also of an annotated tag. Raises ``ValidationError`` where the tag does not exist."""
        url, _, tag = spec.rpartition("@")
        try:
            done = self._runner.run(
                ["git", "ls-remote", url, f"refs/tags/{tag}", f"refs/tags/{tag}^{{}}"], env=_ENVIRONMENT
            )
        except CommandError as error:
            reason = error.tail[-1] if error.tail else f"exit code {error.code}"
            raise TransferError(f"{url} cannot be reached: {reason}.") from error
        return _commit(done.stdout, url, tag)


def _commit(listing: str, url: str, tag: str) -> str:
    """Peeled tags (``^{}``) name the commit of an annotated one and come last."""
    rows = [line.split("\t") for line in listing.splitlines()]
    commits = {name: commit for commit, name in (row for row in rows if len(row) == 2)}  # noqa: PLR2004
    commit = commits.get(f"refs/tags/{tag}^{{}}") or commits.get(f"refs/tags/{tag}")
    if commit is None:
        raise ValidationError(f"{url} has no tag {tag}. Correct it in variants.yaml.")
    return commit
