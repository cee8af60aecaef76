"""What the bundle stage packs, from the tiny trees of ``tests.packages``."""

from __future__ import annotations

from builder.adapters.wheel import record_text
from builder.core.inputs import Input
from builder.core.package import Member
from builder.core.variant import BuildPlan
from builder.stages.bundle import Goods
from builder.stages.gather import originals
from tests.packages import Report, Trees, lock, report


def goods_of(plan: BuildPlan, members: tuple[Member, ...], trees: Trees, read: Report | None = None) -> Goods:
    """Checked goods; ``read`` is what the check found in them."""
    return Goods(
        plan=plan,
        members=members,
        originals=originals(plan, members, trees),
        report=read or report(),
        record=lambda key: record_text(trees(Input.parse(key))),
        lock=lock(),
    )
