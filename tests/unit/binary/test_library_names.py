"""Tests of the vendor and the expectation of device code that follow from a library's file name."""

from __future__ import annotations

import pytest

from builder.binary.coverage import is_specialised
from builder.binary.library_names import must_hold_code
from builder.package.contents import vendor_of


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
