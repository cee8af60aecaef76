"""Tests of the records in docs/atlas: each is complete, has today's verdicts, and agrees with
other readers."""

from functools import cache

import pytest

from builder.binary.coverage import Support
from builder.binary.library_names import lowest_served
from builder.binary.verdict import verdicts
from builder.facts.gpu.architectures import Capability
from builder.inspect.atlas import RECORDS, record_file
from builder.inspect.report.wheel_record import WheelRecord, loads, verdicts_of
from tests.support import ROOT
from tests.support.corpus import corpus


@cache
def records() -> tuple[WheelRecord, ...]:
    files = sorted((ROOT / RECORDS).glob("*.json"))
    found = tuple(loads(file.read_bytes(), file.name) for file in files)
    assert [record_file(ROOT, record.filename) for record in found] == files
    return found


def test_the_corpus_has_forty_wheels_and_none_twice() -> None:
    names = [line.pin.filename for line in corpus()]
    assert len(names) >= 40
    assert len(set(names)) == len(names)


def test_each_wheel_of_the_corpus_was_read() -> None:
    kept = {(one.name, str(one.version), one.filename, one.sha256) for one in records()}
    listed = {(line.name, line.version, line.pin.filename, line.pin.sha256) for line in corpus()}
    assert listed - kept == set()


def test_each_record_says_what_the_rules_of_today_say() -> None:
    """After an intended change of a rule, ``./run atlas`` writes the new verdicts, whose diff is
    to be reviewed."""
    differ = [one.label for one in records() if verdicts_of(one.source().libraries) != one.verdicts]
    assert differ == []


def test_libraries_that_are_known_by_name_have_the_lowest_capability_of_their_records() -> None:
    """Wheels of NVIDIA's in the atlas; of several with one name, that which serves most GPUs."""
    lowest: dict[str, Capability] = {}
    for one in records():
        for item in one.source().libraries if one.name.startswith(("nvidia-", "custate", "cutensor")) else ():
            name = item.soname or item.name.rpartition("/")[2]
            served = [on for on, found in verdicts(item).items() if found.support is not Support.NONE]
            if served:
                lowest[name] = min(lowest.get(name, served[0]), *served, served[0])
    for name, known in lowest_served().items():
        assert lowest[name] >= known > Capability(5, 0), name


def test_every_library_was_read_and_no_difference_to_another_reader_is_without_a_reason() -> None:
    assert [line for one in records() for seen in one.compared for line in seen.unexplained] == []
    assert [(one.label, item.name) for one in records() for item in one.libraries if item.problem] == []


@pytest.mark.parametrize("reader", ["cuobjdump 13.5.37", "pefile", "search for headers"])
def test_other_readers_counted_thousands_alike(reader: str) -> None:
    counts = [seen.images for one in records() for seen in one.compared if seen.reader.startswith(reader)]
    assert sum(counts) > {"pefile": 20}.get(reader, 10_000)
