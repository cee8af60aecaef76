"""Tests of rules for toolkits. Expected values: NVIDIA's support matrices and release notes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builder.config.toolkits import ToolkitChoice, lint
from builder.facts.gpu.architectures import Arch
from builder.facts.gpu.compatibility import compilable, cuda_of_driver, driver_window
from builder.facts.gpu.table import KNOWN_SM
from builder.finding import Finding

LEGACY, MODERN, LATEST = "50 52 60 61 70", "75 80 86", "89 90 100 120"

CUDNN = "9.10.2.21"


def _lint(
    sm: str,
    cuda: str = "12.9",
    cudnn: str = CUDNN,
    ort: str = "1.23.2",
    nvcc: str | None = None,
    ptxas: str | None = None,
) -> list[Finding]:
    choice = ToolkitChoice(
        variant="v", sm=_arches(sm), cuda=cuda, cudnn=cudnn, ort=ort, nvcc=nvcc, ptxas=ptxas
    )
    return lint(choice)


def _arches(text: str) -> tuple[Arch, ...]:
    return tuple(Arch.parse(word) for word in text.split())


@pytest.mark.parametrize(
    ("sm", "cuda", "cudnn", "ort", "nvcc", "ptxas", "codes"),
    [
        (MODERN, "12.9", CUDNN, "1.23.2", None, None, ""),
        (LATEST, "12.9", CUDNN, "1.23.2", "12.9", None, ""),
        (LEGACY, "12.9", CUDNN, "1.23.2", "12.4", None, "C006"),
        ("60 61 70", "12.9", CUDNN, "1.23.2", "12.9", None, ""),
        (LEGACY, "12.9", "9.11.0.98", "1.23.2", None, None, "C001 C006"),
        ("50 70 75", "12.9", "9.11.0.98", "1.23.2", None, None, "C001 C006"),
        ("70 75", "12.9", "9.11", "1.23.2", None, None, "C001"),
        (MODERN, "12.9", "9.28.0.42", "1.23.2", None, None, ""),
        ("70 75", "12.9.1", CUDNN, "1.23.2", None, None, ""),
        (MODERN, "13.0", "9.28.0.42", "1.23.2", "13.0", None, ""),
        ("70 90 101f", "13.1", CUDNN, "1.23.2", None, None, "C002 C002"),
        ("60 70 75 101", "13.0", CUDNN, "1.23.2", None, None, "C002 C002"),
        ("90 101a 120", "13.0", CUDNN, "1.23.2", None, None, "C002"),
        ("70", "13.0", CUDNN, "1.23.2", None, None, "C002"),
        ("86 90a", "11.8", CUDNN, "1.23.2", None, None, "C003"),
        ("90 110", "12.9", CUDNN, "1.23.2", None, None, "C003"),
        ("90 101", "12.6", CUDNN, "1.23.2", None, None, "C003"),
        ("90 121", "12.8", CUDNN, "1.23.2", None, None, "C003"),
        ("70 110", "12.9", CUDNN, "1.23.2", "12.9", None, "C003 C004"),
        (LATEST, "12.6", CUDNN, "1.23.2", None, None, "C003 C003"),
        ("90 120f", "12.8", CUDNN, "1.23.2", None, None, "C003"),
        (LATEST, "12.9", CUDNN, "1.21.0", "12.4", None, "C004"),
        (LATEST, "12.9", CUDNN, "1.23.2", "12.4", None, "C004"),
        ("75 90 120", "12.9", CUDNN, "1.23.2", "12.4", None, "C004"),
        ("70 103", "12.9", CUDNN, "1.23.2", "13.0", None, "C004"),
        ("90 120a 121a", "12.9", CUDNN, "1.23.2", "12.4", "12.9", "C004"),
        ("90 120", "12.9", CUDNN, "1.23.2", "12.4", "12.9", ""),
        ("75", "12.9", CUDNN, "1.23.2", "10.2", "12.9", "C004"),
        ("120a", "12.9", CUDNN, "1.23.2", "12.4", "12.4", "C004"),
        ("70 75", "12.9", CUDNN, "1.23.2", "13.0", None, "C004"),
        ("53 70", "12.9", CUDNN, "1.23.2", None, None, ""),
        ("52 70", "12.9", CUDNN, "1.23.2", None, None, "C006"),
        ("80", "12.9", CUDNN, "1.20.1", None, None, "C007"),
        (MODERN, "12.9", CUDNN, "1.24.0", None, None, "C007"),
        ("80", "12.9", CUDNN, "1.40.0", "12.9", None, "C007"),
        ("120", "12.9", CUDNN, "1.20.1", "12.9", None, "C007"),
        ("90 120f", "12.9", CUDNN, "1.23.2", None, None, ""),
        ("90 120f", "12.9", CUDNN, "1.23.2", "12.9", None, "C008"),
        ("90 100f 120f", "12.9", CUDNN, "1.22.0", "12.9", None, "C008"),
        ("90 100f 120f", "12.9", CUDNN, "1.23.2", "12.9", None, "C008"),
        ("80 86", "11.3", CUDNN, "1.22.0", None, None, ""),
        ("80 86", "11.3", CUDNN, "1.22.0", "11.3", None, "C009"),
        ("80 86", "11.4", CUDNN, "1.22.0", "11.4", None, ""),
    ],
)
def test_which_rules_a_set_breaks(
    sm: str,
    cuda: str,
    cudnn: str,
    ort: str,
    nvcc: str | None,
    ptxas: str | None,
    codes: str,
    told: Callable[[object], None],
) -> None:
    """CUDA's release notes 12.4 to 13.0 list the architectures that each toolkit compiles."""
    found = _lint(sm, cuda, cudnn, ort, nvcc, ptxas)
    assert [finding.code.name for finding in found] == codes.split()
    told("\n".join(map(str, found)))


