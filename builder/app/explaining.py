"""render --explain: what sets a plan apart from the official build of its ORT version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from builder.console import Console
from builder.core.explain import Explanation, explain
from builder.core.variant import BuildPlan


def tell(console: Console, plans: Iterable[BuildPlan]) -> None:
    """Show each plan beside the official build: a line a difference, then what the version makes of it."""
    for plan in plans:
        console.show("\n".join(_lines(explain(plan))))


def _lines(explained: Explanation) -> Iterator[str]:
    yield explained.title
    if not explained.differences:
        yield "  no option differs"
    yield from (f"  {difference}" for difference in explained.differences)
    yield from (f"  note: {note}" for note in explained.notes)
