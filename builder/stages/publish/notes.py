"""The text of a release: which package is for whom, what is in it, how to install, what is new."""

from __future__ import annotations

from collections.abc import Mapping

from jinja2 import BaseLoader, Environment, StrictUndefined

from builder.core import index as index_format
from builder.core.cards import grid_name, table
from builder.core.cards import loads as loads_grid
from builder.core.index import Index, by_support
from builder.core.indexchanges import changes
from builder.core.naming import PARTS_SUFFIX
from builder.core.ports import Reporter
from builder.core.providers import CUDA
from builder.core.release import INDEX, UPLOADED, Asset
from builder.core.select import distinct, limits
from builder.core.variant import Project
from builder.errors import ConfigError
from builder.stages.publish.asked import CLIENT, PublishPorts, downloads
from builder.stages.publish.prepare import Prepared

_INDEX_LIMIT = 16 << 20
"""Bytes; a real one has some thousand."""


def previous_index(tag: str, ports: PublishPorts) -> Index | None:
    """The index of the newest release that is not ``tag``'s; ``None`` where there is none that we read."""
    release = ports.host.latest()
    if release is None or release.tag == tag:
        return None
    assets = release.assets or ports.host.assets(release)
    asset = next((asset for asset in assets if asset.name == INDEX), None)
    if asset is None:
        return None
    if not _is_readable(asset):
        ports.reporter.warn(f"the notes will not say what is new: {INDEX} of {release.tag} is not whole")
        return None
    try:
        content = ports.host.download(asset, _INDEX_LIMIT)
        return index_format.loads(content.decode("utf-8", errors="replace"), f"{INDEX} of {release.tag}")
    except ConfigError as error:
        ports.reporter.warn(f"the notes will not say what is new: {error}")
        return None


def card_tables(prepared: Prepared, reporter: Reporter) -> Mapping[str, str]:
    """Tables of virtual cards by a package's file, where ``verify --card all`` left a grid of these bytes."""
    tables = {}
    places = {file.name: file.path for file in prepared.files}
    for package in distinct(prepared.index.packages):
        there = places.get(package.file) or places.get(f"{package.file}{PARTS_SUFFIX}")
        file = there.with_name(grid_name(package.file)) if there else None
        lacks = f"the notes have no table of cards for {package.name}"
        if file is None or not file.is_file():
            if package.provider == CUDA:
                reporter.warn(f"{lacks}. ./run verify --card all makes it.")
            continue
        try:
            grid = loads_grid(file.read_bytes(), file.name)
        except ConfigError as error:
            reporter.warn(f"{lacks}: {error}")
            continue
        if grid.sha256 == package.sha256:
            tables[package.file] = table(grid)
        else:
            reporter.warn(f"{lacks}: {file.name} is of other bytes. ./run verify --card all makes it again.")
    return tables


def _is_readable(asset: Asset) -> bool:
    return asset.state == UPLOADED and asset.size <= _INDEX_LIMIT


def release_notes(
    prepared: Prepared,
    previous: Index | None,
    project: Project,
    loader: BaseLoader,
    cards: Mapping[str, str],
) -> str:
    """Markdown from ``release-notes.md.j2``; its numbers come from the index and from ``card_tables``."""
    environment = Environment(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, not HTML
    )
    index = prepared.index
    packages = distinct(index.packages)
    return environment.get_template("release-notes.md.j2").render(
        index=index,
        client=CLIENT if any(file.name == CLIENT for file in prepared.files) else None,
        downloads=downloads(project.publish, index.tag),
        packages=packages,
        runs={package.file: by_support(package) for package in packages},
        limits={package.file: limits(package) for package in packages},
        previous=previous.tag if previous else None,
        news=changes(previous, index) if previous else (),
        tables=cards,
    )
