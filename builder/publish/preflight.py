"""This module checks a release before its host is changed.

All checks run, so that one run reports everything.

Sources of the limits: docs.github.com "About releases" (each file under 2 GiB, 1000 assets), and the 422 that
GitHub gives a body of more than 125,000 characters.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from builder.config.build_plan import BuildPlan, package_name
from builder.config.inputs import LOCK_MISSING, Input, Lock
from builder.config.variants import Origin, Variant, open_inputs
from builder.facts.gpu.compatibility import version_of
from builder.files.digest import LocalFile
from builder.finding import Code, Finding
from builder.formats.index import Index
from builder.formats.manifest import Manifest
from builder.formats.package_names import CHECKSUMS, INDEX, Profile, form_of

MAX_SIZE = 2**31 - 1
"""The largest asset in bytes: under 2 GiB."""

MAX_ASSETS = 1000

MAX_BODY = 125_000
"""The longest release notes, in characters."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]*[A-Za-z0-9_+-])?")

_TAG_VERSION = re.compile(r"(?<![0-9.])[0-9]{1,3}\.[0-9]+\.[0-9]+(?!\.?[0-9])")
"""A version of ONNX Runtime in a tag, ``1.30.0`` of ``v1.30.0-2``. A date, ``2026.11.28``, is none."""


@dataclass(frozen=True)
class Candidate:
    """A package to release: its manifest and its file."""

    manifest: Manifest
    file: LocalFile


@dataclass(frozen=True)
class Leniency:
    """The findings that flags allow."""

    lean: bool = False
    """``--allow-lean``: packages compiled with less than the full profile."""
    unresolved: bool = False
    """``--allow-unresolved``: packages compiled on a base whose revision is not known."""
    mixed: bool = False
    """``--allow-mixed``: packages of different versions of ONNX Runtime, CUDA or cuDNN."""
    partial: bool = False
    """``--allow-partial``: not every package of ``variants.yaml``."""
    mutable: bool = False
    """``--allow-mutable``: a release that can be changed after it is published."""


def check_files(files: Sequence[LocalFile], listed: Mapping[str, str]) -> list[Finding]:
    """Return findings on GitHub's limits and on differences from ``listed``, bundling's ``SHA256SUMS``."""
    findings = [finding for file in files for finding in _check_file(file, listed)]
    missing = sorted(set(listed) - {file.name for file in files} - {INDEX, CHECKSUMS})
    findings += [
        Finding(
            Code.R003, name, f"{CHECKSUMS} names it, but it is not there. Build it again, or remove its line."
        )
        for name in missing
    ]
    return [*findings, *check_count(files)]


def check_count(files: Sequence[LocalFile]) -> list[Finding]:
    """Return the finding on more files than a release of GitHub takes."""
    if len(files) <= MAX_ASSETS:
        return []
    return [Finding(Code.R006, "the release", "too many files", f"at most {MAX_ASSETS}", str(len(files)))]


def check_packages(candidates: Sequence[Candidate], allow: Leniency) -> list[Finding]:
    """Return findings on the packages, one by one and compared with each other."""
    return [
        *([] if allow.lean else _check_profile(candidates)),
        *([] if allow.unresolved else _check_base(candidates)),
        *([] if allow.mixed else _check_versions(candidates)),
        *_check_twins(candidates),
        *_check_layouts(candidates),
    ]


def check_complete(candidates: Sequence[Candidate], variants: Iterable[Variant]) -> list[Finding]:
    """Return a finding for each of these packages of ``variants.yaml`` that the release lacks."""
    there = {(candidate.manifest.variant, candidate.manifest.form) for candidate in candidates}
    advice = "Its users would find nothing for their GPU. `./run build --all --release`, or --allow-partial."
    return [Finding(Code.R015, one.name, advice) for one in variants if (one.name, one.form) not in there]


