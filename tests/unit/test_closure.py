from __future__ import annotations

from dataclasses import replace

import pytest

from builder.core.checks import Finding, Severity
from builder.core.closure import HOST_LIBRARIES, Library, Needs, check_closure, needs
from builder.core.elf import read_elf
from builder.core.variant import Limits
from tests.binaries import RWX, elf

PROVIDER = "libonnxruntime_providers_cuda.so"
LIMITS = Limits(extra_sm=Severity.WARNING, glibc="2.35", glibcxx="3.4.30")
CUDNN_PARTS = ("adv", "cnn", "engines_precompiled", "engines_runtime_compiled", "graph", "heuristic", "ops")


def _library(
    name: str,
    vendor: str = "nvidia",
    *,
    needed: tuple[str, ...] = (),
    soname: str | None = None,
    runpath: str | None = None,
    rpath: str | None = None,
    stack: int | None = 6,
    versions: tuple[str, ...] = (),
) -> Library:
    data = elf(
        needed=needed,
        soname=soname,
        runpath=runpath,
        rpath=rpath,
        stack=stack,
        versions={"libc.so.6": versions} if versions else None,
    )
    source = "wheel:nvidia-x-cu12==9.10.2.21" if vendor == "nvidia" else "wheel:onnxruntime-gpu==1.23.2"
    return Library(path=f"lib/{name}", vendor=vendor, elf=read_elf(data), source=source)


def _found(*libraries: Library) -> list[Finding]:
    return check_closure(libraries, LIMITS)


def _codes(*libraries: Library) -> list[str]:
    return [finding.code.name for finding in _found(*libraries)]


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


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("libnvrtc-builtins.so.12.9", "libnvrtc-builtins.so.12.*"),
        ("libnvrtc.so.12", "libnvrtc.so.*"),
        ("libcudnn_ops.so.9", "libcudnn_ops.so.9"),
        ("libonnxruntime_providers_shared.so", "libonnxruntime_providers_shared.so"),
    ],
)
def test_what_is_opened_at_run_time_and_missing(name: str, wanted: str) -> None:
    package = _package()
    del package[name]
    (finding,) = _found(*package.values())
    assert finding.code.name == "E003"
    assert finding.wanted == f"lib/{wanted}"


@pytest.mark.parametrize(
    ("stamp", "builtins", "codes"),
    [
        ("12.9", "libnvrtc-builtins.so.12.9", []),
        ("12.9", "libnvrtc-builtins.so.12.8", ["E003"]),
        (None, "libnvrtc-builtins.so.12.8", []),
        (None, "libnvrtc-builtins.so.13.0", ["E003"]),
    ],
)
def test_nvrtc_opens_the_builtins_of_its_own_release(
    stamp: str | None, builtins: str, codes: list[str]
) -> None:
    nvrtc = replace(_library("libnvrtc.so.12"), stamp=stamp)
    assert _codes(nvrtc, _library(builtins)) == codes


@pytest.mark.parametrize(("cudart", "codes"), [("libcudart.so.12", []), ("libcudart.so.13", ["E003"])])
def test_cudnn_opens_the_nvrtc_of_the_package_s_cuda(cudart: str, codes: list[str]) -> None:
    engines = _library("libcudnn_engines_runtime_compiled.so.9")
    nvrtc = (_library("libnvrtc.so.12"), _library("libnvrtc-builtins.so.12.9"))
    assert _codes(engines, *nvrtc, _library(cudart)) == codes


def test_a_needed_library_that_nothing_provides() -> None:
    (finding,) = _found(_library("libx.so.1", needed=("libc.so.6", "libnvinfer.so.10")))
    assert (finding.code.name, finding.path) == ("E002", "lib/libx.so.1")
    assert "libnvinfer.so.10" in finding.message


def test_a_library_under_another_name_than_its_soname() -> None:
    (finding,) = _found(_library("libcudart.so.12.9.79", soname="libcudart.so.12"))
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
    (finding,) = _found(_library("libcufft.so.11", runpath="/usr/local/cuda/lib64:$ORIGIN"))
    assert isinstance(finding, Finding)
    assert (finding.code.name, finding.severity) == ("E006", Severity.WARNING)


def test_the_driver_is_the_host_s_and_cuda_is_not() -> None:
    assert "libcuda.so.1" in HOST_LIBRARIES
    assert not [name for name in HOST_LIBRARIES if name.startswith(("libcudart", "libcublas", "libcudnn"))]


def test_cudnn_opens_each_of_its_parts() -> None:
    """Read off the 9.10.2.21 wheel."""
    missing = {finding.wanted for finding in _found(_library("libcudnn.so.9"))}
    assert missing == {f"lib/libcudnn_{part}.so.9" for part in CUDNN_PARTS}


