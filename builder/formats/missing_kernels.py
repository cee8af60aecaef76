"""Operators that the official CUDA provider has kernels for and a provider of a smaller profile has none for.

``onnxruntime.cannot_run`` of a manifest holds them. Domains are spelled as models spell them: ``""`` is that
of ONNX itself, ai.onnx. An empty list of operators stands for the whole domain. ``Name`` is every version of
an operator, ``Name(1)`` the one of opset 1 alone, which is how ONNX Runtime's messages spell it.

1.21.0's ``contrib_ops/cuda/cuda_contrib_kernels.cc`` was read: what it registers is gone without contrib
operators. Its docs/OperatorKernels.md, which ONNX Runtime makes from an official build, has the same names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Sequence, Tuple

from builder.formats.package_names import Host, Profile
from builder.gpu.cuda_toolkits import version_of

ONNX = ""

MICROSOFT = "com.microsoft"

NHWC = "com.ms.internal.nhwc"

_ONNX_TITLE = "ai.onnx"


@dataclass(frozen=True)
class MissingKernels:
    """The operators of one domain that a package has no CUDA kernels for."""

    domain: str
    operators: Tuple[str, ...]
    """Sorted; empty for the whole domain."""

    @property
    def title(self) -> str:
        """The domain as people name it."""
        return self.domain or _ONNX_TITLE


_FUSED = "Attention, BiasGelu, FusedMatMul, SkipLayerNormalization …"
"""What the official host library fuses transformers into: MiniLM with its kernels taken away."""

NO_KERNEL_FOUND = "Failed to find kernel for"
"""How ONNX Runtime's message of a node that no provider of the session can run begins."""

_FAILURES = (
    re.compile(NO_KERNEL_FOUND + r" (?:(?P<domain>[\w.]+)\.)?(?P<name>\w+)\((?P<since>\d+)\)"),
    re.compile(r"(?P<domain>[\w.]*):(?P<name>\w+)\((?P<since>-?\d+)\) is not a registered function/op"),
)
"""1.21.0's kernel_registry_manager.cc line 64 and graph.cc line 3179."""

_UNNAMED = "Kernel not found"

CURE = "Install the full package, the one with neither -lean nor -minimal in its name{otherwise}."

NO_KERNEL = "{package} has no kernel for {operator}: it was compiled with less than the full profile."


class Shortcoming(NamedTuple):
    """What does not work for want of kernels, and what to do: sentences."""

    means: str
    otherwise: str
    """What else helps; goes into ``CURE``."""

    @property
    def do(self) -> str:
        """What to do."""
        return CURE.format(otherwise=self.otherwise)


def shortcoming(missing: Sequence[MissingKernels], host: Optional[str]) -> Optional[Shortcoming]:
    """What it means that a package cannot run these; ``None`` where it runs all that the official build does.

    ``host``: where its host library comes from; ``None``, of an index of format 3, counts as ``wheel``.
    """
    if not missing:
        return None
    if runs_nothing(missing):
        return Shortcoming(
            "A minimal package has no CUDA kernel for any operator: nothing runs on the GPU.", ""
        )
    if host == Host.SOURCE.value:
        means = f"Models with {MICROSOFT} operators ({_FUSED}) fail: a lean package is compiled without them."
        return Shortcoming(means, "")
    means = (
        "Transformer models fail at ONNX Runtime's default optimisation level: that makes "
        f"{MICROSOFT} operators ({_FUSED}), and a lean package has no CUDA kernels for them."
    )
    return Shortcoming(means, ", or set ORT_ENABLE_BASIC in the application")


def runs_nothing(missing: Sequence[MissingKernels]) -> bool:
    """Whether no operator of ONNX is left that runs on the GPU."""
    return MissingKernels(ONNX, ()) in missing


def counted(missing: Sequence[MissingKernels]) -> str:
    """How many operators of each domain: ``9 of ai.onnx, 65 of com.microsoft``."""
    return ", ".join(f"{len(one.operators) or 'all'} of {one.title}" for one in missing)


class Failed(NamedTuple):
    """An operator that ONNX Runtime found no kernel for, as its message names it."""

    domain: str
    name: str
    since: str

    def __str__(self) -> str:
        """``com.microsoft.BiasGelu``."""
        return f"{self.domain}.{self.name}" if self.domain else self.name


def failed(message: str, missing: Sequence[MissingKernels]) -> Optional[str]:
    """The operator that this message of ONNX Runtime's says it cannot run for want of these kernels.

    ``"an operator"`` where it does not name one; ``None`` where the message has another cause.
    """
    found: List[Failed] = [
        Failed(_domain(match["domain"]), match["name"], match["since"])
        for pattern in _FAILURES
        for match in pattern.finditer(message)
    ]
    for one in found:
        if any(_is_in(one, entry) for entry in missing):
            return str(one)
    return "an operator" if missing and not found and _UNNAMED in message else None


