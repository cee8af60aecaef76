"""What an unpacked package must hold to be what its name and manifest say. Values in, findings out."""

from __future__ import annotations

from typing import Iterator, Mapping, Optional

from builder.core.checks import Code, Finding
from builder.core.content import LICENCES, NVIDIA
from builder.core.manifest import FileEntry, Manifest
from builder.core.naming import REDUCED, PackageName
from builder.core.package import MANIFEST, Digest


def check_name(name: PackageName, manifest: Manifest) -> Iterator[Finding]:
    """B002 for each part of the name that the manifest tells otherwise."""
    ort = manifest.onnxruntime
    for part, said, told in (
        ("name", manifest.name, str(name)),
        ("variant", manifest.variant, name.variant),
        ("onnxruntime.version", ort.version, name.ort),
        ("onnxruntime.profile", ort.profile if ort.profile in REDUCED else None, name.profile),
        ("cuda", manifest.cuda, name.cuda),
        ("platform", manifest.platform, name.platform),
    ):
        if said != told:
            message = f"{part} differs between file name and manifest"
            yield Finding(Code.B002, name.archive, message, wanted=str(told), got=str(said))


def check_files(manifest: Manifest, unpacked: Mapping[str, Digest]) -> Iterator[Finding]:
    """B003 to B006 and B001: exactly the manifest's files, with its bytes, each with its licence text."""
    listed = {entry.path: entry for entry in manifest.files}
    for path in unpacked:
        if path not in listed and path != MANIFEST:
            yield Finding(Code.B003, path, "nothing says what it is or whose")
    for path, entry in listed.items():
        yield from _check_bytes(entry, unpacked.get(path))
        if entry.licence not in listed:
            yield Finding(Code.B006, path, f"its licence {entry.licence} is not in the package")
        if entry.vendor == NVIDIA and entry.modified:
            yield Finding(Code.B001, path, "NVIDIA's terms allow it only unmodified")
    for path in LICENCES:
        if path not in listed:
            yield Finding(Code.B006, path, "every package carries it")


def check_checksum(name: str, digest: Digest, sums: Mapping[str, str]) -> Iterator[Finding]:
    """B008 when the ``SHA256SUMS`` beside a package names other bytes; it need not name the package."""
    wanted = sums.get(name)
    if wanted is not None and wanted != digest.sha256:
        yield Finding(Code.B008, name, "it changed after it was built", wanted=wanted, got=digest.sha256)


def _check_bytes(entry: FileEntry, found: Optional[Digest]) -> Iterator[Finding]:
    if found is None:
        yield Finding(Code.B004, entry.path, f"it comes from {entry.source}")
    elif (found.size, found.sha256) != (entry.size, entry.sha256):
        yield Finding(
            code=Code.B005,
            path=entry.path,
            message=f"it comes from {entry.source}",
            wanted=f"{entry.size} bytes, sha256 {entry.sha256}",
            got=f"{found.size} bytes, sha256 {found.sha256}",
        )
