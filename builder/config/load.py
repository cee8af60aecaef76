"""This module reads ``variants.yaml`` and ``inputs.lock`` and raises every problem of a file at once.

pydantic checks each value against its type. The checks here find values that are valid alone but not
together; they skip parts that have another problem. A verb writes ``inputs.lock``, whose checks find bad
merges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated

from pydantic import Field

from builder.config.document import Document, Location, read_json, read_yaml, schema_of
from builder.config.fields import (
    SPECS,
    DependencyName,
    FileName,
    FormatNumber,
    ProjectSection,
    Sha256,
    TextForm,
    ThreeNumbers,
)
from builder.config.inputs import Input, InputKind, Lock, Pin
from builder.config.toolkits import ToolkitChoice, check_served, lint
from builder.config.variants import Project, Variant
from builder.errors import CompatibilityError, NothingToDoError, ValidationError
from builder.facts.gpu.architectures import Arch
from builder.facts.gpu.table import GENERATION_NUMBERS
from builder.facts.ort.known_rules import rules_for
from builder.facts.ort.source import Dependency, SourceFacts
from builder.finding import errors
from builder.formats.manifest import ModelRule
from builder.formats.package_names import LINUX, PackageForm
from builder.formats.text import nearest, printable

FORMAT = 1
"""Version of the format of both files."""

_KEYS = [key.name for key in fields(Project)]

_OPTIONAL = {"providers", "toolkits", "compile_cache"}

_TOOLKIT_PINS = (
    ("cudnn.wheel", "cudnn.version", "=={}$"),
    ("cuda.libraries.cudart", "cuda.version", "=={}."),
    ("compiler.nvcc", "cuda.version", "=={}."),
)
"""A pin's key, the key of the version that the pin must have, and the version's form in the pin.

