"""Where a package's ONNX Runtime would run the nodes of a model: as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from builder.formats.session_log import EVERY_NODE
from builder.formats.text import shortened
from builder.onnxruntime.operators import OperatorTable

FORMAT = 1

CHEAPER = "computes shapes: ONNX Runtime leaves that to the CPU, although there is a CUDA kernel"

UNSUPPORTED = "its CUDA kernel does not do these attributes"

UNSAID = "ONNX Runtime says no reason"

Node = tuple[str, str]
"""Operator and name."""


@dataclass(frozen=True)
class OnCpu:
    """A node that the CPU runs."""

    operator: str
    name: str
    """Empty where the model gives none."""
    count: int
    """Nodes of this operator and name."""
    why: str


@dataclass(frozen=True)
class ModelPlan:
    """A model opened at ONNX Runtime's default level, on a card that the package serves."""

    model: str
    package: str
    ort_version: str
    opsets: Mapping[str, int]
    """Domain → opset that the model asks for."""
    counts: Mapping[str, int]
    """Provider → number of nodes, after ONNX Runtime's optimisations."""
    on_cpu: tuple[OnCpu, ...]


def reason(
    node: Node,
    no_kernel: Collection[Node],
    unsupported: Collection[Node],
    cheaper: Collection[str],
    table: OperatorTable | None,
) -> str:
    """Why ``node`` runs on the CPU: what ONNX Runtime said and, without a kernel, which ones there are.

    Of ``EVERY_NODE``, whose operators ONNX Runtime does not list, all that it said of any.
    """
    every = node == EVERY_NODE
    missing = {one[0] for one in no_kernel if every or one == node}
    plain = f"no CUDA kernel for {', '.join(sorted(missing))}"
    causes = (
        (table.why_missing(missing) if table else plain, bool(missing)),
        (UNSUPPORTED, bool(unsupported) if every else node in unsupported),
        (CHEAPER, bool(cheaper) if every else node[1] in cheaper),
    )
    said = [why for why, holds in causes if holds]
    return "; ".join(said if every else said[:1]) or UNSAID


def plan_document(plan: ModelPlan) -> dict[str, object]:
    """The JSON form; its schema is ``docs/schemas/inspect-model.schema.json``."""
    return {
        "format": FORMAT,
        "model": plan.model,
        "package": plan.package,
        "onnxruntime": plan.ort_version,
        "opsets": dict(plan.opsets),
        "nodes": dict(plan.counts),
        "cpu": [
            {"operator": item.operator, "name": item.name, "count": item.count, "why": item.why}
            for item in plan.on_cpu
        ],
    }


def plan_text(plan: ModelPlan) -> str:
    """For a terminal: one line a reason and operator."""
    return "\n".join(_lines(plan))


def _lines(plan: ModelPlan) -> Iterator[str]:
    total = sum(plan.counts.values())
    where = ", ".join(f"{count} on {provider}" for provider, count in sorted(plan.counts.items()))
    nodes = "node" if total == 1 else "nodes"
    yield f"{plan.model} with {plan.package}, ONNX Runtime {plan.ort_version}: {total} {nodes}, {where}"
    grouped: Counter[tuple[str, str]] = Counter()
    names: dict[tuple[str, str], list[str]] = {}
    for item in plan.on_cpu:
        key = (item.operator, item.why)
        grouped[key] += item.count
        names.setdefault(key, []).append(shortened(item.name) or "unnamed")
    for (operator, why), count in grouped.most_common():
        some = names[operator, why]
        more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
        who = f"{count} {operator} ({', '.join(some[:_NAMED])}{more})"
        yield f"  CPU: {operator if operator == EVERY_NODE[0] else who}: {why}"
    if not plan.on_cpu:
        yield "  no node runs on the CPU"


_NAMED = 3
"""Nodes that are named in a line."""
