"""Tests of the check of proofs: one that can be true is taken, and each forged key is named."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from builder.build.verbs.proofs import FOLDER, KnownModel, load_proof, problems_of, table
from builder.errors import SchemaError
from builder.formats.index import IndexPackage, entry_of
from builder.formats.json_values import json_text
from builder.formats.manifest import PluginEntry
from builder.formats.proof import ModelResult, Proof
from builder.formats.stored_file import StoredFile
from tests.support.factories.documents import manifest
from tests.support.schemas import schema

RAN = ModelResult("magika", "b" * 64, 94, 84, 2e-5, 0.8, 4.5, None)
MODELS = {"magika": KnownModel(sha256="b" * 64, nodes=95, tolerance=1e-3)}
PACKAGE = entry_of(
    replace(manifest(), capabilities={"6.1": "native", "7.5": "partial"}), StoredFile("x.tar.gz", 1, "a" * 64)
)
PROOF = Proof(
    format=1,
    date="2026-11-30",
    card="NVIDIA GeForce GTX 1080",
    capability="6.1",
    driver="580.65.06",
    package=PACKAGE.name,
    sha256="a" * 64,
    host=PACKAGE.onnxruntime.version,
    models=(RAN,),
)


def keys(proof: Proof, package: IndexPackage = PACKAGE) -> set[str]:
    found = problems_of(proof, [package], MODELS, date(2026, 11, 30))
    return {problem.partition(":")[0] for problem in found}


def test_a_proof_that_can_be_true_is_taken(tmp_path: Path) -> None:
    failed = replace(
        RAN, nodes=0, cuda=0, difference=None, gpu_ms=None, cpu_ms=None, finding="CUDA error 209"
    )
    wrong = replace(RAN, difference=0.5, finding="the numbers differ")
    for proof in (PROOF, replace(PROOF, models=(wrong,)), replace(PROOF, models=(failed,), host="")):
        assert keys(proof) == set()
        (tmp_path / "p.json").write_text(json_text(proof))
        schema("proof").validate(json.loads((tmp_path / "p.json").read_text()))
        assert load_proof(tmp_path / "p.json") == proof


def test_a_plugins_host_is_any_that_registers_it() -> None:
    plugin = PluginEntry("lib/p.so", ("CUDAExecutionProvider",), "1.24.4", 30, None)
    for host, wrong in (
        ("1.32.0", set()),
        ("1.24.4", set()),
        ("1.24.3", {"host"}),
        ("1.32.0 of me", {"host"}),
        ("", {"host"}),
    ):
        assert keys(replace(PROOF, host=host), replace(PACKAGE, plugin=plugin)) == wrong


FORGED: dict[str, tuple[object, ...]] = {
    "date": ("yesterday", "2026-12-01"),
    "card": ("GPU stated by ORTPACKS_FORCE_CC", "NVIDIA H200", "x | y\n## z"),
    "driver": ("new",),
    "sha256": ("c" * 64,),
    "package": ("ortpacks-other-1-linux-x64",),
    "host": ("9.9.9", ""),
    "models": ((), (RAN, RAN)),
}

IMPOSSIBLE: dict[str, tuple[object, ...]] = {
    "name": ("mine",),
    "sha256": ("c" * 64,),
    "nodes": (381,),
    "cuda": (95, -1),
    "difference": (-1e-5,),
    "gpu_ms": (-0.8, None),
    "cpu_ms": (0.0, None),
    "finding": ("it failed |\n\n[here](http://example.org)", "x" * 200, ""),
}


def test_a_forged_key_is_named() -> None:
    for key, value in ((key, value) for key, values in FORGED.items() for value in values):
        assert keys(replace(PROOF, **{key: value})) == {key}  # type: ignore[arg-type]
    for capability in ("7.5", "12.0"):
        assert keys(replace(PROOF, card="Some card", capability=capability)) == {"capability"}


def test_impossible_numbers_are_named() -> None:
    for key, value in ((key, value) for key, values in IMPOSSIBLE.items() for value in values):
        model = replace(RAN, **{key: value})  # type: ignore[arg-type]
        assert keys(replace(PROOF, models=(model,))) == {f"models[0].{key}"}


def test_more_nodes_than_a_file_has_are_conversions_for_the_cpu_and_none_on_cuda() -> None:
    assert keys(replace(PROOF, models=(replace(RAN, nodes=120, cuda=95),))) == set()
    assert keys(replace(PROOF, models=(replace(RAN, nodes=120, cuda=96),))) == {"models[0].cuda"}


def test_wrong_numbers_do_not_count_as_right() -> None:
    for model in (replace(RAN, difference=2e-3), replace(RAN, difference=None), replace(RAN, cuda=0)):
        assert keys(replace(PROOF, models=(model,))) == {"models[0].finding"}


@pytest.mark.parametrize("number", ["NaN", "1e999", '"0.8"', "true"])
def test_a_time_is_a_finite_number(number: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json_text(PROOF).replace('"gpu_ms": 0.8', f'"gpu_ms": {number}'))
    with pytest.raises(SchemaError, match="gpu_ms"):
        load_proof(tmp_path / "p.json")


def test_the_table_has_a_row_for_each_model(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    failed = replace(RAN, name="minilm", nodes=0, cuda=0, gpu_ms=None, cpu_ms=None, finding="CUDA error 209")
    assert list(table(tmp_path)) == ["No proof has come yet."]
    (tmp_path / FOLDER / "p.json").write_text(json_text(replace(PROOF, models=(RAN, failed))))
    _, _, *rows = table(tmp_path)
    of_card = f"| NVIDIA GeForce GTX 1080 | 6.1 | 580.65.06, 2026-11-30 | {PACKAGE.name} |"
    assert rows == [
        f"{of_card} magika | 84 of 94 | 0.8, 4.5 | right |",
        f"{of_card} minilm | 0 of 0 | -, - | CUDA error 209 |",
    ]
