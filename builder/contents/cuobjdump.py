"""Reader of the output of ``cuobjdump --list-elf`` and ``--list-ptx``; an incomplete listing is an error.

Measured on cuobjdump 12.4.131 and 13.5.37: a library without device code exits 255 with "does not contain
device code"; a library without PTX exits 0 with an empty list and "No PTX file found to extract"; 13.5 on
ORT 1.23.2's provider prints five lines, then "fatal : Invalid ELF", and exits 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from builder.binary.fatbin_format import LINK_INPUT, LOADED, Container, Kind
from builder.facts.gpu.architectures import Arch
from builder.formats.text import grouped

_LINE = re.compile(r"(?:ELF|PTX) file\s+\d+: .*\.(?:sm|compute)_(\d{2,3}[af]?)\.(?:cubin|ptx)")

_NO_DEVICE_CODE = "does not contain device code"

_NONE_OF_THIS_KIND = re.compile(r"No (?:ELF|PTX) file found to extract")

_NO_CODE_EXIT = 255


class Listing(NamedTuple):
    """cuobjdump's answer for one kind of images: its exit code and output."""

    code: int
    stdout: str
    stderr: str


class Inspector(Protocol):
    """A cuobjdump of a known version."""

    version: str
    """The version, like ``12.4.131``."""

    def list_images(self, library: Path, sha256: str) -> tuple[Listing, Listing]:
        """Return the answers of ``cuobjdump --list-elf`` and ``--list-ptx`` for a library.

        ``sha256`` is the library's, in hex; answers are cached by it.
        """


class CuobjdumpError(ValueError):
    """cuobjdump failed, or its output is not a complete listing."""


@dataclass(frozen=True)
class ImageCounts:
    """Numbers of images in a whole library by architecture."""

    sass: Mapping[Arch, int]
    ptx: Mapping[Arch, int]


KNOWN_IMAGES = ImageCounts(
    sass={Arch.parse(arch): 1 for arch in ("50", "60", "70", "75", "80", "90", "90a", "100", "120")},
    ptx={Arch.parse(arch): 1 for arch in ("52", "90")},
)
"""The images in ``builder/binary/known-images.so``: one kernel, compiled by NVRTC 12.9."""


def parse_listings(elf: Listing, ptx: Listing) -> ImageCounts:
    """Return the counts of a library from its two listings.

    Raises ``CuobjdumpError`` when a listing is incomplete, or only one of them says "no device code".
    """
    if _says_no_code(elf) != _says_no_code(ptx):
        raise CuobjdumpError("one listing says that there is no device code, the other one does not")
    return ImageCounts(sass=_parse(elf), ptx=_parse(ptx))


def count_images(containers: Iterable[Container]) -> ImageCounts:
    """Count the images that cuobjdump would list in the containers that the native reader found.

    cuobjdump lists the section ``.nv_fatbin``, or ``__nv_relfatbin`` in a library without it, and no other.
    """
    sass: Counter[Arch] = Counter()
    ptx: Counter[Arch] = Counter()
    by_section = grouped((container.section, container) for container in containers)
    for container in by_section.get(LOADED, by_section.get(LINK_INPUT, [])):
        sass.update(image.arch for image in container.images if image.kind is Kind.SASS)
        ptx.update(image.arch for image in container.images if image.kind is Kind.PTX)
    return ImageCounts(sass=sass, ptx=ptx)


def disagreements(native: ImageCounts, listed: ImageCounts) -> list[str]:
    """Return one line for each architecture whose numbers of images differ between the two readers.

    Suffixes are not compared, only the sum over an architecture's suffixes, because cuobjdump's suffixes are
    unreliable. It drops suffixes: 12.4 lists ``sm_120f`` as ``sm_120`` for SASS and PTX, 13.5 for SASS only
    (seen in NVRTC's code for 30 architectures and in cuBLASLt 12.9). It also invents suffixes: 12.4 lists
    five images of libcublas 12.9 as ``sm_50a``, ``sm_60a`` and ``sm_61a``, which do not exist; 13.5 lists the
    same images without a suffix.
    """
    lines: list[str] = []
    for kind, ours, theirs in (("sm", native.sass, listed.sass), ("compute", native.ptx, listed.ptx)):
        left, right = _by_number(ours), _by_number(theirs)
        lines += [
            f"{kind}_{number}: {left[number]} read natively, {right[number]} by cuobjdump"
            for number in sorted({*left, *right})
            if left[number] != right[number]
        ]
    return lines


def _says_no_code(done: Listing) -> bool:
    return done.code == _NO_CODE_EXIT and _NO_DEVICE_CODE in done.stdout + done.stderr


def _parse(done: Listing) -> Mapping[Arch, int]:
    if _says_no_code(done):
        return {}
    if done.code != 0:
        raise CuobjdumpError(f"exit code {done.code}: {_last_line(done)}")
    counts: Counter[Arch] = Counter()
    for line in _lines(done.stdout):
        match = _LINE.fullmatch(line)
        if match:
            counts[Arch.parse(match[1])] += 1
        elif not _NONE_OF_THIS_KIND.search(line):
            raise CuobjdumpError(f"a line that names no image: {line}")
    if not counts and not _NONE_OF_THIS_KIND.search(done.stdout + done.stderr):
        raise CuobjdumpError("an empty answer")
    return counts


def _last_line(done: Listing) -> str:
    return ["no output", *_lines(done.stdout), *_lines(done.stderr)][-1]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _by_number(counts: Mapping[Arch, int]) -> Counter[int]:
    numbers: Counter[int] = Counter()
    for arch, count in counts.items():
        numbers[arch.number] += count
    return numbers
