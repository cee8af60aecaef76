"""A reader of ONNX Runtime's verbose log: the provider of each node, and why it is not CUDA.

``explanation_of`` replaces ONNX Runtime's message for a refused model, which begins with a page of C++, by a
cause and a remedy.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections import Counter
from typing import Counter as Counted
from typing import Dict, List, Mapping, Optional, Set, Tuple

from builder.formats.text import shortened

CPU_PROVIDER, CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"

EVERY_NODE = ("every node", "")
"""Operator and node name that stand for all nodes when all are on one provider: ORT lists none then."""

_PLACEMENT = "VerifyEachNodeIsAssignedToAnEp"

_HEADING = re.compile(r"\s*(?:Node\(s\)|All nodes) placed on \[(\w+)\]\. Number of nodes: (\d+)")

_NODE = re.compile(r"  (\S+) \((.*)\)\Z", re.DOTALL)
"""A node's line in ORT's verbose log (``core/framework/session_state.cc``). ORT writes none where all nodes
are on one provider."""

_NO_KERNEL = re.compile(r"CUDA kernel not found in registries for Op type: (\S+) node name: (.*)", re.DOTALL)

_NOT_THIS_ONE = re.compile(
    r"CUDA kernel not supported\. Fallback .* for Op type: (\S+) node name: (.*)", re.DOTALL
)
"""Messages of ``CUDAExecutionProvider::GetCapability``: the registry has no kernel (``_NO_KERNEL``), or one
that does not support this use of the operator."""

_CHEAPER = re.compile(
    r"(?:ORT|EP) optimization[-:] Force fallback to CPU execution for node:? (.*?) because the CPU", re.DOTALL
)
"""A message of ``core/framework/fallback_cpu_capability.cc``, and of plug-ins (``get_capability_utils.h`` of
``include/onnxruntime/ep``): nodes that compute shapes stay on the CPU."""


_HEAD = r"\[[VIWEF]:onnxruntime:[^\]]*?, (\S+ \S+)\] "

_MESSAGE = re.compile(rf"{_HEAD}(.*?)(?=\n[^\n]*{_HEAD}|\n?\Z)", re.DOTALL)
"""A message of the log: its place in ORT's source, then its text. A node's name may have several lines."""


class Placement:
    """The providers of a model's nodes, as ORT's log gives them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset the placement, for the next model."""
        self.nodes: Counted[Tuple[str, str, str]] = Counter()
        self.no_kernel: Set[Tuple[str, str]] = set()
        self.unsupported: Set[Tuple[str, str]] = set()
        self.cheaper: Set[str] = set()
        self._wanted: Dict[str, int] = {}
        self._provider = ""

    def add_message(self, place: str, message: str) -> None:
        """Take one message, and the place in ORT's source that writes it."""
        if match := _NO_KERNEL.match(message):
            self.no_kernel.add((match[1], match[2]))
        elif match := _NOT_THIS_ONE.match(message):
            self.unsupported.add((match[1], match[2]))
        elif match := _CHEAPER.match(message):
            self.cheaper.add(match[1])
        elif _PLACEMENT in place:
            self._add_node(message)

    def _add_node(self, message: str) -> None:
        if heading := _HEADING.match(message):
            self._provider = heading[1]
            self._wanted[heading[1]] = int(heading[2])
        elif node := _NODE.match(message):
            self.nodes[self._provider, node[1], node[2]] += 1

    @property
    def counts(self) -> Dict[str, int]:
        """Return the number of nodes by provider, as ORT counts them."""
        return dict(self._wanted)

    def nodes_by_kind(self) -> List[Tuple[str, str, str, int]]:
        """Return (provider, operator, node name, number of nodes) for each kind of node.

        Raises ``ValueError`` where the listed nodes are not as many as announced.
        """
        counts = self.nodes
        if len(self._wanted) == 1:
            ((provider, count),) = self._wanted.items()
            counts = Counter({(provider, *EVERY_NODE): count})
        elif sum(counts.values()) != sum(self._wanted.values()):
            raise ValueError(f"{sum(counts.values())} nodes were listed, {self._wanted} were announced")
        return [(*node, count) for node, count in counts.items()]

    def add_log(self, log: str) -> None:
        """Take a whole log in the form in which ORT writes it to stderr."""
        for match in _MESSAGE.finditer(log):
            self.add_message(match[1], match[2])


def explanation_of(message: str, ort_version: str) -> Optional[str]:
    """Return a cause and a remedy for a message of ``CreateSession``; ``None`` for an unknown message."""
    for pattern, sentence in _KNOWN.items():
        match = re.search(pattern, message)
        if match:
            names = map(shortened, match.groups())
            return sentence.format(*names, path=match[1], runtime=f"ONNX Runtime {ort_version}")
    return None


_KNOWN: Mapping[str, str] = json.loads(pkgutil.get_data(__name__, "session_log.json") or b"")
"""Messages of ONNX Runtime and their explanations, in which ``{0}`` is the pattern's first group."""
