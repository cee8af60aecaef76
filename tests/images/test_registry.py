"""Tests of images in Debian's ``docker-registry``: push, pull, refusals.

Docker's own tools read the results.
"""

import hashlib
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from packageurl import PackageURL

from tests.support import ROOT
from tests.support.cache_servers import BCRYPT, registry_server
from tests.support.containers import docker, image_made_here
from tests.support.fakes.verbs import invoke

pytestmark = pytest.mark.thorough

IMAGE = "ortpacks/cpu:1.21.0"

ORT = "pkg:pypi/onnxruntime@1.21.0"

TYPES = (
    "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.oci.image.index.v1+json"
)
"""Media types of Docker's manifest, of OCI's, which containerd's image store pushes, and of the index."""

Push = Callable[[str], subprocess.CompletedProcess[str]]


@contextmanager
def registry(folder: Path, *more: str) -> Iterator[str]:
    """Run a registry with its data in ``folder`` inside the block, and yield its ``HOST:PORT``.

    Tags of the registry in the local engine are removed at the end.
    """
    with registry_server(folder, *more) as server:
        at = f"localhost:{server.port}"
        try:
            yield at
        finally:
            for tag in docker("images", "--format={{.Repository}}:{{.Tag}}").splitlines():
                if tag.startswith(f"{at}/"):
                    docker("rmi", tag)


@pytest.fixture(scope="module")
def push(dist: Path) -> Iterator[Push]:
    """Yield a function that makes the image for the CPU and pushes it to a repository."""
    flags = ("--variant", "cpu", "--base", "assembled", "--dist", dist)
    with image_made_here(IMAGE, dist):
        yield lambda repository: invoke("image", *flags, "--push", repository)


def test_what_is_pushed_is_what_is_pulled_back_by_its_digest(push: Push, tmp_path: Path) -> None:
    with registry(tmp_path) as at:
        done = push(f"{at}/ortpacks")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        (reference,) = (line.strip() for line in done.stdout.splitlines() if "@sha256:" in line)
        indexes = [manifest(at, tag) for tag in ("1.21.0-cpu", "latest-cpu")]
        assert indexes[0] == indexes[1]
        assert reference == f"{at}/ortpacks@sha256:{hashlib.sha256(indexes[0]).hexdigest()}"
        index = json.loads(indexes[0])
        assert [one["platform"]["architecture"] for one in index["manifests"]] == ["amd64", "unknown"]
        layers = json.loads(manifest(at, index["manifests"][0]["digest"]))["layers"]
        assert sum(layer["size"] for layer in layers) < 80_000_000
        built = json.loads(docker("inspect", IMAGE))[0]
        docker("rmi", f"{at}/ortpacks:1.21.0-cpu-amd64", IMAGE)
        docker("pull", "--quiet", reference)
        try:
            pulled = json.loads(docker("inspect", reference))[0]
            assert pulled["RootFS"]["Layers"] == built["RootFS"]["Layers"]
            assert pulled["Config"]["Labels"] == built["Config"]["Labels"]
            listed = docker("run", "--rm", "--network=none", reference, "sh", "-c", LISTED)
            assert docker("run", "--rm", "--network=none", reference).startswith("cpu: ")
        finally:
            docker("rmi", reference)
        require_sbom(inspected(reference, "SBOM")["SPDX"], index, listed)
        made = inspected(reference, "Provenance")["SLSA"]["buildDefinition"]
        assert made["externalParameters"] == {
            "variant": "cpu",
            "package": "ortpacks-cpu-1.21.0-linux-x64.tar.zst",
            "service": False,
            "platform": "linux/amd64",
        }
        uris = {one["uri"]: one["digest"] for one in made["resolvedDependencies"]}
        assert uris[ORT] == {"sha256": pin("wheel:onnxruntime==1.21.0")}


LISTED = """
cd /var/lib/dpkg/status.d
grep -h -E '^(Package|Version|Architecture|SHA256):' * | sed 's/.*: //' | paste -d' ' - - - -
sha256sum /opt/ortpacks/lib/*
"""
"""Script that prints a line for each Debian package and for each library."""


def inspected(reference: str, what: str) -> Any:  # noqa: ANN401 - JSON
    """Return an attestation or property of an image in a registry, read by Docker's own tool."""
    return json.loads(docker("buildx", "imagetools", "inspect", f"--format={{{{json .{what}}}}}", reference))


