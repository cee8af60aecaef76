"""Tables of the operators that a CUDA provider has kernels for, by opset and type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

FORMAT = 1

ONNX = "ai.onnx"
"""The name of ONNX's own domain in messages; models spell the domain as an empty string."""


@dataclass(frozen=True)
class Kernels:
    """The kernels that serve one operator in a range of opsets of its domain."""

    domain: str
    operator: str
    since: int
    """The first opset of the range, in which a definition of the operator begins."""
    until: int | None
    """The last opset; ``None`` if the range contains the newest definition that ONNX Runtime knows."""
    types: Mapping[str, tuple[str, ...]]
    """Sorted types that some kernel takes, by type parameter of the operator's schema."""

    @property
    def opsets(self) -> str:
        """The range as text: ``13+``, ``7-12`` or ``13``."""
        if self.until is None:
            return f"{self.since}+"
        return str(self.since) if self.until == self.since else f"{self.since}-{self.until}"


@dataclass(frozen=True)
class OperatorTable:
    """All kernels of one provider; docs/schemas/inspect-operators.schema.json is the schema of its JSON."""

    format: int
    onnxruntime: str
    """The version of ONNX Runtime."""
    opsets: Mapping[str, int]
    """The newest opset that the host library knows, by domain."""
    asked: int
    """Number of one-node graphs that ONNX Runtime accepted and placed."""
    unasked: tuple[str, ...]
    """``DOMAIN:OPERATOR-SINCE`` of the definitions without a one-node graph that ONNX Runtime accepts."""
    kernels: tuple[Kernels, ...]
    """The kernels, sorted by domain, operator and opset."""

    def operators(self) -> dict[str, tuple[str, ...]]:
        """Return the sorted names of the operators with a kernel, by domain."""
        by_domain: defaultdict[str, set[str]] = defaultdict(set)
        for item in self.kernels:
            by_domain[item.domain].add(item.operator)
        return {domain: tuple(sorted(names)) for domain, names in sorted(by_domain.items())}

    def why_missing(self, operators: Iterable[str]) -> str:
        """Return a text on why nodes of ``operators`` have no kernel.

        The operators have no domain, because ONNX Runtime's messages do not name it.
        """
        served: defaultdict[str, list[str]] = defaultdict(list)
        for item in self.kernels:
            served[item.operator].append(f"{item.domain} {item.opsets} {types_text(item)}".rstrip())
        wanted = sorted(set(operators))
        none = ", ".join(operator for operator in wanted if operator not in served)
        reasons = [f"no CUDA kernel for {none}"] if none else []
        reasons += [
            f"no CUDA kernel for {operator} of its opset and types. There are some for "
            + "; ".join(served[operator])
            for operator in wanted
            if operator in served
        ]
        return "; ".join(reasons)


def ranges(
    domain: str, operator: str, served: Mapping[int, Mapping[str, Iterable[str]] | None]
) -> list[Kernels]:
    """Return the kernels of one operator, with successive definitions of the same types as one range.

    ``served`` has every definition that the host library knows: types with a kernel by type parameter, by the
    definition's first opset; ``None`` for a definition without a kernel.
    """
    found: list[Kernels] = []
    starts = sorted(served)
    for start, following in zip(starts, [*starts[1:], None], strict=False):
        kernels = served[start]
        if kernels is None:
            continue
        types = {name: tuple(sorted(some)) for name, some in sorted(kernels.items())}
        since = start
        if found and found[-1].until == start - 1 and found[-1].types == types:
            since = found.pop().since
        found.append(Kernels(domain, operator, since, None if following is None else following - 1, types))
    return found


def text(label: str, table: OperatorTable) -> str:
    """Return a text for the terminal, with a line for each operator and range of opsets, domain by domain."""
    lines = [f"{label}, ONNX Runtime {table.onnxruntime}: operators with CUDA kernels"]
    width = max((len(item.operator) for item in table.kernels), default=0)
    for domain, names in table.operators().items():
        newest = table.opsets.get(domain)
        lines += [
            "",
            f"{domain}" + (f", opsets up to {newest}" if newest else "") + f": {len(names)} operators",
        ]
        rows = [item for item in table.kernels if item.domain == domain]
        lines += [
            f"  {item.operator:<{width}}  {item.opsets:<5}  {types_text(item)}".rstrip() for item in rows
        ]
    lines += ["", f"{table.asked:,} one-node graphs were placed."]
    if table.unasked:
        lines.append(
            f"Not asked, since ONNX Runtime takes no one-node graph of them: {', '.join(table.unasked)}."
        )
    return "\n".join(lines)


def types_text(item: Kernels) -> str:
    """Return the types as text: ``T: float, float16; Tind: int32``."""
    return "; ".join(f"{name}: {', '.join(map(_short_type, types))}" for name, types in item.types.items())


def _short_type(spelled: str) -> str:
    """Return ``float`` for ``tensor(float)``, and any other type as ONNX spells it."""
    inner = spelled[len("tensor(") : -1]
    return inner if spelled == f"tensor({inner})" else spelled
