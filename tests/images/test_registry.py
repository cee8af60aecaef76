"""An image in Debian's ``docker-registry``: pushed, compared, pulled back by its digest, refused."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.images.test_runtime_image import docker
from tests.support.debian import debian_program
from tests.support.fakes.verbs import invoke

pytestmark = pytest.mark.images

TYPE = "application/vnd.docker.distribution.manifest.v2+json"

Push = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def program() -> Path:
    """The registry's program, unpacked from Debian's package and kept in the cache."""
    return debian_program("docker-registry", "usr/bin/docker-registry")


@contextmanager
def registry(program: Path, folder: Path, *more: str) -> Iterator[str]:
    """The ``HOST:PORT`` of a registry that keeps its images in ``folder``, inside the block only."""
    config, port = folder / "config.yml", free_port()
    lines = (
        "version: 0.1",
        "log: {level: error}",
        f"storage: {{filesystem: {{rootdirectory: {folder / 'images'}}}}}",
        f"http: {{addr: '127.0.0.1:{port}'}}",
        *more,
    )
    config.write_text("\n".join(lines))
    running = subprocess.Popen([program, "serve", config], stderr=subprocess.DEVNULL)
    try:
        answered(f"http://127.0.0.1:{port}/v2/")
        yield f"localhost:{port}"
    finally:
        running.terminate()
        running.wait()
        for tag in docker("images", "--format={{.Repository}}:{{.Tag}}").splitlines():
            if tag.startswith(f"localhost:{port}/"):
                docker("rmi", tag)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def answered(url: str) -> None:
    for _ in range(100):
        try:
            urllib.request.urlopen(url)
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"{url} never answered")


@pytest.fixture(scope="module")
def push(dist: Path) -> Iterator[Push]:
    """Make the image for the CPU and push it."""
    somebodys = docker("images", "--quiet", "ortpacks/cpu:1.21.0")
    flags = ("--variant", "cpu", "--base", "assembled", "--dist", dist)
    yield lambda repository: invoke("image", *flags, "--push", repository)
    if not somebodys and docker("images", "--quiet", "ortpacks/cpu:1.21.0"):
        docker("rmi", "ortpacks/cpu:1.21.0")


def test_what_is_pushed_is_what_is_pulled_back_by_its_digest(
    program: Path, push: Push, tmp_path: Path
) -> None:
    with registry(program, tmp_path) as at:
        done = push(f"{at}/ortpacks")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        (reference,) = (line.strip() for line in done.stdout.splitlines() if "@sha256:" in line)
        manifests = [manifest(at, tag) for tag in ("1.21.0-cpu", "latest-cpu")]
        assert manifests[0] == manifests[1]
        assert reference == f"{at}/ortpacks@sha256:{hashlib.sha256(manifests[0]).hexdigest()}"
        layers = json.loads(manifests[0])["layers"]
        assert sum(layer["size"] for layer in layers) < 80_000_000
        built = json.loads(docker("inspect", "ortpacks/cpu:1.21.0"))[0]
        docker(
            "rmi", *(f"{at}/ortpacks:{tag}" for tag in ("1.21.0-cpu", "latest-cpu")), "ortpacks/cpu:1.21.0"
        )
        docker("pull", "--quiet", reference)
        try:
            pulled = json.loads(docker("inspect", reference))[0]
            assert pulled["RootFS"]["Layers"] == built["RootFS"]["Layers"]
            assert pulled["Config"]["Labels"] == built["Config"]["Labels"]
            assert docker("run", "--rm", "--network=none", reference).startswith("cpu: ")
        finally:
            docker("rmi", reference)


def manifest(at: str, tag: str) -> bytes:
    asked = urllib.request.Request(f"http://{at}/v2/ortpacks/manifests/{tag}", headers={"Accept": TYPE})
    with urllib.request.urlopen(asked) as answer:
        return bytes(answer.read())


def test_a_registry_that_wants_a_login_is_told_with_what_to_do(
    program: Path, push: Push, tmp_path: Path
) -> None:
    nobody = tmp_path / "htpasswd"
    nobody.touch()
    with registry(program, tmp_path, f"auth: {{htpasswd: {{realm: x, path: {nobody}}}}}") as at:
        done = push(f"{at}/ortpacks")
        assert done.returncode == 10
        assert f"{at}/ortpacks:1.21.0-cpu was not pushed: no basic auth credentials." in done.stderr
        assert f"`docker login {at}`" in done.stderr


def test_a_registry_that_is_not_there_is_told(push: Push) -> None:
    done = push("localhost:1/ortpacks")
    assert done.returncode == 10
    assert "connection refused. Check the name and the network" in done.stderr
    docker("rmi", "localhost:1/ortpacks:1.21.0-cpu", "localhost:1/ortpacks:latest-cpu")
