"""This module has the execution providers: names, aliases, and the order in which ``auto`` tries them."""

from __future__ import annotations

import difflib

CPU, CUDA, TENSORRT, DIRECTML, COREML, AUTO = "cpu", "cuda", "tensorrt", "directml", "coreml", "auto"

ORT_NAMES = {
    CPU: "CPUExecutionProvider",
    CUDA: "CUDAExecutionProvider",
    TENSORRT: "TensorrtExecutionProvider",
    DIRECTML: "DmlExecutionProvider",
    COREML: "CoreMLExecutionProvider",
}
"""ONNX Runtime's name of each provider."""

ALIASES = {"gpu": CUDA, "nvidia": CUDA, "trt": TENSORRT, "dml": DIRECTML, "metal": COREML}

_CHAINS = {
    "linux": (TENSORRT, CUDA, CPU),
    "win32": (TENSORRT, CUDA, DIRECTML, CPU),
    "darwin": (COREML, CPU),
}


class ProviderError(RuntimeError):
    """A requested provider does not work here, or a setting is wrong."""

    def __init__(self, what: str, do: str = "") -> None:
        """``what`` is the problem, ``do`` what the user can do about it, empty if that is not known."""
        super().__init__(f"{what}: {do}" if do else what)
        self.what = what
        self.do = do


def chain(provider: str, platform: str) -> tuple[str, ...]:
    """Return the providers to try, in order; ``platform`` is ``sys.platform``. The CPU is always the last."""
    if provider == AUTO:
        return _CHAINS.get(platform, (CPU,))
    return tuple(dict.fromkeys((provider, CPU)))


def provider_of(text: str, origin: str) -> str:
    """Return the provider of ``text``, a name or an alias.

    Raises ``ProviderError``, which names ``origin``.
    """
    name = text.strip().lower()
    return one_of(ALIASES.get(name, name), (AUTO, *ORT_NAMES), origin, also=tuple(ALIASES))


def one_of(text: str, names: tuple[str, ...], origin: str, also: tuple[str, ...] = ()) -> str:
    """Return ``text`` if it is one of ``names``.

    Raises ``ProviderError`` with the nearest of ``names`` and ``also``.
    """
    if text in names:
        return text
    near = difflib.get_close_matches(text, (*names, *also), n=1, cutoff=0.5)
    meant = f" Did you mean {near[0]}?" if near else ""
    raise ProviderError(f"{origin}: {text!r} is none of {', '.join((*names, *also))}.{meant}")
