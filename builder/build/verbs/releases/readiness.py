"""The work of the verb ``doctor --release``: what a release still needs, in the order of the work.

Nothing is written, no package is hashed, and GitHub is asked only with a token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from builder.build.verbs.releases.releasing import github_host, signing_of, with_target
from builder.build.verbs.verb_answers import PointState, ReadinessAnswer, ReleasePoint
from builder.compile.plan import require_base
from builder.config.variants import Origin, Project, open_of_packages
from builder.errors import BuilderError, CheckFailedError, NothingToDoError
from builder.finding import Finding
from builder.formats.manifest import Manifest
from builder.formats.package_names import CUDA, Layout
from builder.io.git import origin_of
from builder.io.wiring import Wiring
from builder.publish.assets import Repository
from builder.publish.locations import tag_of, versions_of
from builder.publish.preflight import Leniency, check_immutable, check_tag
from builder.publish.prepare import ROOTS, look_at
from builder.publish.signing import require_signatures, signed_targets

_WORKFLOW = ".github/workflows/release.yml"

_SETTING = re.compile(r"\b(?:secrets|vars)\.([A-Z_]+)")

_MARKS = {
    PointState.SET: "✓ set",
    PointState.OPEN: "✗ open",
    PointState.OPTIONAL: "· optional",
    PointState.UNKNOWN: "? not known here",
}


@dataclass(frozen=True, kw_only=True)
class _Release:
    wiring: Wiring
    project: Project
    """The project, with the repository that ``publish`` takes."""
    host: Repository | BuilderError
    """GitHub, or why it gives no access."""
    bases: tuple[str, ...]
    """The bases that compile the packages."""
    tag: str | None
    """The tag that is asked for."""
    packages: tuple[Manifest, ...]
    """The packages in ``dist``."""
    findings: tuple[Finding, ...]
    """What ``publish`` would refuse of them, as far as it is known without their content."""


@dataclass(frozen=True)
class _Seen:
    state: PointState
    found: str
    do: str = ""


def release_readiness(wiring: Wiring, base: str = "auto", tag: str | None = None) -> ReadinessAnswer:
    """Return the state of each thing that a release of ``dist`` needs.

    ``base`` is the base that compiles. ``auto`` means the base of the packages in ``dist``; without packages,
    the first base of variants.yaml, as in release.yml. Raises ``ValidationError`` for an unknown base,
    ``ConfigError`` for a repository that is not ``owner/name``, and ``TransferError``.
    """
    require_base(wiring.project, base)
    project = with_target(wiring)
    try:
        _, candidates, findings = look_at(wiring.dist, project, Leniency())
    except NothingToDoError:
        candidates, findings = [], []
    packages = tuple(candidate.manifest for candidate in candidates)
    compiled = sorted(
        {package.base.name for package in packages if package.onnxruntime.origin == Origin.SOURCE.value}
    )
    bases = compiled if packages else [next(iter(project.bases))]
    release = _Release(
        wiring=wiring,
        project=project,
        host=_access(wiring, project),
        bases=tuple(bases if base == "auto" else [base]),
        tag=tag,
        packages=packages,
        findings=tuple(findings),
    )
    seen = {name: check(release) for name, (check, _) in _CHECKS.items()}
    points = (
        ReleasePoint(name=name, state=one.state, found=one.found, purpose=_CHECKS[name][1], do=one.do)
        for name, one in seen.items()
    )
    return ReadinessAnswer(format=1, points=tuple(points))


def lines_of(answer: ReadinessAnswer) -> Iterator[str]:
    """Yield the lines that show an answer. A point that is not set has its purpose and next step too."""
    for point in answer.points:
        yield f"{_MARKS[point.state]:<16} {point.name:<11} {point.found}"
        if point.state is not PointState.SET:
            yield f"{'':<16} {'for':<11} {point.purpose}"
            yield f"{'':<16} {'next':<11} {point.do}"


def require_ready(answer: ReadinessAnswer) -> None:
    """Raise ``CheckFailedError`` with the names of the open points if there are any."""
    still_open = [point.name for point in answer.points if point.state is PointState.OPEN]
    if still_open:
        raise CheckFailedError(f"Still open before a dry run goes through: {', '.join(still_open)}")


def _access(wiring: Wiring, project: Project) -> Repository | BuilderError:
    try:
        host = github_host(wiring, project)
        host.require_access()
    except BuilderError as error:
        return error
    return host


def _repository(release: _Release) -> _Seen:
    target, env = release.project.publish.repository, release.wiring.env
    here = env.get("GITHUB_REPOSITORY") or origin_of(release.wiring.root, release.wiring.runner)
    if here and here.lower() == target.lower():
        return _Seen(PointState.SET, target)
    found = f"{target}; {f'this checkout is of {here}' if here else 'this checkout has no remote origin'}"
    do = f"publish.repository: {here or 'OWNER/NAME'} in variants.yaml, and commit it"
    return _Seen(PointState.OPEN if here else PointState.UNKNOWN, found, do)


def _pins(release: _Release) -> _Seen:
    project, lock = release.project, release.wiring.lock
    missing = {base: open_of_packages(project, base, lock) for base in project.bases}
    lacking = {base: missing[base] for base in release.bases if missing.get(base)}
    if not lacking:
        return _Seen(PointState.SET, ", ".join(release.bases) or "nothing in dist/ was compiled")
    lists = "; ".join(f"{base} lacks {len(keys)}: {', '.join(keys)}" for base, keys in lacking.items())
    pinned = ", ".join(base for base, keys in missing.items() if not keys)
    do = (
        "Actions, pins, Run workflow: it opens a pull request, which Settings, Actions, General must allow. "
        "Or `./run lock --missing` where their hosts answer, and commit inputs.lock"
    )
    return _Seen(PointState.OPEN, f"{lists}. All pinned: {pinned or 'no base'}", do)


def _layouts(release: _Release) -> _Seen:
    if Layout.FULL in release.project.bundle.layouts:
        do = "nothing where you meet these terms. Else bundle.layouts: [thin] in variants.yaml"
        return _Seen(PointState.UNKNOWN, "full: packages with NVIDIA's libraries in them", do)
    made = [
        package.name
        for package in release.packages
        if package.provider == CUDA and package.layout == Layout.FULL.value
    ]
    if made:
        do = "remove them, their .provenance.json and their lines in SHA256SUMS"
        return _Seen(PointState.OPEN, f"thin alone, and dist/ holds {', '.join(made)}", do)
    return _Seen(PointState.SET, "thin alone: no package holds NVIDIA's files")


def _signing(release: _Release) -> _Seen:
    try:
        signing = signing_of(release.wiring, ())
        if signing is None:
            do = "nothing; or `./run root` and commit trust/, before the first release (docs/trust.md)"
            return _Seen(PointState.OPTIONAL, f"{ROOTS}/ holds no root: releases are not signed", do)
        if not signing.signers:
            settings = "tags gpu-libs-v* alone, and the secret ORTPACKS_SIGNING_KEY"
            do = f"Settings, Environments, release: {settings}. By hand: --sign KEY"
            return _Seen(PointState.UNKNOWN, f"{ROOTS}/ has a root, and no key is here", do)
        require_signatures(signed_targets((), b"", signing), signing)
    except BuilderError as error:
        return _Seen(PointState.OPEN, error.headline, error.advice or "docs/trust.md, Signatures")
    return _Seen(PointState.SET, f"{ROOTS}/ has a root, and its release key is here")


def _environment(release: _Release) -> _Seen:
    file = release.wiring.root / _WORKFLOW
    read = sorted({*_SETTING.findall(file.read_text(encoding="utf-8"))}) if file.is_file() else []
    found = f"only administrators see it; {_WORKFLOW} reads {', '.join(read) or 'no secret'}"
    do = "Settings, Environments, release; Settings, Secrets and variables, Actions"
    return _Seen(PointState.UNKNOWN, found, do)


def _immutable(release: _Release) -> _Seen:
    setting = "Settings, General, Releases: Enable release immutability"
    if isinstance(release.host, BuilderError):
        return _Seen(PointState.UNKNOWN, "GitHub is asked only with a token that may write", setting)
    known = release.host.has_immutable_releases()
    if refused := check_immutable(known):
        return _Seen(PointState.OPEN, "off", refused[0].message)
    if known is None:
        return _Seen(PointState.UNKNOWN, "GitHub shows it to administrators alone", setting)
    return _Seen(PointState.SET, "on")


def _dist(release: _Release) -> _Seen:
    if refused := [f"{finding.code.name} {finding.path}: {finding.message}" for finding in release.findings]:
        return _Seen(PointState.OPEN, f"publish would refuse {len(refused)} things", "; ".join(refused))
    if release.packages:
        return _Seen(PointState.SET, f"{len(release.packages)} archives")
    return _Seen(PointState.OPEN, "no package", f"`./run build --all --release --base {release.bases[0]}`")


def _tag(release: _Release) -> _Seen:
    project = release.project
    versions = versions_of(release.packages) or {project.bases[base].ort_version for base in release.bases}
    try:
        tag = tag_of(project, release.tag, versions)
    except BuilderError as error:
        return _Seen(PointState.OPEN, error.headline, error.advice or "another --tag")
    found = f"{tag}, of ONNX Runtime {', '.join(sorted(versions))}"
    refused = check_tag(tag, versions)
    return _Seen(PointState.OPEN, found, refused[0].message) if refused else _Seen(PointState.SET, found)


def _token(release: _Release) -> _Seen:
    if isinstance(release.host, BuilderError):
        return _Seen(
            PointState.OPEN, release.host.headline, release.host.advice or "docs/releasing.md, Token"
        )
    return _Seen(PointState.SET, "it may write to the repository")


_CHECKS: Mapping[str, tuple[Callable[[_Release], _Seen], str]] = {
    "repository": (_repository, "publish writes there, and the release's client installs from there"),
    "pins": (_pins, "a release is compiled from pinned inputs alone, so that anybody can make it again"),
    "layouts": (
        _layouts,
        "NVIDIA's terms: its files unmodified, as part of an application with functions of its own (README)",
    ),
    "signing": (
        _signing,
        "a client with a root takes only what its keys signed; one without asks for nothing",
    ),
    "environment": (
        _environment,
        "reviewers of environment release agree to each; all of it may be left out",
    ),
    "immutable": (_immutable, "else whoever may write to the repository can change what people trust"),
    "dist": (_dist, "the packages of variants.yaml, all of one ONNX Runtime version"),
    "tag": (_tag, "people read from it which ONNX Runtime they get"),
    "token": (_token, "publish asks GitHub with it first, for a dry run too (docs/releasing.md, Token)"),
}
"""Each check with what its subject is for, by the point's name, in the order of the work."""
