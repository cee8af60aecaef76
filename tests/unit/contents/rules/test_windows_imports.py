"""Tests of whether a package's DLLs find all imports: direct, forwarded, delayed, and opened by name."""

from __future__ import annotations

import pytest

from builder.binary.library import Reading
from builder.binary.pe import read_pe
from builder.contents.rules.foreign_libraries import check_imports
from builder.finding import Code, Finding, Severity
from tests.support.factories.pe import pe


def library(name: str, *needed: str, opens: tuple[str, ...] = (), **more: tuple[str, ...]) -> Reading:
    return Reading(f"lib/{name}", dll=read_pe(pe(soname=name, needed=needed, **more)), dlopens=opens)  # type: ignore[arg-type]


def found(*libraries: Reading) -> list[Finding]:
    return list(check_imports(libraries))


def test_a_package_that_is_closed_has_no_finding() -> None:
    """Imports are those of the wheels of 1.23.2 and CUDA 12.9, including upper and lower case."""
    assert (
        found(
            library("onnxruntime_providers_cuda.dll", "cudart64_12.dll", "CUDNN64_9.dll", "KERNEL32.dll"),
            library("cudart64_12.dll", "api-ms-win-core-file-l1-1-0.dll", "ADVAPI32.dll", "nvcuda.dll"),
            library("cudnn64_9.dll", "KERNEL32.dll", opens=("cudnn_ops64_9.dll",)),
            library("cudnn_ops64_9.dll", "dxgi.dll", "api-ms-win-crt-runtime-l1-1-0.dll"),
        )
        == []
    )


@pytest.mark.parametrize(
    ("asking", "message"),
    [
        (
            library("a.dll", "zlibwapi.dll"),
            "imports zlibwapi.dll, which nothing will provide: Windows' error 126",
        ),
        (
            library("a.dll", delayed=("b.dll",)),
            "imports b.dll, which nothing will provide: Windows' error 126",
        ),
        (
            library("a.dll", forwards=("b.F",)),
            "forwards to b.dll, which nothing will provide: Windows' error 126",
        ),
    ],
)
def test_what_nothing_provides_is_an_error(asking: Reading, message: str) -> None:
    (finding,) = found(asking)
    assert (finding.code.name, finding.path, finding.message) == ("E002", "lib/a.dll", message)
    assert finding.severity is Severity.ERROR
    dll = message.split()[2 if "forwards" in message else 1].rstrip(",")
    assert finding.wanted == f"lib/{dll} in the package, or a DLL that every Windows has"


def test_what_is_opened_by_name_has_to_be_there() -> None:
    (finding,) = found(library("nvrtc64_120_0.dll", opens=("nvrtc-builtins64_129.dll",)))
    assert finding == Finding(
        code=Code.E003,
        path="lib/nvrtc64_120_0.dll",
        message="opens nvrtc-builtins64_129.dll at run time, and the package does not hold it",
        wanted="lib/nvrtc-builtins64_129.dll",
    )


def test_microsofts_run_time_is_the_users_to_bring() -> None:
    (finding,) = found(library("onnxruntime.dll", "MSVCP140.dll", "VCRUNTIME140_1.dll", "KERNEL32.dll"))
    assert finding == Finding(
        code=Code.E017,
        path="lib/onnxruntime.dll",
        message="imports MSVCP140.dll, VCRUNTIME140_1.dll, which Windows lacks as it is installed",
        wanted="Microsoft's Visual C++ Redistributable (x64) where the package runs",
        severity=Severity.WARNING,
    )
