"""``<archive>.provenance.json`` states the inputs, the builder and the command that made a package.

It is an in-toto Statement v1 whose predicate is SLSA provenance v1: github.com/in-toto/attestation, spec/v1,
and slsa.dev/spec/v1.1/provenance. docs/trust.md explains our parameters. ``check_provenance`` compares
such a file with its package, ``read_recipe`` reads from it how to make the package again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from builder.config.build_plan import BuildPlan, Rendered, compile_plan
from builder.config.inputs import DebianPackage, Input, InputKind, Lock, Pin, redist_url
from builder.config.profiles import options_of
from builder.config.variants import ImageSystem, Origin, base_inputs
from builder.contents.required_files import required_files
from builder.contents.sbom import deb_purl, debian_purl, image_purl, local_purl, pypi_purl
from builder.errors import ConfigError, ParseError, SchemaError
from builder.facts.ort.known_rules import stated
from builder.files.digest import Digest
from builder.finding import Code, Finding
from builder.formats.json_values import json_text, parse_json, value_at
from builder.formats.manifest import BaseEntry, Manifest
from builder.formats.package_names import form_of
from builder.formats.text import grouped

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
    """Return the file name of the provenance of a package, by the package's file name."""
    return package + SUFFIX


def used_inputs(plan: BuildPlan, rendered: Rendered) -> tuple[Input, ...]:
    """Return all inputs of ``inputs.lock`` that are used to make a plan's package, sorted by key.

    These are the packed files' wheels and, if ORT is compiled, its source and its tools. Inputs that only
    check and try a package are not included.
    """
    inputs = {file.source for file in required_files(plan) if file.source}
    if plan.origin is Origin.SOURCE:
        inputs |= {*rendered.contexts.values(), *rendered.debs, *rendered.sources}
        system = plan.on.system
        inputs |= {system.image, *system.snapshot} if isinstance(system, ImageSystem) else set()
    return tuple(sorted(inputs, key=lambda item: item.key))


def base_parts(plan: BuildPlan, lock: Lock, system: Sequence[DebianPackage]) -> tuple[Resource, ...]:
    """Return the parts of the base that compiled: its inputs, and its Debian packages, ``system``.

    Empty if nothing is compiled.
    """
    if plan.origin is not Origin.SOURCE:
        return ()
    parts = [dependency(item, lock.pins[item.key]) for item in base_inputs(plan.project, plan.base, lock)]
    for package in system:
        uri = deb_purl(package.name, package.version, package.arch)
        parts.append(Resource(name=package.path, uri=uri, digest={"sha256": package.sha256}))
    return tuple(replace(part, annotations={**part.annotations, **_OF_BASE}) for part in parts)


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

    ``used`` are the pins of ``used_inputs``; ``subjects`` is the archive's hex sha256 by its file name;
    ``parts`` are the ``base_parts``. The user passes ``variants.yaml``, so its digest is
    one of the external parameters.
    """
    ort = manifest.onnxruntime
    compiled = compile_plan(plan) if plan.origin is Origin.SOURCE else None
    options = [option.name for option in options_of(plan, compiled)] if compiled else []
    listed = {part.uri for part in parts}
    inputs = (dependency(item, pin) for item, pin in sorted(used.items(), key=lambda pair: pair[0].key))
    predicate = slsa_predicate(
        plan.project.publish.repository,
        "build-type-v1",
        external={
            "command": run.command,
            "variant": manifest.variant,
            "layout": manifest.layout,
            "form": form_of(next(iter(subjects))).value,
            "preset": plan.project.bundle.preset.value,
            "config": {"path": "variants.yaml", "sha256": run.config_sha256},
        },
        internal=_without_nothing(
            {
                "base": manifest.base.name,
                "baseRevision": manifest.base.revision,
                "origin": ort.origin,
                "onnxruntime": ort.version,
                "profile": ort.profile,
                "host": ort.host,
                "toolkit": manifest.toolkit,
                "ptxas": plan.on.toolkit.ptxas if compiled and compiled.targets.assembled else None,
                "added": " ".join(map(str, plan.added)),
                "compileCache": "shared" if run.shared_objects else None,
                "rules": stated(plan.rules, options) if compiled else None,
            }
        ),
        resources=(*(resource for resource in inputs if resource.uri not in listed), *parts),
        run=run,
    )
    return json_text(statement(subjects, SLSA, predicate))


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
    page = f"https://github.com/{repository}/blob/main/docs/trust.md"
    dependencies = (*_builder(repository, run.revision), *resources)
    definition = {
        "buildType": f"{page}#{build_type}",
        "externalParameters": external,
        "internalParameters": internal,
        "resolvedDependencies": [_without_nothing(vars(resource)) for resource in dependencies],
    }
    return {
        "buildDefinition": _without_nothing(definition),
        "runDetails": {
            "builder": {"id": f"{page}#builder-v1"},
            "metadata": {"startedOn": utc(run.started), "finishedOn": utc(run.finished)},
        },
    }


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
    if item.is_here:  # no digest: nobody else can have it
        state = {"commit": pin.revision, "dirty": pin.is_dirty, "sha256": pin.sha256}
        return Resource(uri=local_purl(item), digest={}, annotations=_without_nothing(state))
    uri, algorithm = image_purl(item.spec), "sha256"
    if item.kind is InputKind.GIT:
        url, _, ref = item.spec.rpartition("@")
        name = pin.ref or (ref if ref == pin.revision else f"refs/tags/{ref}")
        uri, algorithm = f"git+{url}@{name}", "gitCommit"
    return Resource(uri=uri, digest={algorithm: pin.revision.removeprefix(_SHA256)} if pin.revision else {})


def _without_nothing(values: Mapping[str, object]) -> dict[str, object]:
    """Return the values that are not empty: both specifications treat null, empty and absent alike."""
    return {key: value for key, value in values.items() if value}


def utc(seconds: float) -> str:
    """Return a time in RFC 3339, UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_DEFINITION, _DETAILS = "predicate.buildDefinition", "predicate.runDetails"

