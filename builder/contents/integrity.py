"""This module checks files: against name and manifest of their package, and SHA256SUMS.

The findings are B001 to B008, B014 and B017.

``check_absent`` must run before anything is fetched: it checks texts of the manifest that become paths, since
a manifest may come from anybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from builder.binary.library_names import NVIDIA
from builder.contents.notice import STATEMENT, read_notice
from builder.contents.required_files import NOTICE, SBOM, licences
from builder.errors import ParseError
from builder.files.atomic_write import write_file
from builder.files.digest import Digest
from builder.files.disk import disk_errors
from builder.files.file_lock import exclusive
from builder.files.safe_paths import is_plain
from builder.finding import Code, Finding
from builder.formats.manifest import FileEntry, Manifest, WheelEntry
from builder.formats.package_names import CHECKSUMS, LIB, MANIFEST, REDUCED, PackageName
from builder.formats.stored_file import SHA256


def check_name(name: PackageName, manifest: Manifest) -> Iterator[Finding]:
    """Yield B002 for each part of the file name that differs from the manifest."""
    ort = manifest.onnxruntime
    may_lack = name.profile is not None or (manifest.plugin is not None and bool(ort.cannot_run))
    for part, got, wanted in (
        ("name", manifest.name, str(name)),
        ("layout", manifest.layout, name.layout),
        ("variant", manifest.variant, name.variant),
        ("onnxruntime.version", ort.version, name.ort),
        ("onnxruntime.profile", ort.profile if ort.profile in REDUCED else None, name.profile),
        ("onnxruntime.cannot_run", _some(bool(ort.cannot_run)), _some(may_lack)),
        ("cuda", manifest.cuda, name.cuda),
        ("platform", manifest.platform, name.platform),
        ("form", manifest.form.value, name.form.value),
    ):
        if got != wanted:
            message = f"{part} differs between file name and manifest"
            yield Finding(Code.B002, str(name), message, wanted=str(wanted), got=str(got))


def _some(there: bool) -> str:
    return "operators" if there else "none"


def check_files(manifest: Manifest, unpacked: Mapping[str, Digest]) -> Iterator[Finding]:
    """Yield B003 to B006, B001 and B014 unless the archive had exactly the packed files, with their bytes.

    ``unpacked`` are the digests of the files from the archive, by path. The licence texts of files that come
    from wheels must be in the archive too.
    """
    packed = {entry.path: entry for entry in manifest.packed}
    for path in unpacked:
        if path not in packed and path != MANIFEST:
            yield Finding(Code.B003, path, _why_not(path, manifest))
    texts = {*licences(manifest.provider), *(entry.licence for entry in manifest.files)}
    for path, entry in packed.items():
        if path in unpacked or path not in texts:
            yield from _check_bytes(entry, unpacked.get(path))
    for entry in manifest.files:
        if entry.vendor == NVIDIA and entry.modified:
            yield Finding(Code.B001, entry.path, "NVIDIA's terms allow it only unmodified")
    if SBOM not in packed:
        yield Finding(Code.B014, SBOM, "every package carries it")
    yield from _check_licences(manifest, {path: packed[path] for path in packed.keys() & unpacked.keys()})


def check_completed(manifest: Manifest, completed: Mapping[str, Digest]) -> Iterator[Finding]:
    """Yield B004 and B005 for files from wheels that are missing or differ from the manifest's digest."""
    for entry in manifest.absent:
        yield from _check_bytes(entry, completed.get(entry.path))


def check_installed(manifest: Manifest, digests: Mapping[str, Digest]) -> Iterator[Finding]:
    """Yield the findings of ``check_files`` and ``check_completed`` for a folder with all of a package.

    ``digests`` are those of every file in the folder, by path.
    """
    absent = {entry.path for entry in manifest.absent}
    yield from check_files(manifest, {path: digest for path, digest in digests.items() if path not in absent})
    yield from check_completed(manifest, digests)


def check_notice(manifest: Manifest, text: str) -> Iterator[Finding]:
    """Yield B017 for each file whose licence and source NOTICE lacks, and for a missing statement.

    The statement is on NVIDIA's files, so it is needed only if there are any.
    """
    holds_nvidia = any(entry.vendor == NVIDIA for entry in manifest.files)
    if holds_nvidia and STATEMENT not in " ".join(text.split()):
        yield Finding(
            Code.B017, NOTICE, "it does not say that LICENSE does not cover NVIDIA's files", STATEMENT
        )
    listed = read_notice(text)
    for entry in manifest.files:
        if (entry.licence, entry.path, entry.source) not in listed:
            wanted = f"{entry.path}  {entry.source}, below {entry.licence}"
            yield Finding(Code.B017, entry.path, "NOTICE does not name its owner", wanted)


