"""``<archive>.provenance.json`` states the inputs, the builder and the command that made a package.

It is an in-toto Statement v1 whose predicate is SLSA provenance v1: github.com/in-toto/attestation, spec/v1,
and slsa.dev/spec/v1.1/provenance. docs/provenance.md explains our parameters. ``check_provenance`` compares
such a file with its package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from builder.errors import ParseError, SchemaError
from builder.files.digest import Digest
from builder.findings.finding import Code, Finding
from builder.formats.json_values import json_text, parse_json
from builder.formats.manifest import BaseEntry, Manifest
from builder.formats.package_names import PARTS_SUFFIX, form_of
from builder.onnxruntime.toolchain import divide, tools
from builder.package.contents import required_files
from builder.package.sbom import deb_purl, debian_purl, image_purl, pypi_purl
from builder.project.bases import ImageSystem
from builder.project.build_plan import BuildPlan, Rendered
from builder.project.inputs import DebianPackage, Input, InputKind, Lock, Pin, redist_url
from builder.project.required_inputs import base_inputs
from builder.project.variants import Origin

SUFFIX = ".provenance.json"

SLSA = "https://slsa.dev/provenance/v1"

_TYPES = {"_type": "https://in-toto.io/Statement/v1", "predicateType": SLSA}

_SHA256 = "sha256:"

_OF_BASE = {"base": True}
"""The annotation of resources that are parts of a base."""


@dataclass(frozen=True)
class Revision:
    """The builder's own commit, and whether its working tree had uncommitted changes."""

    commit: str
    dirty: bool


@dataclass(frozen=True, kw_only=True)
class BuilderRun:
    """Start and end of a run of the builder, in seconds since 1970, and the builder's revision."""

    started: float
    finished: float
    revision: Revision | None
    """Revision of the builder; ``None`` if it is not a git checkout."""


@dataclass(frozen=True, kw_only=True)
class PackageRun(BuilderRun):
    """One run of the builder that made a package."""

    command: str
    """Command that makes the package again, without paths and without names of machines or persons."""
    config_sha256: str
    """Hex sha256 of ``variants.yaml`` as it was read."""
    shared_objects: bool = False
    """Whether objects may come from a compile cache that machines share."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """An in-toto ResourceDescriptor, in the order in which it is written."""

    name: str = ""
    uri: str
    digest: Mapping[str, str]
    annotations: Mapping[str, object] = field(default_factory=dict)


def provenance_name(package: str) -> str:
    """Return the file name of the provenance of a package, whole or in parts, by the package's file name."""
    return package.removesuffix(PARTS_SUFFIX) + SUFFIX


def used_inputs(plan: BuildPlan, rendered: Rendered) -> tuple[Input, ...]:
    """Return all inputs of ``inputs.lock`` that are used to make a plan's package, sorted by key.

    These are the packed files' wheels and, if ORT is compiled, its source and its tools. Inputs that only
    check and try a package are not included.
    """
    found = {file.source for file in required_files(plan) if file.source}
    if plan.origin is Origin.SOURCE:
        found |= {*rendered.contexts.values(), *rendered.debs, *rendered.sources}
        system = plan.on.system
        found |= {system.image, *system.snapshot} if isinstance(system, ImageSystem) else set()
    return tuple(sorted(found, key=lambda item: item.key))


def base_parts(plan: BuildPlan, lock: Lock, system: Sequence[DebianPackage]) -> tuple[Resource, ...]:
    """Return the parts of the base that compiled: its inputs, and its Debian packages, ``system``.

    Empty if nothing is compiled.
    """
    if plan.origin is not Origin.SOURCE:
        return ()
    parts = (
        *(dependency(item, lock.pins[item.key]) for item in base_inputs(plan.project, plan.base, lock)),
        *(
            Resource(
                name=one.path, uri=deb_purl(one.name, one.version, one.arch), digest={"sha256": one.sha256}
            )
            for one in system
        ),
    )
    return tuple(replace(part, annotations=_OF_BASE) for part in parts)


def base_revision(parts: Iterable[tuple[str, str]]) -> str:
    """Return the revision of a base: ``sha256:`` over its parts, each a URI and its hex digest."""
    lines = sorted(f"{sha256}  {uri}\n" for uri, sha256 in parts)
    return _SHA256 + hashlib.sha256("".join(lines).encode()).hexdigest()


