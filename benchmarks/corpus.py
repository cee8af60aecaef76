"""This program reads the wheels of ``tests/corpus.txt``, compares the readings and writes atlas records.

    python -m benchmarks.corpus                   each wheel of tests/corpus.txt that has no record yet
    python -m benchmarks.corpus --again NAME...   the wheels of these projects once more

A line of the list has a project, its version, the file's name and its sha256. Each wheel is fetched, read in
a process of its own, whose peak memory goes into the record, compared with other readers and removed; at most
one wheel is on the disk.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.second_readers import Cuobjdump, pe_file, search, summed
from builder.config.inputs import Input, Lock, Pin
from builder.inspect.atlas import fetched, opened, record_file, write_record
from builder.inspect.report.wheel_record import WheelRecord, loads
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.corpus import ListedWheel, corpus
from tests.support.factories.nvidia import unpack_cuobjdump

CUOBJDUMP = Input.wheel("nvidia-cuda-cuobjdump==13.5.37")

_PIN = Pin(
    filename="nvidia_cuda_cuobjdump-13.5.37-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    sha256="38780fee50863252a0b8926357faa91615ca1c8346490563f33a06100cd73f58",
    size=290_354,
)


def main() -> None:
    """Read the wheels; exit with 1 if a wheel could not be read or a difference has no reason."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus")
    parser.add_argument("--again", nargs="+", metavar="NAME", default=())
    parser.add_argument("--one", metavar="FILENAME", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    lines = corpus()
    if asked.one:
        _read(next(line for line in lines if line.pin.filename == asked.one))
        return
    failed = [line for line in lines if _is_wanted(line, asked.again) and not _started(line)]
    open_ones = [text for record in _records() for one in record.compared for text in one.unexplained]
    print("\n".join([*(f"not read: {line.pin.filename}" for line in failed), *open_ones]))
    sys.exit(bool(failed or open_ones))


def _is_wanted(line: ListedWheel, again: tuple[str, ...]) -> bool:
    return line.name in again if again else not _place(line).is_file()


def _place(line: ListedWheel) -> Path:
    return record_file(ROOT, line.pin.filename)


def _records() -> Iterator[WheelRecord]:
    for line in corpus():
        if _place(line).is_file():
            yield loads(_place(line).read_bytes(), line.pin.filename)


def _started(line: ListedWheel) -> bool:
    argv = [sys.executable, "-m", "benchmarks.corpus", "--one", line.pin.filename]
    return subprocess.run(argv, check=False, cwd=ROOT).returncode == 0


def _read(line: ListedWheel) -> None:
    wiring = Wiring(ROOT)
    with fetched(wiring, f"{line.name}=={line.version}", line.pin) as wheel, opened(wiring, wheel) as found:
        with TemporaryDirectory() as folder:
            tool = Cuobjdump(_newest(wiring), unpack_cuobjdump(Path(folder)))
            pairs = [(item, found.files[item.name]) for item in found.libraries]
            readings = (
                summed("cuobjdump 13.5.37", [tool.read(*pair) for pair in pairs]),
                summed(f"pefile {version('pefile')}", [pe_file(*pair) for pair in pairs]),
                summed("search for headers", [search(*pair) for pair in pairs]),
            )
        compared = tuple(reading for reading in readings if reading.libraries)
        write_record(wiring, replace(found.record, compared=compared))


def _newest(wiring: Wiring) -> Path:
    tree = wiring.store(Lock(pins={CUOBJDUMP.key: _PIN})).unpack(CUOBJDUMP)
    program = next(path for path in tree.rglob("cuobjdump") if path.is_file())
    program.chmod(0o755)
    return program


if __name__ == "__main__":
    main()
