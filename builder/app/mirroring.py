"""mirror: the release of dist/ into a folder that a static web server shows."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from builder.adapters.directory import DirectoryHost
from builder.adapters.mirrorfolder import MirrorFolder
from builder.app.publishing import Target, aimed, publish_on
from builder.app.workshop import Workshop
from builder.core.mirror import mirror_tag
from builder.stages.publish import CLIENT, PublishOptions, State, release_tag


def mirror_dist(shop: Workshop, options: PublishOptions, to: Path) -> None:
    """Make the release of ``dist`` on the mirror ``to``: the very files that ``publish`` puts on GitHub.

    What would stop it is found before packages are proved. Raises what ``publish`` does, ``ConfigError`` for
    a tag that no folder can have, and ``DiskError``.
    """
    mirror = MirrorFolder(to)
    host = DirectoryHost(mirror, shop.reporter)
    tag = mirror_tag(release_tag(shop.dist, shop.project, shop.archive(shop.reporter), options.tag))
    host.require_access()
    host.require_room(tag, _listed_files(shop))
    with _turn(shop, mirror, options):
        done = publish_on(shop, aimed(shop, Target()), host, replace(options, tag=tag))
        if done.state in (State.PUBLISHED, State.UNCHANGED):
            mirror.finish(tag)
    shop.reporter.say(f"{tag}: {done.state.value}{f' at {done.url}' if done.url else ''}")


def _turn(shop: Workshop, mirror: MirrorFolder, options: PublishOptions) -> AbstractContextManager[None]:
    """One run writes at a time; a dry run writes nothing."""
    if options.dry_run:
        return nullcontext()
    return mirror.alone(lambda: shop.reporter.say(f"waiting: another run writes to {mirror.root}"))


def _listed_files(shop: Workshop) -> tuple[Path, ...]:
    """What of the release is there before it is prepared: nearly all of its bytes."""
    names = {*shop.checksums.read(shop.dist), CLIENT}
    return tuple(path for path in (shop.dist / name for name in sorted(names)) if path.is_file())
