"""The work of the verbs publish, release-status, mirror and root: from ``dist`` to a signed release."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from builder.build.own_programs import (
    BESIDE_CLIENT,
    PYPI,
    RUNTIME,
    make_npm_package,
    make_wheel,
    write_client,
    write_install_script,
)
from builder.config.fields import API
from builder.config.variants import Project
from builder.contents.integrity import read_checksums, update_checksums
from builder.errors import IntegrityError, NothingToDoError, ToolMissingError, ValidationError
from builder.files.atomic_write import write_file
from builder.files.digest import file_digest
from builder.finding import require_no_errors
from builder.formats.package_names import CLIENT
from builder.formats.text import redacted, refuse_registry
from builder.formats.trust import parse_root, root_name
from builder.io.archive.client_zipapp import INSPECTOR, build_inspector
from builder.io.wiring import TOKENS, Wiring
from builder.prove.verify import Verifier
from builder.publish.assets import ReleaseHost, Repository, require_repository
from builder.publish.locations import (
    archives_in,
    downloads,
    index_url,
    readable,
    release_tag,
    versions_of,
    web_root,
)
from builder.publish.mirror import MirrorFolder, mirror_tag
from builder.publish.preflight import check_tag
from builder.publish.prepare import ROOTS, PublishOptions, PublishPorts, ReleaseState, ReleaseStatus
from builder.publish.publish import publish_release, read_release_status
from builder.publish.signing import (
    RootChange,
    Signing,
    envelope,
    next_root,
    public_key,
    read_roots,
    roots_in,
    signers,
    with_signatures,
)
from builder.publish.wheels.index import add_wheels, require_place, write_mirror_pages


def publish_dist(wiring: Wiring, options: PublishOptions, project: Project) -> ReleaseStatus:
    """Make the client, check every package's bytes, and make the release in the repository of ``project``.

    Access is checked before a package is read. Raises what ``require_access`` and ``publish_on`` do.
    """
    host = github_host(wiring, project)
    archives_in(wiring.dist)  # refuses an empty folder
    host.require_access()
    ours = project.publish.repository == wiring.env.get("GITHUB_REPOSITORY")
    commit = options.commit or (wiring.env.get("GITHUB_SHA") if ours else None)
    done = publish_on(wiring, project, host, replace(options, commit=commit), host)
    _say_state(wiring, done)
    return done


def publish_on(
    wiring: Wiring,
    project: Project,
    host: ReleaseHost,
    options: PublishOptions,
    repository: Repository | None = None,
) -> ReleaseStatus:
    """Publish ``dist`` on any host and return the result.

    The client's default index is the address where ``project`` publishes. Raises what ``publish_release``
    does, and ``CheckFailedError`` for the tag of another ONNX Runtime, before anything is written or hashed.
    """
    tag = release_tag(wiring.dist, project, options.tag)
    packages = archives_in(wiring.dist)
    manifests = readable(packages)
    require_no_errors(check_tag(tag, versions_of(manifests)), f"{wiring.dist} cannot be released as {tag}")
    add_programs(wiring, project, tag)
    if len(manifests) == len(packages):  # else publish reports them
        add_wheels(wiring)
    ports = replace(_ports(wiring, host, options.keys), repository=repository)
    return publish_release(wiring.dist, project, ports, replace(options, tag=tag))


def add_programs(wiring: Wiring, project: Project, tag: str) -> None:
    """Write the client of the release ``tag``, and add what else users run to the release's files.

    These are the inspector, the runtime layer, and what brings the client to a machine. Those of other
    versions are removed.
    """
    write_client(wiring, index_url(project.publish, tag))
    made = (
        build_inspector(wiring.root, wiring.dist / INSPECTOR),
        make_wheel(wiring, RUNTIME),
        make_wheel(wiring, PYPI),
        make_npm_package(wiring),
        write_install_script(wiring, downloads(project.publish, tag)),
    )
    there = {path for name in ("ortpacks_runtime-*.whl", *BESIDE_CLIENT) for path in wiring.dist.glob(name)}
    for other in there.difference(made):
        other.unlink()
    put = {path.name: file_digest(path).sha256 for path in made}
    update_checksums(wiring.dist, put=put, drop=tuple(path.name for path in there.difference(made)))


def show_status(wiring: Wiring, tag: str | None, project: Project) -> ReleaseStatus:
    """Report the release compared with ``dist`` and return its state."""
    tag = tag or release_tag(wiring.dist, project)
    status = read_release_status(wiring.dist, tag, _ports(wiring, github_host(wiring, project)))
    _say_state(wiring, status)
    return status


def _say_state(wiring: Wiring, status: ReleaseStatus) -> None:
    wiring.reporter.say(f"{status.tag}: {status.state.value}{f' at {status.url}' if status.url else ''}")


def github_host(wiring: Wiring, project: Project) -> Repository:
    """Return the host of the releases in the project's repository on GitHub."""
    from builder.publish.github.http import GitHubHttp  # noqa: PLC0415 - slow, and every verb imports this module
    from builder.publish.github.releases import GitHub  # noqa: PLC0415

    http = GitHubHttp(
        api=project.publish.api,
        token=_token(wiring, project.publish.api),
        reporter=wiring.reporter,
        sleep=wiring.sleep,
        clock=time.time,
    )
    return GitHub(repository=project.publish.repository, http=http, reporter=wiring.reporter)


