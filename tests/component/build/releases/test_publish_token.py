"""Tests of the GitHub token's two sources: the environment, then gh's own login."""

from pathlib import Path

import pytest

from builder.build.verbs.releases import releasing
from builder.errors import BuilderError, ToolMissingError
from builder.io.process import Completed
from tests.support.factories.workplace import wired
from tests.support.fakes.ports import FakeRunner

PUBLIC = "https://api.github.com"

OWN = Completed(0, "gho_own\n", "")


@pytest.mark.parametrize(
    ("api", "env", "gh", "token", "asked"),
    [
        (PUBLIC, {"GH_TOKEN": "two", "GITHUB_TOKEN": "one"}, OWN, "one", None),
        (PUBLIC, {"GH_TOKEN": "two"}, OWN, "two", None),
        (f"{PUBLIC}/", {"GITHUB_TOKEN": ""}, OWN, "gho_own", "github.com"),
        ("https://ghe.example:8443/api/v3", {}, OWN, "gho_own", "ghe.example"),
        ("https://api.example/api/v3", {}, OWN, "gho_own", "api.example"),
        ("github.com", {}, OWN, "", None),
        (PUBLIC, {}, Completed(1, "", "no oauth token"), "", "github.com"),
        (PUBLIC, {}, ToolMissingError("gh is not there"), "", "github.com"),
    ],
    ids=["both", "gh's", "gh", "enterprise", "api", "no address", "no login", "no gh"],
)
def test_the_environment_is_asked_first_then_gh_for_the_server(
    tmp_path: Path, api: str, env: dict[str, str], gh: Completed | BuilderError, token: str, asked: str | None
) -> None:
    runner = FakeRunner(answers={"gh": gh})
    assert releasing._token(wired(tmp_path, tmp_path, env, runner=runner), api) == token
    assert runner.calls == ([["gh", "auth", "token", "--hostname", asked]] if asked else [])
