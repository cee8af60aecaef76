"""Tests of the reader of payloads: kernels of released libraries by cuobjdump, stubs on all architectures."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from builder.binary.deep import DeepReading, read_payloads
from builder.binary.fatbin import read_containers
from builder.config.inputs import Input
from builder.contents.reading import read_file
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.factories.nvidia import ARCHES, compiled, packed, unpack_cuobjdump

KERNELS = """
extern "C" __global__ void guarded(float *a, float b) { %s }
extern "C" __global__ void idle() {}
extern "C" __global__ void scale(float *a, float b) { a[threadIdx.x] *= b; }
"""

WORK, GUARDS = "a[threadIdx.x] += b;", ("", "__trap();", "__trap(); a[0] = b;")

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("arch", ARCHES)
def test_a_guarded_body_is_a_stub_on_every_architecture(arch: str, guard: str) -> None:
    other = "80" if arch != "80" else "90"
    whole, guarded = KERNELS % WORK, KERNELS % guard
    fatbin = packed([compiled(guarded, arch)[0], compiled(whole, other)[0]], "-compress-all")
    _containers, found = read_payloads(fatbin, read_containers(fatbin))
    assert found.damages == []
    assert [(one.kernel, str(one.on[0])) for one in found.stubs] == [("guarded", f"sm_{arch}")]
    assert found.idle == 1


def test_ptx_of_a_guarded_body_is_a_stub() -> None:
    for guard in GUARDS[:2]:
        fatbin = packed([compiled(KERNELS % guard, "80")[1], compiled(KERNELS % WORK, "80")[0]])
        _containers, found = read_payloads(fatbin, read_containers(fatbin))
        assert [str(target) for one in found.stubs for target in one.on] == ["compute_80"]


@pytest.mark.parametrize(
    ("wheel", "library"),
    [
        ("onnxruntime-gpu==1.23.2", "onnxruntime/capi/libonnxruntime_providers_cuda.so"),
        ("nvidia-cudnn-cu12==9.10.2.21", "nvidia/cudnn/lib/libcudnn_cnn.so.9"),
        ("nvidia-curand-cu12==10.3.10.19", "nvidia/curand/lib/libcurand.so.10"),
    ],
)
def test_cuobjdump_names_the_same_kernels(wheel: str, library: str, tmp_path: Path) -> None:
    """SASS is compared by name and architecture; all of it lies in ``.nv_fatbin``, which cuobjdump reads."""
    shop = Wiring(ROOT)
    file = shop.store(shop.lock).unpack(Input.wheel(wheel)) / library
    found = read_file(file.name, file, symbols=False, deep=True).deep
    assert found is not None
    assert found.damages == []
    said = _symbols(unpack_cuobjdump(tmp_path), file)
    assert sum(said.values()) > 600
    ours = {(arch, name) for name, targets in found.names.items() for arch in map(str, targets)}
    assert {one for one in ours if one[0].startswith("sm_")} == set(said)
    assert _counts(found) == Counter(arch for arch, _name in said.elements())


def _counts(found: DeepReading) -> Counter[str]:
    return Counter({str(one): count for one, count in found.kernels.items() if str(one).startswith("sm_")})


def _symbols(program: Path, library: Path) -> Counter[tuple[str, str]]:
    """Return architecture and name of each kernel in the symbol tables that cuobjdump prints."""
    argv = [str(program), "--dump-elf-symbols", str(library)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: Counter[tuple[str, str]] = Counter()
    arch = ""
    for line in done.stdout.splitlines():
        if line.startswith("arch = "):
            arch = line.removeprefix("arch = ")
        elif "STO_ENTRY" in line:
            found[arch, line.split()[-1]] += 1
    return found