_REQUIRED: Mapping[str, type] = {
    "subject": list,
    f"{_DEFINITION}.buildType": str,
    f"{_DEFINITION}.externalParameters": dict,
    f"{_DEFINITION}.resolvedDependencies": list,
    f"{_DETAILS}.builder.id": str,
    f"{_DETAILS}.metadata.startedOn": str,
    f"{_DETAILS}.metadata.finishedOn": str,
}
"""Keys that SLSA requires at build level 1, or that we always write. Unknown keys are ignored."""


def check_provenance(package: str, digest: Digest, document: bytes, base: BaseEntry) -> Iterator[Finding]:
    """Yield B016 if a provenance cannot be read, or is of other bytes or another base than its package.

    ``package`` is the archive's name and ``digest`` that of its bytes; ``base`` is the manifest's entry.
    """
    where = provenance_name(package)
    try:
        recipe = read_recipe(document, where)
    except (ParseError, SchemaError) as error:
        yield from (Finding(Code.B016, where, problem) for problem in error.problems)
        return
    got = recipe.subjects.get(package)
    if got != digest.sha256:
        what = f"{package} changed after it was made" if got else f"it does not name {package}"
        made = ", ".join(sorted(recipe.subjects))
        yield Finding(Code.B016, where, what, wanted=digest.sha256, got=got or made)
    of_before = base.name == "nvidia" and not recipe.base_parts  # the revision is the image's digest
    if base.revision is not None and not of_before:
        listed = base_revision(recipe.base_parts)
        if listed != base.revision:
            what = "the parts of the base that it lists do not give the base's revision in the manifest"
            yield Finding(Code.B016, where, what, wanted=base.revision, got=listed)


def _wrong(value: object) -> Iterator[str]:
    for key, expected in _TYPES.items():
        if value_at(value, key) != expected:
            yield f"{key}: {expected!r} is wanted, found {value_at(value, key)!r}"
    for key, kind in _REQUIRED.items():
        if not isinstance(value_at(value, key), kind) or not value_at(value, key):
            yield f"{key}: a {kind.__name__} that is not empty is wanted, found {value_at(value, key)!r}"


def _odd_subjects(subjects: Sequence[object]) -> list[str]:
    return [
        f"subject[{index}]: a name and a digest.sha256 are wanted"
        for index, subject in enumerate(subjects)
        if not (
            isinstance(value_at(subject, "name"), str) and isinstance(value_at(subject, "digest.sha256"), str)
        )
    ]


_BUILD = "./run build "

