"""lock: pin every input of the project, so that nothing unpinned enters a build.

Existing pins stay. An input without a pin is fetched, and its bytes of today become the pin.
"""

from __future__ import annotations

from collections.abc import Mapping

from builder.errors import ToolMissingError, TransferError
from builder.ports import Reporter
from builder.project.inputs import Input, InputKind, Intake, Lock, Pin, Resolver
from builder.project.variants import Project, wanted_inputs


def lock(
    project: Project,
    known: Lock,
    *,
    intake: Intake,
    resolvers: Mapping[InputKind, Resolver],
    reporter: Reporter,
    refresh: bool = False,
) -> Lock:
    """The pins of all inputs of the project, and of nothing else.

    ``resolvers`` serve git and images; where one is out of reach the revision stays open, which a release
    refuses. ``refresh`` makes every pin anew. Raises ``TransferError`` when a file cannot be fetched.
    """
    wanted = wanted_inputs(project)
    kept = {} if refresh else _still_good(known, wanted)
    fresh = {item.key: _pin(item, intake, resolvers, reporter) for item in wanted if item.key not in kept}
    _tell(reporter, known, kept, fresh)
    return Lock(pins=dict(sorted({**kept, **fresh}.items())))


def _still_good(known: Lock, wanted: tuple[Input, ...]) -> dict[str, Pin]:
    """The known pins that stay. An open revision is resolved again."""
    pins = {item.key: known.pins[item.key] for item in wanted if item.key in known.pins}
    return {key: pin for key, pin in pins.items() if pin.sha256 or pin.revision}


def _pin(item: Input, intake: Intake, resolvers: Mapping[InputKind, Resolver], reporter: Reporter) -> Pin:
    if item.kind in resolvers:
        return Pin(revision=_revision(item, resolvers[item.kind], reporter))
    return intake.pin(item)


def _revision(item: Input, resolve: Resolver, reporter: Reporter) -> str | None:
    try:
        return resolve(item.spec)
    except (TransferError, ToolMissingError) as error:
        reporter.warn(
            f"{item.key} stays unpinned: local builds work, a release needs ./run lock where it can be "
            f"reached: {error}"
        )
        return None


def _tell(reporter: Reporter, known: Lock, kept: Mapping[str, Pin], fresh: Mapping[str, Pin]) -> None:
    for key, pin in fresh.items():
        if pin.revision is not None or pin.sha256:
            reporter.say(f"pinned {key} {pin.revision or pin.sha256}")
    for key in known.pins:
        if key not in kept and key not in fresh:
            reporter.say(f"dropped {key}: no variant needs it any more")
    reporter.say(f"{len(kept) + len(fresh)} inputs, {len(kept)} unchanged")
