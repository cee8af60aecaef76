"""The answer of ``select``: what of a release fits this machine."""

from __future__ import annotations

from builder.client.choosing import choose, look
from builder.client.spelling import choice_value, explained
from builder.client.world import Answer, Options, World, head
from builder.core.choicetable import lines as table_lines


def answer_select(world: World, options: Options) -> Answer:
    """Which package this machine should run, and why not the others."""
    scene = look(world, options)
    choice = choose(scene, options.variant)
    said = explained(choice, scene.found)
    if options.explain:
        said += ["", *table_lines(choice, scene.devices, scene.index, scene.platform, scene.glibc)]
    return Answer({**head("select"), **choice_value(choice)}, tuple(said))