_WORDS = re.compile(
    r"--(?:variant|form|base|cuda|profile|host|origin) [A-Za-z0-9._-]+|--(?:mixed|release|widen)"
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that is needed to make one package again and to compare the result."""

    variant: str
    command: str
    subjects: Mapping[str, str]
    """Hex sha256 of the package's files, by file name."""
    config_sha256: str
    """Hex sha256 of ``variants.yaml``."""
    commit: str
    """Commit of the builder; empty if it was not a git checkout."""
    dirty: bool
    base_revision: str
    """``sha256:`` of an assembled base's parts, or an image's digest; empty if there is none."""
    inputs: Mapping[str, str]
    """Digest of each input by its URI; empty for an input that was not pinned."""
    base_parts: Sequence[tuple[str, str]]
    """URI and digest of each part of the base."""


def read_recipe(document: bytes, where: str) -> Recipe:
    """Return the recipe in a provenance; ``where`` names it in errors.

    Raises ``ParseError`` for what is not JSON and ``SchemaError`` with all that is not SLSA provenance v1.
    """
    value = parse_json(document, where)
    if problems := [*_wrong(value)] or _odd_subjects(_list(value, "subject")):
        raise SchemaError(problems)
    external, internal = (f"{_DEFINITION}.{name}Parameters" for name in ("external", "internal"))
    parts = [one for one in _list(value, f"{_DEFINITION}.resolvedDependencies") if isinstance(one, dict)]
    builder = next((one for one in parts if value_at(one, "name") == "ortpacks"), {})
    of_base = [part for part in parts if value_at(part, "annotations.base") is True]
    return Recipe(
        variant=_text(value, f"{external}.variant"),
        command=_text(value, f"{external}.command"),
        subjects={_text(one, "name"): _text(one, "digest.sha256") for one in _list(value, "subject")},
        config_sha256=_text(value, f"{external}.config.sha256"),
        commit=_text(builder, "digest.gitCommit"),
        dirty=value_at(builder, "annotations.dirty") is True,
        base_revision=_text(value, f"{internal}.baseRevision"),
        inputs={
            _text(one, "uri"): _digest(one) for one in parts if one is not builder and one not in of_base
        },
        base_parts=[(_text(one, "uri"), _digest(one)) for one in of_base],
    )


def build_arguments(recipe: Recipe) -> list[str]:
    """Return the arguments of ``./run build`` that make the package.

    Raises ``ConfigError`` for another command and for unknown flags, since the file may be anybody's.
    """
    words = recipe.command.removeprefix(_BUILD)
    known = _WORDS.findall(words)
    if not recipe.command.startswith(_BUILD) or " ".join(known) != words:
        raise ConfigError(
            f"{recipe.command!r} is no command that makes a package.",
            advice="The provenance is of another ortpacks, or of an image: see its docs/trust.md.",
        )
    return [word for flag in known for word in flag.split(" ")]


def tree_differences(
    recipe: Recipe, revision: Revision | None, config_sha256: str, lock: Lock
) -> Iterator[str]:
    """Yield a sentence for each difference between this tree and the tree that made the package."""
    made = f"it was made from commit {recipe.commit}" if recipe.commit else "it was made from no git checkout"
    if recipe.dirty:
        yield f"{made} and uncommitted changes"
    if revision is None:
        yield f"{made}; this folder is no git checkout"
    elif revision.commit != recipe.commit:
        yield f"{made}; here is {revision.commit}"
    if revision is not None and revision.dirty:
        yield "files here differ from their commit: `git status` names them"
    if recipe.config_sha256 != config_sha256:
        yield f"variants.yaml has sha256 {recipe.config_sha256[:12]} there, {config_sha256[:12]} here"
    parts = (dependency(Input.parse(key), pin) for key, pin in lock.pins.items())
    ours = grouped((part.uri, _first(part.digest)) for part in parts)
    for uri, digest in recipe.inputs.items():
        here = ours.get(uri)
        if here is None:
            yield f"{uri} went in there; inputs.lock here does not have it"
        elif digest not in here:
            here_text = " or ".join(sorted({one or "not pinned" for one in here}))
            yield f"{uri} is {digest or 'not pinned'} there, {here_text} in inputs.lock here"


def _list(value: object, path: str) -> list[object]:
    at_path = value_at(value, path)
    return at_path if isinstance(at_path, list) else []


def _text(value: object, path: str) -> str:
    at_path = value_at(value, path)
    return at_path if isinstance(at_path, str) else ""


def _digest(part: object) -> str:
    digest = value_at(part, "digest")
    return _first(digest) if isinstance(digest, dict) else ""


def _first(digest: Mapping[str, str]) -> str:
    return str(next(iter(digest.values()), ""))
