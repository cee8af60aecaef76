"""This module says before a model is loaded what ONNX Runtime or a package cannot run of it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import onnxruntime

from ortpacks_runtime.client import ClientError, describe
from ortpacks_runtime.one_node import ONE_NODE
from ortpacks_runtime.options import Model, shown_as

_TOO_NEW = ONE_NODE[:-1] + b"\x7f"
"""The model, asking for opset 127."""

_KNOWN = re.compile(r"official support for domain ai\.onnx is till opset (\d+)")

_SILENT = 4

_ONNX = "ai.onnx"

_TENSORRT_PLUGINS = "trt.plugins"
"""Domain of the operators that TensorRT adds when a session is opened with it."""

_SHOWN = 5

_ENDING = frozenset({"LSTM", "GRU", "DynamicQuantizeLSTM"})
"""Operators whose CPU kernels (1.21.0 and 1.31.1) end the process on a tensor without an item."""

_CURE = "Install the full package, the one with neither -lean nor -minimal in its name."

_OF_PLUGIN = "A package of form provider has them."
"""The remedy for what every plug-in lacks, also a full one."""

_SMALLER = ("-lean", "-minimal")
"""Parts of the names of packages that were compiled without some kernels."""

Operator = tuple[str, str]
"""Domain, ``ai.onnx`` for ONNX's own, and name."""


@dataclass(frozen=True)
class Needs:
    """What a model needs of an ONNX Runtime."""

    name: str
    """The name of the model's file."""
    opsets: Mapping[str, int]
    """Opset that the model asks for, by domain."""
    operators: tuple[Operator, ...]


def needs_of(model: Model) -> Needs | None:
    """Return what ``model`` needs; ``None`` if the client cannot read it."""
    if isinstance(model, bytes):
        with suppress(OSError), tempfile.TemporaryDirectory(prefix="ortpacks-model-") as folder:
            file = Path(folder, shown_as(model))
            file.write_bytes(model)
            return needs_of(file)
        return None
    try:
        found = describe(model)
    except ClientError:
        return None
    operators = tuple((domain, name) for domain, names in found["operators"].items() for name in names)
    return Needs(model.name, found["opsets"], operators)


def ends_on_empty_inputs(needs: Needs | None) -> bool:
    """Return whether ONNX Runtime may end the process if an input of the model has no item."""
    return needs is not None and any(name in _ENDING for _, name in needs.operators)


def limits_of_onnxruntime(needs: Needs) -> list[str]:
    """Return an opset that is too new, and operators that are unknown, each with advice.

    A model with either opens on no provider.
    """
    return [text for text in (_too_new(needs), _unknown(needs)) if text]


def limit_of_package(name: str, cannot_run: Sequence[Mapping[str, Any]], needs: Needs | None) -> str:
    """Return which operators of the model a package has no CUDA kernels for; empty if it has all kernels.

    ``cannot_run`` is from the package's manifest. ONNX Runtime may fuse a model's nodes into operators that
    the model does not name, so a package of a smaller profile is always told. It makes none of those that a
    plug-in of the full profile lacks.
    """
    if not cannot_run:
        return ""
    smaller = any(part in name for part in _SMALLER)
    cure = _CURE if smaller else _OF_PLUGIN
    without = f"{name} was made without CUDA kernels for"
    missing = {str(entry["domain"]) or _ONNX: frozenset(entry["operators"]) for entry in cannot_run}
    if missing.get(_ONNX) == frozenset():
        return f"{without} any operator: nothing runs on the GPU. {_CURE}"
    named = (
        [_text(operator) for operator in needs.operators if _is_in(operator, missing, needs)] if needs else []
    )
    if needs and named:
        there = f"{_listed(named)} of {needs.name}"
        return f"{without} {there}: such nodes run on the CPU, if it has a kernel. {cure}"
    if needs and not smaller:
        return ""
    counts = ", ".join(f"{len(names) or 'all'} of {domain}" for domain, names in missing.items())
    return f"{without} some operators ({counts}): nodes that ONNX Runtime fuses may run on the CPU. {cure}"


def _is_in(operator: Operator, missing: Mapping[str, frozenset[str]], needs: Needs) -> bool:
    """Return whether the operator, or its version for the model's opset, is in the list of its domain."""
    domain, name = operator
    names = missing.get(domain)
    if names is None:
        return False
    return not names or bool(names & {name, f"{name}({_since(operator, needs)})"})


def _too_new(needs: Needs) -> str:
    asked, known = needs.opsets.get(_ONNX, 0), _newest()
    if known is None or asked <= known:
        return ""
    return (
        f"{needs.name} asks for opset {asked} of ai.onnx, onnxruntime {onnxruntime.__version__} knows "
        f"{known} and older. Export it with opset_version={known}, or use a newer onnxruntime."
    )


def _unknown(needs: Needs) -> str:
    unknown = list(_unknown_operators(needs)) if _versions() else []
    if not unknown:
        return ""
    return (
        f"{needs.name} has operators that onnxruntime {onnxruntime.__version__} does not know in the model's "
        f"opset: {_listed(unknown)}. Export it without them, or with another opset."
    )


def _unknown_operators(needs: Needs) -> Iterator[str]:
    for operator in needs.operators:
        domain, _ = operator
        if domain != _TENSORRT_PLUGINS and _since(operator, needs) is None:
            yield f"{_text(operator)} (opset {needs.opsets.get(domain, 'not given')})"


def _since(operator: Operator, needs: Needs) -> int | None:
    """Return the opset of the operator's version for the model's opset; ``None`` if there is no version."""
    asked = needs.opsets.get(operator[0], 0)
    return max((since for since in _versions().get(operator, ()) if since <= asked), default=None)


def _text(operator: Operator) -> str:
    domain, name = operator
    return name if domain == _ONNX else f"{domain}.{name}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


@cache
def _versions() -> Mapping[Operator, set[int]]:
    """Return the opsets that introduced or changed each operator that ONNX Runtime knows.

    Empty for an onnxruntime that was built without this list.
    """
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema  # noqa: PLC0415
    except ImportError:
        return {}
    found: dict[Operator, set[int]] = {}
    for schema in get_all_operator_schema():
        found.setdefault((schema.domain or _ONNX, schema.name), set()).add(schema.since_version)
    return found


@cache
def _newest() -> int | None:
    """Return the newest opset that ONNX Runtime knows, from its refusal of a newer one."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _SILENT
    try:
        onnxruntime.InferenceSession(_TOO_NEW, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no class
        found = _KNOWN.search(str(error))
        return int(found[1]) if found else None
    return None
