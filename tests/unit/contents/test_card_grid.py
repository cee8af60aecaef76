"""Tests of the report on a package on virtual cards, and of its disagreements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from builder.binary.coverage import LibraryCoverage, cover
from builder.binary.fatbin import read_containers
from builder.contents.card_grid import (
    CardRow,
    Grid,
    LibraryOnCard,
    ModelOnCard,
    disagreements,
    from_bytes,
    lines,
    loads,
    outcome,
    page,
    table,
)
from builder.errors import ParseError, SchemaError, ValidationError
from builder.formats.json_values import json_text
from builder.formats.missing_kernels import cannot_run
from builder.formats.session_log import CPU_PROVIDER, CUDA_PROVIDER
from tests.support.factories.binaries import container, elf, empty_cubin, sass
from tests.support.messages import Told
from tests.support.schemas import schema

PROVIDER, CUBLAS = "lib/libonnxruntime_providers_cuda.so", "lib/libcublas.so.12"

MINILM = ModelOnCard(
    name="minilm", nodes={CUDA_PROVIDER: 188, CPU_PROVIDER: 1}, launches=161, refused={}, error=""
)

NO_IMAGE = (
    "FAIL: Non-zero status code returned while running Cast node. Name:'Cast_217' Status Message: CUDA error "
    "cudaErrorNoKernelImageForDevice:no kernel image is available for execution on the device"
)
"""Message of ORT 1.23.2 on a virtual 6.2."""

NO_KERNEL = "NOT_IMPLEMENTED: Failed to find kernel for com.microsoft.BiasGelu(1)"


def covered(path: str, *containers: bytes, specialised: bool = False) -> LibraryCoverage:
    library = elf({".nv_fatbin": b"".join(containers)})
    found = cover(path, read_containers(library), specialised=specialised)
    assert found is not None
    return found


COVERAGE = (
    covered(PROVIDER, *[sass(80, 86)] * 3),
    covered(CUBLAS, sass(80), sass(75), specialised=True),
)

SEEN = LibraryOnCard(PROVIDER, "native", native=3, jit=0, refused={}, registered=True)


def row(capability: str = "8.6", **changes: object) -> CardRow:
    libraries = (SEEN, from_bytes(COVERAGE[1], "8.6"))
    good = CardRow(capability, "native", "native", libraries, (MINILM,))
    return replace(good, **changes)  # type: ignore[arg-type]


def codes(one: CardRow, profile: str | None = None) -> list[str]:
    missing = cannot_run(profile, "1.21.0")
    return [finding.code.name for finding in disagreements("a package", one, COVERAGE, missing)]


def test_where_all_say_the_same_there_is_nothing_to_say() -> None:
    assert codes(row()) == []


@pytest.mark.parametrize(
    "seen",
    [
        replace(SEEN, native=2, refused={"209": 1}),
        replace(SEEN, native=2, jit=1),
        replace(SEEN, native=2),
        replace(SEEN, native=4),
    ],
    ids=["one is refused", "one is PTX", "one is missing", "one too many"],
)
def test_a_container_that_the_driver_takes_otherwise(seen: LibraryOnCard) -> None:
    (finding,) = disagreements("a package", row(libraries=(seen,)), COVERAGE, ())
    assert finding.code.name == "V001"
    assert finding.wanted == "3 native, 0 JIT, 0 with nothing that runs, 0 idle, 3 in all"


def test_a_container_without_code_to_run_counts_on_any_side() -> None:
    """872 bytes are a cubin of sm_50 without a kernel: see builder.binary.fatbin_format."""
    coverage = (covered(PROVIDER, sass(80), container(empty_cubin(50))),)
    for seen in (replace(SEEN, native=2), replace(SEEN, native=1, refused={"209": 1})):
        assert list(disagreements("a package", row(libraries=(seen,)), coverage, ())) == []


@pytest.mark.parametrize(
    "model",
    [
        replace(MINILM, error=NO_IMAGE, refused={"209": 1}),
        replace(MINILM, refused={"222": 2}),
        replace(MINILM, nodes={}, error=NO_KERNEL),
    ],
)
def test_a_model_that_fails_where_the_package_is_chosen(model: ModelOnCard) -> None:
    (finding,) = disagreements("a package", row(models=(model,)), COVERAGE, ())
    assert (finding.code.name, finding.path) == ("V002", "a package on 8.6")
    assert outcome(model) == finding.got


FAILS, LACKS = replace(MINILM, error=NO_IMAGE, refused={"209": 1}), replace(MINILM, nodes={}, error=NO_KERNEL)


@pytest.mark.parametrize(
    ("card", "profile", "found"),
    [
        (row(support="partial"), None, ["V003"]),
        (row(support="none"), None, ["V003"]),
        (row(chosen=None), None, ["V003"]),
        (row(support="none", chosen=None, models=(FAILS,)), None, []),
        (row(models=(LACKS,)), "lean", []),
        (row(models=(LACKS,)), "minimal", []),
        (row(models=(LACKS,)), "full", ["V002"]),
        (row(models=(LACKS,)), None, ["V002"]),
        (row(models=(FAILS,)), "lean", ["V002"]),
    ],
    ids=[
        *("chosen in part", "chosen for none", "refused", "nothing promised"),
        *("lean lacks it", "minimal lacks it", "full has it", "repacked has it", "lean, refused"),
    ],
)
def test_what_the_parts_say_of_a_card_is_held_together(
    card: CardRow, profile: str | None, found: Sequence[str]
) -> None:
    assert codes(card, profile) == found


GRID = Grid(
    format=1,
    package="ortpacks-modern-1.23.2-cuda12.9-linux-x64.tar.zst",
    sha256="0" * 64,
    variant="modern",
    onnxruntime="1.23.2",
    profile=None,
    driver="580.65.06",
    cards=(
        row(),
        row(
            capability="6.2",
            support="none",
            chosen=None,
            libraries=(
                replace(SEEN, support="none", native=0, refused={"209": 3}),
                from_bytes(COVERAGE[1], "6.2"),
            ),
            models=(replace(MINILM, error=NO_IMAGE, refused={"209": 1}),),
        ),
    ),
)


def test_a_grid_is_written_by_its_schema_and_read_back() -> None:
    text = json_text(GRID)
    schema("cards").validate(json.loads(text))
    assert loads(text, "x.cards.json") == GRID


@pytest.mark.parametrize(
    ("text", "error"),
    [("{", ParseError), ('{"format": 9}', ValidationError), ('{"format": 1, "package": 3}', SchemaError)],
)
def test_a_grid_that_is_none(text: str, error: type[Exception], told: Told) -> None:
    with pytest.raises(error) as caught:
        loads(text, "x.cards.json")
    told(caught.value)


def test_a_table_has_a_row_for_each_card(told: Told) -> None:
    told(table(GRID))
    assert page([GRID]).endswith(
        f"## ortpacks-modern-1.23.2-cuda12.9-linux-x64\n\nOn driver 580.65.06.\n\n{table(GRID)}"
    )


def test_a_card_in_words(told: Told) -> None:
    told("\n".join(lines(GRID.cards[1])))
    told(outcome(GRID.cards[1].models[0]))
