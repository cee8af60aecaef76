"""A container of the toolchain image with the stand-in for nvcc, and a unit to compile in it."""

import re
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from builder.binary.elf_headers import read_sections
from builder.build.check_tools import CheckTools
from builder.config.variants import UnpackedToolkit
from builder.io.wiring import Wiring
from tests.support import ROOT, ran
from tests.support.containers import docker

SOURCE = """\
#include "scale.h"
template <class T> __global__ void scaled(T* data) { data[threadIdx.x] *= SCALE; }
static __global__ void local(int* data) { data[0] = 2; }
namespace { __global__ void nameless(int* data) { data[0] = 3; } }
void launch(float* single, double* twice, int* whole, size_t bytes) {
    scaled<<<1, 32>>>(single);
    scaled<<<1, 32>>>(twice);
    local<<<1, 1>>>(whole);
    nameless<<<1, 1>>>(whole);
}
"""
INSTALL = """\
cd /usr/local/cuda/bin
mv nvcc nvcc-toolkit
install --mode=0755 /ortpacks/builder/farm/nvcc.py nvcc
install -D --mode=0755 /ortpacks/builder/farm/piece.py /ortpacks/pieces/nvcc
cp /ptxas-newer .
gcc -D_DEFAULT_SOURCE -o /usr/local/bin/unit /ortpacks/builder/farm/unit.c /ortpacks/builder/farm/pool.c
"""
ENVIRONMENT = """\
export CCACHE_DIR=/unit/ccache CCACHE_DEPEND=1 CCACHE_COMPILERCHECK=string:one NVCC_STATSLOG=/unit/pieces.log
export CCACHE_SLOPPINESS=include_file_ctime,include_file_mtime
export NVCC_ARCH_LIST=500,520,600,610,700,750,800,860,890,900 PYTHONPATH=/ortpacks
"""
"""Environment of a compile, the same as in templates/variant.Dockerfile.j2."""


_MACHINE, _X86_64 = 18, b"\x3e\0"
"""Offset of the machine in an ELF header, and x86-64's value (ELF-64 Object File Format; x86-64 psABI)."""


def kernels(cubin: bytes) -> dict[str, str]:
    """Return the sha256 of each kernel's instructions by mangled name."""
    as_ours = cubin[:_MACHINE] + _X86_64 + cubin[_MACHINE + 2 :]  # the only machine that the reader accepts
    return {
        section.name.removeprefix(".text."): sha256(
            cubin[section.offset : section.offset + section.size]
        ).hexdigest()
        for section in read_sections(as_ours)
        if section.name.startswith(".text.")
    }


@dataclass(frozen=True)
class Toolchain:
    """A container of the toolchain image with the stand-in for nvcc. ``folder`` is its ``/unit``."""

    container: str
    folder: Path

    def sh(self, script: str) -> subprocess.CompletedProcess[str]:
        argv = ["docker", "exec", "--workdir=/unit", self.container, "/bin/bash", "-euc"]
        return ran([*argv, ENVIRONMENT + script])

    def compile(self, codes: tuple[str, ...], *options: str, nvcc: str = "nvcc") -> Path:
        flags = [f"--generate-code=arch=compute_{code.replace(':', ',code=[sm_')}]" for code in codes]
        made = "-MD -MT unit.o -MF unit.o.d -x cu -c unit.cu -o unit.o"
        done = self.sh(" ".join([nvcc, "-std=c++17", *flags, *options, made]))
        assert done.returncode == 0, done.stdout + done.stderr
        return self.folder / "unit.o"

    def made(self) -> list[str]:
        """Return the names of the pieces that ccache lacked since the last call, sorted."""
        log = self.folder / "pieces.log"
        found = re.findall(r"^# (\S+)\ncache_miss$", log.read_text() if log.exists() else "", re.MULTILINE)
        log.unlink(missing_ok=True)
        return sorted(name.rpartition(".pieces/")[2] for name in found)

    def device_code(self, file: str = "unit.o") -> dict[str, dict[str, str]]:
        """Return the digests of all kernels of ``file`` by architecture and name, with cuobjdump."""
        extract = f"rm -rf cubins; mkdir cubins; cd cubins; cuobjdump -xelf all ../{file}"
        assert self.sh(extract).returncode == 0
        files = (self.folder / "cubins").iterdir()
        return {file.suffixes[-2].removeprefix(".sm_"): kernels(file.read_bytes()) for file in files}

    def new_unit(self, text: str) -> None:
        """Write the unit, and remove what was made of another."""
        self.sh("rm -rf /unit/*")
        (self.folder / "unit.cu").write_text(text)
        (self.folder / "scale.h").write_text("#define SCALE 2\n")


@contextmanager
def running(dist: Path, folder: Path, cuda: str | None = None) -> Iterator[Toolchain]:
    """Run a container with ``folder`` until the block ends; ``cuda``: of this entry of ``toolkits``."""
    shop = Wiring(ROOT, dist=dist)
    toolkit = shop.project.bases["assembled"].toolkit
    assert isinstance(toolkit, UnpackedToolkit)
    ptxas = shop.store(shop.lock).unpack(toolkit.wheels["ptxas"]) / "nvidia/cuda_nvcc/bin/ptxas"
    shop.project = shop.project.compiling_with(cuda) if cuda else shop.project
    image = CheckTools(shop, "assembled", shop.reporter).toolchain()
    name = f"ortpacks-nvcc-{uuid.uuid4().hex[:8]}"
    farm = f"{ROOT}/builder/farm:/ortpacks/builder/farm:ro"
    volumes = [f"--volume={mount}" for mount in (f"{folder}:/unit", farm, f"{ptxas}:/ptxas-newer:ro")]
    flags = ("--detach", "--rm", "--network=none", "--init", f"--name={name}", *volumes)
    docker("run", *flags, image, "sleep", "3600")
    try:
        made = Toolchain(name, folder)
        done = made.sh(INSTALL)
        assert done.returncode == 0, done.stderr
        yield made
    finally:
        docker("rm", "--force", name)