``$`` is the pin's end. These keys exist at the top of the file and in each toolkit; only a toolkit has a
compiler.
"""

_BASE_PINS = (("toolkit.deb", "toolkit.nvcc", "_{}."),)
"""Pins of each base, in the form of ``_TOOLKIT_PINS``."""


def load_project(text: str, path: str) -> Project:
    """Return the project of ``variants.yaml``; ``path`` is the name that messages begin with.

    Raises ``ParseError`` for text that is not YAML. Other problems are raised together: as ``SchemaError`` if
    there is one of shape, else ``ValidationError`` if there is one of a value, else ``CompatibilityError``.
    """
    document = read_yaml(text, path)
    document.check_format(FORMAT, [key for key in _KEYS if key not in _OPTIONAL])
    project = document.read(Project)
    for check in (_check_pins, _check_bases, _check_variants, _check_providers, _check_models):
        check(document)
    document.raise_if_any()
    if project is None:
        raise AssertionError("no value, and nothing wrong with the file")
    return project


def pick_variants(project: Project, names: Sequence[str], all_: bool) -> tuple[Variant, ...]:
    """Return the chosen packages, each once: those of ``all_`` in the file's order, then those of ``names``.

    Variants come before providers. ``all_`` leaves out packages with ``all: false`` that are not in
    ``names``. Raises ``ValidationError`` for names that are not in the project, ``NothingToDoError`` without
    a name.
    """
    known = ", ".join(project.packages)
    unknown = [
        f"{name!r} is not a variant (there are: {known}). {nearest(name, project.packages)}".rstrip()
        for name in dict.fromkeys(names)
        if name not in project.packages
    ]
    if unknown:
        raise ValidationError(unknown)
    if not names and not all_:
        advice = f"Name some with --variant ({known}), or give --all."
        raise NothingToDoError("No variant is chosen", advice=advice)
    of_all = [name for name, variant in project.packages.items() if variant.in_all] if all_ else []
    chosen = dict.fromkeys((*of_all, *names))
    return tuple(project.packages[name] for name in chosen)


def _check_pins(document: Document) -> None:
    inside = (
        (f"{section}.{name}.{pin}", f"{section}.{name}.{version}", form)
        for section, pins in (("toolkits", _TOOLKIT_PINS), ("bases", _BASE_PINS))
        for name in document.keys(section)
        for pin, version, form in pins
    )
    for pin_path, version_path, form in (*_TOOLKIT_PINS, *inside):
        pin, key = tuple(pin_path.split(".")), tuple(version_path.split("."))
        spec, version = document.text(*pin), document.text(*key)
        if spec and version and form.format(version) not in f"{spec.rpartition('@')[2]}$":
            hint = f"Change one of the two; {version_path} stands in line {document.line(key)}."
            document.report(CompatibilityError, pin, f"is not of {version_path} {version}", hint=hint)


def _check_bases(document: Document) -> None:
    """Report bases of a Debian system, which has no CUDA toolkit, whose toolkit is that of the system."""
    for name in document.keys("bases"):
        place: Location = ("bases", name, "toolkit")
        if "version" in document.keys(*place) and "suite" in document.keys("bases", name, "rootfs"):
            hint = "Name one with redist or nvcc; docs/variants.md has the keys."
            document.report(
                CompatibilityError, place, "Debian's system brings no toolkit", found="", hint=hint
            )


def _check_variants(document: Document) -> None:
    """Report variants whose architectures cannot be served, or whose generations are not those of the set."""
    for name in document.keys("variants"):
        numbers, generations = (document.at("variants", name, key) for key in ("sm", "generations"))
        if isinstance(numbers, list):
            sm = tuple(sorted(Arch.parse(str(number)) for number in numbers))
            _check_architectures(document, name, sm)
            _check_form(document, name)
            if isinstance(generations, list):
                _check_generations(document, name, sm, generations)


def _check_architectures(document: Document, name: str, sm: tuple[Arch, ...]) -> None:
    place: Location = ("variants", name, "sm")
    above = _toolkit(document, name)
    if above is None:
        return
    cuda, cudnn = (document.text(*above, key, "version") for key in ("cuda", "cudnn"))
    ort = document.text(*above, "onnxruntime") if above else document.text("onnxruntime", "version")
    roles = document.keys(*above, "cuda", "libraries")
    named = [document.text(*above, "cuda", "libraries", role) for role in roles]
    platform = document.text("variants", name, "platform") or LINUX
    pins = (*named, document.text(*above, "cudnn", "wheel"))
    wheels = [Input.wheel(pin, platform).spec for pin in pins]
    if cuda and cudnn and ort:
        findings = lint(ToolkitChoice(variant=name, sm=sm, cuda=cuda, cudnn=cudnn, rules=rules_for(ort)))
        findings += check_served(f"variants.{name}.sm", sm, wheels)
        for finding in errors(findings):
            message = f"{finding.code.name} {finding.message}"
            document.report(CompatibilityError, place, message, found=finding.got, allowed=finding.wanted)


def _check_form(document: Document, name: str) -> None:
    """Report a plug-in that would be an official wheel repacked: wheels have none."""
    place: Location = ("variants", name, "form")
    if document.text(*place) == PackageForm.PLUGIN.value:
        for key in ("platform", "cuda"):
            if document.text("variants", name, key) not in (LINUX, ""):
                message = f"a plug-in is compiled, and with this {key} the official wheel is repacked"
                document.report(CompatibilityError, place, message, hint=f"Leave out {key}, or form.")


def _toolkit(document: Document, name: str) -> tuple[str, ...] | None:
    """Return the location of a variant's toolkit: ``()`` for the top of the file, or one in ``toolkits``.

    Returns ``None`` after reporting a toolkit that is not in the file.
    """
    toolkit = document.text("variants", name, "cuda")
    known = document.keys("toolkits")
    if not toolkit or toolkit in known:
        return ("toolkits", toolkit) if toolkit else ()
    hint = nearest(toolkit, known) or "Leave it out for the toolkit of the key cuda."
    place: Location = ("variants", name, "cuda")
    document.report(CompatibilityError, place, "no entry of toolkits", allowed=", ".join(known), hint=hint)
    return None


def _check_generations(document: Document, name: str, sm: tuple[Arch, ...], listed: list[str]) -> None:
    expected = [
        generation
        for generation, numbers in GENERATION_NUMBERS.items()
        if any(arch.number in numbers for arch in sm)
    ]
    if set(expected) != set(listed):
        place = ("variants", name, "generations")
        message, allowed = "not the generations of this sm set", ", ".join(expected)
        document.report(CompatibilityError, place, message, found=", ".join(listed), allowed=allowed)


def _check_providers(document: Document) -> None:
    """Report names of providers that a variant has too, since files of packages are named after both."""
    variants = set(document.keys("variants"))
    for name in document.keys("providers"):
        if name in variants:
            hint = f"Name the variant in line {document.line(('variants', name))} something else."
            place: Location = ("providers", name)
            document.report(CompatibilityError, place, "a variant has this name", found="", hint=hint)


def _check_models(document: Document) -> None:
    """Report limits that a line cannot have, and lines of the model table that no machine can reach."""
    lines = document.at("models")
    if not isinstance(lines, list):
        return
    rules = [ModelRule(**line) for line in lines]
    for index, rule in enumerate(rules):
        if rule.device == "cpu" and "vram_mib" in lines[index]:
            place: Location = ("models", index, "vram_mib")
            document.report(ValidationError, place, "a cpu line has no floor of GPU memory", found="")
    for index, rule in enumerate(rules):
        before = next((first for first in range(index) if _always_wins(rules[first], rule)), None)
        if before is not None and document.is_clean(("models",)):
            message = f"never reached: models[{before}] fits every machine that this line fits"
            document.report(CompatibilityError, ("models", index), message, found="")


def _always_wins(earlier: ModelRule, later: ModelRule) -> bool:
    """Return whether ``earlier`` fits each machine that ``later`` fits.

    See ``client.selection.select.fitting``.
    """
    gpu_is_enough = earlier.device == "cpu" or (later.device == "gpu" and earlier.vram_mib <= later.vram_mib)
    return gpu_is_enough and earlier.cores <= later.cores and earlier.ram_gib <= later.ram_gib


@dataclass(frozen=True)
class FilePin(ProjectSection):
    """Pin of a wheel or a Debian package: its one file."""

    filename: FileName
    size: Annotated[int, Field(strict=True, ge=1, le=2**40)]
    """Size of the file in bytes."""
    sha256: Sha256


@dataclass(frozen=True)
class OpenFilePin(ProjectSection):
    """Pin of an address or of a component of NVIDIA's archives: its one file."""

    sha256: Sha256 | None
    """sha256 of the file; null if the host could not be reached."""
    filename: FileName = ""
    size: Annotated[int, Field(strict=True, ge=1, le=2**40)] = 0
    """Size of the file in bytes."""


