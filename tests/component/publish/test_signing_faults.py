"""Tests of faults while a release is signed: nothing half signed is public, and the next run completes it."""

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from socketserver import BaseRequestHandler, UnixStreamServer
from unittest.mock import patch

import pytest

from builder.errors import DiskError, ToolMissingError
from builder.files.atomic_write import part_file
from builder.files.disk import disk_errors
from builder.formats.trust import TARGETS, read_root, read_targets
from builder.publish.prepare import PublishOptions
from builder.publish.signing import agent_signer
from tests.support.factories.public_view import seen
from tests.support.factories.publishing import TAG, Desk, bytes_in, prepare, publish_at_once
from tests.support.factories.signing import CI, signing
from tests.support.forked import FORK

REPLACE = PublishOptions(replace=True)

WRITE_FILE = "builder.publish.prepare.write_file"

ANSWERS = {"no answer": b"", "half an answer": b"\0\0\0\x53\x0e\0\0", "no": b"\0\0\0\x01\x05"}
"""Answers of an agent that dies while it signs, or that refuses."""

FILES = ("index.json", "1.root.json", TARGETS)
"""The last files that are written before the host is asked, in this order."""

FAULTS = [
    *product(("nothing", "other"), ("agent",), ANSWERS),
    *product(("nothing", "other"), ("disk", "kill"), FILES),
]
"""The host's earlier contents, the fault, and how the agent answers or which file it hits."""


@contextmanager
def dying_agent(path: Path, answer: bytes) -> Iterator[None]:
    """Listen as an SSH agent that takes the question, gives ``answer`` and hangs up."""

    class Agent(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.request.sendall(answer)

    with UnixStreamServer(str(path), Agent) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield
        thread.join()


def write_until(name: str, fault: str, path: Path, data: bytes) -> None:
    """Write a file; the fault comes when the file ``name`` is written and has its name not yet."""
    with disk_errors(path), part_file(path) as stream:
        stream.write(data)
        if path.name == name and fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if path.name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def publish_and_die(dist: Path, api: str, token: str, name: str) -> None:
    with patch(WRITE_FILE, partial(write_until, name, "kill")):
        publish_at_once(dist, api, token, REPLACE)


def meet(desk: Desk, fault: str, how: str, folder: Path) -> None:
    """Publish with the fault, which ends the run."""
    if fault == "agent":
        path = folder / "agent"
        whole, desk.signing = desk.signing, replace(signing(), signers=(agent_signer(CI.public, str(path)),))
        why = "did not sign" if how == "no" else "does not answer"
        with dying_agent(path, ANSWERS[how]), pytest.raises(ToolMissingError, match=f"SSH agent.* {why}"):
            desk.publish(REPLACE)
        desk.signing = whole
    elif fault == "disk":
        with patch(WRITE_FILE, partial(write_until, how, fault)), pytest.raises(DiskError):
            desk.publish(REPLACE)
    else:
        arguments = (desk.dist, desk.github.url, desk.github.token, how)
        child = FORK.Process(target=publish_and_die, args=arguments)
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL


@pytest.mark.parametrize(("before", "fault", "how"), FAULTS)
def test_nothing_half_signed_is_public(desk: Desk, tmp_path: Path, before: str, fault: str, how: str) -> None:
    prepare(desk, before)
    former, asked = seen(desk.github, TAG), len(desk.github.writes())
    meet(desk, fault, how, tmp_path)
    assert seen(desk.github, TAG) == former
    assert len(desk.github.writes()) == asked, "nothing was written to the host"
    desk.publish(REPLACE)
    there = seen(desk.github, TAG)
    assert there == bytes_in(desk.dist)
    signed = read_targets(there.pop(TARGETS), TARGETS, read_root(there.pop("1.root.json"), "root")).files
    assert {name: (one.length, one.hashes.sha256) for name, one in signed.items()} == {
        name: (len(content), sha256(content).hexdigest()) for name, content in there.items()
    }
