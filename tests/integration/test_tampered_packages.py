"""`./run check` on real packages that were tampered with: each fault has a code of its own.

The trees are hard links into one unpacked package, so that a fault replaces a file and touches no other tree.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.binary.library_names import PROVIDER
from tests.support.factories import cudnn928
from tests.support.fakes.verbs import invoke
from tests.support.real_packages import LIBRARIES, MINIMAL, unpack

pytestmark = pytest.mark.integration

FAILED_CHECK = 6
IMAGE = struct.Struct("<HHIQI8xI")
"""Kind, version, bytes of the header and of the payload, …, architecture: jiegec/fatbinary's layout."""


@pytest.fixture(scope="module")
def legacy(legacy_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(legacy_package, tmp_path_factory.mktemp("truth") / "legacy")


@pytest.fixture(scope="module")
def modern(modern_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(modern_package, tmp_path_factory.mktemp("truth") / "modern")


@pytest.fixture(scope="module")
def new_cudnn() -> Path:
    """The libraries of a cuDNN that no longer knows Maxwell, Pascal and Volta."""
    return cudnn928.libraries()


@pytest.fixture
def tampered(tmp_path: Path) -> Callable[[Path], Path]:
    def copy(package: Path) -> Path:
        return shutil.copytree(package, tmp_path / package.name, copy_function=os.link)

    return copy


def check(package: Path, *arguments: str) -> tuple[int, set[str], str]:
    """Exit code, the codes of the errors, and all that was said."""
    done = invoke("check", "--base", "assembled", "--package", package, *arguments)
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    return done.returncode, set(re.findall(r"error ([A-Z]\d{3}) ", said)), said


def replace(file: Path, data: bytes) -> None:
    """A new file in its place: the old one is shared with other trees."""
    file.unlink()
    file.write_bytes(data)


def without_one_image(library: bytes, number: int) -> bytes:
    """The library with the image for ``number`` gone from its last container, the others moved up."""
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


BYTES, LISTED, CLAIM = "B005", "B004", "B007"
"""What the manifest beside a tampered file finds: other bytes, a file gone, a claim that no longer holds."""


def test_untouched_packages_hold_what_they_promise(legacy: Path, modern: Path) -> None:
    for package in (legacy, modern):
        code, errors, said = check(package)
        assert (code, errors) == (0, set()), said


def test_one_image_deleted_from_one_container(modern: Path, tampered: Callable[[Path], Path]) -> None:
    package = tampered(modern)
    provider = package / "lib" / PROVIDER
    replace(provider, without_one_image(provider.read_bytes(), 86))
    code, errors, said = check(package)
    assert (code, errors) == (FAILED_CHECK, {"A005", BYTES}), said
    assert "no SASS for sm_86 in 1 of 184 containers" in said


def test_one_image_deleted_from_the_only_container(legacy: Path, tampered: Callable[[Path], Path]) -> None:
    """What profile minimal compiles is one unit of device code."""
    package = tampered(legacy)
    provider = package / "lib" / PROVIDER
    replace(provider, without_one_image(provider.read_bytes(), 52))
    code, errors, said = check(package)
    assert (code, errors) == (FAILED_CHECK, {"A001", BYTES, CLAIM}), said
    assert "no SASS for sm_52 in any of 1 containers" in said


def test_a_cudnn_that_dropped_maxwell(
    legacy: Path,
    new_cudnn: Path,
    packaged_library: Callable[[str], Path],
    tampered: Callable[[Path], Path],
) -> None:
    """All of it, with the libraries that only the new one has: nothing but the GPUs is wrong with it.

    The minimal package has none of CUDA's libraries but cudart, so the others come along.
    """
    package = tampered(legacy)
    (package / "manifest.json").unlink()
    cuda = [packaged_library(name) for name in LIBRARIES - MINIMAL if "cudnn" not in name]
    for library in (*cuda, *new_cudnn.glob("libcudnn*.so.9")):
        os.link(library, package / "lib" / library.name)
    code, errors, said = check(package, "--variant", "legacy")
    assert (code, errors) == (FAILED_CHECK, {"A003"}), said
    for name in ("ops", "cnn", "adv"):
        assert f"libcudnn_{name}.so.9: does not run on compute capability 5.0, 5.2, 6.0, 6.1, 7.0" in said


def test_the_file_that_nvrtc_opens_is_gone(modern: Path, tampered: Callable[[Path], Path]) -> None:
    package = tampered(modern)
    (package / "lib" / "libnvrtc-builtins.so.12.9").unlink()
    code, errors, said = check(package)
    assert (code, errors) == (FAILED_CHECK, {"E003", LISTED, CLAIM}), said
    assert "libnvrtc-builtins.so.12.9" in said


def test_the_provider_of_modern_in_latest(modern: Path, tampered: Callable[[Path], Path]) -> None:
    """A package that calls itself latest, and holds what the first release of the story held: modern's."""
    package = tampered(modern)
    (package / "manifest.json").unlink()
    code, errors, said = check(package, "--variant", "latest")
    assert (code, errors) == (FAILED_CHECK, {"A001"}), said
    for number in (89, 100, 120):
        assert f"no SASS for sm_{number} in any of 184 containers" in said


@pytest.mark.parametrize("name", ["libcufft.so.11", "libcublasLt.so.12"])
def test_a_truncated_library(name: str, modern: Path, tampered: Callable[[Path], Path]) -> None:
    package = tampered(modern)
    library = package / "lib" / name
    data = library.read_bytes()
    replace(library, data[: len(data) // 2])
    code, errors, said = check(package)
    assert code == FAILED_CHECK, said
    assert {"E001", BYTES, CLAIM} <= errors, said
    assert re.search(rf"E001 lib/{re.escape(name)}: truncated: .* \(at offset 0x[0-9a-f]+\)", said)


def test_one_library_of_another_cudnn(
    modern: Path, new_cudnn: Path, tampered: Callable[[Path], Path]
) -> None:
    """It holds no device code and no version that could be read: only the manifest knows its bytes."""
    package = tampered(modern)
    replace(package / "lib" / "libcudnn_heuristic.so.9", (new_cudnn / "libcudnn_heuristic.so.9").read_bytes())
    code, errors, said = check(package)
    assert code == FAILED_CHECK, said
    assert BYTES in errors, said
