"""Tests of `./run verify --read-only` on tampered real packages: each fault has a code of its own.

The trees are hard links to one unpacked package, so a fault replaces a file instead of changing it.
"""

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.binary.library_names import PROVIDER
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.support.factories.nvidia import cudnn_928
from tests.support.fakes.verbs import invoke
from tests.support.real_packages import DAMAGED, FAILED_CHECK, LIBRARIES, MINIMAL, check, replace, unpack
from tests.support.runner_commands import NAMES, commands

pytestmark = pytest.mark.thorough

IMAGE = struct.Struct("<HHIQI8xI")
"""Image header: kind, version, sizes of header and payload, …, architecture. Source: jiegec/fatbinary."""


@pytest.fixture(scope="module")
def legacy(legacy_package: Path, module_folder: Path) -> Path:
    return unpack(legacy_package, module_folder / "legacy")


@pytest.fixture(scope="module")
def modern(modern_package: Path, module_folder: Path) -> Path:
    return unpack(modern_package, module_folder / "modern")


@pytest.fixture
def tampered(tmp_path: Path) -> Callable[[Path], Path]:
    def copy(package: Path) -> Path:
        return shutil.copytree(package, tmp_path / package.name, copy_function=os.link)

    return copy


def without_one_image(library: bytes, number: int) -> bytes:
    """Return the library without the image for ``number`` in the last container; others move forward."""
    at = library.rindex(b"\x50\xed\x55\xba\x01\x00\x10\x00")
    (size,) = struct.unpack_from("<Q", library, at + 8)
    images, where = [], at + 16
    while where < at + 16 + size:
        _kind, _version, header, payload, _packed, arch = IMAGE.unpack_from(library, where)
        images.append((arch, library[where : where + header + payload]))
        where += header + payload
    kept = b"".join(image for arch, image in images if arch != number)
    assert len(kept) < size, f"an image for {number} was there"
    body = library[at : at + 8] + struct.pack("<Q", len(kept)) + kept
    return library[:at] + body.ljust(16 + size, b"\0") + library[at + 16 + size :]


def test_untouched_packages_hold_what_they_promise(legacy: Path, modern: Path) -> None:
    for package in (legacy, modern):
        code, errors, said = check(package)
        assert (code, errors) == (0, set()), said


def test_one_image_deleted_from_one_container(modern: Path, tampered: Callable[[Path], Path]) -> None:
    package = tampered(modern)
    provider = package / "lib" / PROVIDER
    replace(provider, without_one_image(provider.read_bytes(), 86))
    code, errors, said = check(package)
    assert (code, errors) == (FAILED_CHECK, {"A005", "B005"}), said
    assert "no SASS for sm_86 in 1 of 230 containers" in said


def packed(package: Path, folder: Path) -> Path:
    """Pack a package anew, its manifest first, and return the archive."""
    archive = folder / f"{package.name}.tar.zst"
    folder.mkdir()
    files = sorted(path.relative_to(package.parent) for path in package.rglob("*") if path.is_file())
    names = [package.relative_to(package.parent) / "manifest.json", *files]
    tar = ["tar", "--zstd", "-C", str(package.parent), "-cf", str(archive), "--null", "-T", "-"]
    subprocess.run(tar, input="\0".join(map(str, dict.fromkeys(names))), text=True, check=True)
    return archive


@pytest.mark.parametrize("name", [NAMES[3], NAMES[4]])
def test_a_package_cannot_speak_through_verify_and_publish(
    legacy_package: Path, legacy: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command to GitHub's runner as a member's name, as a path of the manifest, and as one of its texts."""
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    top = legacy_package.name.removesuffix(".tar.zst")
    honest = json.loads((legacy / "manifest.json").read_bytes())
    listed = [{**honest["files"][0], "path": f"lib/{name}"}, *honest["files"][1:]]
    odd = {
        "member": honest,
        "path": {**honest, "files": listed},
        "text": {**honest, "base": {**honest["base"], "reason": name}},
    }
    with GitHubDouble(tmp_path / "github").running() as github:
        for what, manifest in odd.items():
            package = shutil.copytree(legacy, tmp_path / f"of {what}" / top, copy_function=os.link)
            replace(package / "manifest.json", json.dumps(manifest).encode())
            if what == "member":
                (package / "lib" / name.replace("/", "_")).write_bytes(b"")
            archive = packed(package, tmp_path / what)
            to = ("--api", github.url, "--repository", REPOSITORY, "--tag", "gpu-libs-test")
            for words in (
                ("verify", archive, "--base", "assembled"),
                ("verify", archive, "--base", "assembled", "--json"),
                ("publish", "--dist", archive.parent, *to, "--dry-run", "--allow-lean", "--allow-partial"),
            ):
                done = invoke(*words)
                said = done.stdout + done.stderr
                assert commands(said) == [], (what, words)
                assert "Traceback" not in said
                assert what == "text" or done.returncode in (FAILED_CHECK, DAMAGED), said


def test_a_cudnn_that_dropped_maxwell(
    legacy: Path, packaged_library: Callable[[str], Path], tampered: Callable[[Path], Path]
) -> None:
    """The whole new cuDNN replaces the old one, so that only the missing GPUs are wrong.

    The minimal package has cudart alone of CUDA's libraries, so the test adds the others.
    """
    package = tampered(legacy)
    (package / "manifest.json").unlink()
    cuda = [packaged_library(name) for name in LIBRARIES - MINIMAL if "cudnn" not in name]
    for library in (*cuda, *cudnn_928().glob("libcudnn*.so.9")):
        os.link(library, package / "lib" / library.name)
    code, errors, said = check(package, "--variant", "legacy")
    assert (code, errors) == (FAILED_CHECK, {"A003"}), said
    for name in ("ops", "cnn", "adv"):
        assert f"libcudnn_{name}.so.9: does not run on compute capability 5.0, 5.2, 6.0, 6.1, 7.0" in said
