"""Tests of downloads without a promised size or sha256, which resume only by a server's strong validator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.errors import IntegrityError
from builder.files.download import WantedFile, fetch
from builder.files.http_client import NotThereError, Web
from builder.files.http_opener import open_url
from tests.doubles.fileserver import FileServer, serve

BODY = random.Random(7).randbytes(1 << 20)  # noqa: S311 any bytes do


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serve(FileServer({"x.whl": BODY})) as running:
        yield running


@pytest.fixture
def told() -> list[tuple[int, int]]:
    return []


@pytest.fixture
def web(told: list[tuple[int, int]]) -> Web:
    return Web(
        open=open_url, sleep=lambda seconds: None, progress=lambda done, total: told.append((done, total))
    )


def test_what_broke_off_is_gone_on_with_by_its_etag(server: FileServer, web: Web, tmp_path: Path) -> None:
    server.faults = ["cut"]
    fetch(WantedFile(f"{server.url}/x.whl"), tmp_path / "part", web)
    assert (tmp_path / "part").read_bytes() == BODY
    assert [wanted for _, wanted in server.requests] == ["", f"bytes={len(BODY) // 2}-"]


@pytest.mark.parametrize("etag", ["", 'W/"one"'])
def test_without_a_strong_validator_it_is_read_anew(
    server: FileServer, web: Web, tmp_path: Path, etag: str
) -> None:
    server.faults, server.etag = ["cut"], etag
    fetch(WantedFile(f"{server.url}/x.whl"), tmp_path / "part", web)
    assert (tmp_path / "part").read_bytes() == BODY
    assert [wanted for _, wanted in server.requests] == ["", ""]


def test_progress_ends_with_the_size_that_the_server_told(
    server: FileServer, web: Web, tmp_path: Path, told: list[tuple[int, int]]
) -> None:
    fetch(WantedFile(f"{server.url}/x.whl"), tmp_path / "part", web)
    assert told[-1] == (len(BODY), len(BODY))
    assert told == sorted(told)


def test_more_than_the_promised_size_is_refused(server: FileServer, web: Web, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=rf"wanted: 7 bytes\n    got:    {len(BODY)} bytes"):
        fetch(WantedFile(f"{server.url}/x.whl", size=7), tmp_path / "part", web)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_told_apart(server: FileServer, web: Web, tmp_path: Path) -> None:
    with pytest.raises(NotThereError, match=r"gone\.whl: HTTP 404 Not Found\. Check the address\."):
        fetch(WantedFile(f"{server.url}/gone.whl"), tmp_path / "part", web)


@pytest.mark.parametrize(
    "promised", [{"size": 7}, {"size": len(BODY), "sha256": "0" * 64}, {"size": 2 * len(BODY)}]
)
def test_a_login_in_the_address_is_in_no_message(
    server: FileServer, web: Web, tmp_path: Path, promised: dict[str, object]
) -> None:
    url = server.url.replace("://", "://user:s3cret@")
    with pytest.raises(IntegrityError) as caught:
        fetch(WantedFile(f"{url}/x.whl", **promised), tmp_path / "part", web)  # type: ignore[arg-type]
    assert "…@127.0.0.1" in str(caught.value)
    assert "s3cret" not in str(caught.value)