def provenance_json(
    plan: BuildPlan,
    manifest: Manifest,
    used: Mapping[Input, Pin],
    subjects: Mapping[str, str],
    run: PackageRun,
    parts: Sequence[Resource] = (),
) -> str:
    """Return the text of a package's provenance; the same values give the same bytes.

    ``used`` are the pins of ``used_inputs``; ``subjects`` are the hex sha256 of the archive and then of its
    parts, by file name; ``parts`` are the ``base_parts``.
    """
    listed = {part.uri for part in parts}
    inputs = (dependency(item, pin) for item, pin in sorted(used.items(), key=lambda pair: pair[0].key))
    predicate = slsa_predicate(
        plan.project.publish.repository,
        "build-type-v1",
        external=_external(plan, manifest, next(iter(subjects)), run),
        internal=_internal(plan, manifest, run),
        resources=(*(one for one in inputs if one.uri not in listed), *parts),
        run=run,
    )
    document = statement(subjects, SLSA, predicate)
    return json_text(document)


def statement(subjects: Mapping[str, str], kind: str, predicate: Mapping[str, object]) -> dict[str, object]:
    """Return an in-toto Statement with a predicate of this type; ``subjects`` are hex sha256 by name."""
    return {
        "_type": _TYPES["_type"],
        "subject": [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in subjects.items()],
        "predicateType": kind,
        "predicate": predicate,
    }


def slsa_predicate(
    repository: str,
    build_type: str,
    *,
    external: Mapping[str, object],
    internal: Mapping[str, object],
    resources: Iterable[Resource],
    run: BuilderRun,
) -> dict[str, object]:
    """Return SLSA's provenance v1 by the builder of ``repository``.

    ``build_type`` is a heading of its page.
    """
    page = f"https://github.com/{repository}/blob/main/docs/provenance.md"
    dependencies = (*_builder(repository, run.revision), *resources)
    definition = {
        "buildType": f"{page}#{build_type}",
        "externalParameters": external,
        "internalParameters": internal,
        "resolvedDependencies": [_without_nothing(vars(one)) for one in dependencies],
    }
    return {
        "buildDefinition": _without_nothing(definition),
        "runDetails": {
            "builder": {"id": f"{page}#builder-v1"},
            "metadata": {"startedOn": utc(run.started), "finishedOn": utc(run.finished)},
        },
    }


def _external(plan: BuildPlan, manifest: Manifest, archive: str, run: PackageRun) -> dict[str, object]:
    """Return the external parameters. The user passes ``variants.yaml``, so its digest is one of them."""
    return {
        "command": run.command,
        "variant": manifest.variant,
        "layout": manifest.layout,
        "form": form_of(archive).value,
        "preset": plan.project.bundle.preset.value,
        "config": {"path": "variants.yaml", "sha256": run.config_sha256},
    }


def _internal(plan: BuildPlan, manifest: Manifest, run: PackageRun) -> dict[str, object]:
    ort = manifest.onnxruntime
    return _without_nothing(
        {
            "base": manifest.base.name,
            "baseRevision": manifest.base.revision,
            "origin": ort.origin,
            "onnxruntime": ort.version,
            "profile": ort.profile,
            "host": ort.host,
            "toolkit": manifest.toolkit,
            "ptxas": _ptxas(plan),
            "added": " ".join(map(str, plan.added)),
            "compileCache": "shared" if run.shared_objects else None,
        }
    )


def _ptxas(plan: BuildPlan) -> str | None:
    """Return the version of the newer ptxas if it assembled any of the code, else ``None``."""
    if plan.origin is not Origin.SOURCE:
        return None
    nvcc, ptxas = tools(plan)
    return ptxas if divide(plan.variant.sm, nvcc, ptxas).assembled else None


def _builder(repository: str, revision: Revision | None) -> Iterator[Resource]:
    if revision:
        yield Resource(
            uri=f"git+https://github.com/{repository}",
            digest={"gitCommit": revision.commit},
            name="ortpacks",
            annotations={"dirty": True} if revision.dirty else {},
        )


def dependency(item: Input, pin: Pin) -> Resource:
    """Return a pinned input in the form of provenance."""
    if item.kind is InputKind.WHEEL:
        return Resource(name=pin.filename, uri=pypi_purl(item.spec), digest={"sha256": pin.sha256})
    if item.kind is InputKind.DEBIAN:
        return Resource(name=item.spec, uri=debian_purl(item.spec), digest={"sha256": pin.sha256})
    if item.kind in {InputKind.URL, InputKind.REDIST}:
        uri = item.spec if item.kind is InputKind.URL else redist_url(item.spec, pin.filename)
        return Resource(name=pin.filename, uri=uri, digest={"sha256": pin.sha256} if pin.sha256 else {})
    uri, algorithm = image_purl(item.spec), "sha256"
    if item.kind is InputKind.GIT:
        url, _, tag = item.spec.rpartition("@")
        uri, algorithm = f"git+{url}@refs/tags/{tag}", "gitCommit"
    return Resource(uri=uri, digest={algorithm: pin.revision.removeprefix(_SHA256)} if pin.revision else {})