@pytest.mark.parametrize(
    ("versions", "got"),
    [
        (("GLIBC_2.35", "GLIBC_2.4"), []),
        (("GLIBC_2.36", "GLIBC_2.4"), ["GLIBC_2.36"]),
        (("GLIBC_2.4", "GLIBCXX_3.4.9"), []),
        (("GLIBC_3.0",), ["GLIBC_3.0"]),
        (("GLIBCXX_3.4.30", "GLIBCXX_3.4.9"), []),
        (("GLIBCXX_3.4.31",), ["GLIBCXX_3.4.31"]),
        (("GLIBC_2.38", "GLIBCXX_3.4.32"), ["GLIBC_2.38", "GLIBCXX_3.4.32"]),
        (("GLIBC_PRIVATE", "CXXABI_1.3.15"), []),
    ],
)
def test_a_library_for_newer_systems(versions: tuple[str, ...], got: list[str]) -> None:
    findings = _found(_library("libcudart.so.12", versions=versions))
    assert [finding.got for finding in findings] == got
    assert {finding.code.name for finding in findings} <= {"E007"}
    assert not [finding for finding in findings if finding.severity is Severity.WARNING]


def test_the_highest_needs_of_a_package() -> None:
    libraries = (
        _library("a.so", versions=("GLIBC_2.9", "GLIBCXX_3.4.22")),
        _library("b.so", versions=("GLIBC_2.28", "GLIBCXX_3.4.9")),
    )
    assert needs(libraries) == Needs(glibc="2.28", glibcxx="3.4.22")
    assert needs([_library("c.so")]) == Needs(glibc=None, glibcxx=None)


def test_a_link_where_a_file_must_be() -> None:
    (finding,) = _found(replace(_library("libcudart.so.12"), link="libcudart.so.12.9.79"))
    assert (finding.code.name, finding.got) == ("E010", "a link to libcudart.so.12.9.79")


@pytest.mark.parametrize(
    ("vendor", "stack", "severity"),
    [
        ("onnxruntime", RWX, Severity.ERROR),
        ("onnxruntime", None, Severity.ERROR),
        ("nvidia", RWX, Severity.WARNING),
    ],
)
def test_an_executable_stack(vendor: str, stack: int | None, severity: Severity) -> None:
    (finding,) = _found(_library("libx.so", vendor, stack=stack))
    assert (finding.code.name, finding.severity) == ("E011", severity)


def test_a_provider_of_another_release_than_its_host() -> None:
    package = _package()
    package[PROVIDER] = replace(package[PROVIDER], stamp="1.21.0")
    (finding,) = _found(*package.values())
    assert (finding.code.name, finding.severity) == ("E008", Severity.ERROR)
    assert finding.path == f"lib/{PROVIDER}"
    ours = "lib/libonnxruntime.so.1, lib/libonnxruntime_providers_shared.so"
    assert finding.got == f"1.21.0: lib/{PROVIDER}; 1.23.2: {ours}"


def test_what_was_compiled_together_is_of_one_version() -> None:
    """The bridge has no mark; its provider has, and both are of one source tree."""
    package = _package()
    for name in (PROVIDER, "libonnxruntime_providers_shared.so"):
        package[name] = replace(package[name], source="built")
    package[PROVIDER] = replace(package[PROVIDER], stamp="1.23.2")
    assert _codes(*package.values()) == []
    package[PROVIDER] = replace(package[PROVIDER], stamp="1.21.0")
    (finding,) = _found(*package.values())
    assert finding.got.startswith("1.21.0: lib/libonnxruntime_providers_shared.so, lib/")


def test_what_was_compiled_together_without_a_mark_is_of_one_version_too() -> None:
    names = ("libonnxruntime.so.1", "libonnxruntime_providers_shared.so")
    assert _codes(*(replace(_library(name, "onnxruntime"), source="built") for name in names)) == []


def test_a_cudnn_library_of_another_release() -> None:
    package = _package()
    package["libcudnn_ops.so.9"] = replace(package["libcudnn_ops.so.9"], stamp="9.28.0")
    (finding,) = _found(*package.values())
    assert (finding.code.name, finding.severity) == ("E009", Severity.ERROR)
    assert finding.path == "lib/libcudnn_ops.so.9"
    assert finding.got.endswith("; 9.28.0: lib/libcudnn_ops.so.9")


def test_a_folder_without_a_manifest_says_what_cannot_be_told() -> None:
    """As the marks of the real files are: nothing in the bridge, and three of cuDNN's eight have one."""
    stamps = {"libonnxruntime.so.1": "1.23.2", PROVIDER: "1.23.2"}
    stamps |= {f"libcudnn_{part}.so.9": "9.10.2" for part in ("adv", "graph", "ops")}
    package = [replace(one, source="unknown", stamp=stamps.get(name)) for name, one in _package().items()]
    ort, cudnn = _found(*package)
    assert (ort.code.name, cudnn.code.name) == ("E008", "E009")
    assert {ort.severity, cudnn.severity} == {Severity.WARNING}
    assert ort.got == "lib/libonnxruntime_providers_shared.so"
    assert cudnn.got.count("libcudnn") == 5
