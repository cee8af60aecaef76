"""Operators with kernels in the official CUDA provider and none in a provider of a smaller profile.

``onnxruntime.cannot_run`` of a manifest lists them. Domains are spelled as in models: ``""`` is ONNX's own,
ai.onnx. An empty list of operators means the whole domain. ``Name`` means every version of an operator,
``Name(1)`` the version of opset 1 alone, as in ONNX Runtime's messages.

Source: 1.21.0's ``contrib_ops/cuda/cuda_contrib_kernels.cc``, whose kernels are missing without contrib
operators. Its docs/OperatorKernels.md, which ONNX Runtime generates from an official build, has the same
names.
"""

from __future__ import annotations

import json
import pkgutil
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping, NamedTuple, Optional, Sequence, Tuple

from builder.formats.package_names import Host, Profile

ONNX = ""

MICROSOFT = "com.microsoft"

NHWC = "com.ms.internal.nhwc"

_ONNX_TITLE = "ai.onnx"


@dataclass(frozen=True)
class MissingKernels:
    """The operators of one domain for which a package has no CUDA kernels."""

    domain: str
    operators: Tuple[str, ...]
    """Sorted names; empty for the whole domain."""

    @property
    def title(self) -> str:
        """Return the domain's usual name, ``ai.onnx`` for the empty one."""
        return self.domain or _ONNX_TITLE


@dataclass(frozen=True)
class MissingBelow(MissingKernels):
    """Operators that do not run on GPUs below a compute capability."""

    below: str
    """``5.3``."""


_FUSED = "Attention, BiasGelu, FusedMatMul, SkipLayerNormalization …"
"""Operators that the official host library fuses transformers into. Source: a MiniLM model without their
kernels."""

NO_KERNEL_FOUND = "Failed to find kernel for"
"""The beginning of ONNX Runtime's message for a node that no provider of the session can run."""

_FAILURES = (
    re.compile(NO_KERNEL_FOUND + r" (?:(?P<domain>[\w.]+)\.)?(?P<name>\w+)\((?P<since>\d+)\)"),
    re.compile(r"(?P<domain>[\w.]*):(?P<name>\w+)\((?P<since>-?\d+)\) is not a registered function/op"),
)
"""Messages for a missing kernel: 1.21.0's kernel_registry_manager.cc line 64 and graph.cc line 3179."""

_UNNAMED = "Kernel not found"

CURE = "Install the full package, the one with neither -lean nor -minimal in its name{otherwise}."

NO_KERNEL = "{package} has no kernel for {operator}: it was compiled without that one."

NO_HOST = "none"
"""The origin of the host library of a plug-in, which has none."""

_NAMED = 6
"""The most operators that a sentence names."""


class Shortcoming(NamedTuple):
    """The consequence of missing kernels and the remedy, in sentences."""

    means: str
    otherwise: str
    """A second remedy, which is inserted into ``CURE``."""

    @property
    def do(self) -> str:
        """Return the remedy."""
        return CURE.format(otherwise=self.otherwise)


def consequence_of(missing: Sequence[MissingKernels], host: Optional[str]) -> Optional[Shortcoming]:
    """Return the consequence of missing kernels; ``None`` where no kernel is missing.

    ``host`` is the origin of the package's host library: ``none`` for a plug-in; ``None``, from an index of
    format 3, means ``wheel``.
    """
    if not missing:
        return None
    if runs_nothing(missing):
        return Shortcoming(
            "A minimal package has no CUDA kernel for any operator: nothing runs on the GPU.", ""
        )
    if host == NO_HOST:
        names = [name for entry in missing for name in entry.operators]
        shown = f" ({', '.join(names[:_NAMED])}{' …' if len(names) > _NAMED else ''})" if names else ""
        means = f"Operators that a plug-in has no kernels for{shown} run on the CPU, or their models fail."
        return Shortcoming(means, ", and of form provider: --form provider")
    if host == Host.SOURCE.value:
        means = f"Models with {MICROSOFT} operators ({_FUSED}) fail: a lean package is compiled without them."
        return Shortcoming(means, "")
    means = (
        "Transformer models fail at ONNX Runtime's default optimisation level: that makes "
        f"{MICROSOFT} operators ({_FUSED}), and a lean package has no CUDA kernels for them."
    )
    return Shortcoming(means, ", or set ORT_ENABLE_BASIC in the application")