def with_target(wiring: Wiring, api: str | None = None, repository: str | None = None) -> Project:
    """Return the project, with another API root or repository to publish to if one is given.

    Without ``repository``, that of ``GITHUB_REPOSITORY`` is taken, if it is set. Raises ``ConfigError`` for
    one that is not ``owner/name``.
    """
    configured = wiring.project.publish
    named = repository or wiring.env.get("GITHUB_REPOSITORY") or configured.repository
    repository = require_repository(named)
    return replace(
        wiring.project, publish=replace(configured, api=api or configured.api, repository=repository)
    )


def _token(wiring: Wiring, api: str) -> str:
    """Return the environment's token, else the token that ``gh`` has for the server, else empty text."""
    if token := next((wiring.env[name] for name in TOKENS if wiring.env.get(name)), ""):
        return token
    if API.fullmatch(api.rstrip("/")) is None:
        return ""  # GitHubHttp refuses the address
    host = urlsplit(web_root(api)).hostname or ""
    try:
        done = wiring.runner.run(["gh", "auth", "token", "--hostname", host], check=False)
    except ToolMissingError:
        return ""
    return done.stdout.strip() if done.code == 0 else ""


def _ports(wiring: Wiring, host: ReleaseHost, keys: Sequence[Path] = ()) -> PublishPorts:
    return PublishPorts(
        host=host,
        reporter=wiring.reporter,
        verify=Verifier(wiring, wiring.reporter).verify,
        loader=wiring.loader,
        signing=signing_of(wiring, keys),
    )


def signing_of(wiring: Wiring, keys: Sequence[Path]) -> Signing | None:
    """Return the roots and signers of a release; ``None`` if the project has no root.

    Raises ``ConfigError`` and ``IntegrityError``.
    """
    roots = roots_in(wiring.root / ROOTS)
    if not roots:
        return None
    read_roots(roots)
    return Signing(roots, signers(keys, wiring.env), datetime.now(UTC))