class Cause(NamedTuple):
    """Why a model fails: an operator in it that the package was compiled without."""

    package: str
    operator: str
    otherwise: str

    def __str__(self) -> str:
        """The cause and the cure."""
        return f"{NO_KERNEL} {CURE}".format(**self._asdict())


def cause(message: str, name: str, missing: Sequence[MissingKernels], host: Optional[str]) -> Optional[Cause]:
    """Why a model fails with this message in package ``name``; ``None``: not for want of its kernels."""
    operator, found = failed(message, missing), shortcoming(missing, host)
    return Cause(name, operator, found.otherwise) if operator and found else None


def _domain(domain: Optional[str]) -> str:
    """One of the two messages names ONNX's own domain, the other leaves it out."""
    return ONNX if domain in (None, ONNX, _ONNX_TITLE) else str(domain)


def _is_in(one: Failed, entry: MissingKernels) -> bool:
    names = {one.name, f"{one.name}({one.since})"}
    return one.domain == entry.domain and (not entry.operators or bool(names & set(entry.operators)))


_OF_ONNX = (
    *("Affine", "Crop", "DynamicSlice", "ImageScaler", "LayerNormalization(1)", "ParametricSoftplus"),
    *("ScaledTanh", "SimplifiedLayerNormalization", "ThresholdedRelu(1)"),
)

_OF_MICROSOFT = (
    *("Attention", "BeamSearch", "BiasAdd", "BiasDropout", "BiasGelu", "BiasSoftmax", "BiasSplitGelu"),
    *("BitmaskBiasDropout", "BitmaskDropout", "ComplexMul", "ComplexMulConj"),
    *("ConvTransposeWithDynamicPads", "DecoderAttention", "DecoderMaskedMultiHeadAttention"),
    *("DecoderMaskedSelfAttention", "DequantizeLinear", "DequantizeWithOrder", "DynamicTimeWarping"),
    *("EmbedLayerNormalization", "FastGelu", "FusedConv", "FusedMatMul", "GatedRelativePositionBias"),
    *("Gelu", "GemmFloat8", "GemmaRotaryEmbedding", "GreedySearch", "GridSample", "GroupNorm"),
    *("GroupQueryAttention", "Inverse", "Irfft", "LongformerAttention", "MatMulBnb4", "MatMulNBits", "MoE"),
    *("MultiHeadAttention", "NGramRepeatBlock", "NhwcConv", "PackedAttention"),
    *("PackedMultiHeadAttention", "QAttention", "QMoE", "QOrderedAttention", "QOrderedGelu"),
    *("QOrderedLayerNormalization", "QOrderedLongformerAttention", "QOrderedMatMul", "QuantizeLinear"),
    *("QuantizeWithOrder", "QuickGelu", "RelativePositionBias", "RemovePadding", "RestorePadding", "Rfft"),
    *("RotaryEmbedding", "Sampling", "SkipGroupNorm", "SkipLayerNormalization"),
    *("SkipSimplifiedLayerNormalization", "SparseAttention", "TransposeMatMul", "Trilu", "UnfoldTensor"),
    "WhisperBeamSearch",
)

_LEAN = MissingKernels(ONNX, _OF_ONNX)
"""Contrib operators in ONNX's domain, two of them older versions of operators that ONNX has: 1.21.0's
``contrib_ops/cuda/cuda_contrib_kernels.cc``, and the same file at 004b79e of 2026."""

_LEAN_AS_READ = (MissingKernels(MICROSOFT, _OF_MICROSOFT), MissingKernels(NHWC, ("GridSample",)))
"""The same file of 1.21.0, and line 152 of ``core/providers/cuda/cuda_nhwc_kernels.cc``."""

_READ = (1, 21, 0)

_MINIMAL = tuple(MissingKernels(domain, ()) for domain in (ONNX, MICROSOFT, NHWC))
"""1.21.0's ``cuda_execution_provider.cc`` lines 1465 and 2443: only copies to and from the GPU stay."""


def cannot_run(profile: Optional[str], version: str) -> Tuple[MissingKernels, ...]:
    """What a provider of this profile of ONNX Runtime ``version`` has no kernels for; empty for others.

    Of a version that was not read, ``com.microsoft`` as a whole.
    """
    if profile == Profile.MINIMAL.value:
        return _MINIMAL
    if profile != Profile.LEAN.value:
        return ()
    whole = (MissingKernels(MICROSOFT, ()),)
    return (_LEAN, *(_LEAN_AS_READ if version_of(version)[:3] == _READ else whole))
