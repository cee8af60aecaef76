"""Tests of whether libraries find their dependencies; names and NEEDED are those that readelf shows.

Source of ldd's messages: glibc's rtld.c, ldd.bash.in.
"""

from dataclasses import replace
from typing import Any

import pytest

from builder.binary.elf import read_elf
from builder.binary.library import HostNeeds, Library, Reading
from builder.binary.pe import read_pe
from builder.contents.rules import dependencies
from builder.contents.rules.foreign_libraries import check_imports
from builder.finding import Code, Finding
from tests.support.factories.binaries import RWX, elf
from tests.support.factories.packages import LIMITS
from tests.support.factories.pe import pe
from tests.support.factories.selftests import LISTING
from tests.support.messages import Told
from tests.support.tables import table

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
    versions: tuple[str, ...] = (),
    dlopens: tuple[str, ...] = (),
    **fields: Any,  # noqa: ANN401 - see ``elf``
) -> Library:
    data = elf(versions={"libc.so.6": versions} if versions else None, **{"stack": 6, **fields})
    source = "wheel:nvidia-x-cu12==9.10.2.21" if vendor == "nvidia" else "wheel:onnxruntime-gpu==1.23.2"
    return Library(path=f"lib/{name}", vendor=vendor, elf=read_elf(data), source=source, dlopens=dlopens)


def _found(*libraries: Library) -> list[Finding]:
    """Return the findings for a package of these libraries, its host library and its bridge."""
    held = {library.name for library in libraries}
    everywhere = (_library(name, "onnxruntime") for name in (HOST, BRIDGE) if name not in held)
    return dependencies.check_closure([*libraries, *everywhere], LIMITS)


def _codes(*libraries: Library) -> list[str]:
    return [finding.code.name for finding in _found(*libraries)]


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


def _compiled(*names: str, version: str) -> list[Library]:
    """Return the package with the named libraries compiled; the provider's bytes have the version."""
    built = [replace(one, source="built") if one.name in names else one for one in PACKAGE]
    return [replace(one, embedded_version=version) if one.name == PROVIDER else one for one in built]


def _without(name: str) -> list[Library]:
    return [one for one in PACKAGE if one.name != name]


STAMPS = {
    HOST: "1.23.2",
    PROVIDER: "1.23.2",
    **dict.fromkeys(("libcudnn_ops.so.9", "libcudnn_adv.so.9"), "9.10.2"),
}
"""In the real files, the bridge has no mark, and few of cuDNN's libraries have one."""

CUDART = _library("libcudart.so.12")


def _ort(*needed: str, runpath: str | None = None) -> Library:
    """Return a library of ONNX Runtime's; one that needs no neighbour may look beside itself alone."""
    return _library("libx.so", "onnxruntime", needed=needed, runpath=runpath)


def _marked(version: str | None, cuda: str) -> Library:
    """Return a provider; onnxruntime's pull requests 29252, 29808 and 29705, all in 1.28, changed it."""
    made = _library(PROVIDER, "onnxruntime", needed=(f"libcudart.so.{cuda}",), runpath="$ORIGIN")
    return replace(made, embedded_version=version)


def _newer(*versions: str) -> Library:
    return _library("libcudart.so.12", versions=versions)


X_OF_ORT = _ort("libcudart.so.12")

NEEDED_BY_TENSORRT = ("libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10")
"""NEEDED of the official 1.21.0, by ``readelf -d``; 1.23.2 needs no plugins."""

TENSORRT = _library(
    "libonnxruntime_providers_tensorrt.so",
    "onnxruntime",
    needed=("libcudart.so.12", *NEEDED_BY_TENSORRT, "libcudnn.so.9", "libc.so.6"),
    runpath="$ORIGIN",
)

GRAPH = _library("libcudnn_graph.so.9", dlopens=("libnvrtc.so.%d",))

NVRTC = _library("libnvrtc.so.12", dlopens=OPENED["libnvrtc.so.12"])

EXT = _library("libcudnn_ext.so.9", dlopens=("libnvrtc.so.", "libnvrtc-builtins.so."))
"""cuDNN 9.28's ext has halves of names; its graph library has ``%d`` instead."""

BUILTINS = _library("libnvrtc-builtins.so.12.9")

