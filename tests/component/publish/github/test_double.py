"""Tests of the GitHub double. Expectations come from docs.github.com and github/docs, "Releases"."""

from __future__ import annotations

import hashlib

import pytest
import requests

from tests.doubles.github import HEAD, REPOSITORY, TOKEN, GitHubDouble

AUTH = {"Authorization": f"Bearer {TOKEN}"}

BODY = b"some bytes"

TAG = "gpu-libs-v1.23.2"


class Api:
    """The few raw requests that these tests need."""

    def __init__(self, double: GitHubDouble) -> None:
        self.root = f"{double.url}/repos/{REPOSITORY}/releases"
        self.plain = f"{double.url}/{REPOSITORY}/releases"

    def draft(self) -> dict[str, str]:
        reply = requests.post(self.root, json={"tag_name": TAG, "draft": True}, headers=AUTH, timeout=5)
        assert reply.status_code == 201
        value: dict[str, str] = reply.json()
        return value

    def upload(self, release: dict[str, str], name: str, data: bytes = BODY) -> requests.Response:
        url = release["upload_url"].removesuffix("{?name,label}")
        return requests.post(url, params={"name": name}, data=data, headers=AUTH, timeout=5)

    def published(self, name: str) -> None:
        """Make a public release with one file."""
        release = self.draft()
        self.upload(release, name)
        self.publish(release)

    def publish(self, release: dict[str, str]) -> requests.Response:
        return requests.patch(f"{self.root}/{release['id']}", json={"draft": False}, headers=AUTH, timeout=5)


@pytest.fixture
def api(double: GitHubDouble) -> Api:
    return Api(double)


def get(url: str, *, auth: bool = True, **headers: str) -> requests.Response:
    return requests.get(url, headers={**(AUTH if auth else {}), **headers}, timeout=5)


def test_a_draft_is_in_the_list_of_its_owner_and_nowhere_else(api: Api) -> None:
    release = api.draft()
    assert get(f"{api.root}/tags/{TAG}").status_code == 404
    assert [item["id"] for item in get(api.root).json()] == [release["id"]]
    assert get(api.root, auth=False).json() == []
    assert api.publish(release).json()["draft"] is False
    assert get(f"{api.root}/tags/{TAG}", auth=False).json()["id"] == release["id"]


def test_a_tag_is_made_when_a_draft_becomes_public_and_then_stays(api: Api, double: GitHubDouble) -> None:
    """docs.github.com says that target_commitish is "unused if the Git tag already exists"."""
    first = api.draft()
    assert (first["target_commitish"], double.tags) == ("main", {})
    api.publish(first)
    requests.patch(f"{api.root}/{first['id']}", json={"target_commitish": "c" * 40}, headers=AUTH, timeout=5)
    assert double.tags == {TAG: HEAD}


def test_several_drafts_of_a_tag_but_one_release(api: Api) -> None:
    first, second = api.draft(), api.draft()
    assert api.publish(first).status_code == 200
    assert api.publish(second).json()["errors"][0]["code"] == "already_exists"


def test_an_upload_goes_to_another_host_and_tells_size_and_digest(api: Api, double: GitHubDouble) -> None:
    reply = api.upload(api.draft(), "a.bin")
    assert reply.status_code == 201
    asset = reply.json()
    assert (asset["size"], asset["state"]) == (10, "uploaded")
    assert asset["digest"] == f"sha256:{hashlib.sha256(BODY).hexdigest()}"
    assert double.requests[-1].host == "storage"


def test_the_same_name_twice_is_422(api: Api) -> None:
    release = api.draft()
    api.upload(release, "a.bin")
    again = api.upload(release, "a.bin")
    assert again.status_code == 422
    assert again.json()["errors"][0]["code"] == "already_exists"


def test_special_characters_are_renamed(api: Api) -> None:
    assert api.upload(api.draft(), "a b~c.bin").json()["name"] == "a.b.c.bin"


def test_an_upload_without_a_length_is_refused(api: Api) -> None:
    url = api.draft()["upload_url"].removesuffix("{?name,label}")
    reply = requests.post(url, params={"name": "a"}, data=iter([BODY]), headers=AUTH, timeout=5)
    assert reply.status_code == 400


def test_a_502_can_leave_a_starter_that_blocks_the_name_until_it_is_deleted(
    api: Api, double: GitHubDouble
) -> None:
    release = api.draft()
    double.fail("upload", "starter")
    assert api.upload(release, "a.bin").status_code == 502
    (left,) = get(f"{api.root}/{release['id']}/assets").json()
    assert (left["state"], left["size"], left["digest"]) == ("starter", 0, None)
    assert api.upload(release, "a.bin").status_code == 422
    assert requests.delete(left["url"], headers=AUTH, timeout=5).status_code == 204
    assert api.upload(release, "a.bin").status_code == 201


def test_who_may_do_what(api: Api) -> None:
    assert requests.post(api.root, json={"tag_name": TAG}, timeout=5).status_code == 401
    assert get(api.root, auth=False, Authorization="Bearer wrong").status_code == 401
    assert get(api.root.replace("ortpacks/ortpacks", "other/repo")).status_code == 404


def test_lists_come_in_pages(api: Api) -> None:
    release = api.draft()
    for number in range(5):
        api.upload(release, f"{number}.bin")
    page = get(f"{api.root}/{release['id']}/assets?per_page=2&page=3").json()
    assert [item["name"] for item in page] == ["4.bin"]


def test_plain_downloads_are_anonymous_and_end_at_the_object_store(api: Api, double: GitHubDouble) -> None:
    release = api.draft()
    api.upload(release, "a.bin")
    assert get(f"{api.plain}/download/{TAG}/a.bin", auth=False).status_code == 404, "a draft is not public"
    api.publish(release)
    reply = get(f"{api.plain}/download/{TAG}/a.bin", auth=False)
    assert (reply.status_code, reply.content, reply.history[0].status_code) == (200, BODY, 302)
    assert reply.url.startswith(double.storage.url)
    assert get(f"{api.plain}/latest/download/a.bin", auth=False).content == BODY
    assert get(reply.url).status_code == 400, "the object store takes no token"


def test_downloads_resume(api: Api) -> None:
    api.published("a.bin")
    reply = get(f"{api.plain}/download/{TAG}/a.bin", auth=False, Range="bytes=4-")
    assert (reply.status_code, reply.content) == (206, BODY[4:])
    assert reply.headers["Content-Range"] == "bytes 4-9/10"
    assert get(f"{api.plain}/download/{TAG}/a.bin", auth=False, Range="bytes=10-").status_code == 416


def test_the_asset_api_gives_json_or_a_redirect_to_the_bytes(api: Api) -> None:
    url = api.upload(api.draft(), "a.bin").json()["url"]
    assert get(url).json()["name"] == "a.bin"
    assert get(url, Accept="application/octet-stream").content == BODY


def test_an_immutable_release_is_locked_once_it_is_public(api: Api, double: GitHubDouble) -> None:
    double.immutable = True
    release = api.draft()
    asset = api.upload(release, "a.bin").json()
    assert api.publish(release).json()["immutable"] is True
    assert api.upload(release, "b.bin").status_code == 422
    assert requests.delete(asset["url"], headers=AUTH, timeout=5).status_code == 422
