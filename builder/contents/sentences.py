"""This module writes sentences: the GPUs that a source runs on, notes on single libraries and manifests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from builder.binary.coverage import ContainerTally, LibraryCoverage, Support
from builder.binary.fatbin_format import SECTIONS, Kind
from builder.binary.file_kinds import NO_SECTIONS, FileKind
from builder.binary.library import Inspected
from builder.binary.library_names import is_device_library, lowest_served, must_hold_code, stem_of
from builder.binary.verdict import alternatives, gpus_of, is_for_own_gpus, together, verdicts
from builder.contents.rules.payloads import check_payloads
from builder.contents.supported_gpus import Promise
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.compatibility import dotted
from builder.facts.gpu.drivers import FLOOR_12, FLOOR_13, FLOOR_ZSTD, ptx_floor
from builder.facts.gpu.table import BY_CAPABILITY, CAPABILITIES, JETSON, Gpu, by_generation
from builder.formats.package_names import PackageForm
from builder.formats.text import grouped, listed, printable

SPECIALISED = (
    "the library itself picks its code by device, as NVIDIA's own do, so one container with SASS for a GPU "
    "counts as native"
)
"""The meaning of the star after a library's name."""

_HOW = {
    Support.NATIVE: "natively on",
    Support.JIT: "by JIT on",
    Support.PARTIAL: "in part on",
    Support.NONE: "not on",
}

_PTX_OF_CUDA_12, _PTX_OF_CUDA_13, _CUDA_BEFORE_PTX = (8, 0), (9, 0), 4

_NAMED = 3
"""Most sections or libraries that a sentence names; further ones are counted."""

_MAKER = "libnvrtc"

_NOTHING = "There is no device code here that a GPU could run."

_ONLY_RAW = "Which GPUs it runs on is not known: its device code lies outside of containers."

_STRIPPED = "as it is made it has device code; this copy has none"


def summary(libraries: Sequence[Inspected]) -> str:
    """Return sentences on the GPUs that all libraries of a source run on together."""
    unread = [item for item in libraries if item.problem]
    share = _of(len(unread), len(libraries), "libraries")
    if unread and len(unread) == len(libraries):
        return "Nothing is known: none of its libraries can be read."
    if sum(item.size for item in unread) > sum(item.size for item in libraries if item.coverage):
        largest = max(unread, key=lambda item: item.size).name.rpartition("/")[2]
        return (
            f"Which GPUs it runs on is not known: {share} cannot be read, and {printable(largest)} may hold "
            "most of its code."
        )
    found = together(libraries)
    doubtful = [device for device, verdict in found.items() if verdict.doubt]
    support = {device: verdict.support for device, verdict in found.items()}
    sentences = [_runs(support, libraries) if found else _no_code(libraries)]
    if doubtful:
        sentences.append(f"Doubtful on {where(doubtful) if len(doubtful) < len(found) else 'all of them'}.")
    sentences += _lacking_elsewhere(libraries, support)
    if unread:
        what = "it holds" if len(unread) == 1 else "they hold"
        sentences.append(f"But {share} cannot be read: what {what} is not known.")
    return " ".join(sentences)


def _no_code(libraries: Sequence[Inspected]) -> str:
    """Return what is known of libraries without device code to run."""
    makers = dict.fromkeys(name for item in libraries for name in item.needed if stem_of(name) == _MAKER)
    behind = [item for item in libraries if item.behind]
    if any(item.raw for item in libraries):
        return _ONLY_RAW
    if makers:
        return f"No device code is stored here: it is made while it runs, by {listed(list(makers))}."
    if behind:
        names = listed([printable(item.name.rpartition("/")[2]) for item in behind], _NAMED)
        return f"No device code was found, but {behind[0].behind} behind {names} was not looked into."
    return _NOTHING


def needed_elsewhere(libraries: Sequence[Inspected]) -> tuple[str, ...]:
    """Return the names of NVIDIA's libraries with device code that ``libraries`` need, and that are not here.

    Names of libraries that are here have no hash of auditwheel's.
    """
    here = {name for item in libraries for name in (item.soname, item.name.rpartition("/")[2])}
    needed = dict.fromkeys(name for item in libraries for name in item.needed)
    return tuple(name for name in needed if name not in here and is_device_library(name))


