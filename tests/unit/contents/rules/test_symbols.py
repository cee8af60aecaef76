"""Tests of undefined and leaked symbols; the cases are outputs of readelf and ``ldd -r``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from builder.binary.elf import Symbol, Symbols, read_elf
from builder.binary.library import Library
from builder.contents.required_files import vendor_of
from builder.contents.rules.symbols import check_linkage
from builder.finding import Finding
from tests.support.factories.binaries import elf
from tests.support.messages import Told

HOST = "libonnxruntime.so.1"

BRIDGE = "libonnxruntime_providers_shared.so"

PROVIDER = "libonnxruntime_providers_cuda.so"

CUDART = "libcudart.so.12"


def _library(
    name: str, *, needed: tuple[str, ...] = (), asks: tuple[Symbol, ...] = (), shows: tuple[Symbol, ...] = ()
) -> Library:
    symbols = Symbols(exports=frozenset(shows), asks=asks)
    read = replace(read_elf(elf(needed=needed)), symbols=symbols)
    return Library(path=f"lib/{name}", vendor=vendor_of(name), elf=read)


def _of(library: str, name: str, version: str | None = None) -> Symbol:
    return Symbol(name, version or library, library)


LIBC = _of("libc.so.6", "malloc", "GLIBC_2.2.5")

PACKAGE: Mapping[str, Library] = {
    HOST: _library(
        HOST,
        needed=("libc.so.6",),
        asks=(LIBC,),
        shows=(
            Symbol("OrtGetApiBase", "VERS_1.21.0"),
            Symbol("OrtSessionOptionsAppendExecutionProvider_CUDA", "VERS_1.21.0"),
        ),
    ),
    BRIDGE: _library(
        BRIDGE, shows=(Symbol("Provider_GetHost", "VERS_1.0"), Symbol("Provider_SetHost", "VERS_1.0"))
    ),
    PROVIDER: _library(
        PROVIDER,
        needed=("libcublas.so.12", "libc.so.6"),
        asks=(LIBC, _of(CUDART, "cudaMalloc"), Symbol("Provider_GetHost"), Symbol("cudnnCreate")),
        shows=(Symbol("GetProvider", "VERS_1.0"),),
    ),
    "libcublas.so.12": _library("libcublas.so.12", needed=(CUDART, "libcudnn.so.9")),
    CUDART: _library(CUDART, needed=("libc.so.6",), shows=(Symbol("cudaMalloc", CUDART),)),
    "libcudnn.so.9": _library("libcudnn.so.9", needed=("libz.so.1",), shows=(Symbol("cudnnCreate"),)),
}
"""A package in which the provider finds some of its symbols in libraries that its dependency needs."""


def _found(**changed: Library | None) -> list[Finding]:
    libraries = {**PACKAGE, **{one.name: one for one in changed.values() if one}}
    return check_linkage(list(libraries.values()))


def _without(*names: str, changed: Library) -> list[Finding]:
    libraries = {**PACKAGE, changed.name: changed}
    return check_linkage([library for name, library in libraries.items() if name not in names])


def _asking(*asks: Symbol, needed: tuple[str, ...] = ("libcublas.so.12", "libc.so.6")) -> Library:
    return _library(PROVIDER, needed=needed, asks=asks)


def test_a_whole_package_has_no_finding() -> None:
    assert _found() == []


@pytest.mark.parametrize(
    "asks",
    [
        [Symbol("_ZN6google8protobuf7MessageE"), LIBC],
        [_of(CUDART, "cudaGone"), Symbol("a")],
        [Symbol(letter) for letter in "abcdef"],
        [Symbol(letter) for letter in "abcdefg"],
    ],
    ids=["1", "2", "6", "7"],
)
def test_symbols_that_nobody_has_are_one_finding_which_names_six(asks: list[Symbol], told: Told) -> None:
    (finding,) = _found(provider=_asking(*asks))
    told(finding)


@pytest.mark.parametrize(
    ("ask", "found"),
    [
        (_of(CUDART, "cudaMalloc"), []),
        (_of(CUDART, "cudaMalloc", "libcudart.so.13"), ["E014"]),  # glibc: version not defined in file
        (_of(CUDART, "cudaGone"), ["E014"]),
        (Symbol("cudaMalloc"), []),  # without a version, any definition matches
        (_of("libcudnn.so.9", "cudnnCreate", "libcudnn.so.9"), []),  # nor need a definition have one
        (_of("libstdc++.so.6", "_ZSt4cout", "GLIBCXX_3.4"), []),  # the host's: E007 checks its version
        (_of("libcufft.so.11", "cufftPlan1d"), []),  # not in the package: E002 reports it
    ],
)
def test_versions(ask: Symbol, found: list[str]) -> None:
    assert [finding.code.name for finding in _found(provider=_asking(ask))] == found


def test_a_library_that_lies_there_and_is_not_loaded() -> None:
    """The provider was linked without -lcublas: a library of the package defines the symbol but
    is not loaded."""
    provider = _asking(_of(CUDART, "cudaMalloc"), Symbol("cudnnCreate"), needed=(CUDART,))
    (finding,) = _found(provider=provider)
    assert finding.got == "cudnnCreate"


@pytest.mark.parametrize(
    ("library", "without"),
    [(_library(HOST, asks=(Symbol("Provider_GetHost"),)), ""), (PACKAGE[PROVIDER], BRIDGE)],
    ids=["no provider", "no bridge"],
)
def test_the_bridge_is_there_for_providers_only(library: Library, without: str) -> None:
    (finding,) = _without(without, changed=library)
    assert (finding.code.name, finding.path, finding.got) == ("E014", library.path, "Provider_GetHost")


@pytest.mark.parametrize(
    ("name", "needed", "codes"),
    [
        ("cuTensorMapEncodeTiled", ("libcuda.so.1",), []),  # the official 1.31.1
        ("cuInit", (), ["E014"]),
        ("curious", ("libcuda.so.1",), ["E014"]),
        ("cublasCreate_v2", ("libcuda.so.1",), ["E014"]),
    ],
)
def test_the_drivers_symbols(name: str, needed: tuple[str, ...], codes: list[str]) -> None:
    found = _found(provider=_asking(Symbol(name), needed=needed))
    assert [finding.code.name for finding in found] == codes


@pytest.mark.parametrize("gone", ["libcublas.so.12", CUDART])
def test_where_a_library_is_missing_another_finding_says_so(gone: str) -> None:
    assert _without(gone, changed=PACKAGE[PROVIDER]) == []


def test_where_a_library_cannot_be_read_another_finding_says_so() -> None:
    cudart = PACKAGE[CUDART]
    unread = replace(cudart, elf=replace(cudart.elf, sections=(), symbols=Symbols(frozenset(), ())))
    assert _found(cudart=unread) == []


def test_only_onnx_runtimes_own_libraries_are_judged() -> None:
    """NVIDIA's files may not be changed, and cuDNN's parts use symbols that their main library defines."""
    ops = _library("libcudnn_ops.so.9", asks=(Symbol("of_nobody"),), shows=(Symbol("anything"),))
    assert _found(ops=ops) == []


def test_libraries_that_need_each_other() -> None:
    cudart = _library(CUDART, needed=("libcublas.so.12",), shows=(Symbol("cudaMalloc", CUDART),))
    assert _found(cudart=cudart) == []


@pytest.mark.parametrize(
    ("name", "shown", "codes"),
    [
        (HOST, "OrtGetApiBase", []),
        (HOST, "OrtSessionOptionsAppendExecutionProvider_Tensorrt", []),
        (HOST, "GetProvider", ["E015"]),
        (BRIDGE, "Provider_SetHost", []),
        (BRIDGE, "OrtGetApiBase", ["E015"]),
        (PROVIDER, "GetProvider", []),
        (PROVIDER, "CreateEpFactories", []),
        (PROVIDER, "ReleaseEpFactory", []),
        (PROVIDER, "GetProviderInfo", ["E015"]),
        ("libonnxruntime_providers_tensorrt.so", "GetProvider", []),
        ("libonnxruntime_providers_tensorrt.so", "_ZN4absl10StatusCodeE", ["E015"]),
    ],
)
def test_what_is_api(name: str, shown: str, codes: list[str]) -> None:
    found = _found(library=_library(name, shows=(Symbol(shown, "VERS_1.0"),)))
    assert [finding.code.name for finding in found if finding.code.name == "E015"] == codes


def test_a_name_of_thousands_of_bytes_is_cut() -> None:
    (finding,) = _found(provider=_library(PROVIDER, shows=(Symbol("_ZN7cutlass" + "4gemm" * 1000, "V1"),)))
    assert finding.got.startswith("_ZN7cutlass4gemm4gemm")
    assert finding.got.endswith("4gemm…")
    assert len(finding.got) < 130


def test_leaked_symbols_are_counted_and_some_are_named(told: Told) -> None:
    leaked = tuple(Symbol(f"_ZN4absl{n}") for n in range(1234))
    (finding,) = _found(provider=_library(PROVIDER, shows=leaked))
    told(finding)
