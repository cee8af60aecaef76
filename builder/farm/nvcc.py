#!/usr/bin/python3
"""This program replaces nvcc: it compiles a unit in pieces, each with its own entry in ccache.

The pieces are nvcc's own steps (``nvcc-toolkit --dryrun``):

- for each virtual architecture the preprocessor, and ``cicc``, which makes PTX and a stub: the C source with
  which the host registers the kernels;
- for each architecture ``ptxas``, which makes SASS from the PTX;
- for the host the preprocessor, then ``cudafe++`` and the C++ compiler, which make an object without device
  code.

``fatbinary`` then packs the SASS, and ``objcopy`` puts it into the object. The cache key of a compiled piece
contains its preprocessed text. So the host's piece is compiled once for all variants (unless the stub
differs: CUB gives its kernels other launch bounds by architecture), and the piece of an architecture once for
all sets with that architecture. Where the preprocessor makes the same text for 8.6 or 8.9 as for 8.0, their
SASS is made from the PTX of 8.0. Values that nvcc derives from the set or from the time are constant here:
``__CUDA_ARCH_LIST__``, which CUB puts into the names of its kernels, is ``$NVCC_ARCH_LIST``. The names of
intermediate files and the module id, which is part of the names of kernels with internal linkage, follow from
the object's path.

Independent pieces are made in parallel. Each beyond the first waits for a job slot of its own, as the unit
did (``unit --spare``). When the PTX is made, a unit may give memory back. The results do not depend on
either. A piece's entry in ccache depends on its commands, its text and NVIDIA's programs
(``$NVCC_COMPILERCHECK``), not on this file. ccache has ``piece.py`` make it.

With ``$NVCC_ONLY``, ``90`` or ``90,100``, only the SASS of these architectures is made, for ccache, and the
object is an empty file.

Two options of ``fatbinary`` are additions of this program. They are passed through nvcc (``-Xfatbin=``), so
they are part of the compiler's command and of ccache's key:

``--assemble=100:120``
    The PTX image is not stored; ``ptxas-newer``, a ptxas of a later toolkit, makes one image of SASS for each
    number. This is how nvcc 12.4, whose newest architecture is sm_90, makes native code for Blackwell. Each
    is made from the unit's own text for that architecture, as PTX of nvcc's newest one. Only where nothing
    but lines of the toolkit's headers differs, which know no newer architecture, PTX of an older one serves.
    What nvcc does not understand of a text ends the compile. It does not work for architectures with
    suffixes: the PTX lacks their instructions.
``--raw``
    Images are stored as they are. ORT sets ``-compress-all`` (LZ4), but zstd packs an archive of plain
    images better.
"""

from __future__ import annotations

import fcntl
import filecmp
import hashlib
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeVar

from builder.farm.piece import PIECE, CommandFailedError, after, prerequisites, run, write_rule

TOOLKITS_OWN = "nvcc-toolkit"
"""The file name of NVIDIA's nvcc, which was renamed."""
NEWER_PTXAS = "ptxas-newer"

