"""Tests of rules for toolkits. Expected values: NVIDIA's support matrices and release notes."""

from __future__ import annotations

import pytest

from builder.config.toolkits import ToolkitChoice, lint
from builder.facts.gpu.architectures import Arch
from builder.facts.gpu.compatibility import compilable, cuda_of_driver, driver_window
from builder.facts.gpu.table import KNOWN_SM
from builder.finding import Finding, Severity

LEGACY, MODERN, LATEST = "50 52 60 61 70", "75 80 86", "89 90 100 120"

CUDNN = "9.10.2.21"


def _lint(
    sm: str, cuda: str = "12.9", cudnn: str = CUDNN, ort: str = "1.23.2", nvcc: str | None = None
) -> list[Finding]:
    return lint(ToolkitChoice(variant="v", sm=_arches(sm), cuda=cuda, cudnn=cudnn, ort=ort, nvcc=nvcc))


def _arches(text: str) -> tuple[Arch, ...]:
    return tuple(Arch.parse(word) for word in text.split())


@pytest.mark.parametrize(
    ("sm", "cuda", "cudnn", "ort", "nvcc", "codes"),
    [
        (MODERN, "12.9", CUDNN, "1.23.2", None, []),
        (LATEST, "12.9", CUDNN, "1.23.2", "12.9", []),
        (LEGACY, "12.9", CUDNN, "1.23.2", "12.4", ["C006"]),
        ("60 61 70", "12.9", CUDNN, "1.23.2", "12.9", []),
        (LEGACY, "12.9", "9.11.0.98", "1.23.2", None, ["C001", "C006"]),
        ("70 75", "12.9", "9.11", "1.23.2", None, ["C001"]),
        (MODERN, "12.9", "9.28.0.42", "1.23.2", None, []),
        ("70 75", "12.9.1", CUDNN, "1.23.2", None, []),
        (MODERN, "13.0", "9.28.0.42", "1.23.2", "13.0", []),
        ("70 90 101f", "13.1", CUDNN, "1.23.2", None, ["C002", "C002"]),
        ("86 90a", "11.8", CUDNN, "1.23.2", None, ["C003"]),
        ("70 110", "12.9", CUDNN, "1.23.2", "12.9", ["C003", "C004"]),
        (LATEST, "12.6", CUDNN, "1.23.2", None, ["C003", "C003"]),
        ("90 120f", "12.8", CUDNN, "1.23.2", None, ["C003"]),
        (LATEST, "12.9", CUDNN, "1.21.0", "12.4", ["C004"]),
        ("70 75", "12.9", CUDNN, "1.23.2", "13.0", ["C004"]),
        ("53 70", "12.9", CUDNN, "1.23.2", None, []),
        ("80", "12.9", CUDNN, "1.20.1", None, ["C007"]),
        ("80", "12.9", CUDNN, "1.40.0", "12.9", ["C007"]),
        ("120", "12.9", CUDNN, "1.20.1", "12.9", ["C007"]),
        ("90 120f", "12.9", CUDNN, "1.23.2", None, []),
        ("90 120f", "12.9", CUDNN, "1.23.2", "12.9", ["C008"]),
        ("80 86", "11.3", CUDNN, "1.22.0", None, []),
        ("80 86", "11.3", CUDNN, "1.22.0", "11.3", ["C009"]),
        ("80 86", "11.4", CUDNN, "1.22.0", "11.4", []),
    ],
)
def test_which_rules_a_set_breaks(
    sm: str, cuda: str, cudnn: str, ort: str, nvcc: str | None, codes: list[str]
) -> None:
    assert [finding.code.name for finding in _lint(sm, cuda, cudnn, ort, nvcc)] == codes


def test_a_finding_names_key_rule_source_and_what_would_work() -> None:
    finding = next(one for one in _lint("50 70 75", cudnn="9.11.0.98") if one.code.name == "C001")
    assert str(finding) == (
        "error C001 variants.v.sm: cuDNN 9.11 and newer have no kernels for Maxwell, Pascal and Volta "
        "(NVIDIA's cuDNN support matrix)\n"
        "    wanted: cudnn.version 9.10.2.21, the last one with them, or the set 75\n"
        "    got:    cuDNN 9.11.0.98 with sm_50, sm_70"
    )


