"""This module unpacks all images of a file, compares them with their headers, and finds kernels and stubs.

A kernel is a stub on an architecture where its code only exits or traps, while the same container holds more
code of the kernel for another architecture. A kernel that does nothing on any architecture is *idle*.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from typing import NamedTuple

from builder.binary.elf_headers import Buffer, release_pages
from builder.binary.fatbin_format import BEGIN, HEADER, IMAGE, JOINED, Container, Image, Kind
from builder.binary.payloads.functions import Functions, of_cubin, of_ptx
from builder.binary.payloads.payload_bytes import Compression, NoDecoderError, PayloadError, unpack
from builder.gpu.architectures import Arch

_READERS = {Kind.SASS: of_cubin, Kind.PTX: of_ptx}

_FIRST_ROOM, _GROWTH = 1 << 30, 64
"""Most bytes to which a file's images may unpack: the larger of a fixed number and a number per byte of the
file. cuBLASLt 12.9 unpacks to four bytes per byte."""


class CodeTarget(NamedTuple):
    """The kind and the architecture of an image."""

    kind: Kind
    arch: Arch

    def __str__(self) -> str:
        return f"{'compute' if self.kind is Kind.PTX else 'sm'}_{self.arch}"

    def order(self) -> tuple[bool, Arch]:
        """Return the sort key: SASS before PTX, then by architecture."""
        return self.kind is Kind.PTX, self.arch


class Stub(NamedTuple):
    """A kernel, by its mangled name, that is a stub for the targets ``on`` in one container."""

    kernel: str
    on: tuple[CodeTarget, ...]
    whole: tuple[CodeTarget, ...]
    """The targets for which the same container holds the kernel's full code."""


class Damage(NamedTuple):
    """An image that differs from its header; ``offset`` is the header's in the file."""

    offset: int
    target: CodeTarget
    why: str
    packed: bool
    """Whether unpacking itself failed."""


class Gap(NamedTuple):
    """Kernels that a container lacks for one target and has for another; ``offset`` is the container's."""

    offset: int
    target: CodeTarget
    lacking: int
    held: int
    """The number of kernels that the container has for the target."""


@dataclass(frozen=True)
class DeepReading:
    """The contents of all images of a file."""

    images: int = 0
    """Number of images that were unpacked and agree with their headers."""
    size: int = 0
    """Unpacked bytes of these images."""
    ltoir: int = 0
    """Number of images of LTO IR, which are not unpacked: only NVIDIA's linker reads them."""
    unread: int = 0
    """Number of images that this Python cannot unpack; their headers are trusted."""
    kernels: Mapping[CodeTarget, int] = field(default_factory=dict)
    """Numbers of kernels by target; a kernel in several containers counts once for each container."""
    names: Mapping[str, AbstractSet[CodeTarget]] = field(default_factory=dict)
    """The targets of each kernel, by its mangled name."""
    unregistered: AbstractSet[str] = frozenset()
    """Kernels whose names the host's code lacks, so that no launch finds them; empty unless it was read."""
    stubs: tuple[Stub, ...] = ()
    idle: int = 0
    """Number of kernels that do nothing on any architecture whose code is read."""
    gaps: tuple[Gap, ...] = ()
    damages: tuple[Damage, ...] = ()


def read_payloads(
    buffer: Buffer, containers: Sequence[Container]
) -> tuple[tuple[Container, ...], DeepReading]:
    """Return ``containers`` corrected by their payloads, and the reading of these payloads.

    Removes each image that differs from its header, or that has no kernel while another image of its
    container has one. Sets ``runnable`` of the other images by the functions found in them.
    """
    reader = _Reader(buffer)
    return tuple([reader.read(container) for container in containers]), reader.found()


