"""Tests of kill -9 during publish: a release is whole or hidden, and the next run completes it.

A child publishes to the parent's double, which kills it at a random moment of every request, then in the
large uploads: when a request comes, when a block of it was read, or when its answer is ready.
"""

import os
import random
import signal
import socket
import threading
from collections.abc import Iterator
from itertools import chain, cycle, islice, pairwise
from pathlib import Path

import pytest
from urllib3.connection import HTTPConnection

from builder.publish.prepare import PublishOptions
from tests.support.factories.public_view import assert_no_name_twice, seen
from tests.support.factories.publishing import TAG, Desk, bytes_in, open_desk, prepare, publish_at_once
from tests.support.forked import FORK

pytestmark = pytest.mark.thorough

SEED = 20_261_121

KILLS = 20

BLOCK = 1 << 14


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Return a desk whose host reads small blocks through a small buffer, so that kills interrupt uploads."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    with open_desk(tmp_path) as desk:
        desk.github.block = BLOCK
        desk.github.storage.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BLOCK)
        yield desk


def publish_in_small_blocks(dist: Path, api: str, token: str, options: PublishOptions) -> None:
    HTTPConnection.default_socket_options.append((socket.SOL_SOCKET, socket.SO_SNDBUF, BLOCK))
    publish_at_once(dist, api, token, options)


def run(desk: Desk, *, replace: bool, tick: int = 0) -> int | None:
    """Publish in a child, killed at ``tick`` of the double unless it is 0; return its exit code."""
    started = threading.Event()
    arguments = (desk.dist, desk.github.url, desk.github.token, PublishOptions(replace=replace))
    child = FORK.Process(target=publish_in_small_blocks, args=arguments)

    def kill() -> None:
        started.wait()
        child.kill()

    desk.github.requests.clear()
    desk.github.ticks, desk.github.moment = 0, (tick, kill)
    child.start()
    started.set()
    child.join()
    desk.github.settle()
    desk.github.moment = None
    return child.exitcode


@pytest.mark.parametrize("before", ["nothing", "leftovers", "other"])
def test_a_kill_at_any_moment_leaves_a_release_whole_or_hidden(desk: Desk, before: str) -> None:
    replace = before == "other"
    prepare(desk, before)
    assert run(desk, replace=replace) == 0
    ticks = [request.tick for request in desk.github.requests] + [desk.github.ticks + 1]
    moments = random.Random(f"{SEED} {before}")  # noqa: S311 - moments, not keys
    spans = moments.sample(list(pairwise(ticks)), len(ticks) - 1)
    widest = sorted(spans, key=lambda span: span[0] - span[1])[:2]  # the large uploads
    fell: set[str] = set()
    for begin, end in islice(chain(spans, cycle(widest)), KILLS):
        desk.github.releases.clear()
        prepare(desk, before)
        former = seen(desk.github, TAG)
        assert run(desk, replace=replace, tick=moments.randrange(begin, end)) == -signal.SIGKILL
        fell.add("".join(write.method for write in desk.github.writes()[-1:]))
        assert_no_name_twice(desk.github)
        assert seen(desk.github, TAG) in (None, former, bytes_in(desk.dist)), "part of a release is public"
        desk.publish(PublishOptions(replace=replace))
        assert_no_name_twice(desk.github)
        assert seen(desk.github, TAG) == bytes_in(desk.dist)
        assert len(desk.github.releases) == 1, "a second draft"
        assert not list(desk.dist.glob("*.part-*")), "leftovers in dist"
    assert desk.github.short, "kills interrupted uploads"
    assert {"", "POST", "PATCH"} <= fell, "before a write, and as an upload or the publication was the last"
