"""The step inspect reads libraries on disk: the GPUs that their code runs on, and manifests' promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from builder.binary.comparison import Comparison, Pair, SupportChange, code_sizes, sorted_code
from builder.binary.coverage import LibraryCoverage, counts_of
from builder.binary.deep import CodeTarget, DeepReading
from builder.binary.library import Inspected
from builder.binary.verdict import alternatives, gpus_of, together, verdicts
from builder.contents import diff
from builder.contents.diff import PackageDifference
from builder.contents.reading import manifest_bytes, read_file
from builder.contents.rules.payloads import check_payloads
from builder.contents.sentences import notes, summary
from builder.contents.supported_gpus import InspectedSource, Promise, as_stated_by, promise_of
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.compatibility import dotted
from builder.facts.gpu.table import Gpu
from builder.finding import Code
from builder.formats.package_names import MANIFEST, PackageForm
from builder.formats.text import printable
from builder.inspect.opener import Library, Opener, is_url, require_path, shown
from builder.inspect.report.changes import sentence as changes_sentence

FORMAT, CHANGES_FORMAT = 4, 1


def inspect(libraries: Iterable[tuple[str, Path]], *, deep: bool = False) -> tuple[Inspected, ...]:
    """Return what was read of each library; a file that cannot be read gives a result with its problem."""
    return tuple(_inspected(name, file, deep=deep) for name, file in libraries)


def inspect_sources(
    opener: Opener, sources: Sequence[str], *, deep: bool = False
) -> tuple[InspectedSource, ...]:
    """Return what was read of each source (file, folder or URL), and what manifests of our packages promise.

    With ``deep``, images are unpacked. Raises as ``Opener.files`` does.
    """
    for source in sources:
        if not is_url(source):
            require_path(source)  # before other sources take minutes
    return tuple(_inspected_source(opener, source, deep=deep) for source in sources)


def _each(libraries: Iterable[Library], advance: Callable[[int], object]) -> Iterator[Library]:
    for name, file in libraries:
        yield name, file
        advance(file.stat().st_size)


def _inspected_source(opener: Opener, source: str, *, deep: bool) -> InspectedSource:
    with opener.files(source) as files:
        size = sum(file.stat().st_size for _, file in files.libraries)
        with opener.transfer.reporter.progress("read the libraries", size) as advance:
            libraries = inspect(_each(files.libraries, advance), deep=deep)
        promises = [
            promise_of(manifest_bytes(file), name.removesuffix(MANIFEST), libraries)
            for name, file in files.manifests
        ]
        for promise in promises:
            if promise.manifest:
                libraries = as_stated_by(promise.manifest, promise.folder, libraries)
        libraries = tuple(
            replace(item, release=files.versions.get(item.name[: item.name.rfind("/") + 1]) or None)
            for item in libraries
        )
        return InspectedSource(shown(source), libraries, tuple(promises))


def document(sources: Sequence[InspectedSource]) -> dict[str, object]:
    """Return the JSON form; its schema is ``docs/schemas/inspect.schema.json``."""
    return {"format": FORMAT, "sources": [_source(source) for source in sources]}


def changes_document(
    old: InspectedSource, new: InspectedSource, comparison: Comparison, packages: PackageDifference | None
) -> dict[str, object]:
    """Return the JSON form of a comparison; its schema is ``docs/schemas/inspect-diff.schema.json``."""
    return {
        "format": CHANGES_FORMAT,
        "sentence": changes_sentence(comparison),
        "old": old.label,
        "new": new.label,
        "capabilities": _changes(comparison.changes),
        "libraries": [_pair(pair, comparison.gpus) for pair in comparison.pairs],
        "packages": diff.document(packages) if packages else None,
    }


def _changes(changes: Mapping[Capability, SupportChange]) -> dict[str, object]:
    return {
        str(device): {
            "effect": change.effect.value,
            "old": change.old.document(),
            "new": change.new.document(),
        }
        for device, change in changes.items()
    }


def _pair(pair: Pair, gpus: Sequence[Gpu]) -> dict[str, object]:
    old, new = pair.sides
    before, now = ({}, {}) if pair.unread else (code_sizes(old), code_sizes(new))
    sizes: dict[str, dict[str, object]] = {}
    for kind, arch in sorted_code({*before, *now}):
        both = {"old": before.get((kind, arch), 0), "new": now.get((kind, arch), 0)}
        sizes.setdefault(kind.value, {})[str(arch)] = both
    return {
        "old": _library_json(pair.old),
        "new": _library_json(pair.new),
        "capabilities": _changes(pair.changes(gpus)) if pair.has_code and not pair.unread else {},
        "size": {"old": _size(old), "new": _size(new)},
        "bytes": sizes,
    }


def _library_json(item: Inspected | None) -> dict[str, object] | None:
    return {"name": item.name, "problem": item.problem or None} if item else None


def _size(libraries: Iterable[Inspected]) -> int:
    return sum(library.size for library in libraries if not library.problem)


def _inspected(name: str, file: Path, *, deep: bool) -> Inspected:
    if file.is_symlink() and not file.is_file():
        astray = f"a link to {printable(str(file.readlink()))}, where no file is"
        return Inspected(name=name, problem=f"{Code.E010.name} {astray}", code=Code.E010)
    reading = read_file(name, file, symbols=False, deep=deep)
    if reading.problem is not None:
        code = reading.problem.code
        what = f"{code.name} {reading.problem.message}"
        return Inspected(name=name, problem=what, code=code, size=file.stat().st_size)
    loaded = reading.loaded
    return Inspected(
        name=name,
        coverage=reading.coverage,
        kind=reading.kind,
        size=file.stat().st_size,
        machine=reading.machine,
        soname=loaded.soname if loaded else None,
        needed=(*loaded.needed, *(reading.dll.forwards if reading.dll else ())) if loaded else (),
        raw=reading.raw,
        deep=reading.deep,
        behind=reading.behind,
        linked_in=reading.linked_in,
        form=reading.form,
        oldest_host=reading.oldest_host,
    )


def _source(source: InspectedSource) -> dict[str, object]:
    known = source.libraries
    return {
        "source": source.label,
        "sentence": summary(source.libraries),
        "capabilities": {str(device): verdict.document() for device, verdict in together(known).items()},
        "alternatives": [[item.name for item in group] for group in alternatives(known)],
        **({"promises": [_promise(promise) for promise in source.promises]} if source.promises else {}),
        "libraries": [_entry(item) for item in source.libraries],
    }


def _promise(promise: Promise) -> dict[str, object]:
    return {
        "manifest": promise.path,
        "package": promise.package or None,
        "sm": list(promise.sm),
        "capabilities": {str(device): support.value for device, support in promise.capabilities.items()},
        "elsewhere": promise.elsewhere,
        "findings": [
            {
                "code": finding.code.name,
                "path": finding.path,
                "message": finding.message,
                "wanted": finding.wanted,
                "got": finding.got,
            }
            for finding in promise.findings
        ],
    }


def _entry(item: Inspected) -> dict[str, object]:
    coverage = item.coverage
    return {
        "name": item.name,
        "problem": item.problem or None,
        "kind": item.kind.name.lower(),
        "machine": item.machine or None,
        "soname": item.soname,
        "needed": list(item.needed),
        "size": 0 if item.problem else item.size,
        **_code(coverage),
        "raw": counts_of(item.raw),
        "capabilities": _capabilities(item, item.runnable) if item.runnable else {},
        "notes": list(notes(item)),
        **({"form": item.form.value, "oldest_host": item.oldest_host} if item.form else {}),
        **({"release": item.release} if item.form is PackageForm.PLUGIN else {}),
        **({"deep": _deep(item.name, item.deep)} if item.deep else {}),
    }


def _deep(path: str, deep: DeepReading) -> dict[str, object]:
    """Return the JSON form of what images unpack to; kernels have their mangled names."""
    return {
        "images": deep.images,
        "bytes": deep.size,
        "ltoir": deep.ltoir,
        "unread": deep.unread,
        "kernels": {
            name: list(map(str, sorted(on, key=CodeTarget.order))) for name, on in sorted(deep.names.items())
        },
        "stubs": [
            {"kernel": stub.kernel, "on": list(map(str, stub.on)), "whole": list(map(str, stub.whole))}
            for stub in deep.stubs
        ],
        "idle": deep.idle,
        "findings": [
            {"code": payload.code.name, "severity": payload.severity.value, "message": payload.message}
            for payload in check_payloads(path, deep)
        ],
    }


def _code(coverage: LibraryCoverage | None) -> dict[str, object]:
    return {
        "containers": coverage.containers if coverage else 0,
        "idle": coverage.nothing_to_run if coverage else 0,
        "link_inputs": coverage.link_inputs if coverage else 0,
        "sections": dict(coverage.sections) if coverage else {},
        "images": _images(coverage) if coverage else {},
        "bytes": counts_of(coverage.sizes) if coverage else {},
        "sass": [str(arch) for arch in coverage.sass] if coverage else [],
        "ptx": [str(arch) for arch in coverage.ptx] if coverage else [],
        "ltoir": [str(arch) for arch in coverage.ltoir] if coverage else [],
        "ptx_isa": dotted(coverage.isa) if coverage and coverage.isa else None,
        "unknown": coverage.unknown if coverage else 0,
        "specialised": bool(coverage and coverage.specialised),
        "zstd": bool(coverage and coverage.zstd),
    }


def _images(coverage: LibraryCoverage) -> dict[str, object]:
    return {section: counts_of(kinds) for section, kinds in coverage.images.items()}


def _capabilities(item: Inspected, coverage: LibraryCoverage) -> dict[str, object]:
    by_device = verdicts(item)
    return {
        str(device): {
            **by_device[device].document(),
            "native": coverage.tally[device].native,
            "jit": coverage.tally[device].jit,
            "none": coverage.tally[device].none,
        }
        for device in (gpu.capability for gpu in gpus_of([item]))
    }
