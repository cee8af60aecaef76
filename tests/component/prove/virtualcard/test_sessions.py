"""Tests of opening models on a virtual card: wrong libraries, and a process that dies."""

from pathlib import Path
from typing import Any

import pytest

from builder.binary.library_names import HOST, PROVIDER
from builder.errors import LoadError
from builder.prove.virtualcard.sessions import (
    CardRuntime,
    ModelToOpen,
    VirtualCard,
    environment_of,
    open_models,
)
from tests.answers.card import needs_compiler, runtime
from tests.doubles.library import CREATE_SESSION, library
from tests.support.factories.binaries import elf
from tests.support.messages import Refused

pytestmark = needs_compiler

CARD = VirtualCard(capability="8.6")

AARCH64 = (183).to_bytes(2, "little")
"""The processor in a library's header."""

NEEDS = ["libcudart.so.12", "libcublas.so.12", "libc.so.6"]


def libraries(folder: Path, host: bytes, needed: list[str]) -> Path:
    lib = folder / "a folder: with spaces" / "lib"
    lib.mkdir(parents=True)
    (lib / HOST).write_bytes(host)
    (lib / PROVIDER).write_bytes(elf({}, needed=needed))
    return lib


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"crashes": [CREATE_SESSION]}, "the process ended with signal SIGILL"),
        ({"hangs": [CREATE_SESSION]}, "longer than 1 s"),
        ({"refuses": [CREATE_SESSION], "why": "no such operator"}, "no such operator"),
    ],
    ids=["crashes", "hangs", "refuses"],
)
def test_a_model_that_fails_has_the_reason(tmp_path: Path, fault: dict[str, Any], error: str) -> None:
    lib = libraries(tmp_path, library("1.21.0", **fault), NEEDS)
    asked = [ModelToOpen(model=tmp_path / name, seconds=1) for name in ("a.onnx", "b.onnx")]
    seen = list(open_models(lib, asked, CARD, runtime=runtime()))
    assert [error in one.error for one in seen] == [True, True]
    assert [one.nodes for one in seen] == [{}, {}]


@pytest.mark.parametrize(
    ("needed", "stands_in"),
    [([], True), (["libcudnn.so.9", "libcufft.so.11"], False)],
    ids=["opened by dlopen, as 1.30 does", "needed, as 1.21 does"],
)
def test_what_a_provider_opens_itself_is_stood_in_for(
    tmp_path: Path, needed: list[str], *, stands_in: bool
) -> None:
    """Else the real cuDNN is opened beside the package, and it finds no GPU."""
    asked = {".rodata": b"\0cudnnCreate\0cufftPlan1d\0"}
    (tmp_path / PROVIDER).write_bytes(elf(asked, needed=[*NEEDS, *needed]))
    folder = tmp_path / "card"
    folder.mkdir()
    environment_of(tmp_path / HOST, CARD, runtime(), folder)
    stubs = (folder / "libvirtualstubs.so").read_bytes()
    assert {"libcudnn.so.9", "libcufft.so.11"} <= {path.name for path in folder.iterdir()}
    assert (b"\0cudnnCreate\0" in stubs, b"\0cufftPlan1d\0" in stubs) == (stands_in, stands_in)


@pytest.mark.parametrize(
    ("host", "needed", "arm"),
    [
        (b"<html>", NEEDS, False),
        (library("1.21.0"), ["libcudart.so.14"], False),
        (library("1.21.0"), ["libc.so.6"], False),
        (library("1.21.0"), NEEDS, True),
    ],
    ids=["no library", "CUDA 14", "no CUDA", "for ARM"],
)
def test_libraries_that_are_no_onnx_runtime_for_cuda_12_or_13(
    tmp_path: Path, refused: Refused, host: bytes, needed: list[str], arm: bool
) -> None:
    """Defect: a package for ARM was to be built again, because its host library does not load here."""
    lib = libraries(tmp_path, host, needed)
    for file in lib.iterdir() if arm else ():
        x86 = file.read_bytes()
        file.write_bytes(x86[:18] + AARCH64 + x86[20:])
    with refused(LoadError):
        list(open_models(lib, [ModelToOpen(model=tmp_path / "a.onnx")], CARD, runtime=runtime()))


def test_the_stand_in_is_asked_before_anything_is_opened() -> None:
    stand_in: CardRuntime = runtime()
    assert [stand_in.error_of(VirtualCard(capability=one)) for one in ("8.6", "8.4")] == [0, 100]
