"""Factory of the bundle stage's input, from the tiny trees of ``tests.support.factories.packages``."""

from __future__ import annotations

from builder.adapters.wheel import record_text
from builder.package.archive import Member
from builder.package.describe import BinaryReport
from builder.pipeline.bundle import CheckedContent
from builder.pipeline.gather import originals
from builder.project.build_plan import BuildPlan
from builder.project.inputs import Input
from tests.support.factories.packages import Trees, lock, report


def checked_content(
    plan: BuildPlan, members: tuple[Member, ...], trees: Trees, read: BinaryReport | None = None
) -> CheckedContent:
    """Return the checked content of a plan; ``read`` is the check's report, by default without findings."""
    return CheckedContent(
        plan=plan,
        members=members,
        originals=originals(plan, members, trees),
        report=read or report(),
        record=lambda key: record_text(trees(Input.parse(key))),
        lock=lock(),
    )
