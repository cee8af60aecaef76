"""The work of the verb cards: proofs from real cards are checked, stored, and shown above virtual cards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import onnx

from builder.build.verbs.releases.rebuilding import project_trust, release_web
from builder.client.arguments import is_url, place
from builder.client.install.source import locate
from builder.client.selection.forms import ApplicationHost, host_refusal
from builder.client.selection.reasons import RUNS
from builder.facts.gpu.devices import parse_driver
from builder.facts.gpu.table import capability_of_product
from builder.files.atomic_write import write_file
from builder.files.digest import sha256_of
from builder.formats.index import IndexPackage
from builder.formats.json_values import json_text, problem_of_text, read_document, require_valid
from builder.formats.proof import FORMAT, ModelResult, Proof, finding_of
from builder.io.wiring import Wiring
from builder.prove.sample_models import selftest_trials

FOLDER = "docs/proofs"

_CARD = re.compile(r"(?!GPU stated by)[A-Za-z0-9][A-Za-z0-9 ()./+-]{1,80}")
"""A name that a driver gives, not ``ORTPACKS_FORCE_CC``."""

_FINDING = re.compile(r"[A-Za-z0-9 ]{1,80}")
"""What ``prove`` writes, without a sign by which a text would be more than a cell of a table."""

_MOST_ADDED = 4
"""Decoder's 11 nodes are 24 on the CPU, with conversions from and to half precision."""


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """A model of the self-test."""

    sha256: str
    nodes: int
    """Nodes in the file. At most these are on CUDA; conversions for the CPU are added to them."""
    tolerance: float


def add_proofs(wiring: Wiring, files: Sequence[Path], release: str | None) -> None:
    """Store proofs that can be true in docs/proofs.

    ``release`` is the index that has their packages, its folder or URL; that of ``dist`` if ``None``. Raises
    ``SchemaError`` and ``ValidationError`` with each key of a proof that is wrong.
    """
    trust = project_trust(wiring) if release and is_url(release) else None
    index = locate(place(release or str(wiring.dist)), release_web(wiring), trust).index
    models = {
        trial.name: KnownModel(
            sha256=sha256_of(trial.model), nodes=_nodes(onnx.load(trial.model).graph), tolerance=trial.on_gpu
        )
        for trial in selftest_trials(wiring.store(wiring.lock, wiring.reporter), wiring.cache / "made")
    }
    for file in files:
        proof = load_proof(file)
        require_valid(problems_of(proof, index.packages, models, datetime.now(UTC).date()), file.name)
        name = f"{FOLDER}/{proof.package}-{proof.capability}-{proof.driver}-{proof.date}.json"
        write_file(wiring.root / name, json_text(proof).encode())
        wiring.reporter.say(f"{name}: {proof.card}")


def table(root: Path) -> Iterator[str]:
    """Yield a table of the proofs in docs/proofs, a row for each model, or that there is none."""
    files = sorted((root / FOLDER).glob("*.json"))
    if not files:
        yield "No proof has come yet."
        return
    yield "| card | capability | driver, day | package | model | nodes on CUDA | ms, CPU's | numbers |"
    yield "|---|---|---|---|---|---|---|---|"
    for proof in map(load_proof, files):
        of_card = f"{proof.card} | {proof.capability} | {proof.driver}, {proof.date} | {proof.package}"
        for one in proof.models:
            ran = f"{one.cuda} of {one.nodes} | {one.gpu_ms or '-'}, {one.cpu_ms or '-'}"
            yield f"| {of_card} | {one.name} | {ran} | {one.finding or 'right'} |"


def load_proof(file: Path) -> Proof:
    """Return the proof in ``file``. Raises ``ParseError``, ``ValidationError`` or ``SchemaError``."""
    return read_document(Proof, file.read_bytes(), file.name, [FORMAT])


def _nodes(graph: onnx.GraphProto) -> int:
    """Return the number of nodes, with those of subgraphs."""
    below = (inner for node in graph.node for part in node.attribute for inner in (part.g, *part.graphs))
    return len(graph.node) + sum(map(_nodes, below))


def problems_of(
    proof: Proof, packages: Iterable[IndexPackage], models: Mapping[str, KnownModel], today: date
) -> Iterator[str]:
    """Yield ``key: problem`` for each value that cannot be true of a run with a package of the release."""
    entry = next((package for package in packages if package.sha256 == proof.sha256), None)
    if entry is None:
        yield f"sha256: no package of the release has {proof.sha256!r}"
        return
    stock = re.fullmatch(r"[\d.]+", proof.host) and entry.plugin
    registers = stock and host_refusal(ApplicationHost("", proof.host), stock) is None
    ran = any(model.difference is not None for model in proof.models)
    named = str(capability_of_product(proof.card) or proof.capability)
    can_be = {
        "package": proof.package == entry.name,
        "host": registers or proof.host == entry.onnxruntime.version or not (proof.host or ran),
        "capability": entry.capabilities.get(proof.capability) in RUNS,
        "card": _CARD.fullmatch(proof.card) and named == proof.capability,
        "driver": not [*problem_of_text(parse_driver, proof.driver, "")],
        "date": not [*problem_of_text(date.fromisoformat, proof.date, "")] and proof.date <= str(today),
        "models": len({model.name for model in proof.models}) == len(proof.models) > 0,
    }
    yield from (f"{key}: {getattr(proof, key)!r} cannot be, with {entry.name}" for key in _wrong(can_be))
    for at, model in enumerate(proof.models):
        for key in _impossible(model, models.get(model.name)):
            yield f"models[{at}].{key}: {getattr(model, key)!r} cannot be, with the self-test's models"


def _impossible(model: ModelResult, known: KnownModel | None) -> list[str]:
    """Return the keys of a model's result whose values cannot be."""
    if known is None:
        return ["name"]
    right, wrong = model.finding is None, finding_of(model.cuda, model.difference, known.tolerance)
    can_be = {
        "sha256": model.sha256 == known.sha256,
        "nodes": 0 <= model.nodes <= _MOST_ADDED * known.nodes,
        "cuda": 0 <= model.cuda <= min(model.nodes, known.nodes),
        "difference": model.difference is None or model.difference >= 0,
        "gpu_ms": not right if model.gpu_ms is None else model.gpu_ms > 0,
        "cpu_ms": not right if model.cpu_ms is None else model.cpu_ms > 0,
        "finding": wrong is None if model.finding is None else _FINDING.fullmatch(model.finding),
    }
    return _wrong(can_be)


def _wrong(can_be: Mapping[str, object]) -> list[str]:
    return [key for key, can in can_be.items() if not can]
