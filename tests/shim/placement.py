"""Which provider runs which node, and how many kernels a run launches, on a GPU that is not there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.answers.feeds import save
from tests.answers.models import Model
from tests.answers.pairs import Pair
from tests.verbs import ROOT

CAPABILITIES = ("5.2", "8.6", "12.0")
CUDA = "CUDAExecutionProvider"
BASIC, ALL = 1, 99
"""Two of ``GraphOptimizationLevel``."""

_SAID = r"VerifyEachNodeIsAssignedToAnEp\] "
_HEADING = re.compile(_SAID + r" (?:Node\(s\)|All nodes) placed on \[(\w+)\]\. Number of nodes: (\d+)")
_NODE = re.compile(_SAID + r"  (\S+) \((.*)\)$")
"""ORT's verbose log (``core/framework/session_state.cc``), which lists none where all are on one provider."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What was seen of a session."""

    nodes: Mapping[str, Counter[tuple[str, str]]]
    """Provider → operator and name of each of its nodes, subgraphs' too."""
    launches: Mapping[str, int]
    """Kernel, or function of cuBLAS and cuDNN that launches some → how often."""
    error: str
    """What the session failed with, or nothing."""

    @property
    def counts(self) -> dict[str, int]:
        """Provider → number of nodes."""
        return {provider: nodes.total() for provider, nodes in sorted(self.nodes.items())}

    @property
    def launched(self) -> int:
        """Launches of all kinds."""
        return sum(self.launches.values())


def place(
    pair: Pair, model: Model, env: Mapping[str, str], capability: str, scratch: Path, level: int = ALL
) -> Placement:
    """Open ``model`` on a fake device of ``capability``, and run it if it can run blind."""
    report, feed = scratch / "launches.txt", scratch / "feed.npz"
    report.unlink(missing_ok=True)
    save(feed, model.feed)
    argv: list[str | Path] = [sys.executable, "-m", "tests.shim.watch", pair.library, model.path, str(level)]
    done = subprocess.run(
        [*argv, feed] if model.runs_blind else argv,
        cwd=ROOT,
        env={**env, "FAKE_CAPABILITY": capability, "FAKE_REPORT": str(report)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{model.name}: {done.returncode}\n{done.stderr[-3000:]}"
    return Placement(nodes=_nodes(done.stderr), launches=_launches(report), error=done.stdout.strip())


def _nodes(log: str) -> dict[str, Counter[tuple[str, str]]]:
    found: dict[str, Counter[tuple[str, str]]] = {}
    wanted: dict[str, int] = {}
    provider = ""
    for line in log.splitlines():
        if heading := _HEADING.search(line):
            provider = heading[1]
            wanted[provider] = int(heading[2])
            found[provider] = Counter()
        elif node := _NODE.search(line):
            found[provider][node[1], node[2]] += 1
    return {
        provider: _complete(nodes, wanted[provider], alone=len(found) == 1)
        for provider, nodes in found.items()
    }


def _complete(nodes: Counter[tuple[str, str]], wanted: int, *, alone: bool) -> Counter[tuple[str, str]]:
    """The nodes, as many as ORT said there are."""
    if alone:
        return Counter({("every node", ""): wanted})
    assert nodes.total() == wanted, "a node's line was not understood"
    return nodes


def _launches(report: Path) -> dict[str, int]:
    """Kernels by their mangled names, and what cuBLAS and cuDNN were asked to compute."""
    lines = (line.split(" ", 1) for line in report.read_text(encoding="utf-8").splitlines())
    return {name: int(count) for count, name in lines if name.startswith("_Z") or _computes(name)}


def _computes(function: str) -> bool:
    """cuBLAS's and cuDNN's functions that make no object, set nothing and ask nothing."""
    plain = re.match(r"cublas(Lt)?[SDGM]|cudnn|cufftXtExec", function)
    return plain is not None and not re.search(r"Create|Destroy|Set|Get|Finalize|Init|Desc", function)
