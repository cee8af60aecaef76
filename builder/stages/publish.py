"""publish: dist/ → a release that is complete or not there.

Observe, show, act on what differs, observe again, publish only when all is equal. A second run does nothing;
an interrupted one goes on where it stopped, because the draft is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from jinja2 import BaseLoader, Environment, StrictUndefined

from builder.core import index as index_format
from builder.core import manifest as manifest_format
from builder.core import parts as parts_format
from builder.core.checks import Code, Finding, require
from builder.core.index import Index, IndexPart, Stored, build_index, by_support
from builder.core.naming import ARCHIVE_SUFFIXES, PARTS_SUFFIX
from builder.core.package import Archive, Checksums
from builder.core.ports import Reporter
from builder.core.preflight import Candidate, Leniency, check_files, check_notes, check_packages
from builder.core.release import (
    CHECKSUMS,
    INDEX,
    LocalFile,
    Release,
    ReleaseHost,
    Row,
    Verb,
    compare,
    complete,
    converge,
    render_table,
    require_tag,
)
from builder.core.select import distinct
from builder.core.variant import Project, Publish
from builder.errors import BuilderError, IntegrityError, NothingToDoError, ReleaseConflictError

CLIENT = "ortpacks.pyz"


@dataclass(frozen=True, kw_only=True)
class PublishPorts:
    """What publishing needs from outside."""

    host: ReleaseHost
    archive: Archive
    checksums: Checksums
    reporter: Reporter
    verify: Callable[[Path], None]
    """Raises a ``BuilderError`` for a package that must not be released."""
    write: Callable[[Path], AbstractContextManager[IO[bytes]]]
    """Opens a file that appears whole or not at all."""
    loader: BaseLoader
    """Finds ``release-notes.md.j2``."""


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """What was asked for; ``tag`` defaults to ``publish.tag`` with the packages' ORT version."""

    tag: str | None = None
    dry_run: bool = False
    """Show what would be done; nothing is written to the host."""
    commit: str | None = None
    """Where a tag that is not there yet is made; by default the host's choice."""
    draft: bool = False
    """Stop before the release becomes public."""
    allow: Leniency = field(default_factory=Leniency)


@dataclass(frozen=True, kw_only=True)
class Published:
    """How it ended: ``published``, ``unchanged`` (it was there, equal), ``draft`` or ``dry-run``."""

    tag: str
    state: str
    url: str | None
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """A release as it should be."""

    tag: str
    title: str
    body: str
    files: tuple[LocalFile, ...]


def release_tag(directory: Path, project: Project, archive: Archive, tag: str | None = None) -> str:
    """The tag that ``publish`` takes: ``tag``, or ``publish.tag`` with the packages' ORT version.

    For the client, which is made first and names its release. Packages that cannot be read are passed over:
    ``publish`` tells of them. Raises ``NothingToDoError`` (no packages) or ``ConfigError`` (no tag for git).
    """
    versions = set()
    for path in _archives(directory):
        with suppress(BuilderError):
            manifest = manifest_format.loads(archive.read_manifest(path), path.name)
            versions.add(manifest.onnxruntime.version)
    return _tag(project, tag, versions)


def index_url(publishing: Publish, tag: str) -> str:
    """Where the index of a release will be found."""
    return f"{_downloads(publishing, tag)}/{INDEX}"


def publish(directory: Path, project: Project, ports: PublishPorts, options: PublishOptions) -> Published:
    """Make the release on the host equal to ``directory``, then public.

    Raises ``NothingToDoError`` (no packages), ``CheckFailedError`` (findings, before the host is asked),
    ``ReleaseConflictError`` (published already with other bytes), ``IntegrityError`` or ``TransferError``.
    """
    with ports.reporter.step("preflight"):
        plan = _prepare(directory, project, ports, options)
    with ports.reporter.step(f"release {plan.tag}"):
        return _release(plan, ports, options)


