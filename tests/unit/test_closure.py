from __future__ import annotations

import pytest

from builder.core.checks import Finding, Severity
from builder.core.closure import HOST_LIBRARIES, OPENED, Library, check_closure
from builder.core.elf import read_elf
from tests.binaries import elf

PROVIDER = "libonnxruntime_providers_cuda.so"
CUDNN_PARTS = ("adv", "cnn", "engines_precompiled", "engines_runtime_compiled", "graph", "heuristic", "ops")


def _library(
    name: str,
    vendor: str = "nvidia",
    *,
    needed: tuple[str, ...] = (),
    soname: str | None = None,
    runpath: str | None = None,
    rpath: str | None = None,
) -> Library:
    data = elf(needed=needed, soname=soname, runpath=runpath, rpath=rpath)
    return Library(path=f"lib/{name}", vendor=vendor, elf=read_elf(data))


def _codes(*libraries: Library) -> list[str]:
    return [finding.code.name for finding in check_closure(libraries)]


def _package() -> dict[str, Library]:
    """The shape of a package, as readelf shows it on the 12.9 wheels and cuDNN 9.10.2."""
    return {
        library.name: library
        for library in (
            _library(
                "libonnxruntime.so.1", "onnxruntime", needed=("libc.so.6",), soname="libonnxruntime.so.1"
            ),
            _library("libonnxruntime_providers_shared.so", "onnxruntime"),
            _library(PROVIDER, "onnxruntime", needed=("libcudnn.so.9", "libcuda.so.1"), runpath="$ORIGIN"),
            _library("libcudnn.so.9", needed=("libdl.so.2",), soname="libcudnn.so.9", runpath="$ORIGIN"),
            *(_library(f"libcudnn_{part}.so.9", needed=("libz.so.1",)) for part in CUDNN_PARTS),
            _library("libnvrtc.so.12", needed=("libpthread.so.0",), runpath="$ORIGIN:"),
            _library("libnvrtc-builtins.so.12.9"),
        )
    }


def test_a_whole_package_has_no_findings() -> None:
    assert _codes(*_package().values()) == []


@pytest.mark.parametrize("name", ["libnvrtc-builtins.so.12.9", "libnvrtc.so.12", "libcudnn_ops.so.9"])
def test_what_is_opened_at_run_time_and_missing(name: str) -> None:
    package = _package()
    del package[name]
    (finding,) = check_closure(list(package.values()))
    assert finding.code.name == "E003"
    assert finding.wanted == f"lib/{name}"


def test_a_needed_library_that_nothing_provides() -> None:
    (finding,) = check_closure([_library("libx.so.1", needed=("libc.so.6", "libnvinfer.so.10"))])
    assert (finding.code.name, finding.path) == ("E002", "lib/libx.so.1")
    assert "libnvinfer.so.10" in finding.message


def test_a_library_under_another_name_than_its_soname() -> None:
    (finding,) = check_closure([_library("libcudart.so.12.9.79", soname="libcudart.so.12")])
    assert (finding.code.name, finding.wanted) == ("E004", "lib/libcudart.so.12")


@pytest.mark.parametrize(
    ("runpath", "rpath", "codes"),
    [
        ("$ORIGIN", None, []),
        (None, "$ORIGIN", []),
        (None, None, ["E005"]),
        ("$ORIGIN/../lib", None, ["E005"]),
        ("/usr/local/cuda/lib64:$ORIGIN", None, ["E005", "E006"]),
        ("$ORIGIN", "/opt", []),
    ],
)
def test_where_ort_s_provider_looks(runpath: str | None, rpath: str | None, codes: list[str]) -> None:
    provider = _library("libx.so", "onnxruntime", needed=("libcudart.so.12",), runpath=runpath, rpath=rpath)
    assert _codes(provider, _library("libcudart.so.12")) == codes


def test_ort_s_host_library_needs_no_runpath() -> None:
    assert _codes(_library("libonnxruntime.so.1", "onnxruntime", needed=("libc.so.6",))) == []


def test_an_absolute_folder_in_nvidia_s_file_is_a_warning() -> None:
    (finding,) = check_closure([_library("libcufft.so.11", runpath="/usr/local/cuda/lib64:$ORIGIN")])
    assert isinstance(finding, Finding)
    assert (finding.code.name, finding.severity) == ("E006", Severity.WARNING)


def test_the_driver_is_the_host_s_and_cuda_is_not() -> None:
    assert "libcuda.so.1" in HOST_LIBRARIES
    assert not [name for name in HOST_LIBRARIES if name.startswith(("libcudart", "libcublas", "libcudnn"))]
    assert set(OPENED["libcudnn.so.9"]) == {f"libcudnn_{part}.so.9" for part in CUDNN_PARTS}