_PLANNED = "#$ "
"""The beginning of a line with a command or variable in the output of ``--dryrun``."""
_PIECE_MAKER = "/ortpacks/pieces/nvcc"
"""The path of ``piece.py`` as ccache's compiler. ccache knows nvcc's options by this name."""
_ARCH_LIST, _ONLY = "NVCC_ARCH_LIST", "NVCC_ONLY"
_UNTIL_PTX = "UNIT_UNTIL_PTX"
"""The variable with the file descriptors whose locks claim the memory that is given back after the PTX
(pool.c)."""
_FOR_CCACHE = {"NVCC_STATSLOG": "CCACHE_STATSLOG", "NVCC_COMPILERCHECK": "CCACHE_COMPILERCHECK"}
"""ccache's variables for runs on pieces, by their names here; ccache's own names are for whole units."""
_HOST = "host"
"""The host's folder of intermediate files in the unit's folder, like ``compute_80`` and ``sm_86``."""
OLDER = {"compute_86": "compute_80", "compute_87": "compute_80", "compute_89": "compute_80"}
"""Older virtual architectures by those for which the preprocessor makes the same text of half of the units.
Their PTX is valid for the newer ones with any toolkit, and by nvcc 12.4 the same except for ``.target``
(docs/decisions/0009-pieces.md)."""
_VIRTUAL = re.compile(r"compute_(?P<number>\d+)[af]?")
_ASSEMBLE, _RAW = "--assemble=", "--raw"
_OWN_OPTIONS = (f"-Xfatbin={_ASSEMBLE}", f"-Xfatbin={_RAW}")
_COMPRESS = frozenset({"-compress-all", "--compress-all"})
_IMAGE = re.compile(r"--image3=kind=(?P<kind>elf|ptx),sm=(?P<sm>\w+),file=(?P<file>.+)")
_TEMPORARY = re.compile(
    r"(?P<folder>/tmp/)?tmpxft_\S+\."
    r"(?P<name>cpp\d\.ii|cudafe1\.(?:cpp|stub\.c|c|gpu)|fatbin\.c|module_id|ptx|cubin)"
)
"""The name of an intermediate file of nvcc; the part after process, source and architecture is ``name``."""
_LINE_MARKER = re.compile(rb'# \d+ "(?P<file>[^"]*)"')
_STUB, _FATBIN_SOURCE, _MODULE_ID = "cudafe1.stub.c", "fatbin.c", "module_id"
_DATA_SECTION = re.compile(r'#define __CUDAFATBINDATASECTION +"(?P<name>\S+)"')
_FLOCK = struct.Struct("hhqqi4x")
"""C's ``struct flock``."""

Command = list[str]
S = TypeVar("S")
T = TypeVar("T")


class Step(NamedTuple):
    """One command in the output of ``nvcc --dryrun``."""

    program: str
    words: Command

    @property
    def output(self) -> str:
        """The file that the step makes; empty without ``-o``."""
        return after(self.words, "-o")


class DeviceImage(NamedTuple):
    """An image of device code: SASS that the command ``ptxas`` makes, or PTX where ``ptxas`` is empty."""

    sm: str
    place: str
    """The virtual architecture whose text it is made of."""
    ptx: str
    """nvcc's name for the PTX file."""
    ptxas: Command


@dataclass(frozen=True)
class Piece:
    """One entry of ccache: its key is made of the commands and the bytes of ``source`` and ``inputs``."""

    commands: list[Command]
    made: str
    """The file that the commands make."""
    source: str
    """The file that the commands compile."""
    inputs: list[str]
    """The other files of the unit's folder that the commands read but do not make."""


def main(argv: Sequence[str]) -> int:
    """Do what nvcc was called for with ``argv``. Return a failed command's exit status, else 0."""
    try:
        if "-c" in argv:
            Unit(argv).compile()
        else:
            run([TOOLKITS_OWN, *(word for word in argv if not word.startswith(_OWN_OPTIONS))])
    except CommandFailedError as error:
        return error.status
    return 0


