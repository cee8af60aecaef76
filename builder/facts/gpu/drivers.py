"""The releases of CUDA, each with its drivers and the newest PTX that it knows: the source of driver floors.

Sources: the CUDA Toolkit release notes 12.0 to 13.4 (docs.nvidia.com/cuda/cuda-toolkit-release-notes), their
tables "CUDA Toolkit and Corresponding Driver Versions" and "Minimum Required Driver Version for CUDA Minor
Version Compatibility"; the PTX ISA, "Release History", which names the driver's branch for each version.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

Version = Tuple[int, ...]

FLOOR_12 = "525.60.13"
"""The oldest Linux driver for any CUDA 12."""

FLOOR_ZSTD = "550.54.14"
"""The Linux driver of CUDA 12.4, the first that reads images packed with zstd."""

FLOOR_13 = "580.65.06"
"""The Linux driver of CUDA 13.0, the oldest for any CUDA 13."""


class CudaDriver(NamedTuple):
    """A CUDA release, the newest PTX that it knows, and its drivers."""

    cuda: Version
    isa: Version
    """Version of the PTX ISA."""
    linux: str
    windows: str = ""
    """The oldest Windows driver; empty for CUDA 13, whose release notes name none."""


DRIVERS = (
    CudaDriver((12, 0), (8, 0), FLOOR_12, "528.33"),
    CudaDriver((12, 1), (8, 1), "530.30.02", "531.14"),
    CudaDriver((12, 2), (8, 2), "535.54.03", "536.25"),
    CudaDriver((12, 3), (8, 3), "545.23.06", "545.84"),
    CudaDriver((12, 4), (8, 4), FLOOR_ZSTD, "551.61"),
    CudaDriver((12, 5), (8, 5), "555.42.02", "555.85"),
    CudaDriver((12, 7), (8, 6), "565.57.01", "565.90"),
    CudaDriver((12, 8), (8, 7), "570.26", "570.65"),
    CudaDriver((12, 9), (8, 8), "575.51.03", "576.02"),
    CudaDriver((13, 0), (9, 0), FLOOR_13),
    CudaDriver((13, 1), (9, 1), "590.44.01"),
    CudaDriver((13, 2), (9, 2), "595.45.04"),
    CudaDriver((13, 3), (9, 3), "610.43.02"),
    CudaDriver((13, 4), (9, 4), "615"),
    CudaDriver((13, 5), (9, 5), "620"),
)
"""The first CUDA with each version of the PTX ISA, oldest first.

For any CUDA 12 the release notes require Windows driver 528.33 of CUDA 12.0 Update 1 (those of 12.0 and 12.2:
527.41). No release notes name 565.90; it is the first driver that reports CUDA 12.7. Of CUDA 13.4 and 13.5
the branch alone is known; that of 13.5 from NVIDIA's list of driver archives, ``redistrib_620.70.06.json``.
"""


def toolkit_floor(cuda: Version) -> Optional[str]:
    """Return the oldest Linux driver that knows all of a CUDA release; ``None`` for one newer than known."""
    return next((driver.linux for driver in DRIVERS if cuda <= driver.cuda), None)


def ptx_floor(isa: Version) -> Optional[str]:
    """Return the oldest Linux driver for CUDA 12 or newer that compiles PTX of version ``isa``.

    ``None`` for a version that is newer than all known ones.
    """
    return next((driver.linux for driver in DRIVERS if isa <= driver.isa), None)


def windows_floor(floor: str) -> str:
    """Return the oldest Windows driver that corresponds to the Linux driver ``floor``.

    That is the branch, ``580`` of ``580.65.06``, for a driver that ``DRIVERS`` does not name: a branch has
    the same number on both systems.
    """
    known = (driver.windows for driver in DRIVERS if driver.linux == floor)
    return next(known, "") or floor.partition(".")[0]
