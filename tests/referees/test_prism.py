"""Tests of every request of the GitHub client by Prism, which checks them by GitHub's OpenAPI description.

The list of operations was written from docs.github.com, "REST API endpoints for repositories", "for
releases", "for release assets", "for Git references" and "for Git tags".
"""

import hashlib
import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast
from unittest.mock import Mock

import pytest
import requests

from builder.errors import BuilderError
from builder.publish.github.releases import GitHub
from tests.referees.install import Referees
from tests.referees.openapi import Json, query_names, template
from tests.referees.recording_proxy import Exchange, Front, Request
from tests.referees.release_lifecycle import client, file_of, live
from tests.referees.servers import prism

pytestmark = pytest.mark.referees

REPOSITORY = "octocat/Hello-World"
BYTES = b"bytes"
"""Content of every asset: the example in the reduced description, with which Prism answers."""
OPERATIONS = {
    "GET /repos/{owner}/{repo}",
    "GET /repos/{owner}/{repo}/immutable-releases",
    "GET /repos/{owner}/{repo}/git/ref/{ref}",
    "GET /repos/{owner}/{repo}/git/tags/{tag_sha}",
    "GET /repos/{owner}/{repo}/releases",
    "POST /repos/{owner}/{repo}/releases",
    "GET /repos/{owner}/{repo}/releases/latest",
    "GET /repos/{owner}/{repo}/releases/tags/{tag}",
    "PATCH /repos/{owner}/{repo}/releases/{release_id}",
    "GET /repos/{owner}/{repo}/releases/{release_id}/assets",
    "POST /repos/{owner}/{repo}/releases/{release_id}/assets",
    "GET /repos/{owner}/{repo}/releases/assets/{asset_id}",
    "DELETE /repos/{owner}/{repo}/releases/assets/{asset_id}",
}
UPLOAD = "POST /repos/{owner}/{repo}/releases/{release_id}/assets"


def amended(request: Request, answer: object) -> object:
    """Return an answer of Prism, one of GitHub's examples, changed to fit the request."""
    if isinstance(answer, list):
        full = request.query.get("page") == "1"
        return answer[:1] * 100 if full else []
    assert isinstance(answer, dict)
    if "permissions" in answer:
        return {**answer, "permissions": {"push": True}}
    if "ref" in answer:
        return {**answer, "object": {**answer["object"], "type": "tag"}}
    if request.method == "PATCH":
        return {**answer, "draft": json.loads(request.body)["draft"]}
    if "digest" in answer:
        told_late = None if request.method == "POST" else f"sha256:{hashlib.sha256(BYTES).hexdigest()}"
        return {**answer, "size": len(BYTES), "digest": told_late}
    return answer


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The client's requests, and Prism's answers to them."""

    front: Front
    called: set[str]
    """Names of the client's methods that were called."""
    description: Json

    def operation(self, exchange: Exchange) -> str:
        return f"{exchange.request.method} {template(self.description, exchange.request.path)}"

    def requests(self, operation: str) -> list[Request]:
        found = [item.request for item in self.front.exchanges if self.operation(item) == operation]
        assert found
        return found


@pytest.fixture(scope="module")
def address(referees: Referees, description: Json, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prism")
    (folder / "api.json").write_text(json.dumps(description), encoding="utf-8")
    with prism(referees, folder / "api.json") as url:
        yield url


@pytest.fixture(scope="module")
def judged(address: str, description: Json, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    file = file_of(tmp_path_factory.mktemp("dist"), "ortpacks-modern+1.31.1.tar.zst", BYTES)
    front = Front(api=address, uploads=address, named="https://uploads.github.com", amend=amended)
    with front.running():
        host = Mock(wraps=client(front.url, "ghp_any", REPOSITORY))
        try:
            live(cast("GitHub", host), file)
        except BuilderError as error:
            error.add_note("\n".join(front.objections()))
            raise
    called = {name for name, _, _ in host.method_calls}
    return Judged(front=front, called=called, description=description)


def test_github_would_take_every_request(judged: Judged) -> None:
    assert judged.front.objections() == []
    assert {item.status for item in judged.front.exchanges} == {200, 201, 204}


def test_every_operation_was_judged_and_no_other_is_made(judged: Judged) -> None:
    assert {judged.operation(item) for item in judged.front.exchanges} == OPERATIONS


def test_every_method_of_our_client_was_judged(judged: Judged) -> None:
    methods = inspect.getmembers(GitHub, inspect.isfunction)
    assert judged.called == {name for name, _ in methods if not name.startswith("_")}


def test_every_query_parameter_is_one_that_github_names(judged: Judged) -> None:
    for item in judged.front.exchanges:
        method, path = judged.operation(item).split(" ")
        assert set(item.request.query) <= query_names(judged.description, method, path)


def test_uploads_and_nothing_else_go_where_upload_url_points(judged: Judged) -> None:
    hosts = {judged.operation(item): item.request.host for item in judged.front.exchanges}
    assert [operation for operation, host in hosts.items() if host == "uploads"] == [UPLOAD]


def test_an_asset_was_asked_for_as_what_github_knows_of_it_and_as_its_bytes(judged: Judged) -> None:
    asked = judged.requests("GET /repos/{owner}/{repo}/releases/assets/{asset_id}")
    assert {item.accept for item in asked} == {"application/vnd.github+json", "application/octet-stream"}


def test_a_tag_with_a_slash_is_one_segment_of_the_path(judged: Judged) -> None:
    asked = judged.requests("GET /repos/{owner}/{repo}/releases/tags/{tag}")
    assert {item.path for item in asked} == {f"/repos/{REPOSITORY}/releases/tags/gpu-libs%2Fv1.31.1%2Bfull"}
    (ref,) = judged.requests("GET /repos/{owner}/{repo}/git/ref/{ref}")
    assert ref.path == f"/repos/{REPOSITORY}/git/ref/tags%2Fgpu-libs%2Fv1.31.1%2Bfull"


@pytest.mark.parametrize(
    ("method", "path", "content", "objection"),
    [
        ("POST", "releases", {"name": "no tag"}, "must have required property 'tag_name'"),
        ("POST", "releases", {"tag_name": "v1", "target_comitish": "main"}, "additional properties"),
        ("POST", "releases/1/assets?name=x", {}, "Supported content types: application/octet-stream"),
        ("GET", "releases?per_page=all", None, "per_page must be integer"),
        ("GET", "release/1", None, "no path matched"),
    ],
)
def test_the_referee_bites(
    address: str, method: str, path: str, content: dict[str, object] | None, objection: str
) -> None:
    front = Front(api=address, uploads=address, named="https://uploads.github.com")
    with front.running():
        url = f"{front.url}/repos/{REPOSITORY}/{path}"
        requests.request(method, url, json=content, timeout=30)
    (said,) = front.objections()
    assert objection in said
