"""Tests of the GitHub double: its answers must fit the schemas of GitHub's OpenAPI description."""

from pathlib import Path

import pytest
import requests

from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.referees.openapi import Json, misfits, template
from tests.referees.recording_proxy import Front
from tests.referees.release_lifecycle import COMMIT, TAG, client, file_of, live

pytestmark = pytest.mark.referees

MISSING = "is a required property"
IN_PART = "GET /repos/{owner}/{repo} 200"
"""Operation with an incomplete answer: the double leaves out eighty keys that publishing does not read."""


@pytest.fixture
def said(description: Json, tmp_path: Path) -> dict[str, list[str]]:
    """Return the misfits of the double's answers by operation, for a release's life and a bad request."""
    with GitHubDouble(tmp_path / "github").running() as double:
        front = Front(api=double.url, uploads=double.storage.url, named=double.storage.url)
        with front.running():
            host = client(front.url, TOKEN, REPOSITORY)
            double.admin = True
            live(host, file_of(tmp_path, "a.tar.zst", b"some bytes"))
            double.tags[TAG], double.annotated["7" * 40], double.immutable = "7" * 40, COMMIT, True
            assert (host.commit_of(TAG), host.has_immutable_releases()) == (COMMIT, True)
            _ask_for_a_release_without_a_tag(front.url)
    found: dict[str, list[str]] = {}
    for item in front.exchanges:
        method, path = item.request.method, template(description, item.request.path)
        wrong = misfits(description, method, path, item.status, item.answer)
        found.setdefault(f"{method} {path} {item.status}", []).extend(wrong)
    return found


def _ask_for_a_release_without_a_tag(url: str) -> None:
    authorization = {"Authorization": f"Bearer {TOKEN}"}
    requests.post(f"{url}/repos/{REPOSITORY}/releases", json={}, headers=authorization, timeout=10)


def test_what_the_double_tells_is_as_github_tells_it(said: dict[str, list[str]]) -> None:
    assert len(said) == 17
    assert [item for items in said.values() for item in items if not item.endswith(MISSING)] == []


def test_of_a_release_the_double_tells_all_that_github_always_tells(said: dict[str, list[str]]) -> None:
    assert [operation for operation, items in said.items() if items] == [IN_PART]
