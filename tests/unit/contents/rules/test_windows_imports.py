"""Tests of whether a package's DLLs find all imports: direct, forwarded, delayed, and opened by name."""

import pytest

from builder.binary.library import Reading
from builder.binary.pe import read_pe
from builder.contents.rules.foreign_libraries import check_imports
from builder.finding import Finding
from tests.support.factories.pe import pe
from tests.support.messages import Told


def library(name: str, *needed: str, opens: tuple[str, ...] = (), **more: tuple[str, ...]) -> Reading:
    return Reading(f"lib/{name}", dll=read_pe(pe(soname=name, needed=needed, **more)), dlopens=opens)  # type: ignore[arg-type]


def found(*libraries: Reading) -> list[Finding]:
    return list(check_imports(libraries))


def test_a_package_that_is_closed_has_no_finding() -> None:
    """Imports are those of the wheels of 1.23.2 and CUDA 12.9, including upper and lower case."""
    libraries = (
        library("onnxruntime_providers_cuda.dll", "cudart64_12.dll", "CUDNN64_9.dll", "KERNEL32.dll"),
        library("cudart64_12.dll", "api-ms-win-core-file-l1-1-0.dll", "ADVAPI32.dll", "nvcuda.dll"),
        library("cudnn64_9.dll", "KERNEL32.dll", opens=("cudnn_ops64_9.dll",)),
        library("cudnn_ops64_9.dll", "dxgi.dll", "api-ms-win-crt-runtime-l1-1-0.dll"),
    )
    assert found(*libraries) == []


@pytest.mark.parametrize(
    ("asking", "code"),
    [
        (library("a.dll", "zlibwapi.dll"), "E002"),
        (library("a.dll", delayed=("b.dll",)), "E002"),
        (library("a.dll", forwards=("b.F",)), "E002"),
        (library("nvrtc64_120_0.dll", opens=("nvrtc-builtins64_129.dll",)), "E003"),
        (library("onnxruntime.dll", "MSVCP140.dll", "VCRUNTIME140_1.dll", "KERNEL32.dll"), "E017"),
    ],
    ids=["imports", "delayed", "forwards", "opens", "Microsoft's run time"],
)
def test_what_nothing_provides_is_told(asking: Reading, code: str, told: Told) -> None:
    (finding,) = found(asking)
    assert (finding.code.name, finding.path) == (code, asking.path)
    told(finding)