def _lacking_elsewhere(
    libraries: Sequence[Inspected], support: Mapping[Capability, Support]
) -> Iterator[str]:
    """Yield sentences on needed libraries of which no recorded release serves a GPU that is claimed."""
    claimed = [device for device, how in support.items() if how is not Support.NONE]
    for low, names in grouped(
        (lowest_served().get(name), name) for name in needed_elsewhere(libraries)
    ).items():
        lost = [device for device in claimed if low and device < low]
        if lost:
            users = [item.name.rpartition("/")[2] for item in libraries if {*names} & {*item.needed}]
            need = f"{listed([printable(name) for name in users], _NAMED)} need{'s' * (len(users) == 1)}"
            without = f"not here and, in recorded releases, without code for {where(lost)}"
            yield f"But {need} {listed(names)}: {without}."


def notes(item: Inspected) -> tuple[str, ...]:
    """Return facts on one library that the heat map does not show, each as a sentence without its name."""
    coverage = item.coverage
    if coverage is None:
        stripped = (_STRIPPED,) if _is_stripped(item) else ()
        return (*_plugin(item), *stripped, *_raw(item), *_behind(item))
    return (
        *_plugin(item),
        *_partial(item, coverage),
        *_doubts(item),
        *_elsewhere(item, coverage),
        *_not_judged(item, coverage),
        *_needed_drivers(item, coverage),
        *_raw(item),
        *_deep(item),
        *_behind(item),
    )


def _plugin(item: Inspected) -> Iterator[str]:
    """Yield what a plug-in is, and which hosts register it; nothing for another library."""
    if item.form is PackageForm.PLUGIN:
        hosts = f"ONNX Runtime {item.oldest_host} or newer registers" if item.oldest_host else ""
        release = f" of version {printable(item.release)}" if item.release else ""
        yield f"a plug-in{release}: {hosts or 'its bytes do not say which ONNX Runtime registers'} it"


def promise_notes(promise: Promise) -> Iterator[str]:
    """Yield one sentence on a manifest's promise, and one for each finding."""
    if promise.sm:
        elsewhere = (
            f"; {promise.elsewhere} of its libraries come from NVIDIA's wheels and are not here: what it "
            "says of them is not compared"
            if promise.elsewhere
            else ""
        )
        silent = [str(device) for device in CAPABILITIES if device not in promise.capabilities]
        later = f"; it says nothing of {listed(silent)}, which are newer than it" if silent else ""
        agreed = "" if promise.findings else ", and the bytes here agree"
        named = listed([f"sm_{arch}" for arch in promise.sm])
        yield f"{promise.package} promises native code for {named}{agreed}{elsewhere}{later}"
    for finding in promise.findings:
        wanted = f" (promised: {finding.wanted}; found: {finding.got})" if finding.wanted else ""
        yield printable(f"{finding.code.name} {finding.message}{wanted}")


def counts(tally: ContainerTally) -> str:
    """Return a tally as text: ``183 of 184 containers native, 1 with nothing that runs``."""
    parts = [
        (tally.native, "native"),
        (tally.jit, "by JIT"),
        (tally.none, "with nothing that runs"),
    ]
    (first, how), *rest = [(count, how) for count, how in parts if count] or [(0, "with anything to run")]
    others = "".join(f", {count:,} {how}" for count, how in rest)
    return f"{_of(first, tally.total, 'containers')} {how}{others}"


def _in_part(libraries: Sequence[Inspected], devices: Sequence[Capability]) -> str:
    """Return how many containers have nothing that runs on ``devices``, as text."""
    judged = [item.runnable for item in libraries if item.runnable and not item.runnable.specialised]
    none = [sum(code.tally[device].none for code in judged) for device in devices]
    total = max((sum(code.tally[device].total for code in judged) for device in devices), default=0)
    if not total or not max(none):
        return ""
    numbers = f"{none[0]:,}" if min(none) == max(none) else f"{min(none):,} to {max(none):,}"
    return f" ({numbers} of {total:,} containers have nothing that runs)"


def _runs(support: Mapping[Capability, Support], libraries: Sequence[Inspected]) -> str:
    by_kind = {kind: [device for device in support if support[device] is kind] for kind in Support}
    listed_ones = [device for device in support if BY_CAPABILITY[device].listed]
    every = f"GPU from {listed_ones[0]} to {listed_ones[-1]}"
    if len(by_kind[Support.NONE]) == len(support):
        return f"Does not run as a whole on any {every}."
    clauses = [
        f"{_HOW[kind]} {f'every {every}' if set(devices) >= set(listed_ones) else where(devices)}"
        f"{_in_part(libraries, devices) if kind is Support.PARTIAL else ''}"
        for kind, devices in by_kind.items()
        if devices
    ]
    return f"Runs {'; '.join(clauses)}."


def where(devices: Sequence[Capability]) -> str:
    """Return capabilities as text: ``Pascal (6.0, 6.1) and Volta (7.0)``."""
    gpus = [BY_CAPABILITY[device] for device in devices]
    return listed([*_by_generation(gpus), *_modules(gpus)])


