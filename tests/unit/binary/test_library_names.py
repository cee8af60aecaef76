"""Tests of the vendor and the expectation of device code that follow from a library's file name."""

from __future__ import annotations

import pytest

from builder.binary.coverage import is_specialised
from builder.binary.library_names import cuda_major, must_hold_code
from builder.contents.required_files import vendor_of


@pytest.mark.parametrize(
    ("name", "vendor", "specialised", "code"),
    [
        ("libcublas.so.12", "nvidia", True, True),
        ("libcublas.so.12.so", "nvidia", True, True),
        ("libcublasLt.so.12", "nvidia", True, True),
        ("libcufft.so.11", "nvidia", True, True),
        ("libcufftw.so.11", "nvidia", True, False),
        ("libcurand.so.10", "nvidia", True, True),
        ("libcusparseLt-f80c68d1.so.0", "nvidia", True, False),  # from torch 2.4.1, renamed by auditwheel
        ("libcufft-fe894542.so.10.7.2.91", "nvidia", True, True),
        ("cufft64_11-263139962577ecda4cd9469ca360a746.dll", "nvidia", True, True),  # renamed by delvewheel
        ("libcudnn_ops_static_v9.a", "nvidia", True, True),  # from NVIDIA's archive of cuDNN 9
        ("libcudnn_cnn_infer_static_v8.a", "nvidia", True, False),
        ("libcudnn.so.9", "nvidia", True, False),
        ("libcudnn_adv.so.9", "nvidia", True, True),
        ("libcudnn_cnn.so.9", "nvidia", True, True),
        ("libcudnn_ops.so.9", "nvidia", True, True),
        ("libcudnn_engines_precompiled.so.9", "nvidia", True, True),
        ("libcudnn_engines_runtime_compiled.so.9", "nvidia", True, True),
        ("libcudnn_engines_tensor_ir.so.9", "nvidia", True, False),
        ("libcudnn_graph.so.9", "nvidia", True, False),
        ("libcudnn_heuristic.so.9", "nvidia", True, False),
        ("libcudart.so.12", "nvidia", False, False),
        ("libnvrtc-builtins.so.12.9", "nvidia", False, False),
        ("libnvJitLink.so.12", "nvidia", False, False),
        ("libnppig.so.12", "nvidia", True, False),
        ("libnccl.so.2", "nvidia", True, False),
        ("libonnxruntime.so.1", "onnxruntime", False, False),
        ("libonnxruntime_cublas_plugin.so", "onnxruntime", False, False),
        ("libtorch_cuda.so", "", False, False),
        ("libmyops.so", "", False, False),
        ("libcurl.so.4", "", False, False),
    ],
)
def test_what_a_name_tells(name: str, vendor: str, specialised: bool, code: bool) -> None:
    assert vendor_of(name) == vendor
    assert is_specialised(f"lib/{name}") is specialised
    assert must_hold_code(name) is code


@pytest.mark.parametrize(
    ("name", "major"),
    [
        ("libcudart.so.12", "12"),
        ("libcudart.so.11.0", "11"),
        ("libcublas.so.13", "13"),
        ("libcublasLt.so.13", "13"),
        ("libcufft.so.12", None),  # CUDA 13's
        ("libcurand.so.10", None),
        ("libcuda.so.1", None),
        ("libcudnn.so.9", None),
        ("cublas64_12.dll", "12"),
        ("CUBLASLT64_13.dll", "13"),
        ("cudart64_110.dll", "11"),
        ("cufft64_11.dll", None),
        ("nvrtc64_120_0.dll", None),
    ],
)
def test_the_version_of_cuda_in_a_name(name: str, major: str | None) -> None:
    """Names: the wheels of CUDA 11.8, 12.9 and 13.0, and NEEDED of 1.23.2 and 1.31.1."""
    assert cuda_major(name) == major