class Unit:
    """One call of nvcc that makes an object of a source file."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = list(argv)
        self._source, self._object = after(self._argv, "-c"), after(self._argv, "-o")
        self._folder = f"{self._object}.pieces"
        self._steps: list[Step] = []
        self._read: list[str] = []
        """The dependency files of the preprocessor's runs."""
        self._virtual: dict[str, str] = {}
        """The virtual architecture that ``cicc`` runs for, by that whose text an image is made of."""

    def compile(self) -> None:
        """Make the object and its dependency file. Raises ``CommandFailedError``."""
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        try:
            self._steps = list(self._planned())
            self._write_module_id()
            if only := os.environ.get(_ONLY):
                self._images(set(only.split(",")))
                Path(self._object).touch()
            else:
                section, host = self._pack(), self._host()
                run(["objcopy", f"--update-section={section}={self._file('fatbin')}", host, self._object])
            self._write_dependencies()
        finally:
            shutil.rmtree(self._folder)

    def _file(self, name: str, place: str = "") -> str:
        """Return a path in the unit's folder, or in ``place`` there (an architecture's or the host's)."""
        folder = Path(self._folder, place)
        folder.mkdir(exist_ok=True)
        return str(folder / name)

    def _planned(self) -> Iterator[Step]:
        """Yield nvcc's steps; set ``PATH`` and ``LD_LIBRARY_PATH`` as nvcc does for its programs."""
        argv = [TOOLKITS_OWN, "--dryrun", *_without_dependencies(self._argv)]
        environment = {**os.environ, "TMPDIR": "/tmp"}  # noqa: S108 - names in a plan; nothing is written
        done = subprocess.run(argv, stderr=subprocess.PIPE, text=True, check=False, env=environment)
        if done.returncode:
            sys.stderr.write(done.stderr)
            raise CommandFailedError(done.returncode)
        variables: dict[str, str] = {}
        for line in done.stderr.splitlines():
            is_plan, text = line.startswith(_PLANNED), line.removeprefix(_PLANNED)
            if not is_plan:
                print(line, file=sys.stderr)  # a warning
            elif assigned := re.fullmatch(r"(\w+)=(.*)", text):
                variables[assigned[1]] = assigned[2]
            elif not text.startswith("rm "):
                words = shlex.split(re.sub(r"\$(\w+)", lambda name: variables.get(name[1], name[0]), text))
                yield Step(Path(words[0]).name, words)
        os.environ.update(
            {name: variables[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in variables}
        )

    def _step(self, program: str) -> Step:
        return next(step for step in self._steps if step.program == program)

    def _maker(self, file: str) -> Step:
        return next(step for step in self._steps if step.output == file)

    def _write_module_id(self) -> None:
        """Write the module id in NVIDIA's form: ``_<8 hex digits>_<length>_<name>_<8 hex digits>``."""
        name = re.sub(r"\W", "_", Path(self._source).name)
        digest = hashlib.sha256(self._object.encode()).hexdigest()
        text = f"_{digest[:8]}_{len(name)}_{name}_{digest[8:16]}"
        Path(self._file(_MODULE_ID)).write_text(text, encoding="ascii")

    def _pack(self) -> str:
        words = self._step("fatbinary").words
        own = ("--image", "--embedded-fatbin=", _ASSEMBLE)
        options = [word for word in words if not word.startswith(own)]
        if _RAW in options:
            options = [word for word in options if word not in {_RAW, *_COMPRESS}]
            options.insert(1, "--compress=false")
        images, source = self._images(), self._file(_FATBIN_SOURCE, _HOST)
        run([*options, *images, f"--create={self._file('fatbin')}"])
        run([*options, images[0], f"--embedded-fatbin={source}"])
        return _emptied(Path(source))

    def _images(self, only: Collection[str] = ()) -> list[str]:
        """Make the device code, or SASS of ``only``; return fatbinary's options for the images."""
        images = [image for image in self._planned_images() if not only or (image.sm in only and image.ptxas)]
        planned = {image.place: image.ptx for image in images}
        steps = {older: ptx for place, ptx in planned.items() for older in self._older(place, ptx)} | planned
        self._side_by_side(lambda place: self._preprocess_for(place, steps[place], planned), steps)
        self._virtual = {place: self._oldest_alike(place, ptx) for place, ptx in planned.items()}
        chosen = dict.fromkeys(self._virtual.values())
        self._side_by_side(lambda place: self._compile_ptx(steps[place], place), chosen)
        give_back_memory()
        return self._side_by_side(self._image, images)

    def _older(self, place: str, ptx: str) -> list[str]:
        """Return the older virtual architectures whose PTX may serve as that of ``place``, best first.

        The object holds PTX of the planned architecture alone.
        """
        newest, images = self._known(ptx), [image for image in self._planned_images() if image.ptx == ptx]
        if place != newest:
            unknown = dict.fromkeys(image.place for image in images if image.place != newest)
            return [newest, *(other for other in unknown if _number(other) < _number(place))]
        is_packed = any(not image.ptxas for image in images)
        return [] if is_packed or place not in OLDER else [OLDER[place]]

    def _known(self, ptx: str) -> str:
        """Return the virtual architecture that nvcc makes ``ptx`` for."""
        return after(self._maker(ptx).words, "-arch")

    def _oldest_alike(self, place: str, ptx: str) -> str:
        """Return the first of the older architectures for which the text is the same, else ``place``."""
        text, is_new = self._file(f"{place}.ii"), place != self._known(ptx)
        for older in self._older(place, ptx):
            other = self._file(f"{older}.ii")
            if Path(other).exists() and (
                filecmp.cmp(text, other, shallow=False) or (is_new and _differ_in_headers(text, other))
            ):
                return older
        return place

    def _preprocess_for(self, place: str, ptx: str, planned: Collection[str]) -> None:
        """Make the text of the virtual architecture ``place``, as nvcc makes that of ``ptx``.

        There is none if it cannot be made for an architecture that is not planned.
        """
        if place in planned:
            with self._told(place, ptx):
                self._preprocessed(self._text(ptx), place)
        else:
            with suppress(CommandFailedError):
                self._preprocessed(self._text(ptx), place, quiet=True)

    @contextmanager
    def _told(self, place: str, ptx: str) -> Iterator[None]:
        """Say of a failure which compiler is needed, if nvcc does not know the architecture ``place``."""
        try:
            yield
        except CommandFailedError:
            if _number(place) > _number(self._known(ptx)):
                name = place.replace("compute", "sm")
                what = f"its code for {name} needs an nvcc that knows {name}"
                print(f"ortpacks: {self._source}: {what}", file=sys.stderr)
            raise

    def _text(self, ptx: str) -> str:
        """Return nvcc's name for the preprocessed text that ``ptx`` is made from."""
        cicc = self._maker(ptx).words
        return cicc[cicc.index("-o") - 1]

    def _planned_images(self) -> Iterator[DeviceImage]:
        words = self._step("fatbinary").words
        lists = (word.removeprefix(_ASSEMBLE) for word in words if word.startswith(_ASSEMBLE))
        targets = [target for numbers in lists for target in numbers.split(":")]
        for image in filter(None, map(_IMAGE.fullmatch, words)):
            sm, file = image["sm"], image["file"]
            if image["kind"] == "elf":
                ptxas = self._maker(file).words
                ptx = next(word for word in ptxas if word.endswith(".ptx"))
                yield DeviceImage(sm, self._known(ptx), ptx, ptxas)
            elif not targets:
                yield DeviceImage(sm, self._known(file), file, [])
            else:
                for target in targets:
                    newer = [NEWER_PTXAS, "-m64", file, "-o", self._file("cubin", f"sm_{target}")]
                    yield DeviceImage(target, f"compute_{target}", file, [*newer, f"-arch=sm_{target}"])

    def _side_by_side(self, make: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """Return the results of ``make`` for ``items``, in their order, computed in parallel.

        Raises what ``make`` raises.
        """
        given = list(items)
        left, made = iter(range(len(given))), dict[int, T]()

        def work() -> None:
            try:
                for at in left:
                    made[at] = make(given[at])
            finally:
                for _ in left:  # after a failure no further item is started
                    pass

        with _further_slots(self._object, len(given) - 1, work):
            work()
        return [made[at] for at in range(len(given))]

    def _image(self, image: DeviceImage) -> str:
        """Make an image, and return fatbinary's option for it."""
        ptx = self._file("ptx", self._virtual[image.place])
        if not image.ptxas:
            return f"--image3=kind=ptx,sm={image.sm},file={ptx}"
        place = f"sm_{image.sm}"
        command = self._words((ptx if word == image.ptx else word for word in image.ptxas), place)
        # In a remote storage of ccache 4.7, an entry without inputs has the same key as its manifest.
        piece = Piece([command], self._file("cubin", place), ptx, [self._file(_MODULE_ID)])
        with self._told(image.place, image.ptx):
            return f"--image3=kind=elf,sm={image.sm},file={self._cached(piece, f'{place}.cubin')}"

    def _compile_ptx(self, ptx: str, place: str) -> None:
        text, theirs = self._file(f"{place}.ii"), self._text(ptx)
        command = self._words((text if word == theirs else word for word in self._maker(ptx).words), place)
        # ccache keeps one file per entry, so PTX and stub are put into a tar
        folder, tar = self._file("", place), self._file("tar", place)
        create = ["tar", "--create", f"--file={tar}", f"--directory={folder}", "ptx", _STUB]
        piece = Piece([command, create], tar, text, [self._file(_MODULE_ID)])
        with self._told(place, ptx):
            kept = self._cached(piece, f"{place}.tar")
        run(["tar", "--extract", f"--file={kept}", f"--directory={folder}"])

    def _host(self) -> str:
        """Make the host's object, whose section for device code is empty, and return its path."""
        cudafe, compiler = self._step("cudafe++").words, self._maker(self._object).words
        self._choose_stub(after(cudafe, "--stub_file_name"))
        text = self._preprocessed(cudafe[-1], _HOST)
        kept = (word for word in compiler if not word.startswith("-D__CUDA_ARCH__="))
        made = self._file("o", _HOST)
        compile_ = self._words((made if word == self._object else word for word in kept), _HOST)
        inputs = [self._file(_MODULE_ID), self._file(_STUB, _HOST), self._file(_FATBIN_SOURCE, _HOST)]
        piece = Piece([self._words([*cudafe[:-1], text], _HOST), compile_], made, text, inputs)
        return self._cached(piece, f"{_HOST}.o")

    def _choose_stub(self, name: str) -> None:
        """Write the stub for the host, from that of the architecture that nvcc uses.

        ``name``: the stub's file name in the command of ``cudafe++``. The stub's path and the numbers in
        names that ``cicc`` makes (``__T449``) differ between architectures, so they are replaced by constant
        ones.
        """
        cicc = next(
            step for step in self._steps if after(step.words, "--stub_file_name").endswith(f"/{name}")
        )
        made = self._virtual.get(self._known(cicc.output), next(iter(self._virtual.values())))
        theirs, ours = self._file(_STUB, made), self._file(_STUB, _HOST)
        text = Path(theirs).read_text(encoding="utf-8").replace(theirs, ours)
        names = list(dict.fromkeys(re.findall(r"\b__T\d+\b", text)))
        numbered = re.sub(r"\b__T\d+\b", lambda name: f"__T{names.index(name[0])}", text)
        Path(ours).write_text(numbered, encoding="utf-8")

    def _preprocessed(self, file: str, place: str, *, quiet: bool = False) -> str:
        command = self._words(self._maker(file).words, place)
        piece = Piece([command], self._constant(file, place), self._source, [])
        made = self._cached(piece, f"{place}.ii", quiet=quiet)
        self._read.append(f"{made}.d")
        return made

    def _words(self, words: Iterable[str], place: str) -> Command:
        return [self._constant(word, place) for word in words if word != "--gen_module_id_file"]

    def _constant(self, word: str, place: str) -> str:
        if word.startswith("-D__CUDA_ARCH_LIST__="):
            return f"-D__CUDA_ARCH_LIST__={os.environ[_ARCH_LIST]}"
        if architecture := _VIRTUAL.fullmatch(place):
            if word.startswith("-D__CUDA_ARCH__="):
                return f"-D__CUDA_ARCH__={architecture['number']}0"
            if _VIRTUAL.fullmatch(word):  # one that nvcc knows
                return min(word, place, key=_number)
        match = _TEMPORARY.fullmatch(word)
        if match is None:
            return word
        if not match["folder"]:  # a name in an #include, without a folder
            return match["name"]
        return self._file(match["name"], "" if match["name"] == _MODULE_ID else place)

    def _cached(self, piece: Piece, name: str, *, quiet: bool = False) -> str:
        """Make ``piece``, or get it from ccache, as ``name`` in the unit's folder; return its path."""
        output, text = self._file(name), json.dumps(asdict(piece))
        key = hashlib.sha256(text.encode()).hexdigest()
        files = ["-MD", "-MF", f"{output}.d", "-x", "cu", "-c", piece.source, "-o", output]
        told = {theirs: os.environ[ours] for ours, theirs in _FOR_CCACHE.items() if ours in os.environ}
        with _alone(int(key[:15], 16)):
            run(["ccache", _PIECE_MAKER, f"-DPIECE={key}", *files], {PIECE: text, **told}, quiet=quiet)
        return output

    def _write_dependencies(self) -> None:
        if file := after(self._argv, "-MF"):
            write_rule(file, after(self._argv, "-MT"), prerequisites(self._read))


@contextmanager
def _alone(place: int) -> Iterator[None]:
    """Lock the piece with the offset ``place`` in the pool's file ``pieces`` until the block ends.

    Builds of other variants wait meanwhile, and find the piece in ccache then. Without a pool there is no
    lock.
    """
    if folder := os.environ.get("UNIT_POOL"):
        with Path(folder, "pieces").open("a", encoding="ascii") as pieces:
            fcntl.fcntl(pieces, fcntl.F_OFD_SETLKW, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0))
            yield
    else:
        yield


def give_back_memory() -> None:
    """Give back the memory that the unit has until its PTX is made; its next pieces claim less, too."""
    everything = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)
    for descriptor in os.environ.pop(_UNTIL_PTX, "").split():
        with suppress(OSError):  # ccache may have closed it; the memory is given back when the unit ends
            fcntl.fcntl(int(descriptor), fcntl.F_OFD_SETLK, everything)


