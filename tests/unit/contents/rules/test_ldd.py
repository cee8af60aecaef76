"""Tests of the findings from ldd's output in a bare container.

Source of messages: glibc's rtld.c, ldd.bash.in.
"""

from __future__ import annotations

import pytest

from builder.contents.rules.dependencies import check_ldd, waits_for_driver
from builder.finding import Code, Finding
from tests.support.factories.selftests import LISTING
from tests.support.messages import Told


def test_what_the_loader_finds_passes() -> None:
    assert check_ldd(LISTING, "p") == ()


@pytest.mark.parametrize(
    ("library", "missing", "passes"),
    [
        ("libcudnn_adv.so.9", "libz.so.1", False),
        ("libonnxruntime_providers_cuda.so", "libcudart.so.12", False),
        ("libonnxruntime_providers_cuda.so", "libcuda.so.1", True),
        ("libonnxruntime_providers_tensorrt.so", "libnvinfer.so.10", True),
        ("libonnxruntime_providers_tensorrt.so", "libcublas.so.12", False),
        ("libonnxruntime_providers_cuda.so", "libnvinfer.so.10", False),
    ],
)
def test_only_the_driver_and_tensorrt_may_be_missing(
    library: str, missing: str, passes: bool, told: Told
) -> None:
    found = check_ldd(f"{LISTING}ldd /opt/p/lib/{library}\n\t{missing} => not found\n", "p")
    assert [one.code for one in found] == [] if passes else [Code.B018]
    told("\n".join(map(str, found)))


@pytest.mark.parametrize(
    "said",
    [
        "",
        "\tnot a dynamic executable\nldd: exit 1\n",
        "ldd: /opt/p/lib/*: No such file or directory\nldd: exit 1\n",
        "/opt/libx.so: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /opt/libx.so)\n",
        "sh: 1: ldd: not found\n",
        "\tlibc.so.6 => (0x1)\n",
    ],
)
def test_an_answer_that_ldd_owes_is_a_finding(said: str) -> None:
    found = check_ldd(f"{LISTING}ldd /opt/p/lib/libx.so\n{said}", "p")
    told = [("ldd could not list its needs", line.strip()) for line in said.splitlines()]
    assert [(one.code, one.path, one.message, one.got) for one in found] == [
        (Code.B018, "lib/libx.so", *each) for each in told or [("ldd said nothing of it", "")]
    ]


@pytest.mark.parametrize("listing", ["", "smoke", "\tstatically linked\n"])
def test_no_library_is_no_pass(listing: str) -> None:
    got = listing + "x" * 200
    (finding,) = check_ldd(got, "p")
    assert finding == Finding(Code.B018, "p", "ldd was asked about no library", got=got[:200])


def test_a_line_is_told_up_to_its_300th_character() -> None:
    (finding,) = check_ldd(f"ldd lib/libx.so\n{'x' * 301}", "p")
    assert finding.got == "x" * 300


@pytest.mark.parametrize(
    ("library", "said", "waits"),
    [
        ("libonnxruntime_providers_cuda.so", "not found", True),
        ("libonnxruntime_providers_cuda.so", "/usr/lib/libcuda.so.1 (0x00007f)", False),
        ("libcudnn_ops.so.9", "not found", False),
    ],
)
def test_only_the_provider_waits_for_the_driver(library: str, said: str, waits: bool) -> None:
    listing = f"ldd /opt/p/lib/{library}\n\tlibcuda.so.1 => {said}\n"
    assert waits_for_driver(listing) is waits
