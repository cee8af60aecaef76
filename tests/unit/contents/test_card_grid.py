"""Tests of the report on a package on virtual cards, and of its disagreements."""

import json
from dataclasses import replace

import pytest

from builder.contents import card_grid
from builder.errors import ParseError, SchemaError, ValidationError
from builder.finding import Code
from builder.formats.json_values import json_text
from builder.formats.missing_kernels import MissingKernels, cannot_run
from builder.formats.session_log import CPU_PROVIDER, CUDA_PROVIDER
from tests.support.factories.binaries import container, empty_cubin, sass
from tests.support.factories.libraries import covered
from tests.support.messages import Refused, Told
from tests.support.schemas import schema

PROVIDER, CUBLAS = "lib/libonnxruntime_providers_cuda.so", "lib/libcublas.so.12"

MINILM = card_grid.ModelOnCard(
    name="minilm", nodes={CUDA_PROVIDER: 188, CPU_PROVIDER: 1}, launches=161, refused={}, error=""
)

NO_IMAGE = (
    "FAIL: Non-zero status code returned while running Cast node. Name:'Cast_217' Status Message: CUDA error "
    "cudaErrorNoKernelImageForDevice:no kernel image is available for execution on the device"
)
"""Message of ORT 1.23.2 on a virtual 6.2."""

REFUSES = (
    "FAIL: Non-zero status code returned while running GroupQueryAttention node. Name:'g' Status Message: "
    "GroupQueryAttention has no kernel for this node on this GPU: half precision needs compute capability 5.3"
)
"""Message of a source that was repaired (builder/config/repairs.toml)."""

NO_KERNEL = "NOT_IMPLEMENTED: Failed to find kernel for com.microsoft.BiasGelu(1)"


COVERAGE = (
    covered(*[sass(80, 86)] * 3, path=PROVIDER),
    covered(sass(80), sass(75), path=CUBLAS, specialised=True),
)

SEEN = card_grid.LibraryOnCard(PROVIDER, "native", native=3, jit=0, refused={}, registered=True)


def row(capability: str = "8.6", **changes: object) -> card_grid.CardRow:
    libraries = (SEEN, card_grid.from_bytes(COVERAGE[1], "8.6"))
    good = card_grid.CardRow(capability, "native", "native", libraries, (MINILM,))
    return replace(good, **changes)  # type: ignore[arg-type]


def seen(**changes: object) -> card_grid.CardRow:
    """Return a row whose provider was seen otherwise."""
    return row(libraries=(replace(SEEN, **changes),))  # type: ignore[arg-type]


def ran(**changes: object) -> card_grid.CardRow:
    """Return a row whose model ran otherwise."""
    return row(models=(replace(MINILM, **changes),))  # type: ignore[arg-type]


FAILS, LACKS = ran(error=NO_IMAGE, refused={"209": 1}), ran(nodes={}, error=NO_KERNEL)

CARDS: dict[str, tuple[card_grid.CardRow, str | None]] = {
    "all say the same": (row(), None),
    "one is refused": (seen(native=2, refused={"209": 1}), None),
    "one is PTX": (seen(native=2, jit=1), None),
    "one is missing": (seen(native=2), None),
    "one too many": (seen(native=4), None),
    "no image for the model": (FAILS, None),
    "launches are refused": (ran(refused={"222": 2}), None),
    "chosen in part": (row(support="partial"), None),
    "chosen for none": (row(support="none"), None),
    "not chosen": (row(chosen=None), None),
    "nothing promised": (replace(FAILS, support="none", chosen=None), None),
    "lean lacks it": (LACKS, "lean"),
    "minimal lacks it": (LACKS, "minimal"),
    "full has it": (LACKS, "full"),
    "repacked has it": (LACKS, None),
    "lean, refused": (FAILS, "lean"),
}


@pytest.mark.parametrize("card", CARDS)
def test_what_the_parts_say_of_a_card_is_held_together(card: str, told: Told) -> None:
    one, profile = CARDS[card]
    missing = cannot_run(profile, "1.21.0")
    told("\n".join(map(str, card_grid.disagreements("a package", one, COVERAGE, missing))))


def test_an_operator_that_an_old_card_refuses_is_no_disagreement_where_the_manifest_says_so() -> None:
    refusing = ran(nodes={}, error=REFUSES)
    told = (MissingKernels("com.microsoft", ("GroupQueryAttention",)),)
    assert list(card_grid.disagreements("a package", refusing, COVERAGE, told)) == []
    (finding,) = card_grid.disagreements("a package", refusing, COVERAGE, ())
    assert finding.code is Code.V002
    assert "| GroupQueryAttention refuses |" in card_grid.table(replace(GRID, cards=(refusing,)))


def test_a_container_without_code_to_run_counts_on_any_side() -> None:
    """872 bytes are a cubin of sm_50 without a kernel: see builder.binary.fatbin_format."""
    coverage = (covered(sass(80), container(empty_cubin(50)), path=PROVIDER),)
    for one in (seen(native=2), seen(native=1, refused={"209": 1})):
        assert list(card_grid.disagreements("a package", one, coverage, ())) == []


GRID = card_grid.Grid(
    format=1,
    package="ortpacks-modern-1.23.2-cuda12.9-linux-x64.tar.zst",
    sha256="0" * 64,
    variant="modern",
    onnxruntime="1.23.2",
    profile=None,
    driver="580.65.06",
    cards=(
        row(),
        replace(
            FAILS,
            capability="6.2",
            support="none",
            chosen=None,
            libraries=(
                replace(SEEN, support="none", native=0, refused={"209": 3}),
                card_grid.from_bytes(COVERAGE[1], "6.2"),
            ),
        ),
    ),
)


def test_a_grid_is_written_by_its_schema_and_read_back(refused: Refused) -> None:
    text = json_text(GRID)
    schema("cards").validate(json.loads(text))
    assert card_grid.loads(text, "x.cards.json") == GRID
    for wrong, error in (
        ("{", ParseError),
        ('{"format": 9}', ValidationError),
        ('{"format": 1, "package": 3}', SchemaError),
    ):
        with refused(error):
            card_grid.loads(wrong, "x.cards.json")


def test_a_page_of_tables_with_a_row_for_each_card_and_a_card_in_words(told: Told) -> None:
    assert card_grid.table(GRID) in card_grid.page([GRID])
    told(card_grid.page([GRID]))
    told("\n".join(card_grid.lines(GRID.cards[1])))
    told(card_grid.outcome(GRID.cards[1].models[0]))
