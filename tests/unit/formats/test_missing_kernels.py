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
from tests.support.tables import table

LEAN = cannot_run("lean", "1.21.0")

LACKING = {
    "lean": LEAN,
    "minimal": cannot_run("minimal", "1.21.0"),
    "com.microsoft": (MissingKernels("com.microsoft", ()),),
    "full": (),
}


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


def test_what_a_plugin_lacks_is_in_one_of_form_provider(told: Told) -> None:
    for names in (("BeamSearch", "Sampling"), tuple("abcdefgh")):
        consequence = consequence_of((MissingKernels("com.microsoft", names),), "none")
        assert consequence is not None
        told(f"{consequence.means} {consequence.do}")


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


@pytest.mark.parametrize(("lacks", "operator", "message"), table("formats/missing-kernels.txt"))
def test_a_message_of_onnx_runtimes_names_what_is_missing(lacks: str, operator: str, message: str) -> None:
    assert operator_without_kernel(message, LACKING[lacks]) == (operator or None)


def test_the_cause_names_the_package_and_the_cure(told: Told) -> None:
    said = "Failed to find kernel for com.microsoft.BiasGelu(1) (node:'n1')"
    told(missing_kernel_cause(said, "x-lean", LEAN, "wheel"))
    assert missing_kernel_cause("Kernel not found", "x", (), "wheel") is None


@pytest.mark.parametrize(
    ("profile", "version", "wanted"),
    [
        ("full", "1.30.0", {"": ("SequenceAt",), "com.microsoft": ("BeamSearch",)}),
        ("lean", "1.30.0", {"": (*LEAN[0].operators, "SequenceAt"), "com.microsoft": ()}),
        ("minimal", "1.30.0", {"": (), "com.microsoft": (), "com.ms.internal.nhwc": ()}),
    ],
)
def test_what_a_plugin_leaves_out_is_added_to_its_profile(
    profile: str, version: str, wanted: dict[str, tuple[str, ...]]
) -> None:
    left_out = {"": ("SequenceAt",), "com.microsoft": ("BeamSearch",)}
    made = {entry.domain: entry.operators for entry in cannot_run(profile, version, left_out)}
    assert made == {domain: tuple(sorted(names)) for domain, names in wanted.items()}