def check_plan(plan: BuildPlan, lock: Lock, missing: Sequence[str]) -> list[Finding]:
    """Return the findings of ``check_packages`` that a plan's packages would have, before any is made.

    ``missing`` are the keys that the plan needs and ``lock`` lacks.
    """
    if plan.origin is not Origin.SOURCE:
        return check_pins(missing, plan.variant.name)
    name, profile = str(package_name(plan)), plan.profile.value if plan.profile else None
    of_base = open_inputs(plan.project, plan.base, lock)
    return [
        *([] if profile == Profile.FULL.value else [_too_small(name, profile)]),
        *check_pins(of_base, f"base {plan.base}"),
        *check_pins([key for key in missing if key not in of_base], plan.variant.name),
    ]


def check_pins(keys: Iterable[str], whose: str) -> list[Finding]:
    """Return a finding for each of ``keys``, inputs of ``whose`` without a pin or of this machine."""
    open_ = f"no pin in inputs.lock. {LOCK_MISSING}: {whose} needs it. Then commit inputs.lock"
    here = "it is of this machine, and nobody else has it. Name an address that others reach"
    return [Finding(Code.R009, key, here if Input.parse(key).is_here else open_) for key in keys]


def check_tag(tag: str, versions: Collection[str]) -> list[Finding]:
    """Return the finding on a tag with version numbers of which none is in the packages' ``versions``.

    Any other text in a tag is allowed. The result is empty without versions.
    """
    named = _TAG_VERSION.findall(tag)
    if not (named and versions) or not {*named}.isdisjoint(versions):
        return []
    advice = (
        "People would take it for that ONNX Runtime. Name the packages' version in --tag (or publish.tag), "
        "or build on a base that has the tag's: `./run plan --all` shows the version."
    )
    return [Finding(Code.R018, tag, advice, ", ".join(sorted(versions)), ", ".join(named))]


def check_index(index: Index, files: Sequence[LocalFile]) -> list[Finding]:
    """Return a finding for each archive that the index names and the release lacks."""
    there = {(file.name, file.size, file.sha256) for file in files}
    advice = f"{INDEX} would name it, and an installer would not find these bytes. Bundle it again."
    return [
        Finding(
            Code.R013, package.file, advice, f"{package.size} bytes, sha256 {package.sha256}", "no such file"
        )
        for package in index.packages
        if (package.file, package.size, package.sha256) not in there
    ]


def check_notes(body: str) -> list[Finding]:
    """Return the finding on release notes that are too long."""
    if len(body) <= MAX_BODY:
        return []
    return [Finding(Code.R007, "release notes", "too long", f"at most {MAX_BODY} characters", str(len(body)))]


def check_immutable(immutable: bool | None) -> list[Finding]:
    """Return the finding on a host whose releases can be changed; none if the host does not report it."""
    if immutable is not False:
        return []
    advice = (
        "Whoever may write there could change what people trust. Switch on 'Enable release immutability' "
        "(Settings, General, Releases), or pass --allow-mutable."
    )
    return [Finding(Code.R017, "the repository", advice)]


def _check_file(file: LocalFile, listed: Mapping[str, str]) -> Iterator[Finding]:
    if _NAME.fullmatch(file.name) is None:
        yield Finding(
            Code.R004, file.name, "GitHub would rename it", "only [A-Za-z0-9._+-], no dot at the ends"
        )
    if not 0 < file.size <= MAX_SIZE:
        yield Finding(
            Code.R005, file.name, "GitHub refuses it", "1 byte to under 2 GiB", f"{file.size} bytes"
        )
    wanted = listed.get(file.name)
    if wanted is None:
        yield Finding(
            Code.R001, file.name, f"no line in {CHECKSUMS}: nothing vouches for it. Bundle it again."
        )
    elif wanted != file.sha256:
        yield Finding(
            Code.R002, file.name, "changed since it was bundled. Bundle it again.", wanted, file.sha256
        )


