"""Execution providers: names, aliases, and the order in which ``auto`` tries them."""

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
    """A provider was asked for that does not work here, or a setting is wrong."""

    def __init__(self, what: str, do: str = "") -> None:
        """``do`` is what the user can do about it, where that is known."""
        super().__init__(f"{what}: {do}" if do else what)
        self.what = what
        self.do = do


def chain(provider: str, platform: str) -> tuple[str, ...]:
    """The providers to try, the first one first. ``platform`` is ``sys.platform``.

    The CPU ends every chain.
    """
    if provider == AUTO:
        return _CHAINS.get(platform, (CPU,))
    return tuple(dict.fromkeys((provider, CPU)))


def provider_of(text: str, origin: str) -> str:
    """The provider that ``text``, a name or an alias, stands for. ``ProviderError`` names ``origin``."""
    name = text.strip().lower()
    return one_of(ALIASES.get(name, name), (AUTO, *ORT_NAMES), origin, also=tuple(ALIASES))


def one_of(text: str, names: tuple[str, ...], origin: str, also: tuple[str, ...] = ()) -> str:
    """``text`` if it is one of ``names``. ``ProviderError`` with the nearest of ``names`` and ``also``."""
    if text in names:
        return text
    near = difflib.get_close_matches(text, (*names, *also), n=1, cutoff=0.5)
    meant = f" Did you mean {near[0]}?" if near else ""
    raise ProviderError(f"{origin}: {text!r} is none of {', '.join((*names, *also))}.{meant}")
