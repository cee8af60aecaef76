"""A reader of ONNX Runtime's verbose log: it finds which provider runs which node, and why CUDA does not.

Why ONNX Runtime refuses a model, in words that say what to do: its own begin with a page of C++.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Counter as Counted
from typing import Dict, List, Optional, Set, Tuple

from builder.formats.text import shortened

CPU_PROVIDER = "CPUExecutionProvider"

EVERY_NODE = ("every node", "")
"""What stands for the nodes where all are on one provider: ORT then lists none."""

_PLACEMENT = "VerifyEachNodeIsAssignedToAnEp"

_HEADING = re.compile(r"\s*(?:Node\(s\)|All nodes) placed on \[(\w+)\]\. Number of nodes: (\d+)")

_NODE = re.compile(r"  (\S+) \((.*)\)\Z", re.DOTALL)
"""ORT's verbose log (``core/framework/session_state.cc``), which lists none where all are on one provider."""

_NO_KERNEL = re.compile(r"CUDA kernel not found in registries for Op type: (\S+) node name: (.*)", re.DOTALL)

_NOT_THIS_ONE = re.compile(
    r"CUDA kernel not supported\. Fallback .* for Op type: (\S+) node name: (.*)", re.DOTALL
)
"""``CUDAExecutionProvider::GetCapability``: its registry has no kernel, or one that does not do all of it."""

_CHEAPER = re.compile(
    r"ORT optimization- Force fallback to CPU execution for node: (.*?) because the CPU", re.DOTALL
)
"""``core/framework/fallback_cpu_capability.cc``: what computes shapes stays on the CPU."""


_HEAD = r"\[[VIWEF]:onnxruntime:[^\]]*?, (\S+ \S+)\] "

_MESSAGE = re.compile(rf"{_HEAD}(.*?)(?=\n[^\n]*{_HEAD}|\n?\Z)", re.DOTALL)
"""A message of the log as ORT prints it: place in its source, text; a node's name may have several lines."""


class Placement:
    """Listens to ORT's log for where each node goes."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin with the next model."""
        self.nodes: Counted[Tuple[str, str, str]] = Counter()
        self.no_kernel: Set[Tuple[str, str]] = set()
        self.unsupported: Set[Tuple[str, str]] = set()
        self.cheaper: Set[str] = set()
        self._wanted: Dict[str, int] = {}
        self._provider = ""

    def listen(self, place: str, message: str) -> None:
        """Take one message and the place in ORT's source that it comes from."""
        if found := _NO_KERNEL.match(message):
            self.no_kernel.add((found[1], found[2]))
        elif found := _NOT_THIS_ONE.match(message):
            self.unsupported.add((found[1], found[2]))
        elif found := _CHEAPER.match(message):
            self.cheaper.add(found[1])
        elif _PLACEMENT in place:
            self._listed(message)

    def _listed(self, message: str) -> None:
        if heading := _HEADING.match(message):
            self._provider = heading[1]
            self._wanted[heading[1]] = int(heading[2])
        elif node := _NODE.match(message):
            self.nodes[self._provider, node[1], node[2]] += 1

    @property
    def counts(self) -> Dict[str, int]:
        """Provider → number of nodes, as ORT counts them."""
        return dict(self._wanted)

    def take(self) -> List[Tuple[str, str, str, int]]:
        """Where the nodes are. Raises ``ValueError`` for a line that was not understood."""
        found = self.nodes
        if len(self._wanted) == 1:
            ((provider, count),) = self._wanted.items()
            found = Counter({(provider, *EVERY_NODE): count})
        elif sum(found.values()) != sum(self._wanted.values()):
            raise ValueError(f"{sum(found.values())} nodes were listed, {self._wanted} were announced")
        return [(*node, count) for node, count in found.items()]

    def read(self, log: str) -> None:
        """Take a whole log, as ORT prints it on stderr."""
        for found in _MESSAGE.finditer(log):
            self.listen(found[1], found[2])


def explained(message: str, ort_version: str) -> Optional[str]:
    """A sentence or two for what ``CreateSession`` said; ``None`` where its own words have to do."""
    for pattern, sentence in _KNOWN.items():
        found = pattern.search(message)
        if found:
            names = map(shortened, found.groups())
            return sentence.format(*names, path=found[1], runtime=f"ONNX Runtime {ort_version}")
    return None


_UNKNOWN = (
    "{{runtime}} knows no operator {operator}: it comes with a library of custom operators, which the "
    "application has to register, or with a newer ONNX Runtime. Export the model without it, or register its "
    "library."
)

_KNOWN = {
    re.compile(r"Opset (\d+) is under development.*?domain (\S+) is till opset (\d+)", re.DOTALL): (
        "{runtime} knows {1} up to {2}; this model asks for {0}: export it again with opset_version={2}, or "
        "take a package of a newer ONNX Runtime."
    ),
    re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)"): (
        "{runtime} reads IR versions up to {1}; this model is written in {0}: save it again with "
        "model.ir_version = {1}, or take a package of a newer ONNX Runtime."
    ),
    re.compile(r"Fatal error: ([\w.]+):(\w+)\(-?\d+\) is not a registered function/op"): _UNKNOWN.format(
        operator="{0}:{1}"
    ),
    re.compile(r"No Op registered for (.+?) with domain_version of (\d+)", re.DOTALL): _UNKNOWN.format(
        operator="ai.onnx:{0} in opset {1}"
    ),
    re.compile(r"No opset import for domain '(.*?)'", re.DOTALL): (
        "{runtime} has to know which opset of the domain '{0}' the model was written for, and the model does "
        "not say: add it to its opset_import, or export the model again."
    ),
    re.compile(r"Could not find an implementation for (\w+)\((\d+)\) node"): (
        "{runtime} has no kernel for {0} of version {1}, on CUDA or on the CPU: export the model again with "
        "a newer opset_version or another type."
    ),
    re.compile(r"cannot get file size: [^\[]*\[(.+?)\]"): (
        "{runtime} cannot read the model's weights from {path}: put the file of external data beside it."
    ),
}
"""What ONNX Runtime says, and the sentence for it: ``{0}`` is the first group of the pattern."""
