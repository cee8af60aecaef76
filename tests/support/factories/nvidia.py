"""Device code that NVIDIA's compiler and packer make during a test, to calibrate the native reader.

NVRTC compiles for every architecture of CUDA 12.9 without a GPU, nvFatbin packs the results into fatbins.
Both come from PyPI, cuobjdump from Debian's archive. The compiled code stays in memory.
"""

import ctypes
import io
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from cuda.bindings import nvfatbin, nvrtc

from builder.binary.fatbin_format import Kind
from builder.config.inputs import Input, Lock, Pin
from builder.contents.cuobjdump import Listing
from builder.io.wiring import Wiring
from tests.support import ROOT, ran
from tests.support.tables import data_text

Made = TypeVar("Made")

PLAIN = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121)

ARCHES = (
    *(str(number) for number in PLAIN),
    *("90a", "100a", "100f", "101a", "101f", "103a", "103f", "120a", "120f", "121a", "121f"),
)
"""Architectures of NVRTC 12.9. Source: its documentation, "Supported Compile Options", ``-arch``."""

SMALL = data_text("cuda/small.cu")

BIG = data_text("cuda/big.cu")

NO_KERNEL = "__device__ int unused(int a) { return a + 1; }"


@dataclass(frozen=True)
class Code:
    """The content of an image for ``arch``, such as ``90a``."""

    kind: Kind
    arch: str
    data: bytes


@cache
def known() -> tuple[int, ...]:
    """Return the architectures that NVRTC reports to support, as numbers without suffixes."""
    _load_nvrtc()
    return tuple(_value(nvrtc.nvrtcGetSupportedArchs()))


@cache
def compiled(source: str, arch: str) -> tuple[Code, Code]:
    """Compile a program for ``arch`` and return its SASS and PTX."""
    program = _compile(source, f"--gpu-architecture=sm_{arch}")
    sass = _take(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    ptx = _take(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    return Code(Kind.SASS, arch, sass), Code(Kind.PTX, arch, ptx)


@cache
def compiled_lto(source: str, arch: str) -> Code:
    """Compile a program for ``arch`` and return its LTO IR."""
    program = _compile(source, f"--gpu-architecture=compute_{arch}", "-dlto")
    return Code(Kind.LTOIR, arch, _take(program, nvrtc.nvrtcGetLTOIRSize, nvrtc.nvrtcGetLTOIR))


def packed(codes: Iterable[Code], *options: str) -> bytes:
    """Return a fatbin of one container, made by nvFatbin with ``options``."""
    handle = nvfatbin.create(list(options), len(options))
    for code in codes:
        if code.kind is Kind.SASS:
            nvfatbin.add_cubin(handle, code.data, len(code.data), code.arch, "demo")
        elif code.kind is Kind.PTX:
            nvfatbin.add_ptx(handle, code.data, len(code.data), code.arch, "demo", "")
        else:
            nvfatbin.add_ltoir(handle, code.data, len(code.data), code.arch, "demo", "")
    made = bytearray(nvfatbin.size(handle))
    nvfatbin.get(handle, made)
    nvfatbin.destroy(handle)
    return bytes(made)


def unpack_cuobjdump(folder: Path) -> Path:
    """Extract cuobjdump 12.4 from Debian's package of nvcc into ``folder`` and return its path."""
    shop = Wiring(ROOT)
    deb = shop.store(shop.lock).fetch(shop.project.check.cuobjdump)
    data = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as tree:
        program = tree.extractfile("./usr/bin/cuobjdump")
        assert program is not None
        path = folder / "cuobjdump"
        path.write_bytes(program.read())
    path.chmod(0o755)
    return path


CUDNN_928 = Input.wheel("nvidia-cudnn-cu12==9.28.0.42")
"""A version without support for Maxwell, Pascal and Volta, which no variant bundles."""

_CUDNN_928_PIN = Pin(
    filename="nvidia_cudnn_cu12-9.28.0.42-py3-none-manylinux_2_27_x86_64.whl",
    sha256="9ff58b7f36dacd0a93e89f8f2957b52466889217963701daa15e577317cfa375",
    size=716538495,
)


def cudnn_928() -> Path:
    """Return the folder of cuDNN 9.28's libraries; the first use fetches the wheel, 717 MB."""
    store = Wiring(ROOT).store(Lock(pins={CUDNN_928.key: _CUDNN_928_PIN}))
    return store.unpack(CUDNN_928) / "nvidia" / "cudnn" / "lib"


def listing(program: Path, flag: str, library: Path) -> Listing:
    """Run cuobjdump with a flag on a library."""
    done = ran([program, flag, library])
    return Listing(done.returncode, done.stdout, done.stderr)


@cache
def _load_nvrtc() -> None:
    """Load the NVRTC of ``inputs.lock`` into the process, before the bindings look for another one."""
    shop = Wiring(ROOT)
    wheel = shop.store(shop.lock).unpack(shop.project.cuda.libraries["nvrtc"])
    ctypes.CDLL(str(wheel / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"), mode=ctypes.RTLD_GLOBAL)


def _compile(source: str, *options: str) -> nvrtc.nvrtcProgram:
    _load_nvrtc()
    program = _value(nvrtc.nvrtcCreateProgram(source.encode(), b"demo.cu", 0, [], []))
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    log = _take(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    return program


def _take(
    program: nvrtc.nvrtcProgram,
    size: Callable[[object], tuple[object, int]],
    content: Callable[[object, bytes], tuple[object]],
) -> bytes:
    """Return a result of NVRTC: ``content`` writes it into a buffer of the length ``size(program)``."""
    buffer = bytes(_value(size(program)))
    (status,) = content(program, buffer)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    return buffer


def _value(answer: tuple[object, Made]) -> Made:
    """Return the value in an answer of the bindings. Raises ``AssertionError`` for an error status."""
    status, value = answer
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
    return value
