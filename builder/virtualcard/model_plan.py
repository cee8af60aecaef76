"""The plan of a model that a virtual card opened: which of its nodes run on the CPU, and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from builder.formats.session_log import CPU_PROVIDER, EVERY_NODE
from builder.formats.text import abridged, shortened
from builder.onnxruntime.operators import OperatorTable
from builder.virtualcard.sessions import CardSession

_CHEAPER = "computes shapes: ONNX Runtime leaves that to the CPU, although there is a CUDA kernel"

_UNSUPPORTED = "its CUDA kernel does not do these attributes"

_UNSAID = "ONNX Runtime says no reason"

_NAMED = 3
"""The most nodes that a line names."""


@dataclass(frozen=True)
class OnCpu:
    """A group of nodes that run on the CPU, with one operator and name."""

    operator: str
    name: str
    """The nodes' name; empty if the model gives none."""
    count: int
    """The number of nodes with this operator and name."""
    why: str


@dataclass(frozen=True)
class ModelPlan:
    """A model opened at ONNX Runtime's default level, on a card that the package serves."""

    model: str
    package: str
    onnxruntime: str
    """The package's version of ONNX Runtime."""
    opsets: Mapping[str, int]
    """The opset that the model asks for, by domain."""
    nodes: Mapping[str, int]
    """The number of nodes after ONNX Runtime's optimisations, by provider."""
    cpu: tuple[OnCpu, ...]

    def document(self) -> dict[str, object]:
        """Return the JSON form; its schema is ``docs/schemas/inspect-model.schema.json``."""
        return {"format": 1, **asdict(self)}

    def lines(self) -> Iterator[str]:
        """Yield a line for the model, then a line for each operator and reason."""
        total = sum(self.nodes.values())
        where = ", ".join(f"{count} on {provider}" for provider, count in sorted(self.nodes.items()))
        yield (
            f"{self.model} with {self.package}, ONNX Runtime {self.onnxruntime}: "
            f"{total} node{'s' * (total != 1)}, {where}"
        )
        counts: Counter[tuple[str, str]] = Counter()
        names = defaultdict[tuple[str, str], list[str]](list)
        for item in self.cpu:
            counts[item.operator, item.why] += item.count
            names[item.operator, item.why].append(shortened(item.name) or "unnamed")
        for (operator, why), count in counts.most_common():
            who = f"{count} {operator} ({abridged(names[operator, why], _NAMED)})"
            yield f"  CPU: {operator if operator == EVERY_NODE[0] else who}: {why}"
        if not self.cpu:
            yield "  no node runs on the CPU"


def lacks_kernel(opening: CardSession) -> bool:
    """Return whether a node runs on the CPU because the CUDA provider has no kernel for it."""
    on_cpu = _on_cpu(opening)
    return bool(opening.no_kernel if EVERY_NODE in on_cpu else opening.no_kernel & on_cpu.keys())


def nodes_on_cpu(opening: CardSession, table: OperatorTable | None) -> tuple[OnCpu, ...]:
    """Return the nodes that run on the CPU, sorted; ``table`` has the provider's kernels, if it was asked."""
    return tuple(
        OnCpu(operator, name, count, _reason((operator, name), opening, table))
        for (operator, name), count in sorted(_on_cpu(opening).items())
    )


def _on_cpu(opening: CardSession) -> Counter[tuple[str, str]]:
    return opening.nodes.get(CPU_PROVIDER, Counter())


def _reason(node: tuple[str, str], opening: CardSession, table: OperatorTable | None) -> str:
    """Return why ``node`` runs on the CPU: ONNX Runtime's reason and, without a kernel, the existing kernels.

    For ``EVERY_NODE``, whose operators ONNX Runtime does not list, all reasons that it gave for any node.
    """
    every = node == EVERY_NODE
    missing = {one[0] for one in opening.no_kernel if every or one == node}
    plain = f"no CUDA kernel for {', '.join(sorted(missing))}"
    causes = (
        (table.why_missing(missing) if table else plain, bool(missing)),
        (_UNSUPPORTED, bool(opening.unsupported) if every else node in opening.unsupported),
        (_CHEAPER, bool(opening.cheaper) if every else node[1] in opening.cheaper),
    )
    reasons = [why for why, holds in causes if holds]
    return "; ".join(reasons if every else reasons[:1]) or _UNSAID