def _check_profile(candidates: Sequence[Candidate]) -> Iterator[Finding]:
    for candidate in candidates:
        ort = candidate.manifest.onnxruntime
        if _compiled(candidate) and ort.profile != Profile.FULL.value:
            yield _too_small(candidate.file.name, ort.profile)


def _too_small(name: str, profile: str | None) -> Finding:
    advice = "Build with --profile full, or pass --allow-lean to publish."
    return Finding(Code.R008, name, advice, Profile.FULL.value, str(profile))


def _check_base(candidates: Sequence[Candidate]) -> Iterator[Finding]:
    for candidate in candidates:
        base = candidate.manifest.base
        if _compiled(candidate) and base.revision is None:
            advice = (
                f"base {base.name} has no revision. Run `./run lock --missing` where its hosts answer, or "
                "name in variants.yaml the commit of what --source or a tree: was, and build again; or pass "
                "--allow-unresolved to publish."
            )
            yield Finding(Code.R009, candidate.file.name, advice)


def _check_versions(candidates: Sequence[Candidate]) -> Iterator[Finding]:
    """Yield R010 if the packages of one platform and one CUDA major version have different versions.

    These packages differ only in their GPUs, and a client chooses by GPUs alone. Packages for other providers
    are official builds, and DirectML's has versions of its own.
    """
    families: defaultdict[tuple[int, str], list[Manifest]] = defaultdict(list)
    for manifest in (item.manifest for item in candidates):
        if manifest.cuda:
            families[version_of(manifest.cuda)[0], manifest.platform].append(manifest)
    for (number, platform), alike in sorted(families.items()):
        for what, in_index in (
            ("ONNX Runtime", {candidate.onnxruntime.version for candidate in alike}),
            ("CUDA", {candidate.cuda for candidate in alike if candidate.cuda}),
            ("cuDNN", {candidate.cudnn for candidate in alike if candidate.cudnn}),
        ):
            if len(in_index) > 1:
                advice = "Build all variants of one version, or pass --allow-mixed."
                wanted = f"one {what} version for CUDA {number} on {platform}"
                yield Finding(Code.R010, "the release", advice, wanted, ", ".join(sorted(in_index)))


def _check_twins(candidates: Sequence[Candidate]) -> Iterator[Finding]:
    """Yield R011 for an archive of the same layout and kind as another one for the same GPUs.

    A client could not choose between them.
    """
    first: dict[tuple[object, ...], str] = {}
    for candidate in candidates:
        manifest, name = candidate.manifest, candidate.file.name
        key = (manifest.variant, manifest.platform, manifest.form, manifest.layout, form_of(name).value)
        other = first.setdefault(key, name)
        if other != name:
            advice = (
                f"{other} is for the same variant, in the same layout. Remove one of them, its "
                f".provenance.json, and their lines in {CHECKSUMS}."
            )
            yield Finding(Code.R011, name, advice)


def _check_layouts(candidates: Sequence[Candidate]) -> Iterator[Finding]:
    """Yield R014 for layouts of a variant that promise different things.

    A client chooses by one layout and may install another.
    """
    first: dict[tuple[object, ...], Candidate] = {}
    for candidate in candidates:
        manifest = candidate.manifest
        other = first.setdefault((manifest.variant, manifest.platform, manifest.form), candidate)
        if _promise(other.manifest) != _promise(manifest):
            advice = f"{other.file.name} promises other GPUs, drivers or systems. Build both anew, together."
            yield Finding(Code.R014, candidate.file.name, advice)


def _promise(manifest: Manifest) -> tuple[object, ...]:
    return (manifest.capabilities, manifest.driver, manifest.glibc, manifest.onnxruntime, manifest.plugin)


def _compiled(candidate: Candidate) -> bool:
    """Return whether the package was compiled here. A repacked wheel has no profile and no base of ours."""
    return candidate.manifest.onnxruntime.origin == Origin.SOURCE.value
