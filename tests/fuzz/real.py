"""Seeds from real tools: NVIDIA's compiler and packer, and a linker."""

from pathlib import Path

import markupsafe._speedups

from tests.fuzz.seeds import Seed
from tests.support.factories.binaries import elf
from tests.support.factories.nvidia import SMALL, compiled, compiled_lto, packed


def real() -> tuple[Seed, ...]:
    """Return fatbins of NVIDIA's packer, bare and in libraries, cubins, and a linker's library."""
    old = packed((*compiled(SMALL, "50"), compiled_lto(SMALL, "50")), "-compress=false")
    new = packed(
        [
            code
            for arch in ("75", "90a", "120f")
            for code in (*compiled(SMALL, arch), compiled_lto(SMALL, arch))
        ],
        "-compress-mode=size",
    )
    lz4 = packed(compiled(SMALL, "86"), "-compress-all")
    library = elf({".nv_fatbin": lz4 + new, ".ldata": bytes(8) + lz4}, needed=("libc.so.6",))
    relocatable = elf({"__nv_relfatbin": new, ".rodata": old})
    linked = Path(markupsafe._speedups.__file__).read_bytes()
    bare = (*(code.data for code in compiled(SMALL, "90")), compiled(SMALL, "100")[0].data)
    raw = elf({".rodata": b"\0".join(bare), ".nv_fatbin": lz4})
    return tuple(map(Seed, (old, new, lz4 + old, library, relocatable, linked, *bare, raw)))
