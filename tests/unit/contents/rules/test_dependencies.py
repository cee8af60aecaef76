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


def _package() -> dict[str, Library]:
    """Return a package's libraries with the fields that readelf shows for the 12.9 wheels and
    cuDNN 9.10.2."""
    return {
        library.name: library
        for library in (
            _library(
                "libonnxruntime.so.1", "onnxruntime", needed=("libc.so.6",), soname="libonnxruntime.so.1"
            ),
            _library("libonnxruntime_providers_shared.so", "onnxruntime"),
            _library(PROVIDER, "onnxruntime", needed=("libcudnn.so.9", "libcuda.so.1"), runpath="$ORIGIN"),
            _library(
                "libcudnn.so.9",
                needed=("libdl.so.2",),
                soname="libcudnn.so.9",
                runpath="$ORIGIN",
                dlopens=OPENED["libcudnn.so.9"],
            ),
            *(
                _library(name, needed=("libz.so.1",), dlopens=OPENED.get(name, ()))
                for name in (f"libcudnn_{part}.so.9" for part in CUDNN_PARTS)
            ),
            _library(
                "libnvrtc.so.12",
                needed=("libpthread.so.0",),
                runpath="$ORIGIN:",
                dlopens=OPENED["libnvrtc.so.12"],
            ),
            _library("libnvrtc-builtins.so.12.9"),
        )
    }


def test_a_whole_package_has_no_findings() -> None:
    assert _codes(*_package().values()) == []


@pytest.mark.parametrize(
    ("name", "wanted", "opener"),
    [
        ("libnvrtc-builtins.so.12.9", "libnvrtc-builtins.so.12.9", "libnvrtc.so.12"),
        ("libcudnn_ops.so.9", "libcudnn_ops.so.9", "libcudnn.so.9"),
        ("libcudnn_graph.so.9", "libcudnn_graph.so.9", "libcudnn.so.9"),
        ("libcudnn_heuristic.so.9", "libcudnn_heuristic.so.9", "libcudnn_graph.so.9"),
        ("libcudnn_engines_precompiled.so.9", "libcudnn_engines_precompiled.so.9", "libcudnn_graph.so.9"),
    ],
)
def test_what_is_opened_at_run_time_and_missing_is_told_of_the_library_that_opens_it(
    name: str, wanted: str, opener: str
) -> None:
    package = _package()
    del package[name]
    (finding,) = _found(*package.values())
    assert str(finding) == (
        f"error E003 lib/{opener}: opens {wanted} at run time, and the package does not hold it\n"
        f"    wanted: lib/{wanted}"
    )