@contextmanager
def _further_slots(output: str, count: int, work: Callable[[], None]) -> Iterator[None]:
    """Run ``work`` in a thread for each further job slot, ``count`` at most, that the pool gives the unit.

    Waiting for slots stops when the block ends, because no work is left then. Raises what ``work`` raises.
    """
    if "UNIT_POOL" not in os.environ:
        yield
        return
    given: set[subprocess.Popen[bytes]] = set()

    def work_on(slot: subprocess.Popen[bytes]) -> None:
        if slot.stdout and slot.stdout.readline():
            given.add(slot)
            work()
        slot.communicate()  # closes its stdin, so that it gives the slot back

    argv = ["unit", "--spare", output]
    pipe = subprocess.PIPE
    with ThreadPoolExecutor(max(1, count)) as threads:  # a slot without a thread would be held unused
        slots = [subprocess.Popen(argv, stdin=pipe, stdout=pipe) for _ in range(count)]
        futures = [threads.submit(work_on, slot) for slot in slots]
        try:
            yield
        finally:
            for slot in slots:
                if slot not in given:
                    slot.terminate()
        for future in futures:
            future.result()


def _number(virtual: str) -> int:
    return int(re.sub(r"\D", "", virtual))


def _differ_in_headers(one: str, other: str) -> bool:
    """Return whether two texts differ in lines of the toolkit's headers alone."""
    return all(line == same for line, same in zip_longest(*map(_own_lines, (one, other))))


def _own_lines(text: str) -> Iterator[bytes]:
    """Yield the lines of a preprocessed text that are of no header of the toolkit."""
    toolkit = f"{Path(shutil.which(TOOLKITS_OWN) or '').parent.parent}/".encode()
    is_own = True
    with Path(text).open("rb") as lines:
        for line in lines:
            if marker := _LINE_MARKER.match(line):
                is_own = not marker["file"].startswith(toolkit)
            elif is_own:
                yield line


def _emptied(fatbin: Path) -> str:
    """Remove the data from the C source ``fatbin``, and return the name of the data's section."""
    text = fatbin.read_text(encoding="ascii")
    without = re.sub(r'^"\.quad .*\n', "", text, flags=re.MULTILINE)
    fatbin.write_text(re.sub(r"fatbinData\[\d+\]", "fatbinData[1]", without), encoding="ascii")
    return str(_DATA_SECTION.findall(text)[0])


def _without_dependencies(words: Sequence[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word in {"-MT", "-MF"}:
            next(rest)
        elif word != "-MD":
            yield word


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
