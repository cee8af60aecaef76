"""Tests of the kernels that a smaller profile lacks, and of ONNX Runtime's messages when a model
needs one."""

from pathlib import Path

import pytest

from builder.formats.missing_kernels import (
    MissingKernels,
    cannot_run,
    consequence_of,
    counted,
    missing_kernel_cause,
    operator_without_kernel,
)
from tests.support.messages import Told

LEAN = cannot_run("lean", "1.21.0")

WHOLE = (MissingKernels("com.microsoft", ()),)

NOT_FOUND = (
    "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Failed to find kernel for {} "
    "(node:'n1' ep:'CUDAExecutionProvider'). Kernel not found"
)
"""Message in 1.21.0's kernel_registry_manager.cc, line 64; the reported issue has BiasGelu in it."""

UNREGISTERED = (
    "[ONNXRuntimeError] : 1 : FAIL : Fatal error: com.microsoft:{}(-1) is not a registered function/op"
)
"""Message of ``onnxruntime`` 1.31.1 for an operator that it does not know."""


def test_lean_lacks_what_onnx_runtimes_own_table_of_cuda_kernels_has(root: Path, told: Told) -> None:
    """ONNX's own domain: the nine names are read by hand from cuda_contrib_kernels.cc, ``CUDA_ONNX_OP``.

    ONNX itself has two of them from a later opset on: ThresholdedRelu from 10 and LayerNormalization from 17
    (its Operators.md).
    """
    table = root / "tests/data/operators/cuda-1.21.0-com.microsoft.txt"
    found = {missing.domain: missing.operators for missing in LEAN}
    assert found["com.microsoft"] == tuple(table.read_text().split())
    assert len(found["com.microsoft"]) == 65
    told(" ".join(found[""]))
    told(" ".join(found["com.ms.internal.nhwc"]))


def test_of_a_version_that_was_not_read_the_whole_domain() -> None:
    """Python refuses to make a number of more than 4,300 digits."""
    for version in ("1.20.0", "1.21.1", "1.23.2", "1.40.0", "9" * 5000):
        missing = cannot_run("lean", version)
        assert MissingKernels("com.microsoft", ()) in missing
        assert counted(missing) == "9 of ai.onnx, all of com.microsoft"


def test_a_full_package_and_a_repacked_wheel_lack_nothing() -> None:
    assert cannot_run("full", "1.21.0") == cannot_run(None, "1.21.0") == ()
    assert consequence_of((), "wheel") is None


def test_minimal_lacks_all(told: Told) -> None:
    missing = cannot_run("minimal", "1.21.0")
    domains = ("", "com.microsoft", "com.ms.internal.nhwc")
    assert {one.domain: one.operators for one in missing} == dict.fromkeys(domains, ())
    told(consequence_of(missing, "source"))


@pytest.mark.parametrize("host", ["wheel", None, "source"])
def test_only_the_official_host_makes_what_lean_cannot_run(host: str | None, told: Told) -> None:
    told(consequence_of(LEAN, host))


@pytest.mark.parametrize(
    ("message", "missing", "operator"),
    [
        (NOT_FOUND.format("com.microsoft.BiasGelu(1)"), LEAN, "com.microsoft.BiasGelu"),
        (NOT_FOUND.format("com.microsoft.BiasGelu(1)"), WHOLE, "com.microsoft.BiasGelu"),
        (NOT_FOUND.format("SimplifiedLayerNormalization(1)"), LEAN, "SimplifiedLayerNormalization"),
        (NOT_FOUND.format("LayerNormalization(17)"), LEAN, None),
        (NOT_FOUND.format("Add(14)"), cannot_run("minimal", "1.21.0"), "Add"),
        (NOT_FOUND.format("com.microsoft.BiasGelu(1)"), (), None),
        (UNREGISTERED.format("Gelu"), LEAN, "com.microsoft.Gelu"),
        (UNREGISTERED.format("Nope"), LEAN, None),
        ("Fatal error: ai.onnx:Crop(-1) is not a registered function/op", LEAN, "Crop"),
        ("Kernel not found", LEAN, "an operator"),
        ("Kernel not found", (), None),
        ("CUDA failure 209: no kernel image is available", LEAN, None),
    ],
)
def test_a_message_of_onnx_runtimes_names_what_is_missing(
    message: str, missing: tuple[MissingKernels, ...], operator: str | None
) -> None:
    assert operator_without_kernel(message, missing) == operator


def test_the_cause_names_the_package_and_the_cure(told: Told) -> None:
    told(missing_kernel_cause(NOT_FOUND.format("com.microsoft.BiasGelu(1)"), "x-lean", LEAN, "wheel"))
    assert missing_kernel_cause("Kernel not found", "x", (), "wheel") is None