FAULTS = {
    "NVRTC's built-ins are missing": _without("libnvrtc-builtins.so.12.9"),
    "NVRTC is missing": _without("libnvrtc.so.12"),
    "a newer cuDNN opens more": _but("libcudnn_graph.so.9", dlopens=("libcudnn_engines_tensor_ir.so",)),
    "built-ins of another release": [NVRTC, _library("libnvrtc-builtins.so.12.8")],
    "NVRTC of another CUDA": [GRAPH, NVRTC, BUILTINS, _library("libcudart.so.13")],
    "half a name, another CUDA": [EXT, NVRTC, BUILTINS, _library("libcudart.so.13")],
    "half a name, no built-ins": [EXT, _library("libnvrtc.so.12"), CUDART],
    "half a name, nothing": [EXT],
    "a provider of 1.28 opens what its bytes do not name": [_marked("1.28.0", "12"), CUDART],
    "one of 1.31, for CUDA 13": [_marked("1.31.1", "13"), _library("libcudart.so.13")],
    "NEEDED of 1.27 still has them": [_marked("1.27.1", "12"), CUDART],
    "the numbers of CUDA 14's libraries are not known": [
        _marked("1.31.1", "14"),
        _library("libcudart.so.14"),
    ],
    "of an unknown version": [_marked(None, "12"), CUDART],
    "nothing provides it": [_library("libx.so.1", needed=("libc.so.6", "libnvinfer.so.10"))],
    "NVIDIA's file needs protobuf": [_library("libcublas.so.12", needed=("libprotobuf.so.32",))],
    "zlib of the host": [_ort("libz.so.1")],
    "another name than its SONAME": [_library("libcudart.so.12.9.79", soname="libcudart.so.12")],
    "no RUNPATH": [X_OF_ORT, CUDART],
    "a folder of its machine": [_ort("libcudart.so.12", runpath="/usr/lib64:$ORIGIN"), CUDART],
    "a folder of NVIDIA's machine": [_library("libcufft.so.11", runpath="/usr/local/cuda/lib64:$ORIGIN")],
    "needs others": [_ort("libonnxruntime.so.2", "libre2c.so.1", "libabsl.so.1", "libre2.sox.1")],
    "a folder above": [_ort("libcudart.so.12", runpath="$ORIGIN/../lib"), CUDART],
    "a folder of its machine too": [_ort("libcudart.so.12", runpath="$ORIGIN:/usr/lib64"), CUDART],
    "a folder above, and needs no neighbour": [_ort("libc.so.6", runpath="$ORIGIN/..")],
    "a folder of its machine, and needs no neighbour": [_ort("libc.so.6", runpath="/opt")],
    "for newer systems": [_newer("GLIBC_2.38", "GLIBCXX_3.4.32")],
    "for a little newer ones": [_newer("GLIBC_2.36", "GLIBC_2.4", "GLIBCXX_3.4.31")],
    "for much newer ones": [_newer("GLIBC_3.0")],
    "a link": [replace(CUDART, link="libcudart.so.12.9.79")],
    "an executable stack": [_library("libx.so", "onnxruntime", stack=RWX)],
    "no word of its stack": [_library("libx.so", "onnxruntime", stack=None)],
    "NVIDIA's executable stack": [_library("libx.so", stack=RWX)],
    "what belongs inside": [
        _library(PROVIDER, "onnxruntime", needed=("libabsl_base.so.20240722", "libprotobuf.so.32"))
    ],
    "another release of the provider": _but(PROVIDER, embedded_version="1.21.0"),
    "another release of a part of cuDNN": _but("libcudnn_ops.so.9", embedded_version="9.28.0"),
    "a compiled provider of another release": _compiled(PROVIDER, BRIDGE, version="1.21.0"),
    "a bridge from elsewhere": [
        replace(one, source="unknown") if one.name == BRIDGE else one
        for one in _compiled(HOST, PROVIDER, version="1.23.2")
    ],
    "TensorRT": [TENSORRT, CUDART, _library("libcudnn.so.9")],
    "TensorRT and no cuDNN": [TENSORRT, CUDART],
    "another provider needs TensorRT": [_library(PROVIDER, "onnxruntime", needed=NEEDED_BY_TENSORRT)],
    "a folder without a manifest": [
        replace(one, source="unknown", embedded_version=STAMPS.get(one.name)) for one in PACKAGE
    ],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told(fault: str, told: Told) -> None:
    told("\n".join(map(str, _found(*FAULTS[fault]))))


FINE = {
    "a whole package": PACKAGE,
    "NVRTC and its own built-ins": [NVRTC, BUILTINS],
    "NVRTC of this CUDA": [GRAPH, NVRTC, BUILTINS, CUDART],
    "half a name": [EXT, NVRTC, BUILTINS, CUDART],
    "half a name and no CUDA": [EXT, NVRTC, BUILTINS],
    "for systems of today": [_newer("GLIBC_2.35", "GLIBCXX_3.4.30", "GLIBC_2.4", "GLIBCXX_3.4.9")],
    "for any system": [_newer("GLIBC_PRIVATE", "CXXABI_1.3.15")],
    "needs no neighbour": [_ort("libc.so.6")],
    "looks beside itself": [_ort("libc.so.6", runpath="$ORIGIN")],
    "NVIDIA's file needs zlib": [_library("libx.so", needed=("libz.so.1",))],
    "RPATH": [replace(X_OF_ORT, elf=replace(X_OF_ORT.elf, rpath="$ORIGIN")), CUDART],
    "RUNPATH goes before RPATH": [
        replace(X_OF_ORT, elf=replace(X_OF_ORT.elf, runpath="$ORIGIN", rpath="/opt")),
        CUDART,
    ],
    "compiled together, the bridge without a mark": _compiled(PROVIDER, BRIDGE, version="1.23.2"),
    "compiled together, nothing has a mark": [
        replace(_library(name, "onnxruntime"), source="built") for name in (HOST, BRIDGE)
    ],
    "the user's TensorRT": [TENSORRT, CUDART, *map(_library, ("libcudnn.so.9", *NEEDED_BY_TENSORRT))],
}


@pytest.mark.parametrize("libraries", FINE.values(), ids=FINE)
def test_what_has_no_fault(libraries: list[Library]) -> None:
    assert _found(*libraries) == []


@pytest.mark.parametrize("needed", [name for (name,) in table("libraries/inside.txt")])
def test_a_dependency_that_belongs_inside_onnx_runtime(needed: str) -> None:
    """The names are those of Debian 13, whose own libonnxruntime.so.1.21 needs some of them."""
    provider = _library(PROVIDER, "onnxruntime", needed=("libc.so.6", needed), runpath="$ORIGIN")
    assert _codes(provider) == ["E013"]
    assert _codes(provider, _library(needed, "")) == ["E013"], "it is an application's second one"


@pytest.mark.parametrize("name", [HOST, BRIDGE])
def test_what_no_needed_names_and_every_package_holds(name: str, told: Told) -> None:
    (finding,) = dependencies.check_closure(_without(name), LIMITS)
    told(finding)


def test_the_highest_needs_of_a_package() -> None:
    one, other = (_newer("GLIBC_2.9", "GLIBCXX_3.4.22"), _newer("GLIBC_2.28", "GLIBCXX_3.4.9"))
    assert dependencies.needs([one, other]) == HostNeeds(glibc="2.28", glibcxx="3.4.22")
    assert dependencies.needs([CUDART]) == HostNeeds(glibc=None, glibcxx=None)


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

FULL = ("libcublasLt.so.12", "libcublas.so.12", "libcurand.so.10", "libcufft.so.11", "libcudart.so.12")

LEAN = ("libcublasLt.so.12", "libcublas.so.12", "libcudart.so.12", "libcudnn.so.9")


def _unread(library: Library) -> Library:
    return replace(library, elf=replace(library.elf, sections=()))


ONE, LAST = "1.21.0", "1.28.0"

MARKED = _linked(PROVIDER, "libcudnn.so.9", embedded_version=ONE)

OF_TENSORRT = _linked(TENSORRT.name, "libcublas.so.12", "libcudnn.so.9", *NEEDED_BY_TENSORRT)


def _provider(*needed: str, version: str | None = ONE) -> Library:
    return _linked(PROVIDER, *needed, "libc.so.6", embedded_version=version)


ROADS = {
    "official 1.23.2": [_provider(*FULL, "libcudnn.so.9")],
    "lean 1.21.0": [_provider(*LEAN)],
    "minimal 1.21.0": [_provider("libcudart.so.12")],
    "cuBLASLt opens NVRTC": [_provider("libcublas.so.12")],
    "cuDNN opens cuBLASLt": [MARKED],
    "TensorRT's provider needs cuDNN": [_provider("libcudart.so.12"), OF_TENSORRT],
    "newer ones open what they do not name": [_provider("libcudart.so.12", "libcublas.so.12", version=LAST)],
    "no provider": [],
    "no version": [_provider("libcudart.so.12", version=None)],
    "no table of what it opens": [_provider("libcudart.so.14", version=LAST)],
    "an unread provider": [_unread(MARKED)],
    "unread cuDNN": [MARKED, _unread(_linked("libcudnn.so.9"))],
}


@pytest.mark.parametrize("road", ROADS)
def test_what_no_road_from_ort_leads_to(road: str, told: Told) -> None:
    """NEEDED is that of the official provider and of those compiled here, by ``readelf -d``.

    Nothing is left out on a word that is not whole.
    """
    every = {library.name: library for library in (*BESIDES_PROVIDER, *ROADS[road])}
    told("\n".join(dependencies.unneeded([*every.values()])))


def test_what_nothing_needs_is_a_warning(told: Told) -> None:
    (finding,) = dependencies.report_unneeded(["lib/libcufft.so.11"])
    told(finding)


@pytest.mark.parametrize(
    ("versions", "paths"),
    [
        ({"lib/a": None}, []),
        ({"lib/a": "1.0.0", "lib/b": "1.0.0"}, []),
        ({"lib/a": "1.1.0", "lib/b": "1.0.0"}, ["lib/b"]),
        ({"lib/a": "9.10.2", "lib/b": "9.9.0", "lib/c": "9.10.2", "lib/d": None}, ["lib/b", "lib/d"]),
    ],
)
def test_libraries_of_several_versions(versions: dict[str, str | None], paths: list[str]) -> None:
    assert [finding.path for finding in dependencies.check_one_version(Code.E008, "cuDNN", versions)] == paths


@pytest.mark.parametrize(("library", "said"), table("rules/ldd.txt"))
def test_what_the_loader_may_not_find_and_what_ldd_owes(library: str, said: str, told: Told) -> None:
    """Only the driver and TensorRT may be missing; all else that ldd says of a library is a finding."""
    said = said.replace("\\t", "\t").replace("\\n", "\n").replace("LONG", "x" * 301)
    told("\n".join(map(str, dependencies.check_ldd(f"{LISTING}ldd /opt/p/lib/{library}\n{said}\n", "p"))))


def test_what_the_loader_finds_passes_and_no_answer_is_no_pass() -> None:
    assert dependencies.check_ldd(LISTING, "p") == ()
    silent = Finding(Code.B018, "lib/libx.so", "ldd said nothing of it")
    assert dependencies.check_ldd(f"{LISTING}ldd /opt/p/lib/libx.so\n", "p") == (silent,)
    for got in ("", "\tstatically linked\n" + "x" * 200):
        assert dependencies.check_ldd(got, "p") == (
            Finding(Code.B018, "p", "ldd was asked about no library", got=got[:200]),
        )


@pytest.mark.parametrize(
    ("library", "said", "waits"),
    [
        (PROVIDER, "not found", True),
        (PROVIDER, "/usr/lib/libcuda.so.1 (0x00007f)", False),
        ("libcudnn_ops.so.9", "not found", False),
    ],
)
def test_only_the_provider_waits_for_the_driver(library: str, said: str, waits: bool) -> None:
    assert dependencies.waits_for_driver(f"ldd /opt/p/lib/{library}\n\tlibcuda.so.1 => {said}\n") is waits


def _dll(name: str, *needed: str, opens: tuple[str, ...] = (), **more: tuple[str, ...]) -> Reading:
    return Reading(f"lib/{name}", dll=read_pe(pe(soname=name, needed=needed, **more)), dlopens=opens)  # type: ignore[arg-type]


def _imports(*libraries: Reading) -> list[Finding]:
    return list(check_imports(libraries))


def test_a_package_that_is_closed_has_no_finding() -> None:
    """Imports are those of the wheels of 1.23.2 and CUDA 12.9, including upper and lower case."""
    libraries = (
        _dll("onnxruntime_providers_cuda.dll", "cudart64_12.dll", "CUDNN64_9.dll", "KERNEL32.dll"),
        _dll("cudart64_12.dll", "api-ms-win-core-file-l1-1-0.dll", "ADVAPI32.dll", "nvcuda.dll"),
        _dll("cudnn64_9.dll", "KERNEL32.dll", opens=("cudnn_ops64_9.dll",)),
        _dll("cudnn_ops64_9.dll", "dxgi.dll", "api-ms-win-crt-runtime-l1-1-0.dll"),
    )
    assert _imports(*libraries) == []


@pytest.mark.parametrize(
    ("asking", "code"),
    [
        (_dll("a.dll", "zlibwapi.dll"), "E002"),
        (_dll("a.dll", delayed=("b.dll",)), "E002"),
        (_dll("a.dll", forwards=("b.F",)), "E002"),
        (_dll("nvrtc64_120_0.dll", opens=("nvrtc-builtins64_129.dll",)), "E003"),
        (_dll("onnxruntime.dll", "MSVCP140.dll", "VCRUNTIME140_1.dll", "KERNEL32.dll"), "E017"),
    ],
    ids=["imports", "delayed", "forwards", "opens", "Microsoft's run time"],
)
def test_what_nothing_provides_is_told(asking: Reading, code: str, told: Told) -> None:
    (finding,) = _imports(asking)
    assert (finding.code.name, finding.path) == (code, asking.path)
    told(finding)
