"""This benchmark compares raw images in a library with images packed by LZ4: sizes, and seconds to load.

    python -m benchmarks.fatbins LIBRARY [--smoke PROGRAM --load FOLDER...]

The images of LIBRARY must be raw, as in the libraries that we compile. NVIDIA's nvFatbin packs the same
images again, as ``fatbinary -compress-all`` does, and each of our presets compresses both forms of the file.
Loading is measured in whole processes, with the files in the page cache: PROGRAM (``ortpacks-smoke``) opens
the host library of FOLDER, the lib/ of an unpacked full package, and asks for CUDA, which loads the provider.
"""

from __future__ import annotations

import argparse
import mmap
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from builder.adapters.archive.compression import compressor
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Container, Image
from builder.binary.library_names import HOST, PROVIDER
from builder.binary.payloads.payload_bytes import Compression
from builder.formats.package_names import Form
from builder.project.variants import Preset
from tests.support.factories.nvidia import Code, packed

ROUNDS = 9
_THREADS = 2
_CHUNK = 1 << 20
_HEADER_SIZE = struct.Struct("<4xI")
"""Layout of the field, at byte 4 of an image's header, that has the header's size in bytes."""


def main() -> None:
    """Print the sizes of both forms, and the time to load each folder."""
    asked = _arguments()
    with asked.library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        containers = read_containers(raw)
        images = [image for container in containers for image in container.images]
        if any(image.compression is not Compression.NONE for image in images):
            sys.exit(f"{asked.library}: some of its images are packed already.")
        again = [packed(_codes(raw, container), "-compress-all") for container in containers]
        rest = _without(bytes(raw), containers)
        print(f"{asked.library.name}: {len(containers):,} containers, {len(images):,} images")
        _tell("raw", bytes(raw))
        _tell("LZ4", rest + b"".join(again))
    for folder in asked.load if asked.smoke else ():
        provider = (folder / PROVIDER).stat().st_size
        seconds = statistics.median(_loads(asked.smoke, folder))
        print(f"load {seconds * 1000:.0f} ms  provider of {provider / 1e6:.1f} MB in {folder}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fatbins")
    parser.add_argument("library", type=Path, metavar="LIBRARY")
    parser.add_argument(
        "--smoke", type=Path, metavar="PROGRAM", help="dist/.check-tools-assembled/tools/ortpacks-smoke"
    )
    parser.add_argument("--load", type=Path, nargs="*", default=[], metavar="FOLDER", help="what to load")
    return parser.parse_args()


def _codes(library: mmap.mmap, container: Container) -> Iterator[Code]:
    for image in container.images:
        start = image.offset + _HEADER_SIZE.unpack_from(library, image.offset)[0]
        yield Code(image.kind, str(image.arch), library[start : start + image.size])


def _end(image: Image, library: bytes) -> int:
    return int(image.offset + _HEADER_SIZE.unpack_from(library, image.offset)[0] + image.size)


def _without(library: bytes, containers: tuple[Container, ...]) -> bytes:
    """Return the library's bytes without its containers."""
    kept, at = bytearray(), 0
    for container in containers:
        kept += library[at : container.offset]
        at = max(_end(image, library) for image in container.images)
    return bytes(kept + library[at:])


def _tell(how: str, data: bytes) -> None:
    sizes = "  ".join(f"{preset.value} {_compressed(data, preset) / 1e6:7.1f} MB" for preset in Preset)
    print(f"{how}  on disk {len(data) / 1e6:7.1f} MB  .tar.zst {sizes}")


def _compressed(data: bytes, preset: Preset) -> int:
    with compressor(Form.ZST, preset, _THREADS) as compress:
        given = sum(len(compress.compress(data[at : at + _CHUNK])) for at in range(0, len(data), _CHUNK))
        return given + len(compress.flush())


def _loads(smoke: Path, folder: Path) -> list[float]:
    """Return the seconds of ``ROUNDS`` whole processes.

    One more, the first, warms the page cache and is left out.
    """
    return [_load(smoke, folder) for _ in range(ROUNDS + 1)][1:]


def _load(smoke: Path, folder: Path) -> float:
    begin = time.perf_counter()
    subprocess.run([smoke, folder / HOST], env={}, capture_output=True, check=True)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