FIRST_AND_LAST = {
    **dict.fromkeys((50, 52, 53, 60, 61, 62, 70, 72), ("11.0", "12.9")),
    75: ("11.0", None),
    80: ("11.0", None),
    86: ("11.1", None),
    87: ("11.4", None),
    88: ("13.0", None),
    89: ("11.8", None),
    90: ("11.8", None),
    100: ("12.8", None),
    101: ("12.8", "12.9"),
    103: ("12.9", None),
    107: ("13.4", None),
    110: ("13.0", None),
    120: ("12.8", None),
    121: ("12.9", None),
}
"""First and last CUDA that compiles for each architecture, from 11.0 on.

The sources are the CUDA release notes, and for 100 and newer the PTX ISA (8.7 is CUDA 12.8, 8.8 is 12.9, 9.0
is 13.0, 9.4 is 13.4). ``nvrtcGetSupportedArchs`` of 12.9 agrees; ptxas 13.0 takes sm_88 and ptxas 12.9 does
not.
"""

RELEASES = ("11.0", "11.1", "11.4", "11.8", "12.0", "12.4", "12.6", "12.8", "12.9", "13.0", "13.1", "13.4")


@pytest.mark.parametrize("cuda", RELEASES)
def test_each_architecture_with_each_toolkit(cuda: str) -> None:
    at = RELEASES.index(cuda)
    expected = {
        sm
        for sm, (first, last) in FIRST_AND_LAST.items()
        if RELEASES.index(first) <= at and (last is None or at <= RELEASES.index(last))
    }
    assert set(compilable(cuda)) == set(compilable(f"{cuda}.86")) == expected
    assert {sm for sm in KNOWN_SM if not _refused(sm, cuda)} == expected


def _refused(sm: int, cuda: str) -> bool:
    return bool({"C002", "C003"} & {one.code.name for one in _lint(str(sm), cuda)})


@pytest.mark.parametrize(
    ("sass", "cuda", "isa", "compressed", "window"),
    [
        (LEGACY, "12.9", None, False, ("525.60.13", "580")),
        (LEGACY, "12.9", None, True, ("550.54.14", "580")),
        (MODERN, "12.9", None, False, ("525.60.13", None)),
        ("60 70 75 80 86 90a", "12.9", None, False, ("525.60.13", None)),
        (LATEST, "12.9", None, True, ("570.26", None)),
        ("80", "12.9", (8, 8), False, ("575.51.03", None)),
        ("80", "12.9", (8, 7), False, ("570.26", None)),
        ("80", "12.6", (8, 5), False, ("555.42.02", None)),
        ("80", "12.6", (8, 0), True, ("550.54.14", None)),
        ("80", "12.6", (7, 8), False, ("525.60.13", None)),
        ("80", "13.0", (9, 1), False, ("590.44.01", None)),
        ("80", "13.9", (9, 9), False, ("590.44.01", None)),
        ("80", "13", None, False, ("580.65.06", None)),
        (MODERN, "13.0", None, True, ("580.65.06", None)),
        ("", "12.9", None, False, ("525.60.13", None)),
    ],
)
def test_drivers(
    sass: str, cuda: str, isa: tuple[int, int] | None, compressed: bool, window: tuple[str, str | None]
) -> None:
    """The windows follow NVIDIA's table of toolkits and drivers: 12.5 has 555.42.02, 12.9 has 575.51.03."""
    assert driver_window(_arches(sass), cuda, isa=isa, compressed=compressed) == window


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("470.57.02", (12, 0)),  # too old for any CUDA 12
        ("525.60.13", (12, 0)),
        ("530.30.01", (12, 0)),
        ("530.30.02", (12, 1)),
        ("570.133.07", (12, 8)),
        ("575.51.03", (12, 9)),
        ("580.65.06", (13, 0)),
        ("580.126.9", (13, 0)),  # later than 580.65
        ("999.1", (13, 1)),
    ],
)
def test_a_driver_supports_the_cuda_that_came_with_it_and_older_ones(
    driver: str, cuda: tuple[int, int]
) -> None:
    """Source: CUDA's release notes, table of toolkits and their drivers for Linux."""
    assert cuda_of_driver(driver) == cuda
