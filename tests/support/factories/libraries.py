"""Results of ``inspect`` for libraries, made by hand: how many containers serve which capability."""

from collections.abc import Mapping, Sequence

from builder.binary.coverage import ContainerTally, LibraryCoverage, cover
from builder.binary.fatbin import read_containers
from builder.binary.library import Inspected
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.table import DEVICES
from tests.support import present
from tests.support.factories.binaries import elf


def coverage(
    *,
    containers: int = 10,
    native: str = "",
    jit: str = "",
    mixed: Mapping[str, tuple[int, ...]] | None = None,
    sections: Mapping[str, int] | None = None,
    nothing_to_run: int = 0,
    ltoir: Sequence[str] = (),
    isa: tuple[int, int] | None = None,
    unknown: int = 0,
    specialised: bool = False,
    zstd: bool = False,
) -> LibraryCoverage:
    """Return a library's coverage, in which each capability that no argument names is not served.

    ``native="8.0 8.6"``: all containers have SASS for these. ``jit``: all have PTX alone. ``mixed``:
    numbers of containers that run natively, by JIT and not at all.
    """
    active = containers - nothing_to_run
    tally = {
        **dict.fromkeys(DEVICES, ContainerTally(0, 0, active)),
        **{Capability.parse(device): ContainerTally(active, 0, 0) for device in native.split()},
        **{Capability.parse(device): ContainerTally(0, active, 0) for device in jit.split()},
        **{Capability.parse(device): ContainerTally(*counts) for device, counts in (mixed or {}).items()},
    }
    return LibraryCoverage(
        path="unused",
        containers=containers,
        sections=sections if sections is not None else {".nv_fatbin": containers},
        images={},
        sizes={},
        sass=(Arch(8, 0), Arch(9, 0, "a")),
        ptx=(Arch(9, 0),),
        ltoir=tuple(map(Arch.parse, ltoir)),
        isa=isa,
        unknown=unknown,
        nothing_to_run=nothing_to_run,
        link_inputs=0,
        unlinked=0,
        single=0,
        specialised=specialised,
        tally=tally,
        zstd=zstd,
    )


CARDS = "5.0 5.2 6.0 6.1 7.0 7.5 8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1"
"""Capabilities of all listed devices but Tegra's."""

PLAIN = Inspected(name="libplain.so")

BROKEN = Inspected(name="libbroken.so", problem="not an ELF file (at offset 0x0)")

PROVIDER = Inspected(
    name="libprovider.so",
    coverage=coverage(
        containers=184,
        native="6.0 6.1 7.0 8.0 8.6 8.9 9.0",
        jit="10.0 10.3 11.0 12.0 12.1",
        mixed={"7.5": (183, 0, 1)},
    ),
)
"""Coverage like that of ONNX Runtime 1.23.2's provider, but with one container that does not run on 7.5."""

OWN = Inspected(name="libcublas.so.12", coverage=coverage(containers=20, native=CARDS, specialised=True))

IDLE = Inspected(name="libcufftw.so.11", coverage=coverage(containers=1, nothing_to_run=1, specialised=True))


def covered(*containers: bytes, path: str = "lib/libx.so", specialised: bool = False) -> LibraryCoverage:
    """Return the coverage of a library with these containers in ``.nv_fatbin``."""
    library = elf({".nv_fatbin": b"".join(containers)})
    return present(cover(path, read_containers(library), specialised=specialised))
