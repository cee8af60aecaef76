"""This module makes a release of one package of any size, for benchmarks that install it."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from pathlib import Path

from builder.adapters.archive.package_archive import PackageArchive
from builder.console import Console
from builder.files.digest import Digest
from builder.formats.index import StoredArchive, build_index
from builder.formats.index import dumps as index_text
from builder.formats.manifest import Manifest
from builder.formats.manifest import dumps as manifest_text
from builder.package.archive import BUILT, Content, Member
from builder.project.variants import Preset
from tests.support.factories.releases import file_entry, manifest

LIBRARIES = (0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05)
"""Shares of the libraries in the package's bytes, about as in a real package."""
RATIO = 0.58
"""Archive bytes per byte of ``_block``, measured at zstd's level 3; a real package has 0.56."""
NOISE = 1 << 24


def make_release(folder: Path, size: int) -> Path:
    """Write a package whose archive has about ``size`` bytes, and its index; return the path of the index."""
    folder.mkdir(parents=True)
    members, digests = [], {}
    for number, share in enumerate(LIBRARIES):
        path, file = f"lib/lib{number}.so", folder / f"lib{number}.so"
        digests[path] = _fill(file, int(size / RATIO * share), number)
        members.append(Member(path=path, file=file, source=BUILT, licence="LICENSE", vendor="ortpacks"))
    made = _manifest(digests)
    content = Content(manifest_text(made).encode(), tuple(members), digests)
    archive = PackageArchive(reporter=Console(env={}, stream=io.StringIO()))
    package = archive.write(folder / f"{made.name}.tar.zst", content, Preset.FAST, lambda _: None)
    for member in members:
        member.file.unlink()
    index = folder / "index.json"
    stored = StoredArchive(package.path.name, package.size, package.sha256)
    index.write_text(index_text(build_index("v1.0.0", [(made, stored)], ())))
    return index


def _fill(file: Path, size: int, number: int) -> Digest:
    """Write ``size`` bytes and return their digest.

    A quarter is noise, half is noise with 5 random bits per byte, and a quarter is zeros.
    """
    digest = hashlib.sha256()
    block = _block(number)
    with file.open("wb") as stream:
        for start in range(0, size, len(block)):
            piece = block[: size - start]
            stream.write(piece)
            digest.update(piece)
    return Digest(size, digest.hexdigest())


def _block(number: int) -> bytes:
    noise = hashlib.shake_256(bytes([number])).digest(NOISE)
    dull = noise.translate(bytes(value & 31 for value in range(256)))
    parts = []
    for at in range(0, NOISE, 1 << 14):
        middle = at + (1 << 13)
        parts += [noise[at : at + (1 << 12)], dull[middle : middle + (1 << 13)], bytes(1 << 12)]
    return b"".join(parts)


def _manifest(digests: dict[str, Digest]) -> Manifest:
    files = (replace(file_entry(path, found.size), sha256=found.sha256) for path, found in digests.items())
    made = manifest("modern", version="1.0.0", origin="wheel", profile=None, revision=None)
    return replace(made, coverage=(), wheels=(), files=tuple(files))
