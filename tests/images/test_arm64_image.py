"""Tests of the image for ARM: all files in it are for this processor, and the service runs under QEMU.

The emulator is a program of this machine that is mounted into the container, so the kernel needs no setup.
"""

import json
import struct
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from builder.config.variants import Project
from tests.support.containers import Served, docker, free_port, image_made_here
from tests.support.debian import debian_program
from tests.support.fakes.verbs import invoke
from tests.support.sentences import SENTENCES, SIMILARITIES

pytestmark = pytest.mark.thorough

IMAGE = "ortpacks/cpu:1.21.0-service-arm64"

AARCH64 = 183
"""Machine number ``EM_AARCH64`` of ``elf.h``."""

HARD = ("--platform=linux/arm64", "--read-only", "--tmpfs=/tmp", "--label=io.ortpacks=run")


@pytest.fixture(scope="module", autouse=True)
def _image(dist: Path) -> Iterator[None]:
    with image_made_here(IMAGE, dist):
        flags = ("--variant", "cpu", "--service", "--platform", "linux/arm64")
        done = invoke("image", *flags, "--base", "assembled", "--dist", dist)
        assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
        yield


@dataclass
class Files:
    """The files of an image."""

    machines: Counter[int] = field(default_factory=Counter)
    """Number of ELF files by machine number."""
    paths: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def files(_image: None) -> Files:
    found = Files()
    container = docker("create", *HARD, IMAGE)
    try:
        with (
            subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as export,
            tarfile.open(fileobj=export.stdout, mode="r|") as image,
        ):
            for one in image:
                found.paths.add(f"/{one.name}")
                file = image.extractfile(one) if one.isfile() else None
                head = file.read(20) if file else b""
                if head.startswith(b"\x7fELF"):
                    found.machines[struct.unpack_from("<H", head, 18)[0]] += 1
    finally:
        docker("rm", container)
    return found


@pytest.fixture(scope="module")
def emulated() -> tuple[str, ...]:
    """Return flags of a container that runs a program by QEMU; the program's path follows them."""
    program = debian_program("qemu-user-static", "usr/bin/qemu-aarch64-static")
    return (*HARD, f"--volume={program}:/qemu:ro", "--entrypoint=/qemu")


def test_every_program_and_library_is_for_aarch64(files: Files) -> None:
    assert set(files.machines) == {AARCH64}
    assert files.machines[AARCH64] > 100


def test_it_says_what_it_is_and_is_as_small_as_promised(project: Project) -> None:
    told = json.loads(docker("inspect", IMAGE))[0]
    assert (told["Os"], told["Architecture"]) == ("linux", "arm64")
    assert told["Config"]["Labels"]["io.ortpacks.package"] == "ortpacks-cpu-1.21.0-linux-arm64"
    assert len(told["Config"]["Labels"]["io.ortpacks.onnxruntime.commit"]) == 10
    assert told["Size"] < project.image.budget


def test_busybox_is_linked_to_all_that_it_is(files: Files, emulated: tuple[str, ...]) -> None:
    told = docker("run", "--rm", "--network=none", *emulated, IMAGE, "/bin/busybox", "--list-full")
    applets = {f"/{path}" for path in told.splitlines()} - {"/linuxrc"}
    assert {"/bin/sh", "/usr/bin/wget"} < applets
    assert applets <= files.paths


def test_the_service_embeds_as_it_should(emulated: tuple[str, ...]) -> None:
    port = free_port()
    command = json.loads(docker("inspect", IMAGE))[0]["Config"]["Cmd"]
    flags = (*emulated, f"--publish=127.0.0.1:{port}:9900", "--volume=/home/ortpacks")
    served = Served(docker("run", "--detach", *flags, IMAGE, "/usr/bin/python3.11", *command[1:]), port)
    try:
        assert served.ready(within=300)["ready"] is True  # QEMU translates every instruction
        answer = served.ask("/embed", {"texts": SENTENCES})
        log = served.log()
    finally:
        docker("rm", "--force", "--volumes", served.name)
    first, *_ = vectors = answer["embeddings"]
    products = [sum(one * other for one, other in zip(first, vector, strict=True)) for vector in vectors]
    assert products == pytest.approx(SIMILARITIES[0], abs=1e-4)
    (warned,) = (line["message"] for line in log if line["level"] not in ("INFO", "DEBUG"))
    assert warned.startswith("ORTPACKS_API_KEY is not set")