@pytest.mark.parametrize(
    ("sm", "cuda", "nvcc", "ptxas", "text"),
    [
        (
            *("60 70 75 101", "13.0", None, None),
            (
                "error C002 variants.v.sm: CUDA 13 compiles for sm_75 and newer (CUDA 13.0 release notes)\n"
                "    wanted: cuda.version 12.9, the last one with them, or the set 75 101\n"
                "    got:    CUDA 13.0 with sm_60, sm_70\n"
                "error C002 variants.v.sm: sm_101 is called sm_110 since CUDA 13 (PTX ISA 9.0)\n"
                "    wanted: the set 60 70 75 110, or cuda.version 12.9\n"
                "    got:    CUDA 13.0 with sm_101"
            ),
        ),
        (
            *("70", "13.0", None, None),
            (
                "error C002 variants.v.sm: CUDA 13 compiles for sm_75 and newer (CUDA 13.0 release notes)\n"
                "    wanted: cuda.version 12.9, the last one with them\n"
                "    got:    CUDA 13.0 with sm_70"
            ),
        ),
        (
            *("90 110", "12.9", None, None),
            (
                "error C003 variants.v.sm: sm_110 came with CUDA 13.0 (CUDA release notes)\n"
                "    wanted: cuda.version 13.0 or newer, or the set 90\n"
                "    got:    CUDA 12.9 with sm_110"
            ),
        ),
        (
            *("75 90 120", "12.9", "12.4", None),
            (
                "error C004 variants.v.sm: the base's nvcc 12.4 compiles sm_50 to sm_90 (CUDA release "
                "notes)\n    wanted: a base with nvcc 12.8 (--base nvidia), or the set 75 90\n"
                "    got:    sm_120"
            ),
        ),
        (
            *("90 120a 121a", "12.9", "12.4", "12.9"),
            (
                "error C004 variants.v.sm: the base's nvcc 12.4 compiles sm_50 to sm_90 (CUDA release "
                "notes), ptxas 12.9 adds sm_100 101 103 120 121 without a suffix\n"
                "    wanted: a base with nvcc 12.9 (--base nvidia), or the set 90\n"
                "    got:    sm_120a, sm_121a"
            ),
        ),
        ("90 120", "12.9", "12.4", "12.9", ""),
        (
            *("75", "12.9", "10.2", "12.9"),
            (
                "error C004 variants.v.sm: the base's nvcc 10.2 compiles nothing we know (CUDA release "
                "notes)\n    wanted: a base with nvcc 12.4 (--base nvidia)\n"
                "    got:    sm_75"
            ),
        ),
        (
            *("120a", "12.9", "12.4", "12.4"),
            (
                "error C004 variants.v.sm: the base's nvcc 12.4 compiles sm_50 to sm_90 (CUDA release "
                "notes)\n    wanted: a base with nvcc 12.8 (--base nvidia)\n"
                "    got:    sm_120a"
            ),
        ),
    ],
)
def test_each_finding_whole(sm: str, cuda: str, nvcc: str | None, ptxas: str | None, text: str) -> None:
    """CUDA's release notes 12.4 to 13.0 list the architectures that each toolkit compiles."""
    choice = ToolkitChoice(
        variant="v", sm=_arches(sm), cuda=cuda, cudnn=CUDNN, ort="1.23.2", nvcc=nvcc, ptxas=ptxas
    )
    found = lint(choice)
    assert "\n".join(map(str, found)) == text


@pytest.mark.parametrize(
    ("sm", "nvcc", "wanted"), [(LATEST, "12.4", "nvcc 12.8 "), ("70 103", "13.0", "nvcc 12.9 ")]
)
def test_the_nearest_compiler_that_would_do(sm: str, nvcc: str, wanted: str) -> None:
    assert wanted in _lint(sm, nvcc=nvcc)[0].wanted


def test_no_compiler_reaches_from_volta_to_thor() -> None:
    (finding,) = (one for one in _lint("70 110", nvcc="12.9") if one.code.name == "C004")
    assert finding.wanted == "the set 70"


@pytest.mark.parametrize(
    ("sm", "cuda", "wanted"),
    [
        ("90 101", "12.6", "cuda.version 12.8 to 12.9, or the set 90"),
        ("90 121", "12.8", "cuda.version 12.9 or newer, or the set 90"),
    ],
)
def test_the_toolkits_that_would_do(sm: str, cuda: str, wanted: str) -> None:
    assert [one.wanted for one in _lint(sm, cuda)] == [wanted]


def test_a_renamed_architecture_is_named_by_its_new_name() -> None:
    (finding,) = _lint("90 101a 120", cuda="13.0")
    assert finding.message == "sm_101a is called sm_110a since CUDA 13 (PTX ISA 9.0)"
    assert finding.wanted == "the set 90 110a 120, or cuda.version 12.9"


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


def test_half_precision_names_the_operators_and_what_would_work() -> None:
    (finding,) = _lint("52 70")
    assert finding.severity is Severity.WARNING
    assert "some contrib operators" in finding.message
    assert (finding.path, finding.got) == ("variants.v.sm", "sm_52")
    assert finding.wanted == "fp16 models only on sm_53 and newer, or the set 70"


@pytest.mark.parametrize(("ort", "nearest"), [("1.40.0", "1.23"), ("1.24.0", "1.23"), ("1.20.1", "1.21")])
def test_an_unknown_version_and_the_one_it_is_taken_for_are_both_named(ort: str, nearest: str) -> None:
    (finding,) = _lint(MODERN, ort=ort)
    assert finding.severity is Severity.WARNING
    assert (
        f"ONNX Runtime {ort} depends on was never looked up: the rules of {nearest}, the nearest"
        in finding.message
    )


@pytest.mark.parametrize(
    ("ort", "severity", "who"),
    [
        ("1.22.0", Severity.WARNING, "CMake 3.31.6 refuses"),
        ("1.23.2", Severity.ERROR, "ONNX Runtime 1.23.2's own CMake refuses"),
    ],
)
def test_who_refuses_a_family(ort: str, severity: Severity, who: str) -> None:
    (finding,) = _lint("90 100f 120f", ort=ort, nvcc="12.9")
    assert (finding.severity, finding.got) == (severity, "sm_100f, sm_120f")
    assert finding.message.startswith(who)


def test_a_toolkit_too_old_for_the_version_is_an_error() -> None:
    (finding,) = _lint("80 86", cuda="11.3", ort="1.22.0", nvcc="11.3")
    assert finding.severity is Severity.ERROR
    assert (finding.wanted, finding.got) == ("cuda.version 11.4 or newer", "CUDA 11.3")


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