def runs_nothing(missing: Sequence[MissingKernels]) -> bool:
    """Return whether no operator of ONNX has a CUDA kernel."""
    return MissingKernels(ONNX, ()) in missing


def counted(missing: Sequence[MissingKernels]) -> str:
    """Return the number of operators of each domain: ``9 of ai.onnx, 65 of com.microsoft``."""
    return ", ".join(f"{len(entry.operators) or 'all'} of {entry.title}" for entry in missing)


def operator_without_kernel(message: str, missing: Sequence[MissingKernels]) -> Optional[str]:
    """Return the operator that fails with this message of ONNX Runtime's because of ``missing`` kernels.

    ``"an operator"`` where the message names none; ``None`` where it has another cause.
    """
    matches = [match for pattern in _FAILURES for match in pattern.finditer(message)]
    for match in matches:
        # One of the two messages names ONNX's own domain, the other omits it.
        domain, name = match["domain"] or ONNX, match["name"]
        domain = ONNX if domain == _ONNX_TITLE else domain
        names = {name, f"{name}({match['since']})"}
        for entry in missing:
            if domain == entry.domain and (not entry.operators or names & set(entry.operators)):
                return f"{domain}.{name}" if domain else name
    return "an operator" if missing and not matches and _UNNAMED in message else None


class Cause(NamedTuple):
    """The reason for which a model fails: it needs an operator that the package was compiled without."""

    package: str
    operator: str
    otherwise: str

    def __str__(self) -> str:
        """Return the reason and the remedy."""
        return f"{NO_KERNEL} {CURE}".format(**self._asdict())


def missing_kernel_cause(
    message: str, name: str, missing: Sequence[MissingKernels], host: Optional[str]
) -> Optional[Cause]:
    """Return why a model fails with this message in the package ``name``.

    ``None`` where the package's missing kernels are not the cause.
    """
    operator, consequence = operator_without_kernel(message, missing), consequence_of(missing, host)
    return Cause(name, operator, consequence.otherwise) if operator and consequence else None


_CONTRIB = json.loads(pkgutil.get_data(__name__, "missing_kernels.json") or b"")

_LEAN = MissingKernels(ONNX, tuple(_CONTRIB[_ONNX_TITLE]))
"""Contrib operators in ONNX's domain, two of them older versions of ONNX's own operators. Source: 1.21.0's
``contrib_ops/cuda/cuda_contrib_kernels.cc``, and the same file at 004b79e of 2026."""

_LEAN_AS_READ = (
    MissingKernels(MICROSOFT, tuple(_CONTRIB[MICROSOFT])),
    MissingKernels(NHWC, ("GridSample",)),
)
"""Contrib operators in other domains. Source: the same file of 1.21.0, and line 152 of
``core/providers/cuda/cuda_nhwc_kernels.cc``."""

_READ = re.compile(r"1\.21\.0(?!\d)")
"""The versions of ONNX Runtime for which ``_LEAN_AS_READ`` is true."""

_MINIMAL = tuple(MissingKernels(domain, ()) for domain in (ONNX, MICROSOFT, NHWC))
"""All domains: only copies to and from the GPU remain. Source: 1.21.0's ``cuda_execution_provider.cc`` lines
1465 and 2443."""


def cannot_run(
    profile: Optional[str], version: str, left_out: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Tuple[MissingKernels, ...]:
    """Return the operators without kernels in this profile of ONNX Runtime ``version``.

    Empty for other profiles than lean and minimal, but for ``left_out``: what a plug-in of any profile has
    none for, by domain. For lean and a version other than 1.21.0, all of ``com.microsoft`` counts as missing.
    """
    missing: Tuple[MissingKernels, ...] = ()
    if profile == Profile.MINIMAL.value:
        missing = _MINIMAL
    elif profile == Profile.LEAN.value:
        missing = (_LEAN, *(_LEAN_AS_READ if _READ.match(version) else (MissingKernels(MICROSOFT, ()),)))
    by_domain = {entry.domain: entry for entry in missing}
    for domain, operators in left_out.items():
        of_profile = by_domain.get(domain)
        if of_profile is None or of_profile.operators:
            names = {*operators, *(of_profile.operators if of_profile else ())}
            by_domain[domain] = MissingKernels(domain, tuple(sorted(names)))
    return tuple(by_domain.values())