def _without_nothing(values: Mapping[str, object]) -> dict[str, object]:
    """Return the values that are not empty: both specifications treat null, empty and absent alike."""
    return {key: value for key, value in values.items() if value}


def utc(seconds: float) -> str:
    """Return a time in RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


DEFINITION, _DETAILS = "predicate.buildDefinition", "predicate.runDetails"

_REQUIRED: Mapping[str, type] = {
    "subject": list,
    f"{DEFINITION}.buildType": str,
    f"{DEFINITION}.externalParameters": dict,
    f"{DEFINITION}.resolvedDependencies": list,
    f"{_DETAILS}.builder.id": str,
    f"{_DETAILS}.metadata.startedOn": str,
    f"{_DETAILS}.metadata.finishedOn": str,
}
"""Keys that SLSA requires at build level 1, or that we always write. Unknown keys are ignored."""


def check_provenance(package: str, digest: Digest, document: bytes, base: BaseEntry) -> Iterator[Finding]:
    """Yield B016 if a provenance cannot be read, or is of other bytes or another base than its package.

    ``package`` is the file's name and ``digest`` that of the whole archive, also if it is in parts; ``base``
    is the manifest's entry.
    """
    where = provenance_name(package)
    archive = package.removesuffix(PARTS_SUFFIX)
    try:
        made = read_subjects(document, where)
    except (ParseError, SchemaError) as error:
        yield from (Finding(Code.B016, where, problem) for problem in error.problems)
        return
    got = made.get(archive)
    if got != digest.sha256:
        what = f"{archive} changed after it was made" if got else f"it does not name {archive}"
        yield Finding(Code.B016, where, what, wanted=digest.sha256, got=got or ", ".join(sorted(made)))
    parts = [*_parts_of_base(json.loads(document))]
    of_before = base.name == "nvidia" and not parts  # the revision is the image's digest
    if base.revision is not None and not of_before:
        listed = base_revision(parts)
        if listed != base.revision:
            what = "the parts of the base that it lists do not give the base's revision in the manifest"
            yield Finding(Code.B016, where, what, wanted=base.revision, got=listed)


def _parts_of_base(value: object) -> Iterator[tuple[str, str]]:
    """Yield URI and hex digest of each dependency with the annotation of a base's part."""
    found = at(value, f"{DEFINITION}.resolvedDependencies")
    for one in found if isinstance(found, list) else []:
        if at(one, "annotations.base") is True:
            digest = at(one, "digest.sha256") or at(one, "digest.gitCommit")
            yield str(at(one, "uri")), str(digest)


def read_subjects(document: bytes, where: str) -> dict[str, str]:
    """Return the hex sha256 of the files that a provenance describes, by name; ``where`` names it in errors.

    Raises ``ParseError`` for what is not JSON and ``SchemaError`` with all that is not SLSA provenance v1.
    """
    value = parse_json(document, where)
    problems = [*_wrong(value)]
    subjects = at(value, "subject")
    problems += [] if problems else _odd_subjects(subjects)
    if problems:
        raise SchemaError(problems)
    return {one["name"]: one["digest"]["sha256"] for one in subjects}  # type: ignore[attr-defined]


def _wrong(value: object) -> Iterator[str]:
    for key, expected in _TYPES.items():
        if at(value, key) != expected:
            yield f"{key}: {expected!r} is wanted, found {at(value, key)!r}"
    for key, kind in _REQUIRED.items():
        if not isinstance(at(value, key), kind) or not at(value, key):
            yield f"{key}: a {kind.__name__} that is not empty is wanted, found {at(value, key)!r}"


def _odd_subjects(subjects: object) -> list[str]:
    found = subjects if isinstance(subjects, list) else []
    return [
        f"subject[{index}]: a name and a digest.sha256 are wanted"
        for index, one in enumerate(found)
        if not (isinstance(at(one, "name"), str) and isinstance(at(one, "digest.sha256"), str))
    ]


def at(value: object, path: str) -> object:
    """Return the value under a path of keys; ``None`` if there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
