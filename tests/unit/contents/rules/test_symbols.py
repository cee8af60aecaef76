"""Tests of undefined and leaked symbols; the cases are outputs of readelf and ``ldd -r``."""

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


def _found(*changed: Library, without: str = "") -> list[Finding]:
    libraries = {**PACKAGE, **{library.name: library for library in changed}}
    return check_linkage([library for name, library in libraries.items() if name != without])


def _asking(*asks: Symbol, needed: tuple[str, ...] = ("libcublas.so.12", "libc.so.6")) -> Library:
    return _library(PROVIDER, needed=needed, asks=asks)


def _driver(name: str, *needed: str) -> Library:
    return _asking(Symbol(name), needed=needed)


FAULTS: dict[str, tuple[Library, str]] = {
    "two that nobody has": (_asking(_of(CUDART, "cudaGone"), Symbol("a"), LIBC), ""),
    "six": (_asking(*map(Symbol, "abcdef")), ""),
    "seven": (_asking(*map(Symbol, "abcdefg")), ""),
    "glibc: version not defined in file": (_asking(_of(CUDART, "cudaMalloc", "libcudart.so.13")), ""),
    "linked without -lcublas": (_asking(Symbol("cudnnCreate"), needed=(CUDART,)), ""),
    "the bridge is there for providers only": (_library(HOST, asks=(Symbol("Provider_GetHost"),)), ""),
    "no bridge": (PACKAGE[PROVIDER], BRIDGE),
    "a driver that is not linked": (_driver("cuInit"), ""),
    "not the driver's": (_driver("curious", "libcuda.so.1"), ""),
    "cuBLAS' and not the driver's": (_driver("cublasCreate_v2", "libcuda.so.1"), ""),
    "leaked": (_library(PROVIDER, shows=tuple(Symbol(f"_ZN4absl{n}") for n in range(1234))), ""),
    "leaked, of thousands of bytes": (
        _library(PROVIDER, shows=(Symbol("_ZN7cutlass" + "4gemm" * 1000, "V1"),)),
        "",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_symbol_that_nobody_has_or_that_leaked(fault: str, told: Told) -> None:
    library, without = FAULTS[fault]
    told("\n".join(map(str, _found(library, without=without))))


FINE: dict[str, tuple[Library, str]] = {
    "a whole package": (PACKAGE[PROVIDER], ""),
    "its own version": (_asking(_of(CUDART, "cudaMalloc")), ""),
    "without a version, any definition matches": (_asking(Symbol("cudaMalloc")), ""),
    "nor need a definition have one": (_asking(_of("libcudnn.so.9", "cudnnCreate")), ""),
    "the host's: E007 checks its version": (_asking(_of("libstdc++.so.6", "_ZSt4cout", "GLIBCXX_3.4")), ""),
    "not in the package: E002 reports it": (_asking(_of("libcufft.so.11", "cufftPlan1d")), ""),
    "a missing library: E002 reports it": (PACKAGE[PROVIDER], CUDART),
    "a missing library in between": (PACKAGE[PROVIDER], "libcublas.so.12"),
    "an unread library: E001 reports it": (
        replace(
            PACKAGE[CUDART], elf=replace(PACKAGE[CUDART].elf, sections=(), symbols=Symbols(frozenset(), ()))
        ),
        "",
    ),
    "NVIDIA's files may not be changed": (
        _library("libcudnn_ops.so.9", asks=(Symbol("of_nobody"),), shows=(Symbol("anything"),)),
        "",
    ),
    "libraries that need each other": (
        _library(CUDART, needed=("libcublas.so.12",), shows=(Symbol("cudaMalloc", CUDART),)),
        "",
    ),
    "the driver's, linked by the official 1.31.1": (_driver("cuTensorMapEncodeTiled", "libcuda.so.1"), ""),
}


@pytest.mark.parametrize(("library", "without"), FINE.values(), ids=FINE)
def test_what_has_no_fault(library: Library, without: str) -> None:
    assert _found(library, without=without) == []


TENSORRT = "libonnxruntime_providers_tensorrt.so"


@pytest.mark.parametrize(
    ("name", "api", "leaked"),
    [
        (HOST, ("OrtGetApiBase", "OrtSessionOptionsAppendExecutionProvider_Tensorrt"), "GetProvider"),
        (BRIDGE, ("Provider_SetHost",), "OrtGetApiBase"),
        (PROVIDER, ("GetProvider", "CreateEpFactories", "ReleaseEpFactory"), "GetProviderInfo"),
        (TENSORRT, ("GetProvider",), "_ZN4absl10StatusCodeE"),
    ],
)
def test_what_is_api(name: str, api: tuple[str, ...], leaked: str) -> None:
    shows = tuple(Symbol(shown, "VERS_1.0") for shown in (*api, leaked))
    found = [finding for finding in _found(_library(name, shows=shows)) if finding.code.name == "E015"]
    assert [finding.got.partition("@")[0] for finding in found] == [leaked]