def mirror_dist(wiring: Wiring, options: PublishOptions, to: str) -> ReleaseStatus:
    """Make the release of ``dist`` in the mirror's folder ``to``, from the same files as on GitHub.

    Access, space and tag are checked before the packages are. Raises what ``publish`` does, ``ConfigError``
    for a URL and for a tag that no folder can have, and ``DiskError``.
    """
    refuse_registry(to)
    if "://" in to:
        raise ValidationError(
            f"--to {redacted(to)} is no folder",
            advice="Name the folder that the web server shows.",
        )
    folder = MirrorFolder(Path(to), wiring.reporter)
    project = with_target(wiring)
    tag = mirror_tag(release_tag(wiring.dist, wiring.project, options.tag))
    folder.require_access()
    require_place(folder, wheels=wiring.project.bundle.wheels)
    folder.require_disk_space(tag, _listed_files(wiring))
    # A dry run writes nothing, so it needs no lock
    with nullcontext() if options.dry_run else folder.locked():
        done = publish_on(wiring, project, folder, replace(options, tag=tag))
        if done.state in (ReleaseState.PUBLISHED, ReleaseState.UNCHANGED):
            folder.finish(tag)
            write_mirror_pages(folder)
    _say_state(wiring, done)
    return done


def _listed_files(wiring: Wiring) -> tuple[Path, ...]:
    """Return the release's files that exist before it is prepared, which are nearly all of its bytes."""
    names = {*read_checksums(wiring.dist), CLIENT}
    return tuple(path for path in (wiring.dist / name for name in sorted(names)) if path.is_file())


def root_change(
    root_keys: Sequence[str],
    release_keys: Sequence[str],
    threshold: str | None,
    release_threshold: str | None,
) -> RootChange:
    """Return the change of a root to the keys in these files and to these numbers of signatures.

    The files hold public or private keys. ``None`` and an empty list leave the root's value. Raises
    ``ValidationError`` unless a threshold is a whole number above 0, and what ``public_key`` does.
    """
    keys = [tuple(public_key(Path(file)) for file in files) or None for files in (root_keys, release_keys)]
    numbers = []
    for flag, text in (("threshold", threshold), ("release-threshold", release_threshold)):
        if text is not None and not (text.isascii() and text.isdigit() and int(text)):
            raise ValidationError(f"--{flag} {text!r}: a whole number above 0 is wanted.")
        numbers.append(None if text is None else int(text))
    return RootChange(
        root_keys=keys[0], release_keys=keys[1], threshold=numbers[0], release_threshold=numbers[1]
    )


def write_root(wiring: Wiring, change: RootChange, keys: Sequence[Path]) -> None:
    """Write the next root if ``change`` has a change, sign the newest root, and report whether it is valid.

    Raises ``ConfigError``, ``NothingToDoError`` without a change or, for a signature, without keys and a
    root, and ``IntegrityError`` for a change of a root that still needs signatures.
    """
    folder, roots = wiring.root / ROOTS, roots_in(wiring.root / ROOTS)
    for number, content in enumerate(roots, start=1):
        parse_root(content, str(folder / root_name(number)))
    who = signers(keys, wiring.env)
    if change == RootChange() and not (who and roots):
        raise NothingToDoError(
            f"Nothing is to be changed or signed in {folder}.",
            advice="Give --root-key, --release-key or a threshold for a root, --sign for signatures.",
        )
    if change != RootChange():
        before = roots[-1] if roots else None
        made = envelope(next_root(before, change, datetime.now(UTC)))
        _require_signed_roots(folder, roots)
        roots.append(made)
    folder.mkdir(exist_ok=True)
    file = folder / root_name(len(roots))
    write_file(file, with_signatures(roots[-1], who))
    roots[-1] = file.read_bytes()
    try:
        read_roots(roots)
    except IntegrityError as error:
        wiring.reporter.warn(f"{file}: more signatures are needed: {error}")
    else:
        wiring.reporter.say(f"{file} is signed: commit it")


def _require_signed_roots(folder: Path, roots: Sequence[bytes]) -> None:
    """Raise ``IntegrityError`` unless a root may follow: only the newest one can be given signatures."""
    try:
        read_roots(roots)
    except IntegrityError as error:
        raise IntegrityError(
            f"{folder} has a root that still needs signatures, so none can follow it",
            cause=str(error),
            advice="Sign it first (--sign alone), or remove its file and make it anew.",
        ) from error
