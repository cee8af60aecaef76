"""Tests of cuda_abi.h: sizes, offsets and numbers must equal those in NVIDIA's headers of CUDA 12 and 13."""

from pathlib import Path

from builder.config.variants import UnpackedToolkit
from tests.answers import pairs
from tests.answers.card import COMPILER, needs_compiler
from tests.support import ROOT, ran

pytestmark = needs_compiler
FIELDS = (
    *("name", "totalGlobalMem", "sharedMemPerBlock", "regsPerBlock", "warpSize", "maxThreadsPerBlock"),
    *("maxThreadsDim", "maxGridSize", "major", "minor", "multiProcessorCount", "integrated"),
    *("maxThreadsPerMultiProcessor", "sharedMemPerMultiprocessor", "regsPerMultiprocessor"),
    "sharedMemPerBlockOptin",
)
"""Fields of the device properties that runtime.c sets."""
NUMBERS = {
    "OUT_OF_MEMORY": "cudaErrorMemoryAllocation",
    "INSUFFICIENT_DRIVER": "cudaErrorInsufficientDriver",
    "NO_DEVICE": "cudaErrorNoDevice",
    "NO_KERNEL_IMAGE": "cudaErrorNoKernelImageForDevice",
    "UNSUPPORTED_PTX": "cudaErrorUnsupportedPtxVersion",
    "NOT_SUPPORTED": "cudaErrorNotSupported",
    "MAX_THREADS_PER_BLOCK": "cudaDevAttrMaxThreadsPerBlock",
    "MAX_SHARED_MEMORY_PER_BLOCK": "cudaDevAttrMaxSharedMemoryPerBlock",
    "WARP_SIZE": "cudaDevAttrWarpSize",
    "MAX_REGISTERS_PER_BLOCK": "cudaDevAttrMaxRegistersPerBlock",
    "MULTIPROCESSOR_COUNT": "cudaDevAttrMultiProcessorCount",
    "INTEGRATED": "cudaDevAttrIntegrated",
    "MAX_THREADS_PER_MULTIPROCESSOR": "cudaDevAttrMaxThreadsPerMultiProcessor",
    "COMPUTE_CAPABILITY_MAJOR": "cudaDevAttrComputeCapabilityMajor",
    "COMPUTE_CAPABILITY_MINOR": "cudaDevAttrComputeCapabilityMinor",
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": "cudaDevAttrMaxSharedMemoryPerMultiprocessor",
    "MAX_REGISTERS_PER_MULTIPROCESSOR": "cudaDevAttrMaxRegistersPerMultiprocessor",
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": "cudaDevAttrMaxSharedMemoryPerBlockOptin",
    "HEURISTIC_RESULT_SIZE": "sizeof(cublasLtMatmulHeuristicResult_t)",
    "CUDNN_DOUBLE": "CUDNN_TYPE_DOUBLE",
    "CUDNN_VOID_PTR": "CUDNN_TYPE_VOID_PTR",
    "CUDNN_INT64": "CUDNN_TYPE_INT64",
    "CUDNN_BACKEND_DESCRIPTOR": "CUDNN_TYPE_BACKEND_DESCRIPTOR",
    "sizeof(DeviceProperties)": "sizeof(struct cudaDeviceProp)",
    "sizeof(FunctionAttributes)": "sizeof(struct cudaFuncAttributes)",
    "sizeof(Dim3)": "sizeof(dim3)",
    **{
        f"offsetof(FunctionAttributes, {name})": f"offsetof(struct cudaFuncAttributes, {name})"
        for name in ("maxThreadsPerBlock", "ptxVersion", "binaryVersion")
    },
}


def includes() -> list[str]:
    project = pairs.shop().project
    toolkit = project.bases["assembled"].toolkit
    assert isinstance(toolkit, UnpackedToolkit)
    toolchain = toolkit.wheels
    wheels = [project.cuda.libraries["cudart"], project.cuda.libraries["cublas"], project.cudnn.wheel]
    trees = [pairs.store().unpack(wheel) for wheel in (*wheels, toolchain["nvcc"], toolchain["cccl"])]
    return [f"-isystem{folder}" for tree in trees for folder in tree.glob("nvidia/*/include")]


def includes_13() -> list[str]:
    """Return include flags with CUDA 13's runtime first; the compiler's headers are those of CUDA 12."""
    wheel = pairs.shop().project.toolkits["13"].cuda.libraries["cudart"]
    return [f"-isystem{pairs.store().unpack(wheel) / 'nvidia/cu13/include'}", *includes()]


def compiled(folder: Path, ours: str, theirs: str, *, cuda13: bool = False) -> bool:
    program = folder / "same.c"
    libraries = "" if cuda13 else "#include <cublasLt.h>\n#include <cudnn.h>\n"
    program.write_text(
        f"{libraries}#include <cuda_runtime_api.h>\n#include <stddef.h>\n"
        f'#include "cuda_abi.h"\n_Static_assert((size_t)({ours}) == (size_t)({theirs}), "");\n'
    )
    headers = includes_13() if cuda13 else includes()
    here = f"-I{ROOT / 'builder/prove/virtualcard'}"
    argv = [COMPILER, "-std=c11", "-fsyntax-only", "-w", here, *headers, str(program)]
    done = ran(argv)
    assert done.returncode == 0 or "static assertion failed" in done.stderr, done.stderr
    return done.returncode == 0


def test_every_number_and_offset_is_nvidia_s(tmp_path: Path) -> None:
    offsets = {
        f"offsetof(DeviceProperties, {name})": f"offsetof(struct cudaDeviceProp, {name})" for name in FIELDS
    }
    both = {**NUMBERS, **offsets}
    assert [ours for ours, theirs in both.items() if not compiled(tmp_path, ours, theirs)] == []
    assert not compiled(tmp_path, "NO_DEVICE", "cudaErrorNoKernelImageForDevice"), "a difference is seen"


def test_so_is_what_cuda_13_lays_out_otherwise(tmp_path: Path) -> None:
    both = {
        "sizeof(DeviceProperties13)": "sizeof(struct cudaDeviceProp)",
        "sizeof(PointerAttributes)": "sizeof(struct cudaPointerAttributes)",
        "offsetof(PointerAttributes, devicePointer)": "offsetof(struct cudaPointerAttributes, devicePointer)",
        "2": "cudaMemoryTypeDevice",
        "3": "cudaMemPoolReuseAllowInternalDependencies",
        "CUDART_VERSION": "13000",
        **{name: number for name, number in NUMBERS.items() if number.startswith(("cudaError", "cudaDev"))},
        **{
            f"offsetof(DeviceProperties13, {name})": f"offsetof(struct cudaDeviceProp, {name})"
            for name in FIELDS
        },
    }
    assert [one for one, theirs in both.items() if not compiled(tmp_path, one, theirs, cuda13=True)] == []
    assert not compiled(tmp_path, "sizeof(DeviceProperties)", "sizeof(struct cudaDeviceProp)", cuda13=True)