def require_sbom(sbom: Any, index: Any, listed: str) -> None:  # noqa: ANN401 - JSON
    """Assert that the SBOM describes the image and names exactly its packages, wheels and libraries."""
    packages = {one["SPDXID"]: one for one in sbom["packages"]}
    (root,) = (
        one["relatedSpdxElement"] for one in sbom["relationships"] if one["relationshipType"] == "DESCRIBES"
    )
    assert sha256(packages[root]) == index["manifests"][0]["digest"].removeprefix("sha256:")
    assert (
        index["manifests"][1]["annotations"]["vnd.docker.reference.digest"] == index["manifests"][0]["digest"]
    )
    located = {
        one["externalRefs"][0]["referenceLocator"]: one for one in packages.values() if "externalRefs" in one
    }
    rows = [row.split() for row in listed.splitlines()]
    debian = {PackageURL.from_string(purl): sha256(one) for purl, one in located.items() if ":deb/" in purl}
    assert {(one.name, one.version, one.qualifiers["arch"], sum_) for one, sum_ in debian.items()} == {
        tuple(row) for row in rows if len(row) == 4
    }
    libraries = {f"/{one['name']}": sha256(one) for one in packages.values() if "/" in one["name"]}
    assert libraries == {path: sum_ for sum_, path in (row for row in rows if len(row) == 2)}
    wheels = {purl: sha256(one) for purl, one in located.items() if ":pypi/" in purl}
    assert {purl.partition("@")[0] for purl in wheels} == {"pkg:pypi/onnxruntime", "pkg:pypi/numpy"}
    assert wheels[ORT] == pin("wheel:onnxruntime==1.21.0")


def pin(key: str) -> str:
    return str(json.loads((ROOT / "inputs.lock").read_text())["inputs"][key]["sha256"])


def sha256(package: Any) -> str:  # noqa: ANN401 - JSON
    (found,) = package["checksums"]
    assert found["algorithm"] == "SHA256"
    return str(found["checksumValue"])


def manifest(at: str, reference: str) -> bytes:
    asked = urllib.request.Request(
        f"http://{at}/v2/ortpacks/manifests/{reference}", headers={"Accept": TYPES}
    )
    with urllib.request.urlopen(asked) as answer:
        return bytes(answer.read())


def test_a_registry_that_wants_a_login_is_told_with_what_to_do(push: Push, tmp_path: Path) -> None:
    nobody = tmp_path / "htpasswd"
    nobody.touch()
    with registry(tmp_path, f"auth: {{htpasswd: {{realm: x, path: {nobody}}}}}") as at:
        done = push(f"{at}/ortpacks")
        assert done.returncode == 10
        assert re.search(
            f"{at}/ortpacks:1.21.0-cpu-amd64 was not pushed: .*(no basic auth credentials|[Uu]nauthorized)",
            done.stderr,
        ), "Docker's words, or those of containerd's image store"
        assert f"`docker login {at}`" in done.stderr


def test_with_the_docker_clis_login_one_index_names_the_images_of_both_platforms_each_with_its_sbom(
    dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    somebodys = docker("images", "--format={{.Repository}}:{{.Tag}}").split()
    known = tmp_path / "htpasswd"
    known.write_text(f"ada:{BCRYPT}\n")
    with registry(tmp_path, f"auth: {{htpasswd: {{realm: x, path: {known}}}}}") as at:
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
        login = ["docker", "login", "--username=ada", "--password-stdin", at]
        subprocess.run(login, input=b"secret", capture_output=True, check=True)
        flags = ("--variant", "cpu", "--base", "assembled", "--dist", dist)
        done = invoke("image", *flags, "--platform=linux/amd64,linux/arm64", "--push", f"{at}/ortpacks")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert "secret" not in done.stdout + done.stderr
        reference = f"{at}/ortpacks:latest-cpu"
        assert set(inspected(reference, "Image")) == {"linux/amd64", "linux/arm64"}
        sboms, made = inspected(reference, "SBOM"), inspected(reference, "Provenance")
        if f"{IMAGE}-arm64" not in somebodys:
            docker("rmi", f"{IMAGE}-arm64")
    for arch in ("amd64", "arm64"):
        located = [one.get("externalRefs") for one in sboms[f"linux/{arch}"]["SPDX"]["packages"]]
        purls = [PackageURL.from_string(refs[0]["referenceLocator"]) for refs in located if refs]
        assert {one.qualifiers["arch"] for one in purls if one.type == "deb"} == {arch, "all"}
        parameters = made[f"linux/{arch}"]["SLSA"]["buildDefinition"]["externalParameters"]
        assert parameters["platform"] == f"linux/{arch}"
