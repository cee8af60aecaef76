"""The verb lock pins each input, and records which GPUs NVIDIA's pinned libraries hold no code for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from builder.adapters.git import tag_commit
from builder.adapters.store import FileStore, member_text
from builder.binary.library_names import is_named_like_a_library
from builder.builds.wiring import Wiring
from builder.config.project import parse_lock, render_lock
from builder.errors import BuilderError, CheckFailedError, ToolMissingError, TransferError, ValidationError
from builder.files.atomic_write import write_file
from builder.files.disk import resolved
from builder.findings.finding import require_no_errors
from builder.formats.text import nearest
from builder.gpu.architectures import Capability
from builder.onnxruntime.downloads import DEPENDENCY_LIST, dependency_urls
from builder.pipeline.inspect import read_file
from builder.project.inputs import Input, InputKind, Lock, Pin
from builder.project.required_inputs import all_inputs, python_wheel_requirements
from builder.release.preflight import check_pins
from builder.rules.nvidia_libraries import DATA, MISSING, dumps, missing_in


def lock_inputs(wiring: Wiring, *, refresh: bool) -> None:
    """Write ``inputs.lock`` with a pin for every input of the project and for nothing else.

    Existing pins stay; with ``refresh`` all pins are made again. An input that may be open
    (``InputKind.may_be_open``) and is out of reach keeps its pin; without one it gets an open pin, which a
    release refuses and the next call tries again. Raises ``TransferError`` if another file cannot be fetched.
    """
    reporter, known = wiring.reporter, _present_lock(wiring)
    with reporter.step("lock"):
        wanted = all_inputs(wiring.project, known)
        good = {key: pin for key, pin in known.pins.items() if not pin.is_open}
        kept = {} if refresh else {item.key: good[item.key] for item in wanted if item.key in good}
        fresh = _pinned([item for item in wanted if item.key not in kept], wiring, leave=False)
        pins = {**kept, **fresh, **_python_pins(wiring, {} if refresh else good)}
        for key in (key for key in known.pins if key not in pins):
            reporter.say(f"dropped {key}: no variant needs it any more")
        reporter.say(f"{len(pins)} inputs, {len(kept)} unchanged")
    _write(wiring, pins)
    _read_libraries(wiring, {} if refresh else MISSING)


def _python_pins(wiring: Wiring, known: Mapping[str, Pin]) -> Mapping[str, Pin]:
    """Return the pins of the official wheels for every Python, as the index lists them.

    No wheel is fetched.
    """
    found: dict[str, Pin] = {}
    for requirement in python_wheel_requirements(wiring.project):
        kept: Mapping[Input, Pin] = Lock(known).python_wheels(requirement)
        if not kept:
            kept = wiring.package_index.python_wheels(requirement)
            wiring.reporter.say(f"pinned {requirement} for {len(kept)} Pythons, as the index lists them")
        found |= {item.key: pin for item, pin in kept.items()}
    return found


def lock_missing(wiring: Wiring) -> None:
    """Pin the inputs without a pin in ``inputs.lock`` that this machine reaches.

    Every other line stays as it is.

    Inputs that only another machine can pin are listed, so the file can be completed on several machines in
    turn.
    """
    reporter, known = wiring.reporter, _present_lock(wiring)
    with reporter.step("lock --missing"):
        found = _pinned(
            [item for item in all_inputs(wiring.project, known) if known.is_open(item)], wiring, leave=True
        )
        pinned = {key: pin for key, pin in found.items() if not pin.is_open}
        if pinned:
            _write(wiring, {**known.pins, **pinned})
        reporter.say(f"{len(pinned)} pinned, {len(found) - len(pinned)} for another machine")
        for key in (key for key in found if key not in pinned):
            reporter.say(f"unpinned {key}")


def check_lock(wiring: Wiring, base: str) -> None:
    """Raise ``CheckFailedError`` with each unpinned input of a base; no release can be compiled with one.

    Raises ``ValidationError`` for an unknown base.
    """
    known = wiring.project.bases
    if base not in known:  # auto is none: what it takes is known where it builds
        raise ValidationError(
            f"--check {base!r} is none of {', '.join(known)}. {nearest(base, known)}".rstrip()
        )
    require_no_errors(
        check_pins(wiring.project, base, wiring.lock), f"no release can be compiled on base {base}"
    )
    wiring.reporter.say(f"every input of base {base} is pinned")


def _present_lock(wiring: Wiring) -> Lock:
    return wiring.lock if wiring.lock_file.exists() else Lock(pins={})


def _write(wiring: Wiring, pins: Mapping[str, Pin]) -> None:
    write_file(resolved(wiring.lock_file), render_lock(Lock(pins=dict(sorted(pins.items())))).encode())


def _read_libraries(wiring: Wiring, known: Mapping[str, Sequence[Capability]]) -> None:
    """Write which GPUs NVIDIA's pinned wheels do not serve.

    Only wheels that are not in ``known`` are read.
    """
    project = wiring.project
    seen = [project, *(project.of(variant) for variant in project.variants.values())]
    wheels = {wheel.spec: wheel for one in seen for wheel in one.bundled}
    unread = [spec for spec in wheels if spec not in known]
    if not unread and known.keys() <= wheels.keys():
        return
    store = wiring.store(parse_lock(wiring.lock_file.read_text(encoding="utf-8"), wiring.lock_file.name))
    found = {spec: tuple(devices) for spec, devices in known.items() if spec in wheels}
    for spec in unread:
        found[spec] = _unserved(spec, store.unpack(wheels[spec]))
        lacks = " ".join(map(str, found[spec]))
        wiring.reporter.say(f"read {spec}: {f'holds nothing for {lacks}' if lacks else 'serves every GPU'}")
    write_file(wiring.root / DATA, dumps(found).encode())


def _unserved(spec: str, tree: Path) -> tuple[Capability, ...]:
    """Return the GPUs that the libraries of an unpacked wheel do not serve.

    Raises ``CheckFailedError`` if there are none, or one cannot be read: then it would seem to serve all.
    """
    files = [file for file in sorted(tree.rglob("*")) if is_named_like_a_library(file.name)]
    readings = [read_file(file.name, file, symbols=False) for file in files]
    unread = [str(one.problem) for one in readings if one.problem]
    if unread or not readings:
        raise CheckFailedError(
            f"which GPUs {spec} serves is not known, so nothing is recorded of it",
            unread or ["it holds no library. Name the wheel that has them in variants.yaml."],
        )
    return missing_in([one.coverage for one in readings if one.coverage])


def _pinned(items: Sequence[Input], wiring: Wiring, *, leave: bool) -> dict[str, Pin]:
    """Return a pin for each item, and for each archive that git tags among the items need, by key."""
    known = _present_lock(wiring)
    store = wiring.store(known)
    pin = partial(_pin, wiring=wiring, store=store, known=known, leave=leave)
    found = {item.key: pin(item) for item in items}
    further = [file for item in items for file in Lock(pins=found).files_of(item) if known.is_open(file)]
    return {**found, **{item.key: pin(item) for item in dict.fromkeys(further)}}


def _pin(item: Input, *, wiring: Wiring, store: FileStore, known: Lock, leave: bool) -> Pin:
    """Return the input's bytes or revision of today as a pin; the known or an open pin if out of reach.

    Raises ``TransferError`` for an input that may not be open, and every other failure, unless ``leave`` is
    set: then one input stops no other.
    """
    try:
        pin = _resolve(item, wiring, store)
    except BuilderError as error:
        out_of_reach = isinstance(error, TransferError | ToolMissingError) and item.kind.may_be_open
        if not (leave or out_of_reach):
            raise
        if not known.is_open(item):
            wiring.reporter.warn(f"{item.key} keeps its pin, because it is out of reach: {error}")
            return known.pins[item.key]
        wiring.reporter.warn(
            f"{item.key} stays unpinned: a release needs `./run lock --missing` on a "
            f"machine that reaches it: {error}"
        )
        return Pin()
    wiring.reporter.say(f"pinned {item.key} {pin.revision or pin.sha256}")
    return pin


def _resolve(item: Input, wiring: Wiring, store: FileStore) -> Pin:
    if item.kind is InputKind.GIT:
        revision = tag_commit(wiring.runner, item.spec)
        listed = member_text(store.tree(item, revision), DEPENDENCY_LIST)
        return Pin(revision=revision, files=dependency_urls(listed))
    if item.kind is InputKind.IMAGE:
        return Pin(revision=wiring.engine.resolve(item.spec))
    return store.pin(item)
