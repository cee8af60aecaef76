"""Rules for the devices that SASS and PTX of an architecture run on.

Sources: NVIDIA's Blackwell Compatibility Guide 13.0 and "CUDA 12.9 family-specific features" for the rules;
``DEVICE_REQUIREMENT`` in PyTorch's ``torch/cuda/__init__.py`` for the embedded parts, which break the rule
"same major, minor at least".
"""

from __future__ import annotations

from typing import Mapping

from builder.gpu.architectures import Arch, Capability
from builder.gpu.table import EMBEDDED


def runs_sass(code: Arch, device: Capability) -> bool:
    """Return whether SASS for ``code`` runs on ``device``.

    Plain SASS runs on devices of the same major version with the same or a higher minor one, SASS with ``f``
    on its family, which is the same set, and SASS with ``a`` on its own capability only. An embedded part
    runs only SASS of its own number, or of the part's number before it was renamed.
    """
    if code.number in EMBEDDED or device.number in EMBEDDED:
        return device.number in EMBEDDED.get(code.number, ())
    if code.suffix == "a":
        return code.number == device.number
    return code.major == device.major and code.minor <= device.minor


def jits_ptx(code: Arch, device: Capability) -> bool:
    """Return whether a driver can compile PTX of ``code`` for ``device``.

    Plain PTX can be compiled for the same or any newer capability, PTX with a suffix where such SASS runs.
    """
    if code.suffix:
        return runs_sass(code, device)
    return (code.major, code.minor) <= (device.major, device.minor)


_FIRST_SUFFIX = 9
"""Major version of the first architecture that may have a suffix (PTX ISA); older SASS has none."""

NATIVE, JIT, PARTIAL, NONE = SUPPORT = ("native", "jit", "partial", "none")
"""The ways in which device code runs on a GPU, best first."""


def implied(known: Mapping[Capability, str], device: Capability) -> str:
    """Return the support that the devices in ``known`` imply for a device that is not among them.

    ``known``: one of ``SUPPORT`` by capability. SASS without a suffix also runs
    on higher minor versions. PTX that runs on several major versions has no suffix, so a driver compiles it
    for newer devices too.
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
