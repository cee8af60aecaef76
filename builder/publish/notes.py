"""The release notes list the GPUs of each package, how to install it, and what changed.

The changes are those between this release's index and the previous one's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from builder.client.selection.reasons import limits
from builder.config.variants import Project
from builder.console import Reporter
from builder.contents.card_grid import grid_name, table
from builder.contents.card_grid import loads as loads_grid
from builder.errors import ConfigError
from builder.facts.gpu.architectures import Capability
from builder.formats import index as index_format
from builder.formats.index import INDEX_LIMIT, Index, IndexPackage, by_support, distinct
from builder.formats.manifest import Driver
from builder.formats.package_names import CLIENT, CUDA, INDEX, INSTALL_SCRIPT
from builder.io.templates import template_environment
from builder.publish.assets import UPLOADED, ReleasePlan
from builder.publish.locations import downloads
from builder.publish.prepare import PublishPorts


def release_notes(plan: ReleasePlan, index: Index, project: Project, ports: PublishPorts) -> str:
    """Return the notes of a release, in Markdown: ``release-notes.md.j2``."""
    previous = _previous_index(plan.tag, ports)
    packages = distinct(index.packages)
    return (
        template_environment(ports.loader)
        .get_template("release-notes.md.j2")
        .render(
            index=index,
            client=CLIENT if any(file.name == CLIENT for file in plan.files) else None,
            script=INSTALL_SCRIPT,
            downloads=downloads(project.publish, index.tag),
            packages=packages,
            runs={package.file: by_support(package) for package in packages},
            limits={package.file: limits(package) for package in packages},
            previous=previous.tag if previous else None,
            news=changes(previous, index) if previous else (),
            tables=_card_tables(plan, packages, ports.reporter),
        )
    )


def _previous_index(tag: str, ports: PublishPorts) -> Index | None:
    """Return the index of the newest release; ``None`` if that is ``tag``'s, or there is none to read.

    An index that cannot be read gives a warning.
    """
    release = ports.host.latest()
    if release is None or release.tag == tag:
        return None
    assets = release.assets or ports.host.assets(release)
    asset = next((asset for asset in assets if asset.name == INDEX), None)
    if asset is None:
        return None
    if asset.state != UPLOADED or asset.size > INDEX_LIMIT:
        ports.reporter.warn(f"the notes will not say what is new: {INDEX} of {release.tag} is not whole")
        return None
    try:
        content = ports.host.download(asset, INDEX_LIMIT)
        return index_format.loads(content.decode("utf-8", errors="replace"), f"{INDEX} of {release.tag}")
    except ConfigError as error:
        ports.reporter.warn(f"the notes will not say what is new: {error}")
        return None


def _card_tables(
    plan: ReleasePlan, packages: Sequence[IndexPackage], reporter: Reporter
) -> Mapping[str, str]:
    """Return the tables of virtual cards by package file, for packages with a grid of their bytes.

    ``verify --card all`` makes the grid.
    """
    tables = {}
    places = {file.name: file.path for file in plan.files}
    for package in packages:
        there = places.get(package.file)
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


_NOTICEABLE = 0.01
"""The smallest change of an archive's size that is mentioned, as a share."""


def changes(old: Index, new: Index) -> tuple[str, ...]:
    """Return a sentence for each new or removed package, and each change of versions, GPUs, drivers or sizes.

    A changed model table is one sentence.
    """
    before, after = _by_title(old), _by_title(new)
    lines = [f"New: {title}." for title in sorted(after.keys() - before.keys())]
    lines += [f"Gone: {title}." for title in sorted(before.keys() - after.keys())]
    for title in sorted(before.keys() & after.keys()):
        lines += [f"{title}: {change}." for change in _package_changes(before[title], after[title])]
    if old.models != new.models:
        lines.append("The table of model sizes has changed.")
    return tuple(lines)


def _by_title(index: Index) -> dict[str, IndexPackage]:
    return {
        f"{item.variant}{' as a plug-in' * (item.plugin is not None)} ({item.platform}, {item.layout}, "
        f"{item.file[item.file.rindex('.tar') :]})": item
        for item in index.packages
    }


def _package_changes(old: IndexPackage, new: IndexPackage) -> Iterator[str]:
    if old.sha256 == new.sha256:
        return
    if old.onnxruntime.version != new.onnxruntime.version:
        yield f"ONNX Runtime {old.onnxruntime.version} → {new.onnxruntime.version}"
    if _how(old) != _how(new):
        yield f"ONNX Runtime is {_how(new)}; it was {_how(old)}"
    yield from _gpu_changes(old, new)
    if old.driver != new.driver:
        yield f"driver {_window(old.driver)} → {_window(new.driver)}"
    if abs(new.size - old.size) > _NOTICEABLE * old.size:
        yield f"{old.size / 1e6:.0f} MB → {new.size / 1e6:.0f} MB"


def _how(package: IndexPackage) -> str:
    ort = package.onnxruntime
    return "the official build" if ort.profile is None else f"compiled with the {ort.profile} profile"


def _gpu_changes(old: IndexPackage, new: IndexPackage) -> Iterator[str]:
    """Yield the compute capabilities whose support changed: ``none → native on compute capability 12.1``."""
    moved: dict[tuple[str, str], list[str]] = {}
    names: Sequence[str] = sorted({*old.capabilities, *new.capabilities}, key=Capability.parse)
    for name in names:
        pair = (old.capabilities.get(name, "none"), new.capabilities.get(name, "none"))
        if pair[0] != pair[1]:
            moved.setdefault(pair, []).append(name)
    for (was, now), capabilities in moved.items():
        yield f"{was} → {now} on compute capability {', '.join(capabilities)}"


def _window(driver: Driver | None) -> str:
    if driver is None:
        return "any"
    return f"{driver.floor} or newer" + (f" up to branch {driver.ceiling}" if driver.ceiling else "")