class _Reader:
    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._room = max(_FIRST_ROOM, _GROWTH * len(buffer))
        self._images = self._size = self._ltoir = self._unread = self._idle = 0
        self._kernels: Counter[CodeTarget] = Counter()
        self._names: dict[str, set[CodeTarget]] = {}
        self._stubs: list[Stub] = []
        self._gaps: list[Gap] = []
        self._damages: list[Damage] = []

    def found(self) -> DeepReading:
        return DeepReading(
            images=self._images,
            size=self._size,
            ltoir=self._ltoir,
            unread=self._unread,
            kernels=self._kernels,
            names=self._names,
            stubs=tuple(self._stubs),
            idle=self._idle,
            gaps=tuple(self._gaps),
            damages=tuple(self._damages),
        )

    def read(self, container: Container) -> Container:
        """Return ``container`` corrected as ``read_payloads`` describes."""
        others: list[Image] = []
        read: list[tuple[Image, Functions]] = []
        for image, payload in _payloads(self._buffer, container, self._claim):
            if image.kind not in _READERS:
                self._ltoir += image.kind is Kind.LTOIR
                others.append(image)
                continue
            try:
                read += self._functions(image, payload)
            except NoDecoderError:
                self._unread += 1
                others.append(image)
        empty = self._compare(container, read)
        kept = [
            replace(image, runnable=bool(found.kernels or found.others))
            for image, found in read
            if _target(image) not in empty
        ]
        return replace(container, images=tuple(sorted([*others, *kept], key=lambda image: image.offset)))

    def _functions(self, image: Image, payload: _Payload) -> Iterator[tuple[Image, Functions]]:
        """Yield an image with its functions; note the damage only if the image differs from its header."""
        packed = True
        try:
            self._claim(image.unpacked_size)
            data = payload()
            packed = False
            functions = _READERS[image.kind](data, image.arch)
        except PayloadError as error:
            self._damages.append(Damage(image.offset, _target(image), str(error), packed))
            return
        self._images += 1
        self._size += len(data)
        yield image, functions

    def _claim(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise PayloadError("the images before it unpack to more than any library does")

    def _compare(
        self, container: Container, read: Iterable[tuple[Image, Functions]]
    ) -> frozenset[CodeTarget]:
        """Note a container's kernels, gaps and stubs; return its targets that have none of the kernels."""
        held: dict[CodeTarget, dict[str, bool | None]] = {}
        for image, found in read:
            mine = held.setdefault(_target(image), {})
            for name, stub in found.kernels.items():
                mine[name] = stub and mine.get(name, True)
        every = dict.fromkeys(name for mine in held.values() for name in mine)
        for target, mine in held.items():
            self._kernels[target] += len(mine)
            if len(mine) < len(every):
                self._gaps.append(Gap(container.offset, target, len(every) - len(mine), len(mine)))
        for name in every:
            on = {target: mine[name] for target, mine in held.items() if name in mine}
            self._names.setdefault(name, set()).update(on)
            self._note_stub(name, {target: stub for target, stub in on.items() if stub is not None})
        return frozenset(target for target, mine in held.items() if every and not mine)

    def _note_stub(self, name: str, on: Mapping[CodeTarget, bool]) -> None:
        if any(on.values()):
            more = tuple(sorted((target for target, stub in on.items() if not stub), key=CodeTarget.order))
            stubs = tuple(sorted((target for target, stub in on.items() if stub), key=CodeTarget.order))
            self._idle += not more
            self._stubs += [Stub(name, stubs, more)] if more else []


_Payload = Callable[[], bytes]
"""A function that returns one unpacked image, or raises ``PayloadError`` or ``NoDecoderError``."""


def _payloads(
    buffer: Buffer, container: Container, claim: Callable[[int], None]
) -> Iterator[tuple[Image, _Payload]]:
    """Yield each image of a container with a function that unpacks it.

    ``claim`` is called with the bytes of images that are packed as one, before they are unpacked. The memory
    pages of an image are released after the caller has processed it.
    """
    if bytes(buffer[container.offset : container.offset + len(BEGIN)]) != BEGIN:
        (image,) = container.images  # a bare image
        yield image, partial(_stored, buffer, image.offset, image.size)
        release_pages(buffer, image.offset, image.offset + image.size)
        return
    at, images = container.offset + HEADER.size, iter(container.images)
    for image in images:
        kind, _version, header, payload, *_ = IMAGE.unpack_from(buffer, at)
        if kind == JOINED:
            (count,) = struct.unpack_from("<I", buffer, at + IMAGE.size)
            blob = cache(partial(_joined, buffer, at, image.compression, claim))
            for one in (image, *islice(images, count - 1)):
                yield one, partial(_part, buffer, one, blob)
        else:
            yield image, partial(_unpacked_image, buffer, at + header, image)
        release_pages(buffer, at, at + header + payload)
        at += header + payload


def _stored(buffer: Buffer, start: int, size: int) -> bytes:
    return bytes(buffer[start : start + size])


def _unpacked_image(buffer: Buffer, start: int, image: Image) -> bytes:
    return unpack(_stored(buffer, start, image.size), image.compression, image.unpacked_size)


def _joined(buffer: Buffer, at: int, packed: Compression, claim: Callable[[int], None]) -> bytes:
    """Return the unpacked bytes of images that are packed as one, with the header at ``at``."""
    _kind, _version, header, payload, size, _minor, _major, _arch, _flags, unpacked = IMAGE.unpack_from(
        buffer, at
    )
    plain = packed is Compression.NONE
    claim(unpacked)
    return unpack(_stored(buffer, at + header, payload if plain else size), packed, unpacked)


def _part(buffer: Buffer, image: Image, blob: Callable[[], bytes]) -> bytes:
    """Return one of several images that are packed as one, from the place in ``blob`` that its header names.

    Raises ``PayloadError`` where ``blob`` ends before.
    """
    _kind, _version, offset, length, *_ = IMAGE.unpack_from(buffer, image.offset)
    found = blob()[offset : offset + length]
    if len(found) != length:
        raise PayloadError(f"it ends behind what it is packed with, at {offset + length:,}")
    return found


def _target(image: Image) -> CodeTarget:
    return CodeTarget(image.kind, image.arch)
