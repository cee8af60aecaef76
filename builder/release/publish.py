"""publish: dist/ → a release that is complete or not there.

``prepare`` reads dist/ and refuses what must not go out, ``pages`` and ``notes`` write what people read,
``converge`` makes the host's release equal to the files. A second run does nothing; an interrupted one goes
on where it stopped.
"""

from __future__ import annotations

from pathlib import Path

from builder.findings.finding import require
from builder.project.variants import Project
from builder.release import preflight
from builder.release.assets import ReleasePlan
from builder.release.converge import converge_release, observe
from builder.release.notes import card_tables, previous_index, release_notes
from builder.release.options import (
    CLIENT,
    Published,
    PublishOptions,
    PublishPorts,
    State,
    archives_in,
    index_url,
    release_tag,
)
from builder.release.pages import LICENCES_PAGE, SBOM_SUFFIX
from builder.release.prepare import files_there, prepare, stored

__all__ = [
    "CLIENT",
    "LICENCES_PAGE",
    "SBOM_SUFFIX",
    "PublishOptions",
    "PublishPorts",
    "Published",
    "State",
    "archives_in",
    "index_url",
    "publish_release",
    "read_release_status",
    "release_tag",
    "stored",
]


def publish_release(
    directory: Path, project: Project, ports: PublishPorts, options: PublishOptions
) -> Published:
    """Make the release on the host equal to ``directory``, then public.

    Raises ``NothingToDoError`` (no packages), ``CheckFailedError`` (findings, before the host is asked),
    ``ReleaseConflictError`` (published already with other bytes), ``IntegrityError`` or ``TransferError``.
    """
    with ports.reporter.step("preflight"):
        prepared = prepare(directory, project, ports, options)
        ports.host.require_access()
    with ports.reporter.step(f"release {prepared.tag}"):
        previous, cards = previous_index(prepared.tag, ports), card_tables(prepared, ports.reporter)
        body = release_notes(prepared, previous, project, ports.loader, cards)
        require(preflight.check_notes(body), f"{directory} cannot be released")
        plan = ReleasePlan(prepared.tag, prepared.title, body, prepared.files)
        return converge_release(plan, ports, options)


def read_release_status(directory: Path, tag: str, ports: PublishPorts) -> Published:
    """How the release of ``tag`` stands against ``directory`` as it is; nothing is written anywhere."""
    return observe(tag, files_there(directory, ports), ports)
