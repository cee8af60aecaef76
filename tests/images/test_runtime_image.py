"""Runtime images, looked at from inside with testinfra."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import testinfra
from testinfra.host import Host

from tests.support.fakes.verbs import invoke
from tests.support.real_packages import (
    LIBRARIES,
    MINIMAL,
    require_stock_numbers,
    silero_arguments,
    silero_model,
    write_silero_inputs,
)

pytestmark = pytest.mark.images

IMAGES = {
    "legacy": ("ortpacks/legacy:1.21.0-minimal", ("--profile", "minimal")),
    "modern": ("ortpacks/modern:1.23.2", ("--mixed",)),
}


def docker(*arguments: str | Path) -> str:
    argv = ["docker", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module", params=IMAGES)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def host(variant: str, dist: Path, legacy_package: Path, modern_package: Path) -> Iterator[Host]:
    """A container of the variant's image, without network, that sleeps while we look."""
    image, flags = IMAGES[variant]
    somebodys = docker("images", "--quiet", image)
    done = invoke("image", "--variant", variant, *flags, "--base", "assembled", "--dist", dist)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    container = docker(
        "run", "--detach", "--rm", "--network=none", "--label=io.ortpacks=run", image, "sleep", "600"
    )
    try:
        yield testinfra.get_host(f"docker://{container}")
    finally:
        docker("rm", "--force", container)
        if not somebodys:
            docker("rmi", image)


def test_it_runs_as_nobody_in_particular(host: Host) -> None:
    user = host.user()
    assert (user.name, user.uid) == ("ortpacks", 10001)


def test_every_library_is_a_regular_file_that_the_user_cannot_change(host: Host, variant: str) -> None:
    libraries = MINIMAL if variant == "legacy" else LIBRARIES
    folder = host.file("/opt/ortpacks/lib")
    assert set(folder.listdir()) == libraries
    for name in libraries:
        file = host.file(f"/opt/ortpacks/lib/{name}")
        assert file.is_file
        assert not file.is_symlink
        assert (file.user, file.mode & 0o022) == ("root", 0), name


def test_manifest_and_licences_are_there(host: Host, variant: str) -> None:
    assert json.loads(host.file("/opt/ortpacks/manifest.json").content_string)["variant"] == variant
    assert "NVIDIA" in host.file("/opt/ortpacks/NOTICE").content_string
    assert host.file("/opt/ortpacks/licenses").listdir()


def test_a_model_runs_on_it_and_cuda_is_refused_by_cuda_itself(host: Host, tmp_path: Path) -> None:
    """No GPU here: the provider must load and say so itself, and the CPU must give the right numbers."""
    write_silero_inputs(tmp_path)
    for file in (*tmp_path.iterdir(), silero_model()):
        docker("cp", file, f"{host.backend.name}:/tmp/{file.name}")
    arguments = " ".join(silero_arguments("/tmp"))
    done = host.run(f"ortpacks-smoke $ORT_DYLIB_PATH /tmp/{silero_model().name} {arguments}")
    assert done.rc == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["provider"] == "cpu"
    assert "CUDA failure" in said["cuda"]["message"]
    require_stock_numbers(said)


def test_libraries_find_each_other_without_help(host: Host) -> None:
    done = host.run("ldd /opt/ortpacks/lib/libonnxruntime_providers_cuda.so")
    assert done.rc == 0
    assert "not found" not in done.stdout
    assert "/opt/ortpacks/lib/libcudart.so.12" in done.stdout


def test_nothing_of_cuda_but_the_package(host: Host) -> None:
    found = host.run("find / -xdev -name 'libcu*.so*' -not -path '/opt/ortpacks/*' -not -name 'libcurl*'")
    assert found.stdout.strip() == ""


def test_it_says_what_it_is(host: Host, variant: str) -> None:
    image, _ = IMAGES[variant]
    config = json.loads(docker("inspect", image))[0]["Config"]
    assert config["Labels"]["io.ortpacks"] == "runtime"
    assert variant in config["Labels"]["org.opencontainers.image.title"]
    assert config["User"] == "10001:10001"