def _by_generation(gpus: Iterable[Gpu]) -> Iterator[str]:
    for generation in by_generation(gpu for gpu in gpus if not gpu.module):
        yield f"{generation.name} ({', '.join(str(gpu.capability) for gpu in generation.gpus)})"


def _modules(gpus: Iterable[Gpu]) -> Iterator[str]:
    """Yield the Jetsons of ``gpus``, which are listed apart because they run only code of their own."""
    title = f"{JETSON} "
    for gpu in gpus:
        if gpu.module:
            yield f"{title}{gpu.module} ({gpu.capability})"
            title = ""


def _is_stripped(item: Inspected) -> bool:
    """Return whether a library without device code was read and is useless without it."""
    return not item.problem and must_hold_code(item.name.rpartition("/")[2])


def _doubts(item: Inspected) -> Iterator[str]:
    """Yield one sentence for each reason of a doubt, with the capabilities that it concerns."""
    by_device = verdicts(item)
    known = (gpu.capability for gpu in gpus_of([item]) if gpu.capability in by_device)
    for reason, devices in grouped((by_device[device].doubt, str(device)) for device in known).items():
        if reason:
            yield f"doubtful on {listed(devices)}: {reason}"


def parts_notes(libraries: Sequence[Inspected], start: int) -> Iterator[tuple[str, str]]:
    """Yield notes, as head and text, on the libraries of a source together.

    The notes are doubts on all libraries, groups of alternatives, and libraries that are loaded on some GPUs
    only. Names of libraries are shown without their first ``start`` characters.
    """
    joint = ((verdict.joint_doubt, str(device)) for device, verdict in together(libraries).items())
    for doubt, devices in grouped(joint).items():
        if doubt:
            yield "all libraries", f"doubtful on {listed(devices)}: {doubt}"
    elsewhere = needed_elsewhere(libraries)
    if elsewhere:
        yield "needed and not here", listed([printable(name) for name in elsewhere])
    for group in alternatives(libraries):
        yield "one of these is loaded", listed([printable(item.name[start:]) for item in group], 2 * _NAMED)
    for item in libraries:
        if is_for_own_gpus(item) and not any(item in group for group in alternatives(libraries)):
            yield printable(item.name[start:]), "for exactly these GPUs, and by its code loaded on no other"


def _partial(item: Inspected, coverage: LibraryCoverage) -> Iterator[str]:
    """Yield the number of containers that do not run on GPUs with partial support, a sentence per number."""
    support = coverage.support
    partial = [gpu.capability for gpu in gpus_of([item]) if support[gpu.capability] is Support.PARTIAL]
    gaps = ((coverage.tally[device].none, coverage.tally[device].total, str(device)) for device in partial)
    for (none, total), devices in grouped(((none, total), device) for none, total, device in gaps).items():
        if none:
            share = _of(none, total, "containers")
            yield f"for {listed(devices)}, {share} {'has' if none == 1 else 'have'} nothing that runs"


def _elsewhere(item: Inspected, coverage: LibraryCoverage) -> Iterator[str]:
    others = {name: count for name, count in coverage.sections.items() if name not in SECTIONS}
    if others and item.kind not in NO_SECTIONS:
        count = sum(others.values())
        lie = "lies" if count == 1 else "lie"
        where = f"{_share(count, coverage.containers)} {lie} {_sections(list(others))}"
        yield f"{where}, where cuobjdump does not look"


def _sections(names: Sequence[str]) -> str:
    named = [f"in {printable(name)}" if name else "outside of any section" for name in names[:_NAMED]]
    rest = len(names) - _NAMED
    return listed([*named, f"in {rest:,} more sections"] if rest > 0 else named)


def _not_judged(item: Inspected, coverage: LibraryCoverage) -> Iterator[str]:
    """Yield the numbers of containers without kernels or for the linker, and of images of unknown kinds."""
    if coverage.picked:
        share, inside = _share(coverage.picked, coverage.containers), listed(list(item.linked_in))
        has = f"; {inside} {'is' if len(item.linked_in) == 1 else 'are'} linked in" if inside else ""
        yield f"{share} hold one or two architectures each: they are picked by device, and not judged{has}"
    if coverage.nothing_to_run:
        linked = "LTO IR for a link at run time, or " if coverage.ltoir else ""
        has, what = ("has", "a unit") if coverage.nothing_to_run == 1 else ("have", "units")
        share = _share(coverage.nothing_to_run, coverage.containers)
        yield f"{share} {has} nothing to run: {linked}{what} without kernels"
    if coverage.link_inputs:
        share = _of(coverage.link_inputs, coverage.containers, "containers")
        hold = "holds" if coverage.link_inputs == 1 else "hold"
        yield f"{share} {hold} relocatable code: what a device link made of it is judged"
    if coverage.unknown:
        are = "is" if coverage.unknown == 1 else "are"
        yield f"{_plural(coverage.unknown, 'image')} {are} of a kind that nobody knows"


