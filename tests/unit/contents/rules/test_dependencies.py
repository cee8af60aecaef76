"""Tests of whether libraries find their dependencies; names and NEEDED are those that readelf shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.binary.elf import read_elf
from builder.binary.library import HostNeeds, Library
from builder.contents.rules.dependencies import (
    HOST_LIBRARIES,
    check_closure,
    check_one_version,
    needs,
    report_unneeded,
    unneeded,
)
from builder.finding import Code, Finding, Severity
from tests.support.factories.binaries import RWX, elf
from tests.support.factories.packages import LIMITS
from tests.support.messages import Told

HOST = "libonnxruntime.so.1"

BRIDGE = "libonnxruntime_providers_shared.so"

PROVIDER = "libonnxruntime_providers_cuda.so"

CUDNN_PARTS = ("adv", "cnn", "engines_precompiled", "engines_runtime_compiled", "graph", "heuristic", "ops")

OPENED = {
    "libcudnn.so.9": ("libcudnn_adv.so", "libcudnn_cnn.so", "libcudnn_graph.so", "libcudnn_ops.so"),
    "libcudnn_graph.so.9": (
        *("libcudnn_engines_precompiled.so", "libcudnn_engines_runtime_compiled.so", "libcudnn_heuristic.so"),
        "libnvrtc.so.%d",
    ),
    "libcudnn_engines_precompiled.so.9": ("libnvrtc.so.12",),
    "libnvrtc.so.12": ("libnvrtc-builtins.so.12.9",),
}
"""Names that ``strings`` shows in ``.rodata`` of cuDNN 9.10.2.21 and NVRTC 12.9.86."""


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
    dlopens: tuple[str, ...] = (),
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
    return Library(path=f"lib/{name}", vendor=vendor, elf=read_elf(data), source=source, dlopens=dlopens)


def _found(*libraries: Library) -> list[Finding]:
    """Return the findings for a package of these libraries, its host library and its bridge."""
    held = {library.name for library in libraries}
    everywhere = (_library(name, "onnxruntime") for name in (HOST, BRIDGE) if name not in held)
    return check_closure([*libraries, *everywhere], LIMITS)


def _codes(*libraries: Library) -> list[str]:
    return [finding.code.name for finding in _found(*libraries)]


def _triples(libraries: list[Library]) -> list[tuple[str, str, str]]:
    return sorted((finding.code.name, finding.path, finding.wanted) for finding in _found(*libraries))


PACKAGE = [
    _library(HOST, "onnxruntime", needed=("libc.so.6",), soname=HOST),
    _library(BRIDGE, "onnxruntime"),
    _library(PROVIDER, "onnxruntime", needed=("libcudnn.so.9", "libcuda.so.1"), runpath="$ORIGIN"),
    _library("libcudnn.so.9", needed=("libdl.so.2",), soname="libcudnn.so.9", runpath="$ORIGIN"),
    *(_library(f"libcudnn_{part}.so.9", needed=("libz.so.1",)) for part in CUDNN_PARTS),
    _library("libnvrtc.so.12", needed=("libpthread.so.0",), runpath="$ORIGIN:"),
    _library("libnvrtc-builtins.so.12.9"),
]
PACKAGE = [replace(one, dlopens=OPENED.get(one.name, ())) for one in PACKAGE]
"""A package's libraries with the fields that readelf shows for the 12.9 wheels and cuDNN 9.10.2."""


def _but(*names: str, **changes: object) -> list[Library]:
    """Return the package's libraries with changes of the named ones."""
    return [replace(one, **changes) if one.name in names else one for one in PACKAGE]  # type: ignore[arg-type]


def _without(name: str) -> list[Library]:
    return [one for one in PACKAGE if one.name != name]


CUDART = _library("libcudart.so.12")

X_OF_ORT = _library("libx.so", "onnxruntime", needed=("libcudart.so.12",))

NEEDED_BY_TENSORRT = ("libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10")
"""NEEDED of the official 1.21.0, by ``readelf -d``; 1.23.2 needs no plugins."""

