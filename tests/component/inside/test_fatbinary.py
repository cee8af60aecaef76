"""The stand-in for fatbinary: what NVIDIA's own is then asked for. Both programs it starts are stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import ROOT

PTX = "/tmp/tmpxft_1-6_pool.compute_90.ptx"
"""nvcc's temporary name for a unit's PTX."""

NVCCS = [
    "-64",
    "-compress-all",
    "--cicc-cmdline=-ftz=0 -prec_div=1 ",
    "--image3=kind=elf,sm=89,file=/tmp/pool.compute_89.cubin",
    f"--image3=kind=ptx,sm=90,file={PTX}",
    "--image3=kind=elf,sm=90,file=/tmp/pool.compute_90.sm_90.cubin",
    "--embedded-fatbin=/tmp/pool.fatbin.c",
]
"""What nvcc 12.4 asks for with ``arch=compute_90,code=[sm_90,compute_90]`` and ORT's flags."""


@dataclass(frozen=True)
class Tools:
    """A folder with ``fatbinary-toolkit`` and ``ptxas-newer``, which note how they were called."""

    folder: Path

    def put(self, name: str, status: int = 0) -> None:
        program = self.folder / name
        program.write_text(f'#!/bin/sh\nfor word; do echo "{name} $word"; done >>calls\nexit {status}\n')
        program.chmod(0o755)

    def fatbinary(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, ROOT / "builder/inside/fatbinary.py", *options],
            cwd=self.folder,
            env={**os.environ, "PATH": f"{self.folder}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )

    def called(self, name: str) -> list[str]:
        """The words of all calls, in order."""
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    made = Tools(tmp_path)
    made.put("fatbinary-toolkit")
    made.put("ptxas-newer")
    return made


def test_without_its_options_nothing_is_changed(tools: Tools) -> None:
    assert tools.fatbinary(*NVCCS).returncode == 0
    assert tools.called("fatbinary-toolkit") == NVCCS
    assert tools.called("ptxas-newer") == []


def test_raw_stores_images_as_they_are(tools: Tools) -> None:
    tools.fatbinary(NVCCS[0], "--raw", *NVCCS[1:], "--compress-all")
    asked = tools.called("fatbinary-toolkit")
    assert asked == ["--compress=false", *(word for word in NVCCS if word != "-compress-all")]


def test_the_ptx_becomes_sass_for_each_target_in_its_place(tools: Tools) -> None:
    assert tools.fatbinary("--assemble=100:120", *NVCCS).returncode == 0
    cubins = [f"/tmp/tmpxft_1-6_pool.compute_90.sm_{sm}.cubin" for sm in (100, 120)]
    assert tools.called("fatbinary-toolkit") == [
        *NVCCS[:4],
        f"--image3=kind=elf,sm=100,file={cubins[0]}",
        f"--image3=kind=elf,sm=120,file={cubins[1]}",
        *NVCCS[5:],
    ]
    assert tools.called("ptxas-newer") == [
        *("-arch=sm_100", "-m64", PTX, "-o", cubins[0]),
        *("-arch=sm_120", "-m64", PTX, "-o", cubins[1]),
    ]


def test_both_options_together(tools: Tools) -> None:
    tools.fatbinary("--raw", "--assemble=120", *NVCCS)
    asked = tools.called("fatbinary-toolkit")
    assert asked[0] == "--compress=false"
    assert not {
        word for word in asked if "ptx," in word or "assemble" in word or word in ("--raw", "-compress-all")
    }


def test_a_link_of_device_code_brings_no_ptx_and_assembles_none(tools: Tools) -> None:
    linked = ["-64", "--cmdline=--compile-only ", "-link", "--image3=kind=elf,sm=90,file=a_dlink.sm_90.cubin"]
    assert tools.fatbinary("--assemble=120", *linked).returncode == 0
    assert tools.called("fatbinary-toolkit") == linked
    assert tools.called("ptxas-newer") == []


def test_a_ptxas_that_fails_ends_the_unit_with_a_message(tools: Tools) -> None:
    tools.put("ptxas-newer", status=255)
    done = tools.fatbinary("--assemble=100:120", *NVCCS)
    assert done.returncode == 1
    assert done.stderr == f"fatbinary: ptxas-newer could not assemble {PTX} for sm_100\n"
    assert tools.called("fatbinary-toolkit") == []


def test_the_toolkits_own_failure_is_the_units(tools: Tools) -> None:
    tools.put("fatbinary-toolkit", status=3)
    assert tools.fatbinary("--raw", *NVCCS).returncode == 3
