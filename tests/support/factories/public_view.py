"""Reader of a release without a token: a release is seen whole, or not at all."""

import requests

from tests.doubles.github import REPOSITORY, GitHubDouble


def seen(double: GitHubDouble, tag: str) -> dict[str, bytes] | None:
    """Download a tag's release and return its files by name; ``None`` if the release is not public."""
    with requests.Session() as session:
        session.trust_env = False  # nor any proxy: the double is on this machine
        root = f"{double.url}/repos/{REPOSITORY}/releases"
        reply = session.get(f"{root}/tags/{tag}", timeout=5)
        if reply.status_code == 404:
            assert tag not in [item["tag_name"] for item in session.get(root, timeout=5).json()]
            return None
        return {item["name"]: _download(session, item) for item in reply.json()["assets"]}


def _download(session: requests.Session, asset: dict[str, str]) -> bytes:
    assert asset["state"] == "uploaded", asset["name"]
    reply = session.get(asset["browser_download_url"], timeout=5)
    assert reply.status_code == 200, asset["name"]
    return reply.content


def assert_no_name_twice(double: GitHubDouble) -> None:
    for release in double.releases.values():
        names = [asset.name for asset in release.assets.values()]
        assert len(names) == len(set(names)), names
