"""Tests of the operators that real providers report, by the list of ONNX Runtime's authors."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from builder.facts.ort.operators import ONNX, Kernels, OperatorTable
from builder.formats import manifest as manifest_format
from builder.formats.missing_kernels import MissingKernels, cannot_run
from builder.io.archive.unpacking import manifest_bytes
from builder.io.wiring import Wiring
from builder.prove.operator_query import definitions, operator_table
from tests.answers import pairs
from tests.answers.card import needs_compiler, runtime
from tests.answers.packages import built
from tests.answers.pairs import Pair
from tests.support import ROOT

pytestmark = needs_compiler
PUBLISHED = ROOT / "tests/data/operators/cuda-1.21.0.md"
"""docs/OperatorKernels.md of onnxruntime v1.21.0, which its authors generate from a build's kernels."""
COPIES = {"MemcpyFromHost", "MemcpyToHost"}
"""Operators that ONNX Runtime inserts between nodes of GPU and CPU in every profile; no model has them."""

Types = Mapping[str, frozenset[str]]
Row = tuple[int, int | None, Types]


def table_of(pair: Pair) -> OperatorTable:
    folder = Path(str(pair.library)).parent
    return operator_table(pairs.shop(), folder, runtime(), pair.ort_version, pairs.shop().reporter)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> OperatorTable:
    return table_of(named(pairs.official("1.21.0"), tmp_path_factory.mktemp("official")))


def named(pair: Pair, folder: Path) -> Pair:
    """Return the pair with links in ``folder`` under the names that a package uses."""
    for library in pair.library.parent.glob("libonnxruntime*"):
        name = "libonnxruntime.so.1" if library == pair.library else library.name
        (folder / name).symlink_to(library)
    return Pair(library=folder / "libonnxruntime.so.1", ort_version=pair.ort_version)


