"""Tests of ``select --explain``, the table of all packages and GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.client.selection.select import select
from builder.client.selection.table import lines
from tests.unit.client.selection.select_cases import INDEX, gpu, package, plain, release

OLD = gpu("5.2", memory=4096, index=0, uuid="GPU-old")

NEW = gpu("9.0", memory=24576, index=1, uuid="GPU-new")


def test_a_row_a_package_a_column_a_gpu_and_the_reason_below() -> None:
    index = release(*INDEX.packages, plain("cpu"))
    found = lines(select([NEW, OLD], index, "linux-x64", "2.36"), [NEW, OLD], index, "linux-x64", "2.36")
    assert found == [
        "linux-x64, glibc 2.36",
        "GPU 0: card 0 (compute capability 5.2, 4096 MiB), driver 570.133.07",
        "GPU 1: card 1 (compute capability 9.0, 24576 MiB), driver 570.133.07",
        "",
        "package        GPU 0   GPU 1   driver            glibc    size  verdict",
        "cpu-linux-x64  -       -       -                 -      0.0 MB  runs too",
        "    its provider is CPU, latest uses the GPU",
        "latest         none    native  525.60.13 on      2.34   0.0 MB  chosen",
        "legacy         native  none    525.60.13 to 580  2.34   0.0 MB  runs too",
        "    it runs natively on 1 GPU with 4,096 MiB, latest on 1 GPU with 24,576 MiB",
        "modern         none    jit     525.60.13 on      2.34   0.0 MB  runs too",
        "    it runs by just-in-time compilation only, latest has native code",
    ]


def test_without_a_gpu_the_packages_stand_there_all_the_same() -> None:
    index = release(*INDEX.packages, plain("cpu"))
    found = lines(select([], index, "linux-x64", ""), [], index, "linux-x64", "")
    assert found[:2] == ["linux-x64, musl", "no NVIDIA GPU"]
    assert "package        driver            glibc    size  verdict" in found
    assert sum(line.endswith("refused") for line in found) == 4


def test_what_was_not_asked_for_by_the_platform_is_not_told() -> None:
    index = release(plain("directml", "win-x64"))
    found = lines(select([], index, "win-x64"), [], index, "win-x64")
    assert found == [
        "win-x64",
        "no NVIDIA GPU",
        "",
        "package           driver  glibc    size  verdict",
        "directml-win-x64  -       -      0.0 MB  chosen",
    ]


@pytest.mark.parametrize("gpus", [1, 4, 8])
def test_real_names_and_eight_gpus_fit_into_120_columns(gpus: int) -> None:
    index = release(
        *(
            package(f"ortpacks-{name}-1.23.2-cuda12.9-linux-x64", "8.6", partial="8.0", size=1_234_567_890)
            for name in ("latest", "legacy", "modern")
        )
    )
    devices = [gpu("8.0", index=number, uuid=f"GPU-{number}") for number in range(gpus)]
    found = lines(select(devices, index, "linux-x64", "2.36"), devices, index, "linux-x64", "2.36")
    assert max(map(len, found)) <= 120
    row = found.index("ortpacks-latest-1.23.2-cuda12.9-linux-x64") + 1 if gpus == 8 else None
    assert row is None or found[row].split()[:8] == ["partial"] * 8
    assert sum("1,234.6 MB" in line for line in found) == 3


@pytest.mark.parametrize(
    ("length", "rows"),
    [
        (
            82,
            [
                "package" + " " * 75 + "  driver        glibc    size  verdict",
                "p" * 82 + "  525.60.13 on  2.34   0.0 MB  refused",
            ],
        ),
        (
            83,
            [
                "package",
                "  driver        glibc    size  verdict",
                "p" * 83,
                "  525.60.13 on  2.34   0.0 MB  refused",
            ],
        ),
    ],
)
def test_from_121_columns_on_a_name_has_a_line_of_its_own(length: int, rows: list[str]) -> None:
    index = release(package("p" * length, "8.6"))
    found = lines(select([], index, "linux-x64", "2.36"), [], index, "linux-x64", "2.36")
    assert found == [
        *("linux-x64, glibc 2.36", "no NVIDIA GPU", "", *rows),
        "    no NVIDIA GPU was found",
    ]


def test_a_long_reason_is_wrapped_and_no_name_is_broken() -> None:
    name = "-".join(["part"] * 22)
    index = release(replace(plain("cpu"), name=name, variant="other"), plain("cpu", size=11))
    found = lines(select([], index, "linux-x64"), [], index, "linux-x64")
    assert [line for line in found if line.startswith("    ")] == [
        *("    it runs too,", f"    {name} is", "    smaller")
    ]


def test_what_no_gpu_may_run_is_refused_whatever_its_code() -> None:
    found = lines(select([OLD, NEW], INDEX, "linux-x64", "2.28"), [OLD, NEW], INDEX, "linux-x64", "2.28")
    assert [line.split()[-1] for line in found if line.startswith(("latest", "legacy", "modern"))] == [
        "refused"
    ] * 3


def test_what_the_machine_does_not_say_is_unknown() -> None:
    devices = [gpu("8.6", driver=None)]
    found = lines(select(devices, INDEX, "linux-x64"), devices, INDEX, "linux-x64")
    assert found[:2] == [
        "linux-x64, glibc unknown",
        "GPU 0: card 0 (compute capability 8.6, 8192 MiB), driver unknown",
    ]
