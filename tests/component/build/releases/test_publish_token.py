"""Tests of the GitHub token's two sources: the environment, then gh's own login."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from builder.build.verbs.releases import releasing
from builder.errors import BuilderError, ToolMissingError
from builder.io.process import Completed
from builder.io.wiring import Wiring
from builder.publish.locations import web_root
from tests.support.fakes.ports import FakeReporter, FakeRunner

PUBLIC = "https://api.github.com"


def token(
    tmp_path: Path, env: Mapping[str, str], api: str, gh: Completed | BuilderError
) -> tuple[str, list[list[str]]]:
    """Return the token and the calls of programs."""
    shop = Wiring(tmp_path, reporter=FakeReporter())
    shop.env = env
    runner = FakeRunner(answers={"gh": gh})
    shop.__dict__["runner"] = runner
    return releasing._token(shop, api), runner.calls


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({"GITHUB_TOKEN": "one"}, "one"),
        ({"GH_TOKEN": "two"}, "two"),
        ({"GH_TOKEN": "two", "GITHUB_TOKEN": "one"}, "one"),
    ],
)
def test_the_environment_is_asked_first_and_gh_is_not_started(
    tmp_path: Path, env: dict[str, str], wanted: str
) -> None:
    assert token(tmp_path, env, PUBLIC, Completed(0, "gh-own\n", "")) == (wanted, [])


@pytest.mark.parametrize(
    ("api", "host"),
    [
        (PUBLIC, "github.com"),
        ("https://ghe.example/api/v3", "ghe.example"),
        ("https://ghe.example:8443/api/v3", "ghe.example"),
        ("https://api.example.ghe.com", "example.ghe.com"),
        ("https://api.example/api/v3", "api.example"),
    ],
)
def test_gh_is_asked_for_the_server_that_is_published_to(tmp_path: Path, api: str, host: str) -> None:
    found, asked = token(tmp_path, {"GITHUB_TOKEN": ""}, api, Completed(0, "gho_own\n", ""))
    assert found == "gho_own"
    assert asked == [["gh", "auth", "token", "--hostname", host]]


@pytest.mark.parametrize(
    ("api", "web"),
    [
        (PUBLIC, "https://github.com"),
        (f"{PUBLIC}/", "https://github.com"),
        ("https://api.example.ghe.com", "https://example.ghe.com"),
        ("https://ghe.example:8443/api/v3", "https://ghe.example:8443"),
        ("https://api.example/api/v3", "https://api.example"),
    ],
)
def test_a_client_is_sent_to_the_server_itself(api: str, web: str) -> None:
    assert web_root(api) == web


@pytest.mark.parametrize("gh", [Completed(1, "", "no oauth token"), ToolMissingError("gh is not there")])
def test_without_either_there_is_none(tmp_path: Path, gh: Completed | BuilderError) -> None:
    assert token(tmp_path, {}, PUBLIC, gh)[0] == ""