TENSORRT = _library(
    "libonnxruntime_providers_tensorrt.so",
    "onnxruntime",
    needed=("libcudart.so.12", *NEEDED_BY_TENSORRT, "libcudnn.so.9", "libc.so.6"),
    runpath="$ORIGIN",
)

FAULTS = {
    "nothing opened is there": _without("libnvrtc-builtins.so.12.9"),
    "nothing provides it": [_library("libx.so.1", needed=("libc.so.6", "libnvinfer.so.10"))],
    "another name than its SONAME": [_library("libcudart.so.12.9.79", soname="libcudart.so.12")],
    "no RUNPATH": [X_OF_ORT, CUDART],
    "a folder of its machine": [
        _library("libx.so", "onnxruntime", needed=("libcudart.so.12",), runpath="/usr/lib64:$ORIGIN"),
        CUDART,
    ],
    "a folder of NVIDIA's machine": [_library("libcufft.so.11", runpath="/usr/local/cuda/lib64:$ORIGIN")],
    "for newer systems": [_library("libcudart.so.12", versions=("GLIBC_2.38", "GLIBCXX_3.4.32"))],
    "a link": [replace(CUDART, link="libcudart.so.12.9.79")],
    "an executable stack": [_library("libx.so", "onnxruntime", stack=RWX)],
    "no word of its stack": [_library("libx.so", "onnxruntime", stack=None)],
    "NVIDIA's executable stack": [_library("libx.so", stack=RWX)],
    "what belongs inside": [
        _library(PROVIDER, "onnxruntime", needed=("libabsl_base.so.20240722", "libprotobuf.so.32"))
    ],
    "another release of the provider": _but(PROVIDER, embedded_version="1.21.0"),
    "another release of a part of cuDNN": _but("libcudnn_ops.so.9", embedded_version="9.28.0"),
    "TensorRT": [TENSORRT, CUDART, _library("libcudnn.so.9")],
    "a folder without a manifest": [replace(one, source="unknown") for one in PACKAGE],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told(fault: str, told: Told) -> None:
    told("\n".join(map(str, _found(*FAULTS[fault]))))


def test_a_whole_package_has_no_findings() -> None:
    assert _codes(*PACKAGE) == []


@pytest.mark.parametrize(
    ("name", "opener"),
    [
        ("libnvrtc-builtins.so.12.9", "libnvrtc.so.12"),
        ("libcudnn_ops.so.9", "libcudnn.so.9"),
        ("libcudnn_graph.so.9", "libcudnn.so.9"),
        ("libcudnn_heuristic.so.9", "libcudnn_graph.so.9"),
        ("libcudnn_engines_precompiled.so.9", "libcudnn_graph.so.9"),
    ],
)
def test_what_is_opened_at_run_time_and_missing_is_told_of_the_library_that_opens_it(
    name: str, opener: str
) -> None:
    assert _triples(_without(name)) == [("E003", f"lib/{opener}", f"lib/{name}")]


def test_without_nvrtc_both_of_cudnn_s_libraries_that_open_it_tell() -> None:
    assert _triples(_without("libnvrtc.so.12")) == [
        ("E003", "lib/libcudnn_engines_precompiled.so.9", "lib/libnvrtc.so.12"),
        ("E003", "lib/libcudnn_graph.so.9", "lib/libnvrtc.so.*"),
    ]


@pytest.mark.parametrize(
    "needed",
    [
        *("libabsl_synchronization.so.20240722", "libprotobuf.so.32", "libprotobuf-lite.so.32"),
        *("libonnx.so.1", "libonnx_proto.so.1", "libre2.so.11", "libflatbuffers.so.23.5.26"),
        *("libutf8_validity.so.33.4.0", "libnsync_cpp.so.1", "libdate-tz.so.3", "libcpuinfo.so.0"),
        *("libpthreadpool.so.0", "libXNNPACK.so.0.20241108"),
    ],
)
def test_a_dependency_that_belongs_inside_onnx_runtime(needed: str) -> None:
    """The names are those of Debian 13, whose own libonnxruntime.so.1.21 needs some of them."""
    provider = _library(PROVIDER, "onnxruntime", needed=("libc.so.6", needed))
    assert _codes(provider) == ["E013"]
    beside = replace(provider, elf=replace(provider.elf, runpath="$ORIGIN"))
    assert _codes(beside, _library(needed, "")) == ["E013"], "it is an application's second one"


@pytest.mark.parametrize("needed", ["libonnxruntime.so.2", "libre2c.so.1", "libabsl.so.1", "libre2.sox.1"])
def test_other_dependencies_are_only_missing(needed: str) -> None:
    assert _codes(_library(PROVIDER, "onnxruntime", needed=(needed,))) == ["E002"]


def test_what_nvidia_s_libraries_need_is_theirs() -> None:
    assert _codes(_library("libcublas.so.12", needed=("libprotobuf.so.32",))) == ["E002"]


@pytest.mark.parametrize("name", [HOST, BRIDGE])
def test_what_no_needed_names_and_every_package_holds(name: str, told: Told) -> None:
    (finding,) = check_closure(_without(name), LIMITS)
    told(finding)


def test_the_list_of_a_package_is_not_enough_for_a_cudnn_that_opens_more() -> None:
    """9.28's graph library names engines_tensor_ir."""
    opened = (*OPENED["libcudnn_graph.so.9"], "libcudnn_engines_tensor_ir.so")
    assert _triples(_but("libcudnn_graph.so.9", dlopens=opened)) == [
        ("E003", "lib/libcudnn_graph.so.9", "lib/libcudnn_engines_tensor_ir.so.9")
    ]


@pytest.mark.parametrize(
    ("builtins", "codes"), [("libnvrtc-builtins.so.12.9", []), ("libnvrtc-builtins.so.12.8", ["E003"])]
)
def test_nvrtc_opens_the_builtins_of_its_own_release(builtins: str, codes: list[str]) -> None:
    nvrtc = _library("libnvrtc.so.12", dlopens=OPENED["libnvrtc.so.12"])
    assert _codes(nvrtc, _library(builtins)) == codes


@pytest.mark.parametrize(
    ("held", "missing"),
    [
        (("libcudart.so.12", "libnvrtc.so.12", "libnvrtc-builtins.so.12.9"), []),
        (("libcudart.so.13", "libnvrtc.so.12", "libnvrtc-builtins.so.12.9"), ["13", "13.*"]),
        (("libcudart.so.12", "libnvrtc.so.12"), ["12.*"]),
        (("libnvrtc.so.12", "libnvrtc-builtins.so.12.9"), []),
        ((), ["*", "*.*"]),
    ],
)
def test_half_a_name_gets_the_number_of_the_package_s_cuda(held: tuple[str, ...], missing: list[str]) -> None:
    """cuDNN 9.28's ext has such names; its graph library has ``%d`` instead."""
    ext = _library("libcudnn_ext.so.9", dlopens=("libnvrtc.so.", "libnvrtc-builtins.so."))
    found = _found(ext, *map(_library, held))
    assert [finding.wanted.partition(".so.")[2] for finding in found] == missing


@pytest.mark.parametrize(("cudart", "codes"), [("libcudart.so.12", []), ("libcudart.so.13", ["E003"])])
def test_cudnn_opens_the_nvrtc_of_the_package_s_cuda(cudart: str, codes: list[str]) -> None:
    graph = _library("libcudnn_graph.so.9", dlopens=("libnvrtc.so.%d",))
    assert _codes(graph, _library("libnvrtc.so.12"), _library(cudart)) == codes


@pytest.mark.parametrize(("vendor", "codes"), [("nvidia", []), ("onnxruntime", ["E002"]), ("", ["E002"])])
def test_only_nvidia_s_files_may_need_zlib_of_the_host(vendor: str, codes: list[str]) -> None:
    assert _codes(_library("libx.so", vendor, needed=("libz.so.1",))) == codes


@pytest.mark.parametrize(
    ("runpath", "rpath", "codes"),
    [
        ("$ORIGIN", None, []),
        (None, "$ORIGIN", []),
        (None, None, ["E005"]),
        ("$ORIGIN/../lib", None, ["E005"]),
        ("/usr/lib64:$ORIGIN", None, ["E005", "E006"]),
        ("$ORIGIN:/usr/lib64", None, ["E005", "E006"]),
        ("$ORIGIN", "/opt", []),
    ],
)
def test_where_ort_s_provider_looks(runpath: str | None, rpath: str | None, codes: list[str]) -> None:
    provider = replace(X_OF_ORT, elf=replace(X_OF_ORT.elf, runpath=runpath, rpath=rpath))
    assert _codes(provider, CUDART) == codes


@pytest.mark.parametrize(
    ("runpath", "codes"), [(None, []), ("$ORIGIN", []), ("$ORIGIN/..", ["E005"]), ("/opt", ["E005", "E006"])]
)
def test_a_library_of_orts_that_needs_no_neighbour_may_look_beside_itself_alone(
    runpath: str | None, codes: list[str]
) -> None:
    assert _codes(_library("libx.so", "onnxruntime", needed=("libc.so.6",), runpath=runpath)) == codes


def test_the_driver_is_the_host_s_and_cuda_is_not() -> None:
    assert "libcuda.so.1" in HOST_LIBRARIES
    assert not [name for name in HOST_LIBRARIES if name.startswith(("libcudart", "libcublas", "libcudnn"))]


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
    assert [(finding.code.name, finding.got) for finding in findings] == [("E007", need) for need in got]


def test_the_highest_needs_of_a_package() -> None:
    libraries = (
        _library("a.so", versions=("GLIBC_2.9", "GLIBCXX_3.4.22")),
        _library("b.so", versions=("GLIBC_2.28", "GLIBCXX_3.4.9")),
    )
    assert needs(libraries) == HostNeeds(glibc="2.28", glibcxx="3.4.22")
    assert needs([_library("c.so")]) == HostNeeds(glibc=None, glibcxx=None)


@pytest.mark.parametrize("version", ["1.23.2", "1.21.0"])
def test_what_was_compiled_together_is_of_one_version(version: str, told: Told) -> None:
    """The bridge has no version mark; its provider has one, and both come from one source tree."""
    built = [replace(one, source="built") if one.name in {PROVIDER, BRIDGE} else one for one in PACKAGE]
    marked = [replace(one, embedded_version=version) if one.name == PROVIDER else one for one in built]
    assert _codes(*marked) == (["E008"] if version == "1.21.0" else [])
    told("\n".join(map(str, _found(*marked))))


def test_a_bridge_from_elsewhere_has_not_the_version_of_what_was_compiled() -> None:
    built = _but(HOST, PROVIDER, source="built", embedded_version="1.23.2")
    (finding,) = _found(*(replace(one, source="unknown") if one.name == BRIDGE else one for one in built))
    assert (finding.code.name, finding.severity, finding.got) == ("E008", Severity.WARNING, f"lib/{BRIDGE}")


def test_what_was_compiled_together_without_a_mark_is_of_one_version_too() -> None:
    assert _codes(*(replace(_library(name, "onnxruntime"), source="built") for name in (HOST, BRIDGE))) == []


def test_a_folder_without_a_manifest_says_what_cannot_be_told() -> None:
    """In the real files, the bridge has no mark, and three of cuDNN's eight libraries have one."""
    stamps = {HOST: "1.23.2", PROVIDER: "1.23.2"}
    stamps |= {f"libcudnn_{part}.so.9": "9.10.2" for part in ("adv", "graph", "ops")}
    ort, cudnn = _found(
        *(replace(one, source="unknown", embedded_version=stamps.get(one.name)) for one in PACKAGE)
    )
    assert (ort.code.name, ort.severity, ort.got) == ("E008", Severity.WARNING, f"lib/{BRIDGE}")
    assert (cudnn.code.name, cudnn.severity, cudnn.got.count("libcudnn")) == ("E009", Severity.WARNING, 5)


@pytest.mark.parametrize(
    ("version", "cudart", "missing"),
    [
        ("1.28.0", "libcudart.so.12", ["libcudnn.so.9", "libcufft.so.11", "libnvrtc.so.12"]),
        ("1.27.1", "libcudart.so.12", []),  # NEEDED still has them
        ("1.31.1", "libcudart.so.13", ["libcudnn.so.9", "libcufft.so.12", "libnvrtc.so.13"]),
        ("1.31.1", "libcudart.so.14", []),  # the numbers of its other libraries are not known
        (None, "libcudart.so.12", []),
    ],
)
def test_newer_providers_open_what_their_bytes_do_not_name(
    version: str | None, cudart: str, missing: list[str]
) -> None:
    """The change is in onnxruntime's pull requests 29252, 29808 and 29705, all in 1.28."""
    provider = _library(PROVIDER, "onnxruntime", needed=(cudart,), runpath="$ORIGIN")
    found = _found(replace(provider, embedded_version=version), _library(cudart))
    assert [one.wanted.removeprefix("lib/") for one in found if one.code.name == "E003"] == missing


def test_tensorrt_is_the_user_s_to_bring_and_all_else_the_package_s() -> None:
    assert _codes(TENSORRT, CUDART) == ["E002", "E017"]
    brought = map(_library, ("libcudnn.so.9", *NEEDED_BY_TENSORRT))
    assert _codes(TENSORRT, CUDART, *brought) == []


def test_tensorrt_is_nobody_else_s_to_need() -> None:
    assert _codes(_library(PROVIDER, "onnxruntime", needed=NEEDED_BY_TENSORRT)) == ["E002"] * 3


def _linked(name: str, *needed: str, embedded_version: str | None = None) -> Library:
    """Return a library of the real package with its NEEDED and the names that ``strings`` shows."""
    own = name.startswith("libonnxruntime")
    made = _library(name, "onnxruntime" if own else "nvidia", needed=needed, dlopens=OPENED.get(name, ()))
    return replace(made, embedded_version=embedded_version)


BESIDES_PROVIDER = (
    *map(_linked, (HOST, BRIDGE, "libcudart.so.12", "libcublasLt.so.12", "libcufft.so.11")),
    *map(_linked, ("libcurand.so.10", "libnvrtc.so.12", "libnvrtc-builtins.so.12.9", "libcudnn.so.9")),
    _linked("libcublas.so.12", "libcublasLt.so.12"),
    *(
        _linked(f"libcudnn_{part}.so.9", "libcudnn_ops.so.9", "libcudnn_graph.so.9", "libz.so.1")
        for part in ("adv", "cnn")
    ),
    *(
        _linked(f"libcudnn_{part}.so.9", "libcudnn_graph.so.9", "libz.so.1")
        for part in ("engines_precompiled", "engines_runtime_compiled", "heuristic", "ops")
    ),
    _linked("libcudnn_graph.so.9"),
)

CUDA = {one.name for one in BESIDES_PROVIDER} - {HOST, BRIDGE}

FULL = ("libcublasLt.so.12", "libcublas.so.12", "libcurand.so.10", "libcufft.so.11", "libcudart.so.12")

LEAN = ("libcublasLt.so.12", "libcublas.so.12", "libcudart.so.12", "libcudnn.so.9")


def _idle(*libraries: Library) -> set[str]:
    return {path.removeprefix("lib/") for path in unneeded(libraries)}


@pytest.mark.parametrize(
    ("needed", "idle"),
    [
        ((*FULL, "libcudnn.so.9"), set()),
        (LEAN, {"libcufft.so.11", "libcurand.so.10"}),
        (("libcudart.so.12",), CUDA - {"libcudart.so.12"}),
    ],
    ids=["official 1.23.2", "lean 1.21.0", "minimal 1.21.0"],
)
def test_what_no_road_from_ort_leads_to(needed: tuple[str, ...], idle: set[str]) -> None:
    """NEEDED is that of the official provider and of those compiled here, by ``readelf -d``."""
    provider = _linked(PROVIDER, *needed, "libc.so.6", embedded_version="1.21.0")
    assert _idle(provider, *BESIDES_PROVIDER) == idle


@pytest.mark.parametrize(
    ("needed", "used"),
    [
        (
            "libcublas.so.12",
            {"libcublas.so.12", "libcublasLt.so.12", "libnvrtc.so.12", "libnvrtc-builtins.so.12.9"},
        ),
        ("libcudnn.so.9", CUDA - {"libcublas.so.12", "libcudart.so.12", "libcufft.so.11", "libcurand.so.10"}),
    ],
)
def test_cublaslt_opens_nvrtc_and_cudnn_cublaslt(needed: str, used: set[str]) -> None:
    """The names are in ``.rodata`` of cuBLAS 12.9 and cuDNN 9.10."""
    provider = _linked(PROVIDER, needed, embedded_version="1.21.0")
    assert CUDA - _idle(provider, *BESIDES_PROVIDER) == used


def test_what_the_tensorrt_provider_needs_is_needed() -> None:
    """TensorRT's provider may need cuDNN when our own provider is linked without it."""
    provider = _linked(PROVIDER, "libcudart.so.12", embedded_version="1.21.0")
    tensorrt = _linked(TENSORRT.name, "libcublas.so.12", "libcudnn.so.9", *NEEDED_BY_TENSORRT)
    assert _idle(provider, tensorrt, *BESIDES_PROVIDER) == {"libcufft.so.11", "libcurand.so.10"}


def test_newer_providers_lead_to_what_their_bytes_do_not_name() -> None:
    provider = _linked(PROVIDER, "libcudart.so.12", "libcublas.so.12", embedded_version="1.28.0")
    assert _idle(provider, *BESIDES_PROVIDER) == {"libcurand.so.10"}


def _unread(library: Library) -> Library:
    return replace(library, elf=replace(library.elf, sections=()))


MARKED = _linked(PROVIDER, "libcudnn.so.9", embedded_version="1.21.0")


@pytest.mark.parametrize(
    "libraries",
    [
        BESIDES_PROVIDER,
        (_linked(PROVIDER, "libcudart.so.12"), *BESIDES_PROVIDER),
        (_linked(PROVIDER, "libcudart.so.14", embedded_version="1.31.1"), *BESIDES_PROVIDER),
        (_unread(MARKED), *BESIDES_PROVIDER),
        (MARKED, *(_unread(one) if one.name == "libcudnn.so.9" else one for one in BESIDES_PROVIDER)),
    ],
    ids=["no provider", "no version", "no table of what it opens", "an unread provider", "unread cuDNN"],
)
def test_nothing_is_left_out_on_a_word_that_is_not_whole(libraries: tuple[Library, ...]) -> None:
    assert _idle(*libraries) == set()


def test_what_nothing_needs_is_a_warning(told: Told) -> None:
    (finding,) = report_unneeded(["lib/libcufft.so.11"])
    told(finding)


def test_libraries_of_several_versions(told: Told) -> None:
    versions = {"lib/a": "9.10.2", "lib/b": "9.9.0", "lib/c": "9.10.2", "lib/d": None, "lib/e": None}
    told("\n".join(map(str, check_one_version(Code.E008, "cuDNN", versions))))


@pytest.mark.parametrize(
    ("versions", "paths"),
    [
        ({}, []),
        ({"lib/a": None}, []),
        ({"lib/a": "1.0.0", "lib/b": "1.0.0"}, []),
        ({"lib/a": "1.1.0", "lib/b": "1.0.0"}, ["lib/b"]),
        ({"lib/a": "1.0.0", "lib/b": None}, ["lib/b"]),
    ],
)
def test_one_library_agrees_with_itself(versions: dict[str, str | None], paths: list[str]) -> None:
    assert [finding.path for finding in check_one_version(Code.E008, "cuDNN", versions)] == paths
