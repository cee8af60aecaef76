"""Tests of builds on several builders: which builder compiles a variant, and who continues when one fails."""

from collections.abc import Callable
from pathlib import Path

import pytest

from builder.compile.builders import Builders, named_builders
from builder.compile.stages import StageBuild
from builder.errors import BuilderError, DiskError, ToolMissingError, ValidationError
from tests.support.fakes.ports import FakeEngine, FakeReporter, FakeStore
from tests.support.messages import Refused

GONE = ToolMissingError("Builder went away while building artifact.", retry_after=0.0)

LOST = ToolMissingError("Builder went away while exporting.", retry_after=0.0)


class Farm:
    """Builders: ``seen`` lists those that were given work, ``failures`` has the error that each
    of them raises."""

    def __init__(self, *names: str, **failures: BuilderError) -> None:
        self.builders = Builders(names)
        self.engine = FakeEngine()
        self.reporter = FakeReporter()
        self.failures = failures
        self.seen: list[str | None] = []

    def compile(self, home: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        def work(means: StageBuild) -> None:
            self.seen.append(means.builder)
            meanwhile()
            if means.builder in self.failures:
                raise self.failures[means.builder]

        store = FakeStore(Path())
        self.builders.compile(work, home, StageBuild(engine=self.engine, store=store, reporter=self.reporter))


def test_without_a_name_the_current_builder_compiles() -> None:
    farm = Farm()
    farm.compile(2, lambda: farm.compile(0))
    assert farm.seen == [None, None]
    assert not farm.builders


def test_of_several_at_once_each_takes_the_least_busy_builder() -> None:
    farm = Farm("one", "two")
    farm.compile(0, lambda: farm.compile(0, lambda: farm.compile(0)))
    assert farm.seen == ["one", "two", "one"]
    farm.compile(0)
    assert farm.seen[-1] == "one", "nobody is busy any more"


def test_a_builder_that_goes_away_hands_its_work_to_another_one() -> None:
    farm = Farm("one", "two", one=GONE)
    farm.compile(0)
    farm.compile(0)
    assert farm.seen == ["one", "two", "two"], "who has gone is not asked again"
    said = "! one does not answer any more; two compiles now, with the objects in its own caches"
    assert farm.reporter.lines == [said]


def test_a_builder_that_does_not_answer_gets_no_work() -> None:
    farm = Farm("one", "two", "three", one=GONE)
    farm.engine.deaf.add("two")
    farm.compile(0)
    assert farm.seen == ["one", "three"]


@pytest.mark.parametrize(
    ("failures", "deaf", "seen"),
    [
        ({"one": DiskError("no space left")}, (), ["one"]),
        ({"one": ToolMissingError("pip is not on PATH")}, (), ["one"]),
        ({"one": GONE}, ("two", "three"), ["one"]),
        ({"one": GONE, "two": LOST, "three": LOST}, (), ["one", "two"]),
    ],
    ids=["a full disk", "another tool", "no other answers", "handed on once"],
)
def test_the_last_failure_is_the_error(
    failures: dict[str, BuilderError], deaf: tuple[str, ...], seen: list[str]
) -> None:
    farm = Farm("one", "two", "three", **failures)
    farm.engine.deaf.update(deaf)
    with pytest.raises(BuilderError) as caught:
        farm.compile(0)
    assert (farm.seen, caught.value) == (seen, failures[seen[-1]])


LISTED = {"builder": ("default", "farm"), "context": ("default", "far", "away")}


@pytest.mark.parametrize(
    ("builder", "context"), [("fram", None), ("farm,far", "zzz"), (",", "far,")], ids=["one", "both", "empty"]
)
def test_unknown_names_are_told_with_those_there_are(
    refused: Refused, builder: str, context: str | None
) -> None:
    with refused(ValidationError):
        named_builders(FakeEngine(listed=LISTED), {"builder": builder, "context": context})


def test_a_name_that_does_not_answer_is_told_before_anything_is_built() -> None:
    engine = FakeEngine(listed=LISTED, deaf={"away"})
    with pytest.raises(ToolMissingError, match="Builder away does not answer"):
        named_builders(engine, {"builder": "farm", "context": "far,away"})


def test_builders_and_contexts_compile_together_each_once() -> None:
    farm = Farm()
    flags = {"builder": "farm,farm", "context": "far"}
    farm.builders = named_builders(FakeEngine(listed=LISTED), flags)
    for home in range(3):
        farm.compile(home)
    assert farm.seen == ["farm", "far", "farm"]