def _prepare(directory: Path, project: Project, ports: PublishPorts, options: PublishOptions) -> _Plan:
    archives = _archives(directory)
    listed = ports.checksums.read(directory)
    files = [_local_file(path, ports) for path in _release_files(directory, archives, listed)]
    candidates, findings = _candidates([file for file in files if file.path in archives], ports)
    # The client is made anew for each release, so its old line vouches for nothing.
    client = {file.name: file.sha256 for file in files if file.name == CLIENT}
    findings += check_files(files, {**listed, **client})
    findings += check_packages(candidates, options.allow)
    require(findings, f"{directory} cannot be released")
    tag = _tag(project, options.tag, {item.manifest.onnxruntime.version for item in candidates})
    index = build_index(tag, [(item.manifest, stored(item.file)) for item in candidates], project.models)
    files += _write_index(directory, index, files, ports)
    body = _notes(index, files, project, ports.loader)
    require(check_notes(body), f"{directory} cannot be released")
    versions = sorted({package.onnxruntime.version for package in index.packages})
    title = f"ONNX Runtime {', '.join(versions)} for every GPU generation"
    return _Plan(tag=tag, title=title, body=body, files=tuple(files))


def stored(file: LocalFile) -> Stored:
    """The archive that ``file`` is, or whose parts it names. ``ConfigError`` when it does not say which."""
    if not file.name.endswith(PARTS_SUFFIX):
        return Stored(file.name, file.size, file.sha256)
    whole = parts_format.loads(file.path.read_text(encoding="utf-8"), file.name)
    parts = tuple(IndexPart(part.file, part.size, part.sha256) for part in whole.parts)
    return Stored(whole.file, whole.size, whole.sha256, parts)


def _archives(directory: Path) -> list[Path]:
    """The packages: archives, and the ``.parts.json`` of those that were cut."""
    ends = [f"{suffix}{more}" for suffix in ARCHIVE_SUFFIXES for more in ("", PARTS_SUFFIX)]
    found = sorted(path for end in ends for path in directory.glob(f"*{end}"))
    if not found:
        raise NothingToDoError(f"{directory} holds no packages. `./run build --all` makes them.")
    return found


def _release_files(directory: Path, archives: Iterable[Path], listed: Mapping[str, str]) -> list[Path]:
    """Packages, the client, and whatever else ``SHA256SUMS`` vouches for; the index is written anew."""
    named = [directory / name for name in {*listed, CLIENT} - {INDEX, CHECKSUMS}]
    return sorted({*archives, *(path for path in named if path.is_file())})


def _local_file(path: Path, ports: PublishPorts) -> LocalFile:
    digest = ports.archive.digest(path)
    return LocalFile(path, digest.size, digest.sha256)


def _candidates(files: Iterable[LocalFile], ports: PublishPorts) -> tuple[list[Candidate], list[Finding]]:
    candidates: list[Candidate] = []
    findings: list[Finding] = []
    for file in files:
        try:
            manifest = manifest_format.loads(ports.archive.read_manifest(file.path), file.name)
            candidates.append(Candidate(manifest, file))
            ports.verify(file.path)
        except BuilderError as error:
            findings.append(Finding(Code.R012, file.name, str(error)))
    return candidates, findings


def _tag(project: Project, wanted: str | None, versions: set[str]) -> str:
    version = min(versions) if len(versions) == 1 else project.onnxruntime.version
    return require_tag(wanted or project.publish.tag.replace("{version}", version))


def _write_index(
    directory: Path, index: Index, files: Sequence[LocalFile], ports: PublishPorts
) -> list[LocalFile]:
    """Write ``index.json`` and the whole ``SHA256SUMS``: both are ready before the host is touched."""
    with ports.write(directory / INDEX) as stream:
        stream.write(index_format.dumps(index).encode())
    written = _local_file(directory / INDEX, ports)
    ports.checksums.update(directory, put={file.name: file.sha256 for file in (*files, written)})
    return [written, _local_file(directory / CHECKSUMS, ports)]


