"""Tests of the table of GPUs, on which ``plan`` relies (C004), by the lists of the pinned compilers."""

import re
import subprocess
from pathlib import Path

from builder.config.variants import UnpackedToolkit
from builder.facts.gpu.architectures import Arch
from builder.facts.gpu.compatibility import compilable, compiles
from builder.facts.gpu.table import COMPILED, SUFFIXES
from builder.io.wiring import Wiring
from tests.support import ran


def unpacked_toolkit(shop: Wiring) -> UnpackedToolkit:
    toolkit = shop.project.bases["assembled"].toolkit
    assert isinstance(toolkit, UnpackedToolkit)
    return toolkit


def test_nvcc_lists_what_the_table_says(root: Path, tmp_path: Path) -> None:
    shop = Wiring(root)
    assembled = unpacked_toolkit(shop)
    deb = shop.store(shop.lock).fetch(assembled.deb)
    subprocess.run(["dpkg-deb", "--extract", deb, tmp_path], check=True)
    nvcc = tmp_path / "usr/lib/nvidia-cuda-toolkit/bin/nvcc"
    done = ran([nvcc, "--list-gpu-code"], check=True)
    assert done.stdout.split() == [f"sm_{number}" for number in compilable(assembled.version)]


def test_ptxas_takes_what_the_table_says(root: Path) -> None:
    shop = Wiring(root)
    assembled = unpacked_toolkit(shop)
    (ptxas,) = shop.store(shop.lock).unpack(assembled.wheels["ptxas"]).rglob("ptxas")
    done = ran([ptxas, "--help"], check=True)
    said = {Arch.parse(word) for word in re.findall(r"'sm_(\d+[af]?)'", done.stdout)}
    known = {
        Arch(*divmod(gpu.number, 10), name)
        for gpu in COMPILED
        for name, suffix in SUFFIXES.items()
        if gpu.number >= suffix.number
    }
    assert said == {arch for arch in known if compiles(assembled.ptxas, arch)}