def published() -> dict[tuple[str, str], list[Row]]:
    """Return first opset, last opset (or ``None``) and types by parameter, by domain and operator."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    domain = operator = ""
    for line in PUBLISHED.read_text(encoding="utf-8").splitlines():
        if heading := re.search(r"Operator Domain:\*\* \*([\w.]+)\*", line):
            domain = heading[1]
            continue
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        opsets = re.fullmatch(r"\[?(\d+)(?:, (\d+)\]|(\+))?", cells[2]) if len(cells) == 4 else None
        if opsets is None:
            continue
        operator = cells[0] or operator
        last = None if opsets[3] else int(opsets[2] or opsets[1])
        types = re.findall(r"\*\*(\w+)\*\* = ([^<]*)", cells[3])
        rows = {name: frozenset(some.strip() for some in listed.split(", ")) for name, listed in types}
        found[domain, operator].append((int(opsets[1]), last, rows))
    return found


def test_every_published_operator_is_found_in_every_opset_with_its_types(asked: OperatorTable) -> None:
    rows = published()
    assert len(rows) == 218, "operators of the page, by hand: grep -c '^|[A-Z]' less the heading"
    ours = defaultdict(list)
    for item in asked.kernels:
        ours[item.domain, item.operator].append(item)
    versions, unlike = 0, []
    for definition in definitions():
        domain, since = definition.domain or "ai.onnx", definition.since
        if since > asked.opsets[domain]:
            continue
        meant = [types for first, last, types in rows[domain, definition.operator]
                 if since == first or (last is not None and first <= since <= last)]  # fmt: skip
        got = [item for item in ours[domain, definition.operator]
               if item.since <= since and (item.until is None or since <= item.until)]  # fmt: skip
        if definition.operator == "NonMaxSuppression":
            assert (len(meant), len(got)) == (0, 1), "1.21.0 registers it, its page leaves it out"
            continue
        assert len(meant) == len(got), f"{definition}: {meant} {got}"
        versions += len(got)
        for name in set(meant[0]) & set(got[0].types) if got else ():
            allowed = meant[0][name] & set(definition.types[name])
            if allowed != set(got[0].types[name]) and not allowed < set(got[0].types[name]):
                unlike.append(str(definition))
    assert versions == 427
    assert unlike == [
        "ai.onnx:If-16",
        "ai.onnx:If-19",
        "ai.onnx:Loop-16",
        "ai.onnx:Loop-19",
    ], "nothing makes a sequence of bfloat16 or float8 in a branch"


def test_a_few_operators_alone_have_the_kernels_that_they_have_among_all(
    asked: OperatorTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, few = named(pairs.official("1.21.0"), tmp_path), {"Det", "MatMulNBits", "Gather", "If"}
    monkeypatch.setenv("ORTPACKS_CACHE", str(tmp_path / "cache"))
    wiring = Wiring(ROOT)
    table = operator_table(wiring, tmp_path, runtime(), pair.ort_version, wiring.reporter, few)
    assert table.kernels == tuple(row for row in asked.kernels if row.operator in {*few, "Relu"})
    (kept,) = tmp_path.rglob("*.json")
    assert "-" in kept.stem, "a table of a few is not kept as that of all"
    kept.write_text(kept.read_text().replace('"Gather"', '"Kept"'))
    again = operator_table(wiring, tmp_path, runtime(), pair.ort_version, wiring.reporter, few)
    assert "Kept" in again.operators()["ai.onnx"]


def test_what_a_manifest_says_of_com_microsoft_is_what_the_official_bytes_have(asked: OperatorTable) -> None:
    (missing,) = (one for one in cannot_run("lean", "1.21.0") if one.domain == "com.microsoft")
    assert missing.operators == asked.operators()["com.microsoft"]


@pytest.fixture(params=["fresh", *built()])
def package(request: pytest.FixtureRequest) -> Path:
    """Return the package of profile minimal that the tests build, then each package in ``dist/``."""
    found: Path = request.getfixturevalue("legacy_package") if request.param == "fresh" else request.param
    return found


def test_a_packages_manifest_says_what_its_bytes_lack(
    package: Path, asked: OperatorTable, tmp_path: Path
) -> None:
    manifest = manifest_format.loads(manifest_bytes(package), package.name)
    if manifest.onnxruntime.version != asked.onnxruntime:
        pytest.skip(f"ONNX Runtime {manifest.onnxruntime.version}: compared with 1.21.0's")
    ours = table_of(pairs.ours(package, tmp_path))
    assert lacking(asked, ours) == spelled_out(manifest.onnxruntime.cannot_run, asked)


def lacking(official: OperatorTable, ours: OperatorTable) -> dict[str, tuple[str, ...]]:
    """Return by domain the operators with kernels in ``official`` and none in ``ours``, in a manifest's form.

    ``Name``: no opset has a kernel. ``Name(1)``: the opsets from 1 up to the next kernel have none.
    """
    missing: dict[str, set[str]] = defaultdict(set)
    mine: defaultdict[tuple[str, str], list[Kernels]] = defaultdict(list)
    for item in ours.kernels:
        mine[item.domain, item.operator].append(item)
    for item in official.kernels:
        served = mine[item.domain, item.operator]
        ends = [one.until + 1 for one in served if one.until is not None]
        for opset in (item.since, *(end for end in ends if end > item.since and serves(item, end))):
            if not any(serves(one, opset) for one in served):
                missing[item.domain].add(f"{item.operator}({opset})" if served else item.operator)
    return {
        "" if domain == ONNX else domain: tuple(sorted(names)) for domain, names in sorted(missing.items())
    }


def serves(item: Kernels, opset: int) -> bool:
    return item.since <= opset and (item.until is None or opset <= item.until)


def spelled_out(missing: Iterable[MissingKernels], official: OperatorTable) -> dict[str, tuple[str, ...]]:
    """Return the operators by domain; for a whole domain all of the official provider's except ``COPIES``."""
    every = official.operators()
    return {
        one.domain: one.operators or tuple(name for name in every[one.domain or ONNX] if name not in COPIES)
        for one in missing
    }