def test_without_nvrtc_both_of_cudnn_s_libraries_that_open_it_tell() -> None:
    package = _package()
    del package["libnvrtc.so.12"]
    found = [(finding.code.name, finding.path, finding.wanted) for finding in _found(*package.values())]
    assert sorted(found) == [
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
    (finding,) = _found(provider)
    assert str(finding) == (
        f"error E013 lib/{PROVIDER}: was linked with {needed} of the machine it was built on\n"
        "    wanted: these inside the library, compiled from source, static and position-independent"
    )
    (finding,) = _found(replace(provider, elf=replace(provider.elf, runpath="$ORIGIN")), _library(needed, ""))
    assert finding.code.name == "E013", "in the package it is an application's second one"


@pytest.mark.parametrize("needed", ["libonnxruntime.so.2", "libre2c.so.1", "libabsl.so.1", "libre2.sox.1"])
def test_other_dependencies_are_only_missing(needed: str) -> None:
    assert _codes(_library(PROVIDER, "onnxruntime", needed=(needed,))) == ["E002"]


def test_what_nvidia_s_libraries_need_is_theirs() -> None:
    assert _codes(_library("libcublas.so.12", needed=("libprotobuf.so.32",))) == ["E002"]


def test_all_dependencies_that_belong_inside_are_one_finding() -> None:
    needed = ("libabsl_base.so.20240722", "libabsl_hash.so.20240722", "libprotobuf.so.32")
    (finding,) = _found(_library(PROVIDER, "onnxruntime", needed=needed))
    assert f"linked with {', '.join(needed)} of" in finding.message


@pytest.mark.parametrize(
    ("name", "why"),
    [(HOST, "every program that uses the package loads it"), (BRIDGE, "libonnxruntime.so.1 opens it")],
)
def test_what_no_needed_names_and_every_package_holds(name: str, why: str) -> None:
    package = _package()
    del package[name]
    (finding,) = check_closure(list(package.values()), LIMITS)
    assert str(finding) == (
        f"error E012 lib/{name}: is not in the package, and {why}\n    wanted: lib/{name}"
    )


def test_the_list_of_a_package_is_not_enough_for_a_cudnn_that_opens_more() -> None:
    """9.28's main library names ext, and its graph library names engines_tensor_ir."""
    package = _package()
    more = {"libcudnn.so.9": "ext", "libcudnn_graph.so.9": "engines_tensor_ir"}
    for name, part in more.items():
        package[name] = replace(package[name], dlopens=(*package[name].dlopens, f"libcudnn_{part}.so"))
    found = [(finding.code.name, finding.path, finding.wanted) for finding in _found(*package.values())]
    assert found == [("E003", f"lib/{name}", f"lib/libcudnn_{part}.so.9") for name, part in more.items()]


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


def test_a_needed_library_that_nothing_provides() -> None:
    (finding,) = _found(_library("libx.so.1", needed=("libc.so.6", "libnvinfer.so.10")))
    assert str(finding) == (
        "error E002 lib/libx.so.1: needs libnvinfer.so.10, which nothing will provide\n"
        "    wanted: libnvinfer.so.10 in the package's lib/, or a build without it"
    )


def test_a_library_under_another_name_than_its_soname() -> None:
    (finding,) = _found(_library("libcudart.so.12.9.79", soname="libcudart.so.12"))
    assert str(finding) == (
        "error E004 lib/libcudart.so.12.9.79: stands under a name the loader does not ask for\n"
        "    wanted: lib/libcudart.so.12\n"
        "    got:    lib/libcudart.so.12.9.79"
    )


@pytest.mark.parametrize(
    ("runpath", "rpath", "codes", "got"),
    [
        ("$ORIGIN", None, [], ""),
        (None, "$ORIGIN", [], ""),
        (None, None, ["E005"], "no RUNPATH"),
        ("$ORIGIN/../lib", None, ["E005"], "RUNPATH $ORIGIN/../lib"),
        ("/usr/lib64:$ORIGIN", None, ["E005", "E006"], "RUNPATH /usr/lib64:$ORIGIN"),
        ("$ORIGIN:/usr/lib64", None, ["E005", "E006"], "RUNPATH $ORIGIN:/usr/lib64"),
        ("$ORIGIN", "/opt", [], ""),
    ],
)
def test_where_ort_s_provider_looks(
    runpath: str | None, rpath: str | None, codes: list[str], got: str
) -> None:
    told = {
        "E005": "will not find the libraries that lie beside it",
        "E006": "looks for libraries in a folder of the machine it was built on",
    }
    provider = _library("libx.so", "onnxruntime", needed=("libcudart.so.12",), runpath=runpath, rpath=rpath)
    assert list(map(str, _found(provider, _library("libcudart.so.12")))) == [
        f"error {code} lib/libx.so: {told[code]}\n    wanted: RUNPATH $ORIGIN\n    got:    {got}"
        for code in codes
    ]


@pytest.mark.parametrize(
    ("runpath", "codes"), [(None, []), ("$ORIGIN", []), ("$ORIGIN/..", ["E005"]), ("/opt", ["E005", "E006"])]
)
def test_a_library_of_orts_that_needs_no_neighbour_may_look_beside_itself_alone(
    runpath: str | None, codes: list[str]
) -> None:
    assert _codes(_library("libx.so", "onnxruntime", needed=("libc.so.6",), runpath=runpath)) == codes


def test_ort_s_host_library_needs_no_runpath() -> None:
    assert _codes(_library("libonnxruntime.so.1", "onnxruntime", needed=("libc.so.6",))) == []


def test_an_absolute_folder_in_nvidia_s_file_is_a_warning() -> None:
    (finding,) = _found(_library("libcufft.so.11", runpath="/usr/local/cuda/lib64:$ORIGIN"))
    assert isinstance(finding, Finding)
    assert (finding.code.name, finding.severity) == ("E006", Severity.WARNING)


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
    most = {"GLIBC": "GLIBC_2.35", "GLIBCXX": "GLIBCXX_3.4.30"}
    assert list(map(str, findings)) == [
        f"error E007 lib/libcudart.so.12: does not load on a system with {most[family]}\n"
        f"    wanted: {most[family]} at most (variants.yaml: check.{family.lower()})\n"
        f"    got:    {need}"
        for need in got
        for family in [need.partition("_")[0]]
    ]


def test_the_highest_needs_of_a_package() -> None:
    libraries = (
        _library("a.so", versions=("GLIBC_2.9", "GLIBCXX_3.4.22")),
        _library("b.so", versions=("GLIBC_2.28", "GLIBCXX_3.4.9")),
    )
    assert needs(libraries) == HostNeeds(glibc="2.28", glibcxx="3.4.22")
    assert needs([_library("c.so")]) == HostNeeds(glibc=None, glibcxx=None)


def test_a_link_where_a_file_must_be() -> None:
    (finding,) = _found(replace(_library("libcudart.so.12"), link="libcudart.so.12.9.79"))
    assert str(finding) == (
        "error E010 lib/libcudart.so.12: is a link, and a package holds files only\n"
        "    wanted: the library itself as lib/libcudart.so.12\n"
        "    got:    a link to libcudart.so.12.9.79"
    )


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
    assert str(finding) == (
        f"{severity.value} E011 lib/libx.so: asks for an executable stack, which glibc refuses from 2.41 on\n"
        "    wanted: PT_GNU_STACK without the flag X (linker option -z noexecstack)"
    )


def test_a_provider_of_another_release_than_its_host() -> None:
    package = _package()
    package[PROVIDER] = replace(package[PROVIDER], embedded_version="1.21.0")
    (finding,) = _found(*package.values())
    assert str(finding) == (
        f"error E008 lib/{PROVIDER}: ONNX Runtime's libraries of 2 versions are mixed in this package\n"
        "    wanted: all of ONNX Runtime's libraries from one release\n"
        f"    got:    1.21.0: lib/{PROVIDER}; 1.23.2: lib/{HOST}, lib/{BRIDGE}"
    )


def test_what_was_compiled_together_is_of_one_version() -> None:
    """The bridge has no version mark; its provider has one, and both come from one source tree."""
    package = _package()
    for name in (PROVIDER, "libonnxruntime_providers_shared.so"):
        package[name] = replace(package[name], source="built")
    package[PROVIDER] = replace(package[PROVIDER], embedded_version="1.23.2")
    assert _codes(*package.values()) == []
    package[PROVIDER] = replace(package[PROVIDER], embedded_version="1.21.0")
    (finding,) = _found(*package.values())
    assert finding.got.startswith("1.21.0: lib/libonnxruntime_providers_shared.so, lib/")


def test_a_bridge_from_elsewhere_has_not_the_version_of_what_was_compiled() -> None:
    package = _package()
    for name in (HOST, PROVIDER):
        package[name] = replace(package[name], source="built", embedded_version="1.23.2")
    package[BRIDGE] = replace(package[BRIDGE], source="unknown")
    (finding,) = _found(*package.values())
    assert (finding.code.name, finding.severity, finding.got) == ("E008", Severity.WARNING, f"lib/{BRIDGE}")


def test_what_was_compiled_together_without_a_mark_is_of_one_version_too() -> None:
    names = ("libonnxruntime.so.1", "libonnxruntime_providers_shared.so")
    assert _codes(*(replace(_library(name, "onnxruntime"), source="built") for name in names)) == []


def test_a_cudnn_library_of_another_release() -> None:
    package = _package()
    package["libcudnn_ops.so.9"] = replace(package["libcudnn_ops.so.9"], embedded_version="9.28.0")
    (finding,) = _found(*package.values())
    others = sorted(
        {"libcudnn.so.9", *(f"libcudnn_{part}.so.9" for part in CUDNN_PARTS)} - {"libcudnn_ops.so.9"}
    )
    assert str(finding) == (
        "error E009 lib/libcudnn_ops.so.9: cuDNN's libraries of 2 versions are mixed in this package\n"
        "    wanted: all of cuDNN's libraries from one release\n"
        f"    got:    9.10.2: {', '.join(f'lib/{name}' for name in others)}; 9.28.0: lib/libcudnn_ops.so.9"
    )


def test_a_folder_without_a_manifest_says_what_cannot_be_told() -> None:
    """In the real files, the bridge has no mark, and three of cuDNN's eight libraries have one."""
    stamps = {"libonnxruntime.so.1": "1.23.2", PROVIDER: "1.23.2"}
    stamps |= {f"libcudnn_{part}.so.9": "9.10.2" for part in ("adv", "graph", "ops")}
    package = [
        replace(one, source="unknown", embedded_version=stamps.get(name)) for name, one in _package().items()
    ]
    ort, cudnn = _found(*package)
    assert (ort.code.name, cudnn.code.name) == ("E008", "E009")
    assert {ort.severity, cudnn.severity} == {Severity.WARNING}
    assert ort.got == "lib/libonnxruntime_providers_shared.so"
    assert cudnn.got.count("libcudnn") == 5


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


TENSORRT = "libonnxruntime_providers_tensorrt.so"

NEEDED_BY_TENSORRT = ("libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10")
"""NEEDED of the official 1.21.0, by ``readelf -d``; 1.23.2 needs no plugins."""


def test_tensorrt_is_the_user_s_to_bring_and_all_else_the_package_s() -> None:
    tensorrt = _library(
        TENSORRT,
        "onnxruntime",
        needed=("libcudart.so.12", *NEEDED_BY_TENSORRT, "libcudnn.so.9", "libc.so.6"),
        runpath="$ORIGIN",
    )
    (finding,) = _found(tensorrt, _library("libcudart.so.12"), _library("libcudnn.so.9"))
    assert str(finding) == (
        f"warning E017 lib/{TENSORRT}: needs {', '.join(NEEDED_BY_TENSORRT)}, and no package holds TensorRT\n"
        "    wanted: TensorRT where the package runs, or onnxruntime.tensorrt: false in variants.yaml"
    )
    assert _codes(tensorrt, _library("libcudart.so.12")) == ["E002", "E017"]
    brought = [_library(name) for name in NEEDED_BY_TENSORRT]
    assert _codes(tensorrt, _library("libcudart.so.12"), _library("libcudnn.so.9"), *brought) == []


def test_tensorrt_is_nobody_else_s_to_need() -> None:
    assert _codes(_library(PROVIDER, "onnxruntime", needed=NEEDED_BY_TENSORRT)) == ["E002"] * 3


def _linked(name: str, *needed: str, embedded_version: str | None = None) -> Library:
    """Return a library of the real package with its NEEDED and the names that ``strings`` shows."""
    own = name.startswith("libonnxruntime")
    made = _library(name, "onnxruntime" if own else "nvidia", needed=needed, dlopens=OPENED.get(name, ()))
    return replace(made, embedded_version=embedded_version)


BESIDES_PROVIDER = (
    _linked(HOST),
    _linked(BRIDGE),
    _linked("libcudart.so.12"),
    _linked("libcublas.so.12", "libcublasLt.so.12"),
    _linked("libcublasLt.so.12"),
    _linked("libcufft.so.11"),
    _linked("libcurand.so.10"),
    _linked("libnvrtc.so.12"),
    _linked("libnvrtc-builtins.so.12.9"),
    _linked("libcudnn.so.9"),
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


def test_cublaslt_opens_nvrtc_and_cudnn_cublaslt() -> None:
    """The names are in ``.rodata`` of cuBLAS 12.9 and cuDNN 9.10."""
    cublas = _linked(PROVIDER, "libcublas.so.12", embedded_version="1.21.0")
    kept = {"libcublas.so.12", "libcublasLt.so.12", "libnvrtc.so.12", "libnvrtc-builtins.so.12.9"}
    assert CUDA - _idle(cublas, *BESIDES_PROVIDER) == kept
    cudnn = _linked(PROVIDER, "libcudnn.so.9", embedded_version="1.21.0")
    assert _idle(cudnn, *BESIDES_PROVIDER) == {
        *("libcublas.so.12", "libcudart.so.12", "libcufft.so.11", "libcurand.so.10")
    }


def test_what_the_tensorrt_provider_needs_is_needed() -> None:
    """TensorRT's provider may need cuDNN when our own provider is linked without it."""
    provider = _linked(PROVIDER, "libcudart.so.12", embedded_version="1.21.0")
    tensorrt = _linked(TENSORRT, "libcublas.so.12", "libcudnn.so.9", *NEEDED_BY_TENSORRT)
    assert _idle(provider, tensorrt, *BESIDES_PROVIDER) == {"libcufft.so.11", "libcurand.so.10"}


def test_newer_providers_lead_to_what_their_bytes_do_not_name() -> None:
    provider = _linked(PROVIDER, "libcudart.so.12", "libcublas.so.12", embedded_version="1.28.0")
    assert _idle(provider, *BESIDES_PROVIDER) == {"libcurand.so.10"}


@pytest.mark.parametrize(
    "provider",
    [
        _linked(PROVIDER, "libcudart.so.12"),  # its version is not known
        _linked(
            PROVIDER, "libcudart.so.14", embedded_version="1.31.1"
        ),  # no table lists the libraries that it opens
        replace(
            _linked(PROVIDER, embedded_version="1.21.0"), elf=replace(read_elf(elf()), sections=())
        ),  # it has no sections
    ],
)
def test_nothing_is_left_out_on_a_provider_s_word_that_is_not_whole(provider: Library) -> None:
    assert _idle(provider, *BESIDES_PROVIDER) == set()


def test_nothing_is_left_out_without_a_provider_or_beyond_a_broken_library() -> None:
    assert _idle(*BESIDES_PROVIDER) == set()
    provider = _linked(PROVIDER, "libcudnn.so.9", embedded_version="1.21.0")
    broken = [
        replace(one, elf=replace(one.elf, sections=())) if one.name == "libcudnn.so.9" else one
        for one in BESIDES_PROVIDER
    ]
    assert _idle(provider, *broken) == set()


def test_what_nothing_needs_is_a_warning() -> None:
    (finding,) = report_unneeded(["lib/libcufft.so.11"])
    assert str(finding) == (
        "warning E016 lib/libcufft.so.11: no library of the package names it in NEEDED or opens it\n"
        "    wanted: a package without it"
    )


def test_libraries_of_several_versions() -> None:
    versions = {"lib/a": "9.10.2", "lib/b": "9.9.0", "lib/c": "9.10.2", "lib/d": None, "lib/e": None}
    assert list(check_one_version(Code.E008, "cuDNN", versions)) == [
        Finding(
            code=Code.E008,
            path="lib/b",
            message="cuDNN of 2 versions are mixed in this package",
            wanted="all of cuDNN from one release",
            got="9.9.0: lib/b; 9.10.2: lib/a, lib/c",
        ),
        Finding(
            code=Code.E008,
            path="lib/d",
            message="the version of 2 of cuDNN is unknown: it is not in their bytes, and no manifest "
            "names their wheel",
            wanted="a package with its manifest, to compare all of cuDNN",
            got="lib/d, lib/e",
            severity=Severity.WARNING,
        ),
    ]


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
