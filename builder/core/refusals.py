"""Why ONNX Runtime refuses a model, in words that say what to do: its own begin with a page of C++."""

from __future__ import annotations

import re
from typing import Callable, List, Match, Optional, Pattern, Tuple

from builder.core.printable import shortened


def explained(said: str, ort_version: str) -> Optional[str]:
    """A sentence or two for what ``CreateSession`` said; ``None`` where its own words have to do."""
    for pattern, sentence in _KNOWN:
        found = pattern.search(said)
        if found:
            return sentence(found, f"ONNX Runtime {ort_version}")
    return None


def _opset(found: Match[str], runtime: str) -> str:
    asked, domain, newest = found.groups()
    return (
        f"{runtime} knows {domain} up to {newest}; this model asks for {asked}: export it again with "
        f"opset_version={newest}, or take a package of a newer ONNX Runtime."
    )


def _ir_version(found: Match[str], runtime: str) -> str:
    asked, newest = found.groups()
    return (
        f"{runtime} reads IR versions up to {newest}; this model is written in {asked}: save it again with "
        f"model.ir_version = {newest}, or take a package of a newer ONNX Runtime."
    )


def _unregistered(found: Match[str], runtime: str) -> str:
    return _unknown(f"{shortened(found[1])}:{shortened(found[2])}", runtime)


def _unheard_of(found: Match[str], runtime: str) -> str:
    return _unknown(f"ai.onnx:{shortened(found[1])} in opset {found[2]}", runtime)


def _unknown(operator: str, runtime: str) -> str:
    return (
        f"{runtime} knows no operator {operator}: it comes with a library of custom operators, which the "
        "application has to register, or with a newer ONNX Runtime. Export the model without it, or register "
        "its library."
    )


def _unimplemented(found: Match[str], runtime: str) -> str:
    return (
        f"{runtime} has no kernel for {found[1]} of version {found[2]}, on CUDA or on the CPU: export the "
        "model again with a newer opset_version or another type."
    )


def _undeclared(found: Match[str], runtime: str) -> str:
    return (
        f"{runtime} has to know which opset of the domain '{shortened(found[1])}' the model was written for, "
        "and the model does not say: add it to its opset_import, or export the model again."
    )


def _weights(found: Match[str], runtime: str) -> str:
    return (
        f"{runtime} cannot read the model's weights from {found[1]}: put the file of external data beside it."
    )


_KNOWN: List[Tuple[Pattern[str], Callable[[Match[str], str], str]]] = [
    (re.compile(r"Opset (\d+) is under development.*?domain (\S+) is till opset (\d+)", re.DOTALL), _opset),
    (re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)"), _ir_version),
    (re.compile(r"Fatal error: ([\w.]+):(\w+)\(-?\d+\) is not a registered function/op"), _unregistered),
    (re.compile(r"No Op registered for (.+?) with domain_version of (\d+)", re.DOTALL), _unheard_of),
    (re.compile(r"No opset import for domain '(.*?)'", re.DOTALL), _undeclared),
    (re.compile(r"Could not find an implementation for (\w+)\((\d+)\) node"), _unimplemented),
    (re.compile(r"cannot get file size: [^\[]*\[(.+?)\]"), _weights),
]
