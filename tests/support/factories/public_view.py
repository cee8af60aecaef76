"""Reader of a release without a token: a release is seen whole, or not at all."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

from tests.doubles.github import REPOSITORY, GitHubDouble


class _Reader:
    """A reader over connections that stay open, one for each host of the double."""

    def __init__(self) -> None:
        self._lines: dict[str, HTTPConnection] = {}

    def get(self, url: str) -> tuple[int, bytes]:
        """Return the status and the body of the answer, after redirects."""
        place = urlsplit(url)
        line = self._lines.setdefault(place.netloc, HTTPConnection(place.netloc, timeout=5))
        line.request("GET", place._replace(scheme="", netloc="").geturl())
        answer = line.getresponse()
        body = answer.read()
        return self.get(answer.headers["Location"]) if answer.status == 302 else (answer.status, body)

    def close(self) -> None:
        for line in self._lines.values():
            line.close()


def seen(double: GitHubDouble, tag: str) -> dict[str, bytes] | None:
    """Download a tag's release and return its files by name; ``None`` if the release is not public."""
    with closing(_Reader()) as reader:
        root = f"{double.url}/repos/{REPOSITORY}/releases"
        status, said = reader.get(f"{root}/tags/{tag}")
        if status == 404:
            assert tag not in [item["tag_name"] for item in json.loads(reader.get(root)[1])]
            return None
        return {item["name"]: _download(reader, item) for item in json.loads(said)["assets"]}


def _download(reader: _Reader, asset: dict[str, str]) -> bytes:
    assert asset["state"] == "uploaded", asset["name"]
    status, content = reader.get(asset["browser_download_url"])
    assert status == 200, asset["name"]
    return content


def assert_no_name_twice(double: GitHubDouble) -> None:
    for release in double.releases.values():
        names = [asset.name for asset in release.assets.values()]
        assert len(names) == len(set(names)), names
