"""Which code runs on which device.

Sources: NVIDIA's Blackwell Compatibility Guide 13.0 and "CUDA 12.9 family-specific features" for the rules;
``DEVICE_REQUIREMENT`` in PyTorch's ``torch/cuda/__init__.py`` for the embedded parts that break the rule
"same major, minor at least".
"""

from __future__ import annotations

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
