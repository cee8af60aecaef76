"""This module makes releases of one package each, for benchmarks that install it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path

from builder.adapters.archive.package_archive import PackageArchive
from builder.console import Console
from builder.files.digest import Digest, file_digest
from builder.formats.index import StoredArchive, build_index
from builder.formats.json_values import json_text
from builder.formats.manifest import Manifest
from builder.formats.package_names import CPU, HOSTS, LINUX, Form
from builder.package.archive import BUILT, Content, Member
from builder.project.variants import Preset
from tests.support.factories.releases import file_entry, manifest

LIBRARIES = (0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05)
"""Shares of the libraries in the package's bytes, about as in a real package."""
RATIO = 0.58
"""Archive bytes per byte of ``_block``, measured at zstd's level 3; a real package has 0.56."""
NOISE = 1 << 24


def make_release(folder: Path, size: int) -> Mapping[Form, Path]:
    """Write a package in both forms, the ``.tar.zst`` of about ``size`` bytes; return an index for each."""
    folder.mkdir(parents=True)
    files, digests = {}, {}
    for number, share in enumerate(LIBRARIES):
        path, file = f"lib/lib{number}.so", folder / f"lib{number}.so"
        files[path], digests[path] = file, _fill(file, int(size / RATIO * share), number)
    made = manifest("modern", version="1.0.0", origin="wheel", profile=None, revision=None)
    indexes = {form: _write(folder, form, _holding(made, digests), files, digests) for form in Form}
    for file in files.values():
        file.unlink()
    return indexes


def make_cpu_release(folder: Path) -> Path:
    """Write a package for the CPU with the host library of this ``onnxruntime``; return its index."""
    folder.mkdir(parents=True)
    installed = distribution("onnxruntime").locate_file("onnxruntime/capi")
    (host,) = Path(str(installed)).glob("libonnxruntime.so.*")
    path = f"lib/{HOSTS[LINUX]}"
    cuda = manifest("modern", version=host.name.partition(".so.")[2], origin="wheel", profile=None)
    made = replace(
        cuda,
        name=f"ortpacks-cpu-{cuda.onnxruntime.version}-linux-x64",
        variant=CPU,
        provider=CPU,
        sm=(),
        generations=(),
        cuda=None,
        cudnn=None,
        toolkit="official",
        driver=None,
        capabilities={},
    )
    digests = {path: file_digest(host)}
    return _write(folder, Form.GZ, _holding(made, digests), {path: host}, digests)


def _write(
    folder: Path, form: Form, made: Manifest, files: Mapping[str, Path], digests: Mapping[str, Digest]
) -> Path:
    """Write an archive with these files, and an index of it alone; return the path of the index."""
    members = tuple(
        Member(path=path, file=file, source=BUILT, licence="LICENSE", vendor="ortpacks")
        for path, file in files.items()
    )
    content = Content(json_text(made).encode(), members, digests)
    archive = PackageArchive(reporter=Console(env={}, stream=io.StringIO()))
    package = archive.write(folder / f"{made.name}{form.value}", content, Preset.FAST, lambda _: None)
    index = folder / f"{made.name}{form.value}.json"
    stored = StoredArchive(package.path.name, package.size, package.sha256)
    index.write_text(json_text(build_index("v1.0.0", [(made, stored)], ())))
    return index


def _holding(made: Manifest, digests: Mapping[str, Digest]) -> Manifest:
    """Return the manifest with these files alone."""
    files = (replace(file_entry(path, found.size), sha256=found.sha256) for path, found in digests.items())
    return replace(made, coverage=(), wheels=(), files=tuple(files))


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
