"""How many sources of a full build of ONNX Runtime 1.21.0 have which SASS, by variant."""

FULL_LEGACY = {"50 52 60 61 70": 146, "50 52 60 61": 1, "70": 5, "50": 2}
"""Numbers of sources with this SASS in a full build of 1.21.0 for legacy, 154 in all.

In part: fmha_sm50.cu; fmha_sm70.cu and the four moe_gemm_kernels_*.cu; fmha_sm75.cu and fmha_sm80.cu, which
no device of the set launches.
"""

FULL_MODERN = {"75 80 86": 116, "80": 32, "80 86": 3, "75": 3}
"""The same numbers for modern.

In part: 32 flash_fwd_*.cu, whose SASS for sm_80 serves 8.6; fmha_sm80.cu and two lean_fwd_*.cu; three of
fmha_sm*.cu.
"""

FULL_LATEST = {"89 90 100 120": 113, "89 90": 34, "89": 7}
"""The same numbers for latest.

In part: 32 flash_fwd_*.cu and two lean_fwd_*.cu; three of fmha_sm*.cu and moe_gemm_kernels_*.cu.
"""

FULL = {"50 52 60 61 70": FULL_LEGACY, "75 80 86": FULL_MODERN, "89 90 100 120": FULL_LATEST}
"""The numbers of each variant by its architectures."""
