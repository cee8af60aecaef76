"""Tests of the GitHub token's two sources: the environment, then gh's own login."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.build.verbs.releases import releasing
from builder.errors import BuilderError, ToolMissingError
from builder.io.process import Completed
from builder.io.wiring import Wiring
from builder.publish.locations import web_root
from tests.support.fakes.ports import FakeReporter, FakeRunner

PUBLIC = "https://api.github.com"

OWN = Completed(0, "gho_own\n", "")


@pytest.mark.parametrize(
    ("api", "env", "gh", "token", "asked"),
    [
        (PUBLIC, {"GH_TOKEN": "two", "GITHUB_TOKEN": "one"}, OWN, "one", None),
        (PUBLIC, {"GH_TOKEN": "two"}, OWN, "two", None),
        (f"{PUBLIC}/", {"GITHUB_TOKEN": ""}, OWN, "gho_own", "github.com"),
        ("https://ghe.example:8443/api/v3", {}, OWN, "gho_own", "ghe.example"),
        ("github.com", {}, OWN, "", None),
        (PUBLIC, {}, Completed(1, "", "no oauth token"), "", "github.com"),
        (PUBLIC, {}, ToolMissingError("gh is not there"), "", "github.com"),
    ],
    ids=["both", "gh's", "gh", "enterprise", "no address", "no login", "no gh"],
)
def test_the_environment_is_asked_first_then_gh_for_the_server(
    tmp_path: Path, api: str, env: dict[str, str], gh: Completed | BuilderError, token: str, asked: str | None
) -> None:
    shop = Wiring(tmp_path, reporter=FakeReporter())
    shop.env = env
    runner = FakeRunner(answers={"gh": gh})
    shop.__dict__["runner"] = runner
    assert releasing._token(shop, api) == token
    assert runner.calls == ([["gh", "auth", "token", "--hostname", asked]] if asked else [])


@pytest.mark.parametrize(
    ("api", "web"),
    [
        (f"{PUBLIC}/", "https://github.com"),
        ("https://ghe.example:8443/api/v3", "https://ghe.example:8443"),
        ("https://api.example/api/v3", "https://api.example"),
    ],
)
def test_a_client_is_sent_to_the_server_itself(api: str, web: str) -> None:
    assert web_root(api) == web
