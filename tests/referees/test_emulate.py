"""Tests of the GitHub client on emulate, an independent server with GitHub's releases.

Unlike GitHub, emulate shows a draft under its tag, accepts an asset's name twice, forgets the bytes of
assets, reports no digest and accepts any token. So an upload, which is then read back, ends with a refusal;
emulate has taken it before. Tests do not depend on the other points.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from builder.errors import TransferError
from builder.files.digest import LocalFile
from builder.publish.assets import Asset, Release
from builder.publish.github.releases import GitHub
from tests.referees.install import Referees
from tests.referees.release_lifecycle import client, file_of
from tests.referees.servers import emulate

pytestmark = pytest.mark.referees

TOKEN = "test_token_admin"
TAG = "gpu-libs-v1.31.1"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
TIMEOUT = 10


@dataclass(frozen=True, kw_only=True)
class Place:
    """An empty repository at emulate, and the client for it."""

    host: GitHub
    releases_url: str

    def latest(self) -> requests.Response:
        """Request the latest release without a token."""
        return requests.get(f"{self.releases_url}/latest", timeout=TIMEOUT)

    def upload(self, release: Release, file: LocalFile) -> None:
        """Upload ``file``, which is refused when emulate does not give its bytes back."""
        with pytest.raises(
            TransferError, match=r"since the host states no digest|bytes that are read at most"
        ):
            self.host.upload(release, file)

    def assets(self, release: Release) -> dict[str, Asset]:
        """Return the assets by their names, without the client, which would read them back."""
        url = f"{self.releases_url}/{release.id}/assets"
        listed = requests.get(url, headers=AUTHORIZED, timeout=TIMEOUT).json()
        fields = ("name", "size", "digest", "state", "id")
        return {asset["name"]: Asset(*map(asset.get, fields)) for asset in listed}


@pytest.fixture(scope="module")
def address(referees: Referees, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with emulate(referees, tmp_path_factory.mktemp("emulate") / "log") as url:
        yield url


@pytest.fixture
def place(address: str, request: pytest.FixtureRequest) -> Place:
    name = request.node.name
    content = {"name": name, "auto_init": True}
    made = requests.post(f"{address}/user/repos", json=content, headers=AUTHORIZED, timeout=TIMEOUT)
    assert made.status_code == 201
    url = f"{address}/repos/admin/{name}/releases"
    return Place(host=client(address, TOKEN, f"admin/{name}"), releases_url=url)


def test_a_release_is_drafted_filled_published_and_then_the_latest(place: Place, tmp_path: Path) -> None:
    place.host.require_access()
    assert place.host.latest() is None
    draft = place.host.create_draft(TAG, "ORT 1.31.1", "notes")
    assert place.host.drafts(TAG) == [draft]
    sizes = {"ortpacks-modern.tar.zst": 300_000, "index.json": 21}
    for name, size in sizes.items():
        place.upload(draft, file_of(tmp_path, name, b"x" * size))
    assert {name: asset.size for name, asset in place.assets(draft).items()} == sizes
    assert place.latest().status_code == 404
    assert not place.host.publish(draft, "ORT 1.31.1", "notes, again").draft
    shown = place.latest().json()
    assert (shown["tag_name"], shown["body"], shown["draft"]) == (TAG, "notes, again", False)
    assert {asset["name"]: asset["size"] for asset in shown["assets"]} == sizes
    public = place.host.published(TAG)
    assert public is not None
    assert public.id == draft.id
    assert place.host.drafts(TAG) == []


def test_a_published_release_is_withdrawn_and_published_again(place: Place) -> None:
    draft = place.host.create_draft(TAG, "ORT 1.31.1", "notes")
    place.host.publish(draft, "ORT 1.31.1", "notes")
    assert place.host.withdraw(draft).draft
    assert place.latest().status_code == 404
    assert place.host.published(TAG) is None
    place.host.publish(draft, "ORT 1.31.1", "notes")
    assert place.latest().status_code == 200


def test_a_deleted_asset_is_gone_and_may_be_deleted_again(place: Place, tmp_path: Path) -> None:
    draft = place.host.create_draft(TAG, "ORT 1.31.1", "notes")
    for name in ("gone", "kept"):
        place.upload(draft, file_of(tmp_path, name, b"x"))
    gone = place.assets(draft)["gone"]
    place.host.delete(gone)
    place.host.delete(gone)
    assert list(place.assets(draft)) == ["kept"]


def test_a_repository_that_is_not_there_is_said_to_be_so(address: str) -> None:
    with pytest.raises(TransferError, match=r"answered 404 .* does not exist, or the token may not see it"):
        client(address, TOKEN, "admin/nothing").require_access()


def test_only_this_machine_reaches_the_referee(address: str) -> None:
    another_interface = address.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(requests.ConnectionError, match="refused"):
        requests.get(another_interface, timeout=TIMEOUT)