@dataclass(frozen=True)
class CommitPin(ProjectSection):
    """Pin of a tag, branch or commit of a git repository: its commit."""

    revision: (
        Annotated[str, TextForm("a revision", "[0-9a-f]{40}", "null, or a commit: 40 hex digits")] | None
    )
    """Commit; null if the host could not be reached, so that nothing is compiled from it."""
    ref: Annotated[str, TextForm("a reference", r"HEAD|refs/\S+", "HEAD or refs/heads/…")] = ""
    """Full name of what is no tag."""


@dataclass(frozen=True)
class DigestPin(ProjectSection):
    """Pin of the name of an image: its digest."""

    revision: (
        Annotated[
            str, TextForm("a revision", "sha256:[0-9a-f]{64}", "null, or a digest: sha256: and 64 hex digits")
        ]
        | None
    )
    """Digest of the image; null if the host could not be reached, which only a release refuses."""


_PINS: Mapping[InputKind, type[ProjectSection]] = {
    InputKind.WHEEL: FilePin,
    InputKind.DEBIAN: FilePin,
    InputKind.GIT: CommitPin,
    InputKind.IMAGE: DigestPin,
    InputKind.REDIST: OpenFilePin,
    InputKind.URL: OpenFilePin,
    InputKind.FILE: FilePin,
}


