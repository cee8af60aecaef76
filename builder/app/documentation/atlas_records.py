"""The verb atlas reads wheels, keeps a small record of each reading, and makes a page of all records."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from builder.adapters.git import revision_of
from builder.adapters.untrusted.opener import is_url, require_path, shown
from builder.adapters.wheel import download_wheel
from builder.app.inspection import opener
from builder.binary.library import Inspected
from builder.builds.wiring import Wiring
from builder.errors import IntegrityError, NothingToDoError, ValidationError
from builder.files.atomic_write import scratch_folder, write_file
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
"""The folder of the records, relative to the project's folder."""


def add(wiring: Wiring, what: str) -> Path:
    """Read a wheel, write its record and return the record's path.

    ``what`` is a path, a URL or ``NAME==VERSION``. Raises what ``opened`` and ``fetched`` do.
    """
    with fetched(wiring, what) as wheel, opened(wiring, wheel) as read:
        return write_record(wiring, read.record)


def write_record(wiring: Wiring, record: WheelRecord) -> Path:
    """Write a record to its file in ``docs/atlas`` and return the file's path."""
    file = record_file(wiring.root, record.filename)
    write_file(file, dumps(record).encode())
    wiring.reporter.say(f"{file.relative_to(wiring.root)}  {file.stat().st_size:,} bytes")
    return file


def record_file(root: Path, filename: str) -> Path:
    """Return the path of a wheel's record."""
    return root / RECORDS / f"{filename.removesuffix('.whl')}.json"


class ReadWheel(NamedTuple):
    """A wheel that was read, and its files, by the names of its libraries, which exist inside the block."""

    record: WheelRecord
    libraries: Sequence[Inspected]
    files: Mapping[str, Path]


@contextmanager
def opened(wiring: Wiring, wheel: Path) -> Iterator[ReadWheel]:
    """Read a wheel and yield the result. The record's peak memory is that of this process so far.

    Raises ``ValidationError`` for a name that is not a wheel's, and what ``Opener.files`` does.
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
    """Yield the wheel at a path, or a wheel that is fetched for the block: from a URL, or by pip.

    ``NAME==VERSION`` is fetched by pip for ``linux-x64``, ``NAME==VERSION@PLATFORM`` for another platform;
    with ``pin`` the file must have the pin's name. Raises ``TransferError``, ``DiskError``,
    ``ValidationError``, and ``IntegrityError`` for bytes that differ from the hash of the index, of the pin,
    or behind ``#sha256=`` in a URL.
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
    file = folder / PurePosixPath(unquote(parts.path)).name
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
    file = download_wheel(wiring.runner, item, pin, folder)
    _require(file, pin.sha256 if pin else "")
    return file


def _require(file: Path, sha256: str) -> None:
    """Raise ``IntegrityError`` unless the file has this sha256; an empty ``sha256`` is not compared."""
    found = file_digest(file).sha256 if sha256 else ""
    if found != sha256:
        raise IntegrityError(f"{file.name}: wanted sha256 {sha256}, got {found}", advice="Fetch it again.")


def read_records(root: Path) -> tuple[WheelRecord, ...]:
    """Return all records.

    Raises ``ConfigError`` for a damaged record and ``NothingToDoError`` if there is none.
    """
    files = sorted((root / RECORDS).glob("*.json"))
    if not files:
        raise NothingToDoError(f"No record in {root / RECORDS}. Make one: ./run atlas --add NAME==VERSION")
    return tuple(loads(file.read_bytes(), str(file.relative_to(root))) for file in files)


def make(wiring: Wiring) -> Atlas:
    """Write ``atlas.html`` and ``atlas.json`` from all records, and update each record's verdicts.

    Raises what ``read_records`` does.
    """
    records = [_update_verdicts(wiring, record) for record in read_records(wiring.root)]
    atlas = atlas_of(records)
    page = wiring.dist / "atlas.html"
    write_file(page, atlas_page(atlas, wiring.loader).encode())
    write_file(wiring.dist / "atlas.json", f"{json.dumps(document(atlas), indent=1)}\n".encode())
    counts = ((len(records), "wheel"), (len(atlas.projects), "project"))
    wheels, projects = (f"{count:,} {what}{'s' * (count != 1)}" for count, what in counts)
    wiring.reporter.say(f"{page} and atlas.json: {wheels} of {projects}")
    return atlas


def _update_verdicts(wiring: Wiring, record: WheelRecord) -> WheelRecord:
    """Return the record with the verdicts of the current rules; write it to its file if they differ."""
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
    write_file(file, dumps(judged).encode())
    wiring.reporter.say(f"{file.relative_to(wiring.root)}: {said}")
    return judged
