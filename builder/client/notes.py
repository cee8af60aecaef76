"""Writes down what was found out about the machine: ``gpu-info.json``."""

from __future__ import annotations

from builder.client.choosing import Scene
from builder.client.info import Verdict, gpu_info
from builder.client.layout import make_folders, write_json
from builder.client.lock import hold
from builder.client.world import Options, World
from builder.core.select import Choice


def note_verdict(world: World, options: Options, scene: Scene, choice: Choice, verdict: Verdict) -> None:
    """Write it, whole or not at all. Where that cannot be, the user is told, and what was done stands."""
    prefix = options.prefix
    try:
        make_folders(prefix)
        with hold(prefix.lock, lambda: world.say("Waiting for another install to finish.")):
            make_folders(prefix)
            write_json(prefix, prefix.gpu_info, gpu_info(choice, scene.found, verdict, world.now()))
    except OSError as error:
        world.say(f"{prefix.gpu_info}: not written: {error.strerror or error}")
