"""The heat map's model: marks, counts to point at, and what the total row says."""

from __future__ import annotations

from builder.binary.library import Inspected
from builder.gpu.table import CAPABILITIES
from builder.report.heatmap import HeatMap, Row, heat_maps, shortened
from tests.support.factories.libraries import BROKEN, CARDS, IDLE, OWN, PLAIN, PROVIDER, coverage


def mapped(*libraries: Inspected, label: str = "a wheel") -> HeatMap:
    (found,) = heat_maps([(label, libraries)])
    return found


def marks(row: Row) -> str:
    return "".join(cell.mark for cell in row.cells)


def hover(row: Row, device: str) -> str:
    return row.cells[[str(capability) for capability in CAPABILITIES].index(device)].hover


def test_a_row_has_a_mark_for_each_capability() -> None:
    (row,) = mapped(PROVIDER).rows
    assert (row.name, row.containers, row.specialised, row.remark) == ("libprovider.so", 184, False, "")
    assert marks(row) == "...NN.N.~NN.NNjjjjj"


def test_pointing_at_a_cell_tells_card_and_counts() -> None:
    (row,) = mapped(PROVIDER).rows
    assert hover(row, "7.5") == (
        "7.5 (Turing: GeForce RTX 20 and GTX 16, T4): some kernels missing. "
        "183 of 184 containers native, 1 with nothing that runs."
    )
    assert hover(row, "12.1") == (
        "12.1 (Blackwell: GB10 (DGX Spark)): compiled by the driver at first use (JIT). "
        "184 of 184 containers by JIT."
    )


def test_rows_keep_their_order_and_say_why_they_have_no_cells() -> None:
    found = mapped(BROKEN, OWN, PLAIN, IDLE)
    assert [(row.name, row.remark, len(row.cells), row.containers) for row in found.rows] == [
        ("libbroken.so", "cannot be read: not an ELF file (at offset 0x0)", 0, 0),
        ("libcublas.so.12", "", 19, 20),
        ("libplain.so", "no device code", 0, 0),
        ("libcufftw.so.11", "nothing to run in its device code", 0, 1),
    ]
    assert [row.unread for row in found.rows] == [True, False, False, False]
    assert found.rows[1].specialised


def test_the_total_is_the_worst_of_all_and_names_who_is_to_blame() -> None:
    found = mapped(PLAIN, PROVIDER, OWN, IDLE)
    assert found.total is not None
    assert (found.total.name, found.total.containers) == ("all libraries", 204)
    assert marks(found.total) == "...NN.N.~NN.NNjj.jj"
    assert hover(found.total, "5.0").endswith(": not at all. Because of libprovider.so.")
    assert hover(found.total, "5.3").endswith(": not at all. Because of libprovider.so and libcublas.so.12.")
    assert hover(found.total, "11.0").endswith(": not at all. Because of libcublas.so.12.")
    assert hover(found.total, "8.6") == "8.6 (Ampere: GeForce RTX 30, RTX A6000, A10 and A40): native."


def test_many_to_blame_are_counted() -> None:
    found = mapped(*(Inspected(name=f"lib{place}.so", coverage=coverage(native=CARDS)) for place in range(6)))
    assert found.total is not None
    assert hover(found.total, "8.7").endswith("Because of lib0.so, lib1.so, lib2.so and 3 more.")


def test_the_total_is_never_of_more_than_was_read() -> None:
    found = mapped(PROVIDER, BROKEN).total
    assert found is not None
    assert found.name == "all that can be read"


def test_there_is_no_total_of_nothing() -> None:
    assert mapped(PLAIN, BROKEN, IDLE).total is None
    assert mapped().total is None


def test_the_folder_that_all_share_is_said_once() -> None:
    names = ["nvidia/cudnn/lib/liba.so", "nvidia/cudnn/lib/sub/libb.so", "nvidia/cudnn/libc.so"]
    found = mapped(*(Inspected(name=name) for name in names))
    assert found.folder == "nvidia/cudnn/"
    assert [row.name for row in found.rows] == ["lib/liba.so", "lib/sub/libb.so", "libc.so"]
    assert mapped(Inspected(name="lib/a.so"), Inspected(name="library/a.so")).folder == ""
    assert mapped(Inspected(name="lib/a.so")).rows[0].name == "a.so"


def test_notes_are_one_sentence_a_library() -> None:
    unseen = "where cuobjdump does not look"
    found = mapped(
        PLAIN, PROVIDER, Inspected(name="z", coverage=coverage(native=CARDS, sections={"": 10}, unknown=1))
    )
    assert [(note.name, note.text) for note in found.notes] == [
        ("libprovider.so", "for 7.5, 1 of 184 containers has nothing that runs"),
        (
            "z",
            f"all 10 containers lie outside of any section, {unseen}; 1 image is of a kind that nobody knows",
        ),
    ]


def test_details_are_of_what_could_be_read() -> None:
    library = Inspected(
        name="libx.so",
        coverage=coverage(nothing_to_run=3, ltoir=["75"]),
        soname="libx.so.1",
        needed=("libc.so.6", "libm.so.6"),
    )
    found = mapped(BROKEN, library)
    (detail,) = found.details
    assert (detail.name, detail.containers, detail.nothing_to_run) == ("libx.so", 10, 3)
    assert detail.sections == ((".nv_fatbin", 10),)
    assert detail.images == (("SASS", "80 90a"), ("PTX", "90"), ("LTO IR", "75"))
    assert (detail.soname, detail.needed) == ("libx.so.1", ("libc.so.6", "libm.so.6"))


def test_nothing_of_a_file_reaches_a_reader_unprintable() -> None:
    evil = "\x1b]0;x\x07\udcff"
    found = mapped(
        Inspected(
            name=f"d{evil}/a{evil}", coverage=coverage(sections={evil: 10}), soname=evil, needed=(evil,)
        ),
        Inspected(name=f"d{evil}/b", problem=evil),
        label=evil,
    )
    everything = [found.label, found.folder, found.sentence, *(row.name + row.remark for row in found.rows)]
    everything += [note.name + note.text for note in found.notes]
    everything += [
        text for detail in found.details for text in (detail.soname, *detail.needed, detail.sections[0][0])
    ]
    everything += [cell.hover for row in (*found.rows, found.total) if row for cell in row.cells]
    assert all(text.isprintable() for text in everything)


def test_a_shortened_map_keeps_what_says_most_and_counts_the_rest() -> None:
    gaps = Inspected(name="libgaps.so", coverage=PROVIDER.coverage)
    plain = [Inspected(name=f"plain{place}.so") for place in range(3)]
    maps = heat_maps([("a", [*plain, BROKEN, PROVIDER]), ("b", [gaps, OWN])])
    first, second = shortened(maps, 4)
    assert [row.name for row in first.rows] == ["plain0.so", "plain1.so", "libbroken.so", "libprovider.so"]
    assert (first.more, second.more, second.rows, second.notes) == (1, 2, (), ())
    assert (first.total, second.total) == (maps[0].total, maps[1].total)
    (least, _) = shortened(maps, 1)
    assert [row.name for row in least.rows] == [note.name for note in least.notes] == ["libprovider.so"]
    assert [row.name for found in shortened(maps, 7) for row in found.rows] == [
        row.name for found in maps for row in found.rows
    ]
