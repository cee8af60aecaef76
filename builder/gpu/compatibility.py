"""Which code runs on which device.

Sources: NVIDIA's Blackwell Compatibility Guide 13.0 and "CUDA 12.9 family-specific features" for the rules;
``DEVICE_REQUIREMENT`` in PyTorch's ``torch/cuda/__init__.py`` for the embedded parts that break the rule
"same major, minor at least".
"""

from __future__ import annotations

from typing import Mapping

from builder.gpu.architectures import Arch, Capability
from builder.gpu.table import EMBEDDED


def runs_sass(code: Arch, device: Capability) -> bool:
    """Whether SASS of ``code`` runs on ``device``: same major and minor at least, ``a`` exactly its own.

    ``f`` code runs on its family, which is the same set as for plain code. Embedded parts run only their own.
    """
    if code.number in EMBEDDED or device.number in EMBEDDED:
        return device.number in EMBEDDED.get(code.number, ())
    if code.suffix == "a":
        return code.number == device.number
    return code.major == device.major and code.minor <= device.minor


def jits_ptx(code: Arch, device: Capability) -> bool:
    """Whether a driver can compile PTX of ``code`` for ``device``: any newer one; ``a`` and ``f`` as SASS."""
    if code.suffix:
        return runs_sass(code, device)
    return (code.major, code.minor) <= (device.major, device.minor)


_FIRST_SUFFIX = 9
"""Major version of the first architecture that may have a suffix: SASS of older ones is plain."""

NATIVE, JIT, NONE = "native", "jit", "none"


def implied(known: Mapping[Capability, str], device: Capability) -> str:
    """``native``, ``jit`` or ``none`` on a device that is not among the ``known`` ones, as they imply it.

    SASS without a suffix runs on each newer minor version. PTX that a driver compiles for several major
    versions has no suffix, and is compiled for each newer device.
    """
    cards = sorted(one for one in known if one.number not in EMBEDDED)
    older = [one for one in cards if one < device]
    if device.number in EMBEDDED or not older:
        return NONE
    alike = [one for one in older if one.major == device.major < _FIRST_SUFFIX]
    if any(known[one] == NATIVE for one in alike):
        return NATIVE
    nearest = older[-1]
    plain = any(known[one] == JIT and one.major != nearest.major for one in cards)
    return JIT if known[nearest] == JIT and plain else NONE
