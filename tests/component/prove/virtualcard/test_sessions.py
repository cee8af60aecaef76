"""Tests of opening models on a virtual card: wrong libraries, and a process that dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from builder.binary.library_names import HOST, PROVIDER
from builder.errors import LoadError
from builder.prove.virtualcard.sessions import CardRuntime, ModelToOpen, VirtualCard, open_models
from tests.answers.card import needs_compiler, runtime
from tests.doubles.library import CREATE_SESSION, library
from tests.support.factories.binaries import elf

pytestmark = needs_compiler

CARD = VirtualCard(capability="8.6")

NEEDS = ["libcudart.so.12", "libcublas.so.12", "libc.so.6"]


def libraries(folder: Path, host: bytes, needed: list[str]) -> Path:
    lib = folder / "a folder: with spaces" / "lib"
    lib.mkdir(parents=True)
    (lib / HOST).write_bytes(host)
    (lib / PROVIDER).write_bytes(elf({}, needed=needed))
    return lib


def test_a_model_that_ends_the_process_leaves_the_others_theirs(tmp_path: Path) -> None:
    lib = libraries(tmp_path, library("1.21.0", crashes=[CREATE_SESSION]), NEEDS)
    asked = [ModelToOpen(model=tmp_path / name) for name in ("a.onnx", "b.onnx")]
    seen = list(open_models(lib, asked, CARD, runtime=runtime()))
    assert [one.error.partition(":")[0] for one in seen] == ["the process ended with signal SIGILL"] * 2
    assert [one.nodes for one in seen] == [{}, {}]


def test_a_model_that_never_comes_to_an_end_is_given_up(tmp_path: Path) -> None:
    lib = libraries(tmp_path, library("1.21.0", hangs=[CREATE_SESSION]), NEEDS)
    asked = [ModelToOpen(model=tmp_path / name, seconds=1) for name in ("a.onnx", "b.onnx")]
    seen = list(open_models(lib, asked, CARD, runtime=runtime()))
    assert ["longer than 1 s" in one.error for one in seen] == [True, True]


def test_a_session_s_own_words(tmp_path: Path) -> None:
    lib = libraries(tmp_path, library("1.21.0", refuses=[CREATE_SESSION], why="no such operator"), NEEDS)
    (opening,) = open_models(lib, [ModelToOpen(model=tmp_path / "a.onnx")], CARD, runtime=runtime())
    assert "no such operator" in opening.error


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
    tmp_path: Path, told: Callable[[object], None], host: bytes, needed: list[str], arm: bool
) -> None:
    """Defect: a package for ARM was to be built again, because its host library does not load here."""
    lib = libraries(tmp_path, host, needed)
    for file in lib.iterdir() if arm else ():
        file.write_bytes(for_arm(file.read_bytes()))
    with pytest.raises(LoadError) as error:
        list(open_models(lib, [ModelToOpen(model=tmp_path / "a.onnx")], CARD, runtime=runtime()))
    told(error.value)


def for_arm(x86: bytes) -> bytes:
    """Return a library with the processor of its header changed to aarch64."""
    return x86[:18] + (183).to_bytes(2, "little") + x86[20:]


def test_a_folder_without_libraries(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="cannot be read as a library"):
        list(open_models(tmp_path, [ModelToOpen(model=tmp_path / "a.onnx")], CARD, runtime=runtime()))


def test_the_stand_in_is_asked_before_anything_is_opened() -> None:
    stand_in: CardRuntime = runtime()
    assert [stand_in.error_of(VirtualCard(capability=one)) for one in ("8.6", "8.4")] == [0, 100]
