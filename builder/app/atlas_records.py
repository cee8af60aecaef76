"""atlas: reads wheels, keeps what was read of each as a small file, and makes a page of all of these."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from builder.adapters.git import revision_of
from builder.adapters.untrusted.opener import is_url, require_path, shown
from builder.adapters.wheel import PipSource
from builder.app.inspection import opener
from builder.binary.library import Inspected
from builder.builds.wiring import Wiring
from builder.errors import IntegrityError, NothingToDoError, ValidationError
from builder.files.atomic_write import part_file, scratch_folder
from builder.files.digest import file_digest
from builder.formats.package_names import PLATFORMS
from builder.gpu.architectures import Capability
from builder.pipeline.inspect import inspect
from builder.project.inputs import Input, Pin
from builder.report.atlas import Atlas, atlas_of, document
from builder.report.atlas_page import atlas_page
from builder.report.wheel_record import (
    Effort,
    WheelRecord,
    dumps,
    loads,
    record_of,
    require_wheel,
    verdicts_of,
)

RECORDS = Path("docs", "atlas")
"""Where the records lie, below the project's folder."""


def add(wiring: Wiring, what: str) -> Path:
    """Read a wheel, a path, URL or ``NAME==VERSION``, and write its record; the path of that.

    Raises as ``opened`` and ``fetched``.
    """
    with fetched(wiring, what) as wheel, opened(wiring, wheel) as read:
        return write_record(wiring, read.record)


def write_record(wiring: Wiring, record: WheelRecord) -> Path:
    """Write a record where it belongs."""
    file = record_file(wiring.root, record.filename)
    _write(file, dumps(record))
    wiring.reporter.say(f"{file.relative_to(wiring.root)}  {file.stat().st_size:,} bytes")
    return file


def record_file(root: Path, filename: str) -> Path:
    """Where the record of a wheel lies."""
    return root / RECORDS / f"{filename.removesuffix('.whl')}.json"


class ReadWheel(NamedTuple):
    """A wheel that was read, and its files while they are there, by the names of its libraries."""

    record: WheelRecord
    libraries: Sequence[Inspected]
    files: Mapping[str, Path]


@contextmanager
def opened(wiring: Wiring, wheel: Path) -> Iterator[ReadWheel]:
    """What is read of a wheel. The record's peak memory is this process's so far.

    Raises ``ValidationError`` for what is not named like a wheel, and as ``Opener.files``.
    """
    require_wheel(wheel.name)
    digest = file_digest(wheel)
    began = time.perf_counter()
    with opener(wiring, wiring.reporter).files(str(wheel)) as files:
        libraries = inspect(files.libraries)
        seconds = time.perf_counter() - began
        revision = revision_of(wiring.root, wiring.runner)
        effort = Effort(
            date=datetime.now(UTC).date().isoformat(),
            commit=revision.commit if revision and not revision.dirty else None,
            seconds=seconds,
            peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        )
        yield ReadWheel(record_of(wheel.name, digest, libraries, effort), libraries, dict(files.libraries))


@contextmanager
def fetched(wiring: Wiring, what: str, pin: Pin | None = None) -> Iterator[Path]:
    """The wheel at a path, or one that is fetched for the block: from a URL, by pip for ``NAME==VERSION``.

    ``NAME==VERSION@PLATFORM`` takes it for another than ``linux-x64``; with a ``pin`` it is the file of that
    name. Raises ``TransferError``, ``DiskError``, ``ValidationError``, and ``IntegrityError`` for other bytes
    than those of the index's hash, the pin's, or the one behind ``#sha256=`` in a URL.
    """
    if is_url(what):
        bring: Callable[[Path], Path] = partial(_by_url, wiring, what)
    elif _is_requirement(what):
        bring = partial(_by_pip, wiring, what, pin)
    else:
        yield require_path(what)
        return
    with scratch_folder(wiring.dist / "atlas", needed=0) as folder:
        folder.mkdir()
        with wiring.reporter.step(f"fetch {shown(what)}"):
            file = bring(folder)
        yield file


def _is_requirement(what: str) -> bool:
    _name, found, version = what.partition("==")
    return bool(found) and "/" not in version


def _by_url(wiring: Wiring, url: str, folder: Path) -> Path:
    parts = urlsplit(url)
    file = folder / PurePosixPath(parts.path).name
    require_wheel(file.name)
    opener(wiring, wiring.reporter).transfer.download(url, file)
    _require(file, parse_qs(parts.fragment).get("sha256", [""])[0])
    return file


def _by_pip(wiring: Wiring, what: str, pin: Pin | None, folder: Path) -> Path:
    item = Input.wheel(what)
    if item.platform not in PLATFORMS:
        raise ValidationError(
            f"{what}: {item.platform!r} is no platform", advice=f"Name one of {', '.join(PLATFORMS)}."
        )
    file = PipSource(runner=wiring.runner, python=sys.executable).download(item, pin, folder)
    _require(file, pin.sha256 if pin else "")
    return file


def _require(file: Path, sha256: str) -> None:
    """Raise ``IntegrityError`` unless the file has this sha256, where one is known."""
    found = file_digest(file).sha256 if sha256 else ""
    if found != sha256:
        raise IntegrityError(f"{file.name}: wanted sha256 {sha256}, got {found}", advice="Fetch it again.")


def read_records(root: Path) -> tuple[WheelRecord, ...]:
    """All records. Raises ``ConfigError`` for a damaged one, ``NothingToDoError`` where there is none."""
    files = sorted((root / RECORDS).glob("*.json"))
    if not files:
        raise NothingToDoError(f"No record in {root / RECORDS}. Make one: ./run atlas --add NAME==VERSION")
    return tuple(loads(file.read_bytes(), str(file.relative_to(root))) for file in files)


def make(wiring: Wiring) -> Atlas:
    """Write ``atlas.html`` and ``atlas.json`` from all records, and what the rules say now into the records.

    Raises as ``read_records``.
    """
    records = [_judged(wiring, record) for record in read_records(wiring.root)]
    atlas = atlas_of(records)
    page = wiring.dist / "atlas.html"
    _write(page, atlas_page(atlas, wiring.loader))
    _write(wiring.dist / "atlas.json", json.dumps(document(atlas), indent=1) + "\n")
    counts = ((len(records), "wheel"), (len(atlas.projects), "project"))
    wheels, projects = (f"{count:,} {what}{'s' * (count != 1)}" for count, what in counts)
    wiring.reporter.say(f"{page} and atlas.json: {wheels} of {projects}")
    return atlas


def _judged(wiring: Wiring, record: WheelRecord) -> WheelRecord:
    """The record with the verdicts of today, which are written where they differ."""
    now = verdicts_of(record.source().libraries)
    if now == record.verdicts:
        return record
    differ: dict[tuple[str, str], list[str]] = {}
    for device in sorted({*now, *record.verdicts}, key=Capability.parse):
        before, after = (found.get(device, "not told") for found in (record.verdicts, now))
        if before != after:
            differ.setdefault((before, after), []).append(device)
    said = "; ".join(f"{' '.join(where)} was {old}, is {new}" for (old, new), where in differ.items())
    judged = replace(record, verdicts=now)
    file = record_file(wiring.root, record.filename)
    _write(file, dumps(judged))
    wiring.reporter.say(f"{file.relative_to(wiring.root)}: {said}")
    return judged


def _write(file: Path, text: str) -> None:
    data = text.encode()
    with part_file(file, needed=len(data)) as opened_file:
        opened_file.write(data)