def _raw(item: Inspected) -> Iterator[str]:
    for kind, name in ((Kind.SASS, "cubin"), (Kind.PTX, "PTX text")):
        counts = item.raw.get(kind, {})
        if counts:
            count, arches = sum(counts.values()), " ".join(map(str, sorted(counts)))
            some, lie, them = (f"{name}s", "lie", "them") if count > 1 else (name, "lies", "it")
            where = f"{count:,} {some} (sm_{arches}) {lie} outside of containers"
            yield f"{where}: the library itself hands {them} to the driver; listed, not part of the verdict"


def _behind(item: Inspected) -> Iterator[str]:
    if item.behind:
        yield f"{item.behind} lies behind its code, and is not looked into: unpack it and name the folder"


def _deep(item: Inspected) -> Iterator[str]:
    """Yield the sums and findings of a deep reading; nothing without one."""
    if item.deep:
        unpack = "image unpacks" if item.deep.images == 1 else "images unpack"
        read = f"{item.deep.images:,} {unpack} to {item.deep.size / 1e6:,.1f} MB"
        left = f", {item.deep.ltoir:,} are LTO IR and left packed" if item.deep.ltoir else ""
        if item.deep.unread:
            left += f", {item.deep.unread:,} are packed with zstd, which this Python does not read"
        kernels, names = sum(item.deep.kernels.values()), len(item.deep.names)
        yield f"{read}{left}: {_plural(kernels, 'kernel')}, {_plural(names, 'name')}"
        yield from (
            f"{payload.code.name} {payload.message}" for payload in check_payloads(item.name, item.deep)
        )


def _needed_drivers(item: Inspected, coverage: LibraryCoverage) -> Iterator[str]:
    """Yield the drivers that images packed with zstd need, and those that JIT needs.

    Its PTX, its own name or a NEEDED name shows that a library was made with CUDA 13: names that end in
    ``.so.13`` do; cuFFT and cuDNN number their own releases otherwise.
    """
    isa, counted = coverage.isa, ", by Linux's numbers" if item.kind is FileKind.DLL else ""
    if coverage.zstd:
        yield f"images are packed with zstd, which needs driver {FLOOR_ZSTD} or newer{counted}"
    by_name = any(name.endswith(".so.13") for name in (item.soname or "", *item.needed))
    if coverage.zstd and (by_name or (isa or (0, 0)) >= _PTX_OF_CUDA_13):
        yield f"it is made with CUDA 13, whose run time needs driver {FLOOR_13} or newer{counted}"
    if isa and Support.JIT in coverage.support.values():
        driver = f"driver {_jit_floor(isa)} or newer{counted}"
        if isa < _PTX_OF_CUDA_12:
            driver = f"no driver newer than {FLOOR_12}{counted}"
        yield f"its PTX is of version {dotted(isa)}: JIT needs {driver}"


def _jit_floor(isa: tuple[int, int]) -> str:
    """Return the oldest driver that compiles PTX of version ``isa``: of CUDA 13, PTX 9.2 came with 13.2."""
    return ptx_floor(isa) or f"of CUDA {isa[0] + _CUDA_BEFORE_PTX}.{isa[1]}"


def floors_of(libraries: Iterable[Inspected]) -> dict[str, str | None]:
    """Return the drivers that JIT and images packed with zstd need; ``None`` where nothing needs one."""
    codes = [item.coverage for item in libraries if item.coverage]
    isas = [code.isa for code in codes if code.isa and Support.JIT in code.support.values()]
    newest = max(isas, default=None)
    jit = _jit_floor(newest) if newest and newest >= _PTX_OF_CUDA_12 else None
    return {"JIT": jit, "zstd": FLOOR_ZSTD if any(code.zstd for code in codes) else None}


def _plural(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'s' * (count != 1)}"


def _of(count: int, total: int, things: str) -> str:
    return f"{count:,} of {total:,} {things}"


def _share(count: int, total: int) -> str:
    """Return a share as text: ``1 of 184 containers``, ``all 12 containers`` or ``its only container``."""
    if count < total:
        return _of(count, total, "containers")
    return "its only container" if total == 1 else f"all {total:,} containers"