def check_checksum(name: str, digest: Digest, sums: Mapping[str, str]) -> Iterator[Finding]:
    """Yield B008 if ``SHA256SUMS`` has another sha256 for a package; the file need not name the package."""
    wanted = sums.get(name)
    if wanted is not None and wanted != digest.sha256:
        yield Finding(Code.B008, name, "it changed after it was built", wanted=wanted, got=digest.sha256)


def _check_licences(manifest: Manifest, packed: Mapping[str, FileEntry]) -> Iterator[Finding]:
    for entry in manifest.files:
        if entry.licence not in packed:
            yield Finding(Code.B006, entry.path, f"its licence {entry.licence} is not in the package")
    carried = licences(manifest.provider)
    for path in carried:
        if path not in packed:
            yield Finding(Code.B006, path, "every package carries it")
    for path in sorted({*carried, *(entry.licence for entry in manifest.files)}):
        if path in packed and packed[path].size == 0:
            yield Finding(Code.B006, path, "it is empty")


def _why_not(path: str, manifest: Manifest) -> str:
    for entry in manifest.absent:
        if entry.path == path:
            return f"the manifest leaves it to {entry.source}"
    return "nothing says what it is or who owns it"


def _check_bytes(entry: FileEntry, digest: Digest | None) -> Iterator[Finding]:
    if digest is None:
        yield Finding(Code.B004, entry.path, f"it comes from {entry.source}")
    elif (digest.size, digest.sha256) != (entry.size, entry.sha256):
        yield Finding(
            code=Code.B005,
            path=entry.path,
            message=f"it comes from {entry.source}",
            wanted=str(Digest(entry.size, entry.sha256)),
            got=str(digest),
        )


_LIBRARY = re.compile(rf"{LIB}[A-Za-z0-9][A-Za-z0-9._+-]*")

_SOURCE = re.compile(r"wheel:[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?==[0-9][A-Za-z0-9.+]*(?:@[a-z0-9-]+)?")

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\.whl")


def check_absent(manifest: Manifest) -> Iterator[Finding]:
    """Yield B004 for each absent file without a plain library name, path in a wheel, or pinned wheel."""
    wheels = {wheel.source: wheel for wheel in manifest.wheels}
    for entry in manifest.absent:
        named = _LIBRARY.fullmatch(entry.path) is not None and is_plain(entry.member or "")
        if not named or not _is_pinned(wheels.get(entry.source)):
            yield Finding(
                code=Code.B004,
                path=entry.path,
                message="the manifest does not say safely where it comes from: nothing is fetched",
                wanted=f"{LIB}NAME, a path inside its wheel, and that wheel with file name, size and sha256",
                got=f"{entry.member!r} of {entry.source!r}",
            )


def _is_pinned(wheel: WheelEntry | None) -> bool:
    return (
        wheel is not None
        and _SOURCE.fullmatch(wheel.source) is not None
        and _FILE.fullmatch(wheel.file) is not None
        and SHA256.fullmatch(wheel.sha256) is not None
    )


def read_checksums(folder: Path) -> Mapping[str, str]:
    """Return the hex sha256 in the folder's ``SHA256SUMS`` by file name; empty without that file.

    Raises ``ParseError``.
    """
    path = folder / CHECKSUMS
    if not path.is_file():
        return {}
    try:
        return parse_checksums(path.read_text(encoding="utf-8"))
    except ValueError as error:
        advice = "Delete the file: the next build writes it anew."
        raise ParseError(f"{path}: {error}", advice=advice) from error


def update_checksums(folder: Path, *, put: Mapping[str, str], drop: tuple[str, ...] = ()) -> None:
    """Write the hex sha256 of ``put``, by file name, to the folder's ``SHA256SUMS``; remove ``drop``'s lines.

    One process at a time does so; all other lines stay. Raises ``ParseError`` and ``DiskError``.
    """
    path = folder / CHECKSUMS
    with disk_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder, lambda: None):  # the folder is the lock, so that no lock file is left behind
        before = read_checksums(folder)
        after = {name: digest for name, digest in {**before, **put}.items() if name not in drop}
        if after != before:
            lines = [f"{digest}  {name}\n" for name, digest in sorted(after.items())]
            write_file(path, "".join(lines).encode())


def parse_checksums(text: str) -> Mapping[str, str]:
    """Return the hex digests by name. Raises ``ValueError`` for a line that is not ``<hex> <name>``."""
    sums = {}
    for number, line in enumerate(text.splitlines(), start=1):
        digest, _, name = line.partition(" ")
        name = name[1:] if name[:1] in (" ", "*") else ""
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef") or not name:  # noqa: PLR2004 - sha256
            raise ValueError(f"line {number} is not '<sha256>  <name>': {line!r}")
        sums[name] = digest
    return sums
