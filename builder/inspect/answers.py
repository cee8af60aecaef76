"""Options of ``inspect``, its results as text, JSON and SARIF 2.1.0, and the checks of its exit code.

SARIF is OASIS's format for static analysis, which GitHub's code scanning reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from builder.binary.comparison import compare
from builder.contents.diff import PackageDifference, difference, difference_lines
from builder.contents.rules.payloads import check_payloads, check_required
from builder.contents.supported_gpus import InspectedSource
from builder.errors import CheckFailedError, ValidationError
from builder.facts.gpu.architectures import Capability, capabilities
from builder.facts.gpu.table import DEVICES
from builder.files.atomic_write import write_file
from builder.files.disk import disk_errors
from builder.finding import Code, Finding, errors
from builder.formats.text import printable
from builder.inspect.opener import is_library_or_archive, is_url
from builder.inspect.reading import changes_document, document
from builder.inspect.report.changes import changes_text, sizes_text
from builder.inspect.report.heatmap import heat_maps, text

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """The options of ``inspect`` that decide what it shows and checks."""

    as_json: bool = False
    diff: bool = False
    """Whether to show the difference of two sources instead of the sources."""
    sizes: bool = False
    """Whether the text also has the bytes of each architecture, which JSON always has."""
    devices: tuple[Capability, ...] = ()
    """The capabilities that each source must run on."""
    jit: bool = False
    """Whether JIT is enough for ``devices``."""
    sarif: Path | None = None
    """The file to write all findings to; ``None`` for no file."""


_TWO = 2


def checked_options(
    paths: Sequence[str],
    places: Mapping[str, Path | None],
    *,
    require: str | None,
    jit: bool,
    as_json: bool,
    diff: bool,
    sizes: bool,
) -> InspectOptions:
    """Return the options, checked before any of ``paths`` is read. Raises ``ValidationError``.

    ``places`` is as for ``require_places``; ``--sarif`` is one of its flags.
    """
    require_places(places)
    devices = required_devices(require, jit=jit)
    if diff and len(paths) != _TWO:
        raise ValidationError(
            f"--diff compares two sources, and {len(paths)} {'is' if len(paths) == 1 else 'are'} named",
            advice="Name the old one and the new one: inspect OLD NEW --diff",
        )
    return InspectOptions(
        as_json=as_json, diff=diff, sizes=sizes, devices=devices, jit=jit, sarif=places["--sarif"]
    )


def require_places(places: Mapping[str, Path | None]) -> None:
    """Raise ``ValidationError`` for a path that no file can be written to, or that two flags name.

    ``places``: the path by the flag that names it, ``None`` for a flag that is not given.
    """
    flags: dict[Path, str] = {}
    for flag, path in places.items():
        if path is None:
            continue
        with disk_errors(path):
            _require_place(path)
        other = flags.setdefault(path.parent.resolve() / path.name, flag)
        if other != flag:
            raise ValidationError(
                f"{other} and {flag} both name {path}", advice="Give each a file of its own."
            )


def _require_place(path: Path) -> None:
    if path.is_dir():
        raise ValidationError(f"{path} is a folder", advice="Name a file in it.")
    if path.exists() and not path.is_file():
        raise ValidationError(f"{path} is no regular file", advice="Name one that may be replaced.")
    if path.exists() and is_library_or_archive(path):
        raise ValidationError(
            f"{path} is a library or an archive, and would be replaced", advice="Name a file for the result."
        )
    if not path.parent.is_dir():
        raise ValidationError(
            f"{path.parent} is no folder, so {path.name} cannot be written there", advice="Make it first."
        )


def show(
    sources: Sequence[InspectedSource],
    options: InspectOptions,
    files: Mapping[Path, bytes],
    tell: Callable[[str], None],
    say: Callable[[str], None],
) -> None:
    """Show the result of ``sources`` through ``tell``, and write ``files`` and the file of ``--sarif``.

    Each written file is passed with its size to ``say``, but not with ``as_json``. Raises ``DiskError`` where
    a file cannot be written.
    """
    if options.sarif:
        findings = {
            source.label: tuple(findings_of(source, options.devices, jit=options.jit)) for source in sources
        }
        files = {**files, options.sarif: sarif(findings).encode()}
    for path, data in files.items():
        write_file(path, data)
    tell(_changes(*sources, as_json=options.as_json) if options.diff else _answer(sources, options))
    for path, data in files.items() if not options.as_json else ():
        say(f"{path}  {len(data):,} bytes")


def _answer(sources: Sequence[InspectedSource], options: InspectOptions) -> str:
    if options.as_json:
        return json.dumps(document(sources), indent=2)
    return "\n\n".join(
        [text(heat_maps(sources)), *(sizes_text(source) for source in sources if options.sizes)]
    )


def _changes(old: InspectedSource, new: InspectedSource, *, as_json: bool) -> str:
    comparison, packages = compare(old.libraries, new.libraries), _packages(old, new)
    if as_json:
        return json.dumps(changes_document(old, new, comparison, packages), indent=2)
    lines = map(printable, difference_lines(packages) if packages else ())  # a manifest may be anybody's
    return "\n".join([changes_text(old, new, comparison), *lines])


def _packages(old: InspectedSource, new: InspectedSource) -> PackageDifference | None:
    """Return the difference of two packages by manifests; ``None`` unless each source is one package."""
    manifests = [promise.manifest for source in (old, new) for promise in source.promises]
    one_each = len(old.promises) == len(new.promises) == 1
    if not one_each or None in manifests:
        return None
    a, b = (manifest for manifest in manifests if manifest)
    return difference(a, b, *(_archive_size(source) for source in (old, new)))


def _archive_size(source: InspectedSource) -> int | None:
    file = Path(source.label)
    return file.stat().st_size if file.is_file() else None


def required_devices(text: str | None, *, jit: bool = False) -> tuple[Capability, ...]:
    """Return the capabilities in a text like ``5.2,8.6,12.0``; none where ``text`` is ``None``.

    Raises ``ValidationError`` for a word that is no GPU's capability, and for ``jit`` (``--jit-ok``) without
    a text.
    """
    if text is None:
        if jit:
            raise ValidationError("--jit-ok needs --require", advice="Name the GPUs: --require 7.5,8.6")
        return ()
    known = ", ".join(map(str, DEVICES))
    try:
        devices = capabilities(text)
    except ValueError as error:
        raise ValidationError(f"--require: {error}", advice=f"Name some of {known}.") from error
    if unknown := [device for device in devices if device not in DEVICES]:
        raise ValidationError(f"--require: no GPU has {unknown[0]}", advice=f"Name some of {known}.")
    return devices


def findings_of(
    source: InspectedSource, devices: Sequence[Capability] = (), *, jit: bool = False
) -> Iterator[Finding]:
    """Yield all findings on a source.

    These are libraries and images that cannot be read, findings on promises of manifests, and A009 for each
    of ``devices`` that does not run the source (``jit``: JIT is enough).
    """
    for item in source.libraries:
        if item.problem:
            yield Finding(item.code or Code.E001, item.name, item.problem)
        if item.deep:
            yield from check_payloads(item.name, item.deep)
    for promise in source.promises:
        yield from promise.findings
    yield from check_required(source.libraries, devices, jit=jit)


def require_all(sources: Sequence[InspectedSource], options: InspectOptions) -> None:
    """Raise ``CheckFailedError`` as ``require_sound`` does, or where a source does not run on a device."""
    require_sound(sources)
    lines = [
        printable(f"{finding.code.name} {source.label} {finding.message}")
        for source in sources
        for finding in check_required(source.libraries, options.devices, jit=options.jit)
    ]
    if lines:
        raise CheckFailedError(f"{len(lines)} of what --require asks for does not hold", lines)


def require_sound(sources: Sequence[InspectedSource]) -> None:
    """Raise ``CheckFailedError`` when a library cannot be read, an image has errors or a promise findings."""
    items = [item for source in sources for item in source.libraries]
    unread = [printable(f"{item.name}: {item.problem}") for item in items if item.problem]
    broken = [
        str(finding) for source in sources for promise in source.promises for finding in promise.findings
    ]
    images = [
        str(error) for item in items if item.deep for error in errors(check_payloads(item.name, item.deep))
    ]
    what = [f"{len(unread)} of {len(items)} libraries cannot be read"] if unread else []
    what += ["a manifest promises something else than its package holds"] if broken else []
    what += ["images are damaged, or lack the kernels of their containers"] if images else []
    if what:
        raise CheckFailedError("; ".join(what), [*unread, *broken, *images])


def sarif(found: Mapping[str, Sequence[Finding]]) -> str:
    """Return a SARIF text with one run. ``found``: the findings by the label of their source."""
    codes = sorted(
        {item.code for findings in found.values() for item in findings}, key=lambda code: code.name
    )
    results = [
        _sarif_result(source, finding, codes) for source, findings in found.items() for finding in findings
    ]
    rules = [{"id": code.name, "shortDescription": {"text": f"{code.value}."}} for code in codes]
    driver = {"name": "ortpacks inspect", "rules": rules}
    artifacts = [{"location": {"uri": _uri(source)}} for source in found]
    run = {"tool": {"driver": driver}, "artifacts": artifacts, "results": results}
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _sarif_result(source: str, finding: Finding, codes: Sequence[Code]) -> dict[str, object]:
    wanted = f" Wanted: {finding.wanted}; got: {finding.got}." if finding.wanted or finding.got else ""
    inside = [{"fullyQualifiedName": finding.path}] if finding.path else []
    return {
        "ruleId": finding.code.name,
        "ruleIndex": codes.index(finding.code),
        "level": finding.severity.value,
        "message": {"text": f"{source}: {finding.message}.{wanted}"},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": _uri(source)}},
                **({"logicalLocations": inside} if inside else {}),
            }
        ],
    }


def _uri(source: str) -> str:
    return source if is_url(source) else quote(source)