def _release(plan: _Plan, ports: PublishPorts, options: PublishOptions) -> Published:
    host, reporter = ports.host, ports.reporter
    public = host.published(plan.tag)
    if public is not None:
        return _unchanged(plan, public, tuple(compare(plan.files, host.assets(public))), reporter)
    draft = _draft(plan, ports)
    rows = tuple(compare(plan.files, host.assets(draft) if draft else ()))
    reporter.say("\n".join(render_table(rows)))
    if options.dry_run:
        reporter.say(f"dry run: {len(converge(rows))} steps to take, nothing was written to the host")
        return Published(tag=plan.tag, state="dry-run", url=draft.html_url if draft else None, rows=rows)
    draft = draft or host.create_draft(plan.tag, plan.title, plan.body, options.commit)
    _act(draft, rows, ports)
    rows = _observe_again(plan, draft, ports)
    if options.draft:
        reporter.say(f"complete draft, not public: {draft.html_url}")
        return Published(tag=plan.tag, state="draft", url=draft.html_url, rows=rows)
    public = host.publish(draft, plan.title, plan.body, options.commit)
    reporter.say(f"published{' and immutable' if public.immutable else ''}: {public.html_url}")
    return Published(tag=plan.tag, state="published", url=public.html_url, rows=rows)


def _unchanged(plan: _Plan, public: Release, rows: tuple[Row, ...], reporter: Reporter) -> Published:
    reporter.say("\n".join(render_table(rows)))
    if not complete(rows):
        raise ReleaseConflictError(
            f"{plan.tag} is published with other files{' and immutable' if public.immutable else ''}: "
            f"{public.html_url}. A published release is never changed, people may have it: use a new --tag."
        )
    reporter.say(f"already published, nothing to do: {public.html_url}")
    return Published(tag=plan.tag, state="unchanged", url=public.html_url, rows=rows)


def _draft(plan: _Plan, ports: PublishPorts) -> Release | None:
    """The draft to go on with: the oldest, where a host holds several of one tag."""
    drafts = ports.host.drafts(plan.tag)
    for other in drafts[1:]:
        ports.reporter.warn(f"another draft of {plan.tag} is left alone; delete it by hand: {other.html_url}")
    if drafts:
        ports.reporter.say(f"going on with the draft {drafts[0].html_url}")
    return drafts[0] if drafts else None


def _act(draft: Release, rows: Sequence[Row], ports: PublishPorts) -> None:
    for action in converge(rows):
        if action.verb is Verb.DELETE and action.asset is not None:
            ports.host.delete(action.asset)
        if action.verb is Verb.UPLOAD and action.file is not None:
            ports.host.upload(draft, action.file)
        ports.reporter.say(f"{action.verb.value} {action.name}")


def _observe_again(plan: _Plan, draft: Release, ports: PublishPorts) -> tuple[Row, ...]:
    rows = tuple(compare(plan.files, ports.host.assets(draft)))
    if not complete(rows):
        table = "\n".join(render_table(rows))
        raise IntegrityError(
            f"{plan.tag} is not what was uploaded, so it stays a draft:\n{table}\n"
            "Is someone else publishing the same tag? Run it again."
        )
    return rows


def _notes(index: Index, files: Sequence[LocalFile], project: Project, loader: BaseLoader) -> str:
    environment = Environment(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, not HTML
    )
    return environment.get_template("release-notes.md.j2").render(
        index=index,
        client=CLIENT if any(file.name == CLIENT for file in files) else None,
        downloads=_downloads(project.publish, index.tag),
        runs={package.file: by_support(package) for package in distinct(index.packages)},
        packages=distinct(index.packages),
    )


def _downloads(publishing: Publish, tag: str) -> str:
    return f"{web_root(publishing.api)}/{publishing.repository}/releases/download/{tag}"


def web_root(api: str) -> str:
    """Where people download from: github.com for its API host, the server itself for GitHub Enterprise."""
    split = urlsplit(api)
    return f"{split.scheme}://{split.netloc.removeprefix('api.')}"