def _describe_pins(schema: dict[str, object]) -> None:
    pins = {f"^{kind.value}:{SPECS[kind]}$": schema_of(pin) for kind, pin in _PINS.items()}
    schema |= {"additionalProperties": False, "patternProperties": pins}


@dataclass(frozen=True)
class DependencyEntry(ProjectSection):
    """A line of a source's cmake/deps.txt that builds use."""

    name: DependencyName
    content: Annotated[str, TextForm("a name", r"[a-z0-9_-]+", "lower case letters, digits, _ and -")]
    """Name for FetchContent, in lower case."""
    url: Annotated[str, TextForm("an address", SPECS[InputKind.URL], "https://host/path")]
    sha1: Annotated[str, TextForm("a SHA-1", "[0-9a-f]{40}", "40 hex digits in lower case")]
    line: Annotated[int, Field(strict=True, ge=1)]
    """Number of the line."""


@dataclass(frozen=True)
class SourceEntry(ProjectSection):
    """What was read of a source of ONNX Runtime."""

    version: ThreeNumbers
    dependencies: tuple[DependencyEntry, ...]


@dataclass(frozen=True)
class LockFile(ProjectSection):
    """The bytes or revision that every input must have. Written by `./run lock`, never by hand."""

    format: FormatNumber
    """Version of this file's format."""
    inputs: Annotated[Mapping[str, object], Field(json_schema_extra=_describe_pins)]
    """Pins by input: kind, colon, name."""
    sources: Mapping[str, SourceEntry] = field(default_factory=dict)
    """What was read of sources, by the key of their pin."""


def parse_lock(text: str, path: str) -> Lock:
    """Return the pins of ``inputs.lock``; ``path`` is the name that messages begin with.

    Raises ``ParseError`` for text that is not JSON, else ``SchemaError`` or ``ValidationError`` with all
    problems.
    """
    document = read_json(text, path)
    document.check_format(FORMAT, ("format", "inputs"))
    file = document.read(LockFile)
    pins = {key: _pin(key, document) for key in document.keys("inputs")}
    document.raise_if_any()
    sources = {
        key: SourceFacts(entry.version, tuple(Dependency(**vars(one)) for one in entry.dependencies))
        for key, entry in (file.sources if file else {}).items()
    }
    return Lock(pins, sources)


def render_lock(lock: Lock) -> str:
    """Return the text of ``inputs.lock``, sorted, so that a change of a pin changes only its lines."""
    inputs = {key: _fields(Input.parse(key).kind, pin) for key, pin in lock.pins.items()}
    sources = {key: asdict(facts) for key, facts in lock.sources.items()}
    content = {"format": FORMAT, "inputs": inputs, **({"sources": sources} if sources else {})}
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _pin(key: str, document: Document) -> Pin:
    kind = _kind(key, document)
    read = document.read(_PINS[kind], ("inputs", key)) if kind else None
    values = {name: value for name, value in vars(read).items() if value is not None} if read else {}
    return Pin(**values)


def _kind(key: str, document: Document) -> InputKind | None:
    place = ("inputs", key)
    try:
        item = Input.parse(key)
    except ValueError:
        kind, known = printable(key.partition(":")[0]), [kind.value for kind in _PINS]
        allowed, hint = ", ".join(f"{kind}:…" for kind in known), nearest(kind, known)
        document.report(ValidationError, place, "not a kind of input", found=kind, allowed=allowed, hint=hint)
        return None
    if item.kind not in _PINS or re.fullmatch(SPECS[item.kind], item.spec) is None:
        document.report(ValidationError, place, f"not the name of a {item.kind.value} input", found="")
        return None
    return item.kind


def _fields(kind: InputKind, pin: Pin) -> Mapping[str, object]:
    if pin.sha256:
        return {"filename": pin.filename, "size": pin.size, "sha256": pin.sha256}
    if _PINS[kind] is OpenFilePin:
        return {"sha256": None}
    return {"revision": pin.revision, **({"ref": pin.ref} if pin.ref else {})}
