"""This module pins inputs as their hosts serve them today, for the verb lock and for a build's base.

The verb also records which GPUs NVIDIA's pinned libraries hold no code for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from builder.binary.library_names import is_named_like_a_library
from builder.build.source_reading import commands_of, store_rules
from builder.config.inputs import Input, InputKind, Lock, Pin, ort_wheel
from builder.config.load import parse_lock, render_lock
from builder.config.toolkits import DATA, MISSING, dumps, missing_in
from builder.config.variants import (
    all_inputs,
    archives,
    base_inputs,
    is_open,
    open_of_packages,
    python_wheel_requirements,
    source_problems,
)
from builder.console import Reporter
from builder.contents.reading import read_file
from builder.errors import (
    BuilderError,
    CheckFailedError,
    ConfigError,
    ToolMissingError,
    TransferError,
    ValidationError,
)
from builder.facts.gpu.architectures import Capability
from builder.facts.ort.source import LIST, is_read, read_source, require_source
from builder.files.atomic_write import write_file
from builder.files.disk import resolved
from builder.files.http_client import NotThereError
from builder.finding import require_no_errors
from builder.formats.package_names import Host
from builder.formats.text import nearest
from builder.io.git import commit_of, revision_of
from builder.io.store import texts_in
from builder.io.wiring import Wiring
from builder.publish.preflight import check_pins


class StillOpen(NamedTuple):
    """An input that could not be pinned, and why."""

    key: str
    error: BuilderError

    def __str__(self) -> str:
        return f"{self.key} is {self.outcome}: {self.error}"

    @property
    def outcome(self) -> str:
        """``not there``, ``out of reach``, or ``unreadable``."""
        if isinstance(self.error, NotThereError | ValidationError):
            return "not there"
        return "out of reach" if isinstance(self.error, TransferError | ToolMissingError) else "unreadable"


def pin_inputs(
    wiring: Wiring, items: Iterable[Input], known: Lock, reporter: Reporter, *, all_: bool = True
) -> tuple[Lock, list[StillOpen]]:
    """Return a pin for each input, and for each archive that a source among them downloads.

    What was read of the sources is returned too, and the inputs that stay without a pin. An input that fails
    stops no other with ``all_``, and all later ones without it.
    """
    project, made = wiring.project, Lock({})
    still_open: list[StillOpen] = []
    waiting = dict.fromkeys(items)
    while waiting and (all_ or not still_open):
        item = next(iter(waiting))
        del waiting[item]
        lock = known.with_more(made)
        using = [name for name, base in project.bases.items() if base.source.item == item]
        try:
            pinned = pin_source(wiring, item, lock, reporter) if using else _pin(wiring, item, lock, reporter)
            lock = lock.with_more(pinned)
            if problems := [problem for name in using for problem in source_problems(project, name, lock)]:
                raise ConfigError([f"variants.yaml: {problem}" for problem in problems])
        except BuilderError as error:
            still_open.append(StillOpen(item.key, error))
            continue
        made = made.with_more(pinned)
        reporter.say(f"pinned {item.key} {lock.pins[item.key].revision or lock.pins[item.key].sha256}")
        needed = (one for name in using for one in archives(project.bases[name], lock))
        files = (Input(InputKind.URL, one.url) for one in needed)
        waiting |= dict.fromkeys(file for file in files if lock.is_open(file))
    return made, still_open


def pin_source(wiring: Wiring, item: Input, known: Lock, reporter: Reporter) -> Lock:
    """Return the pin of a source, and what is read of it. A pin that ``known`` has stays."""
    if item.kind is InputKind.TREE:  # before all of a wrong folder is copied
        require_source(lambda path: (Path(item.spec) / path).is_file())
    has_pin = not known.is_open(item)
    pinned = Lock({item.key: known.pins[item.key]}) if has_pin else _pin(wiring, item, known, reporter)
    file = wiring.store(known.with_more(pinned), reporter).fetch(item)
    texts = texts_in(file, is_read, item.folders_above)
    facts = read_source(texts, lambda: commands_of(wiring, texts))
    return Lock(pinned.pins, {item.key: facts})


def _pin(wiring: Wiring, item: Input, known: Lock, reporter: Reporter) -> Lock:
    if wiring.offline and not item.is_here:
        raise TransferError("--offline asks no host", advice="Run the same command once without it.")
    if item.kind is InputKind.GIT:
        pin = commit_of(wiring.runner, item.spec)
    elif item.kind is InputKind.IMAGE:
        pin = Pin(revision=wiring.engine.resolve(item.spec))
    elif item.kind is InputKind.TREE:
        state = revision_of(Path(item.spec), wiring.runner)
        pin = wiring.store(known, reporter).pin(item)
        pin = replace(pin, revision=state.commit, is_dirty=state.dirty) if state else pin
    elif item.kind is InputKind.URL:
        pin = _pin_url(wiring, item, known, reporter)
    else:
        pin = wiring.store(known, reporter).pin(item)
    return Lock({item.key: pin})


def _pin_url(wiring: Wiring, item: Input, known: Lock, reporter: Reporter) -> Pin:
    """Return the pin of a URL; an archive that a source downloads is held to the SHA-1 of its line."""
    bases = wiring.project.bases.values()
    listed = ((base.source.item, one) for base in bases for one in archives(base, known))
    source, one = next(((source, one) for source, one in listed if one.url == item.spec), (None, None))
    store = wiring.store(known, reporter)
    if source is None or one is None:
        return store.pin(item)
    try:
        return store.pin(item, one.sha1)
    except TransferError as error:
        what = f"{one.name} of line {one.line} in {LIST} of {source.spec} cannot be fetched"
        error.what = f"{what}: {error.what}"
        error.advice = (
            f"Two ways out: a folder with {one.url.removeprefix('https://')} in it, which "
            "ORTPACKS_ARCHIVE_MIRROR names; or something in its place, as "
            f"dependencies.{one.name} of the base in variants.yaml, or --dependency {one.name}=WHAT beside "
            "--source (docs/variants.md)."
        )
        raise


def pin_base(wiring: Wiring, base: str, reporter: Reporter, host: Host) -> None:
    """Pin the inputs of a base that have no pin, write the pins to ``inputs.lock``, and report them.

    With ``host`` from the wheel, these include the official wheel of the base's version. An image that the
    engine holds may stay without a pin where its registry is out of reach. If another input cannot be pinned,
    its error is raised and nothing is written.
    """

    def open_parts(lock: Lock) -> list[Input]:
        wheels = [ort_wheel(wiring.project.bases[base].ort_version)] if host is Host.WHEEL else []
        inputs = base_inputs(wiring.project, base, lock)
        images = [item for item in inputs if item.kind is InputKind.IMAGE]
        others = [item for item in inputs if item not in images]
        quick_first = (*wheels, *images, *others)
        parts = [item for item in quick_first if is_open(wiring.project, item, lock)]
        return [item for item in parts if not (item in images and _may_stay_open(item, wiring))]

    pin_by_itself(wiring, open_parts, reporter)


def _may_stay_open(image: Input, wiring: Wiring) -> bool:
    if not wiring.engine.has_image(image.spec):
        return False
    try:
        return wiring.offline or not wiring.engine.resolve(image.spec)
    except TransferError:
        return True


def pin_by_itself(wiring: Wiring, open_inputs: Callable[[Lock], Sequence[Input]], reporter: Reporter) -> None:
    """Pin what ``open_inputs`` returns for the current lock. Write, report and raise as ``pin_base`` does."""
    if not open_inputs(wiring.lock):
        return
    with wiring.locked("inputs", reporter, "waiting: another process pins inputs"):
        lock = read_lock(wiring)  # the other process may have pinned them
        items = open_inputs(lock)
        made, still_open = pin_inputs(wiring, items, lock, reporter, all_=False)
        for key, error in still_open:
            error.what = f"{key} has no pin, and cannot be given one here: {error.what}"
            raise error
        wiring.lock = lock.with_more(made)
        if lasting := made.without(made.of_folders()).pins:
            write_lock(wiring, wiring.lock)
            commit = "" if wiring.is_trial else ": commit it"
            reporter.say(f"{wiring.pins_file.name} has these {len(lasting)} pins now{commit}")


def unpack_pinned(
    wiring: Wiring, reporter: Reporter, refuse: Callable[[Input], None] | None, wheel: Input
) -> Path:
    """Return the folder with a wheel's unpacked files. A wheel without a pin in ``inputs.lock`` is given one.

    If ``refuse`` is given, it is called with such a wheel instead, and must raise.
    """
    if refuse is None:
        pin_by_itself(wiring, lambda lock: [wheel] if lock.is_open(wheel) else [], reporter)
    elif wiring.lock.is_open(wheel):
        refuse(wheel)
    return wiring.store(wiring.lock, reporter).unpack(wheel)


def read_lock(wiring: Wiring) -> Lock:
    """Return the pins of ``inputs.lock`` as the file has them now, and of folders those of this run."""
    before: Lock = wiring.__dict__.pop("lock", Lock({}))
    now = wiring.lock if wiring.lock_file.exists() else Lock({})
    return now.with_more(before.of_folders())


def write_lock(wiring: Wiring, lock: Lock) -> None:
    """Write ``inputs.lock``, sorted. A trial of a source writes what that lacks to a file of its own."""
    lasting = lock.without(lock.of_folders())
    lasting = lasting.without(wiring.committed_lock) if wiring.is_trial else lasting
    write_file(resolved(wiring.pins_file), render_lock(lasting).encode())


def lock_inputs(wiring: Wiring, *, refresh: bool) -> None:
    """Write ``inputs.lock`` with a pin for every input of the project and for nothing else.

    Existing pins stay; with ``refresh`` all pins are made again. An input that may be open
    (``InputKind.may_be_open``) and is out of reach keeps its pin. Raises ``CheckFailedError``, after the file
    is written, if such an input has none, and the error of any other input that cannot be pinned, with
    nothing written.
    """
    reporter, known = wiring.reporter, read_lock(wiring)
    with reporter.step("lock"):
        project = wiring.project
        wanted = all_inputs(project, known)
        good = {key: pin for key, pin in known.pins.items() if not pin.is_open}
        whole = [] if refresh else [item.key for item in wanted if not is_open(project, item, known)]
        kept = {key: good[key] for key in whole}
        left = [item for item in wanted if item.key not in kept]
        made, failures = pin_inputs(wiring, left, Lock({}) if refresh else known, reporter)
        still_open = []
        for failed in failures:
            if not Input.parse(failed.key).kind.may_be_open or failed.outcome != "out of reach":
                raise failed.error
            if failed.key in good:
                reporter.warn(f"{failed.key} keeps its pin, because it is out of reach: {failed.error}")
                kept[failed.key] = good[failed.key]
            else:
                still_open.append(failed)
        opened = {failed.key: Pin() for failed in still_open}
        pins = {**kept, **opened, **made.pins, **_python_pins(wiring, {} if refresh else good)}
        for key in (key for key in known.pins if key not in pins):
            reporter.say(f"dropped {key}: no variant needs it any more")
        reporter.say(f"{len(pins) - len(opened)} inputs pinned, {len(kept)} unchanged")
        sources = {key: facts for key, facts in known.with_more(made).sources.items() if key in pins}
        wiring.lock = Lock(pins, sources)
        write_lock(wiring, wiring.lock)
        store_rules(wiring, reporter)
        _read_libraries(wiring, {} if refresh else MISSING)
        _require_none_open(still_open)


def _python_pins(wiring: Wiring, known: Mapping[str, Pin]) -> Mapping[str, Pin]:
    """Return the pins of the official wheels for every Python, as the index lists them.

    No wheel is fetched.
    """
    pins: dict[str, Pin] = {}
    for requirement in python_wheel_requirements(wiring.project):
        kept: Mapping[Input, Pin] = Lock(known).python_wheels(requirement)
        if not kept:
            kept = wiring.package_index.python_wheels(requirement)
            wiring.reporter.say(f"pinned {requirement} for {len(kept)} Pythons, as the index lists them")
        pins |= {item.key: pin for item, pin in kept.items()}
    return pins


def lock_missing(wiring: Wiring) -> None:
    """Pin the inputs without a pin in ``inputs.lock`` that this machine reaches.

    Every other line stays as it is, so the file can be completed on several machines in turn. Raises
    ``CheckFailedError``, after the file is written, for inputs that stay without a pin.
    """
    reporter, known = wiring.reporter, read_lock(wiring)
    with reporter.step("lock --missing"):
        wanted = all_inputs(wiring.project, known)
        missing = [item for item in wanted if is_open(wiring.project, item, known)]
        made, still_open = pin_inputs(wiring, missing, known, reporter)
        if made.pins:
            wiring.lock = known.with_more(made)
            write_lock(wiring, wiring.lock)
        store_rules(wiring, reporter)
        reporter.say(f"{len(made.pins)} pinned, {len(still_open)} without a pin")
        _require_none_open(still_open)


def _require_none_open(still_open: Sequence[StillOpen]) -> None:
    if still_open:
        raise CheckFailedError(
            f"{len(still_open)} inputs stay without a pin; a release needs them all",
            [f"{failed}" for failed in still_open],
        )


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
        check_pins(open_of_packages(wiring.project, base, wiring.lock), f"base {base}"),
        f"no release can be compiled on base {base}",
    )
    wiring.reporter.say(f"every input of base {base} is pinned")


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
    unserved = {spec: tuple(devices) for spec, devices in known.items() if spec in wheels}
    for spec in unread:
        unserved[spec] = _unserved(spec, store.unpack(wheels[spec]))
        lacks = " ".join(map(str, unserved[spec]))
        wiring.reporter.say(f"read {spec}: {f'holds nothing for {lacks}' if lacks else 'serves every GPU'}")
    write_file(wiring.root / DATA, dumps(unserved).encode())


def _unserved(spec: str, tree: Path) -> tuple[Capability, ...]:
    """Return the GPUs that the libraries of an unpacked wheel do not serve.

    Raises ``CheckFailedError`` if there are none, or one cannot be read: then it would seem to serve all.
    """
    files = [file for file in sorted(tree.rglob("*")) if is_named_like_a_library(file.name)]
    readings = [read_file(file.name, file, symbols=False) for file in files]
    unread = [str(reading.problem) for reading in readings if reading.problem]
    if unread or not readings:
        raise CheckFailedError(
            f"which GPUs {spec} serves is not known, so nothing is recorded of it",
            unread or ["it holds no library. Name the wheel that has them in variants.yaml."],
        )
    return missing_in([one.coverage for one in readings if one.coverage])
