"""This benchmark measures an install, in seconds and memory, against the same by hand, and small commands.

``python -m benchmarks.install [--size BYTES]`` serves a release with one package, whose ``.tar.zst`` has
about that size, from a process of its own on loopback. These ways take turns, each with an empty folder:

- ours: ``ortpacks.pyz install`` as a user runs it, with the program ``zstd``;
- module: the same with ``backports.zstd``, as from Python 3.14 on;
- by hand: ``curl | tee >(sha256sum) | zstd -d | tar x``, which checks the archive after all is unpacked;
- synced: the same, and then ``sync`` of the unpacked files. Ours syncs each file before it switches;
- ours gz and by hand gz: the same package as ``.tar.gz``.

Of several runs the fastest counts, since other load only slows. Memory is the sum of the high-water marks of
the client and of the ``zstd`` that it starts. A second install, which hashes every file, is compared with
``sha256sum`` of the same files. That package holds no host library, so the client does not try one; a package
for the CPU does, and is installed and tried. Of ``detect``, ``env`` and ``select`` the CPU seconds count.

The last lines compare the figures with ``LIMITS``. Where one is over its limit, the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.measuring import (
    Outcome,
    Way,
    cpu_of_children,
    descendants,
    empty_folder,
    peak_of,
    served,
    take_turns,
)
from benchmarks.release import make_cpu_release, make_release
from builder.adapters.archive.client_zipapp import build_client
from builder.formats.package_names import Form

ROOT = Path(__file__).parents[1]
BARE = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
ENV = {**BARE, "ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_FORCE_DRIVER": "570.133.07"}
BY_HAND = (
    'set -eo pipefail; curl -sSf "$0" | tee >(sha256sum > sum) | {unpack} -dcq | tar x; '
    'until [ -s sum ]; do sleep 0.01; done; grep -q "$1" sum'
)
"""Script of the way by hand. It waits for ``sha256sum``, for which the shell does not wait."""
UNPACK = {Form.ZST: "zstd", Form.GZ: "gzip"}
LIMITS = {
    "ours, of by hand": 1.15,
    "module, of by hand": 1.15,
    "ours gz, of by hand gz": 1.15,
    "peak MB of an install": 150,
    "install of a package for the CPU, s": 3,
    "install again, s beyond sha256sum": 1,
    "detect, CPU s": 0.25,
    "env, CPU s": 0.15,
    "select, CPU s": 0.25,
}
COMMANDS = 9
"""Runs of each small command, of which the fastest counts."""


def main() -> None:
    """Print each way's seconds, ratio and memory, then all figures with their limits."""
    asked = _arguments()
    if asked.serve:
        _serve(asked.serve)
        return
    with tempfile.TemporaryDirectory(dir=asked.scratch, prefix="install-benchmark-") as name:
        place = Path(name)
        indexes = make_release(place / "release", asked.size)
        cpu = make_cpu_release(place / "cpu")
        pyz = build_client(ROOT, place / "ortpacks.pyz", None)
        with served("benchmarks.install", "--serve", str(place / "release")) as url:
            figures = _compare(_ways(pyz, url, indexes), place, asked.runs)
        with served("benchmarks.install", "--serve", str(cpu.parent)) as url:
            figures |= _cpu_package(pyz, f"{url}/{cpu.name}", place)
        figures |= _small(pyz, indexes[Form.ZST], place)
    lines, kept = judged(figures)
    print(*lines, sep="\n")
    sys.exit(not kept)


def judged(figures: Mapping[str, float]) -> tuple[list[str], bool]:
    """Return a line for each figure with its limit, and whether all limits were kept.

    A figure of a way that this machine cannot run is missing, and counts as kept.
    """
    lines = [
        f"{name:36} {figures[name]:8.2f}  limit {limit:g}{'  OVER' if figures[name] > limit else ''}"
        for name, limit in LIMITS.items()
        if name in figures
    ]
    return lines, all(value <= LIMITS[name] for name, value in figures.items())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.install")
    parser.add_argument("--size", type=int, default=1_500_000_000, metavar="BYTES", help="of the .tar.zst")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="of each way, in turn")
    parser.add_argument("--scratch", type=Path, metavar="FOLDER", help="needs 7 times the size, for a while")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _ways(pyz: Path, url: str, indexes: Mapping[Form, Path]) -> list[Way]:
    """Return the ways. Those of a form that no program here unpacks are missing."""
    bare, plain = [sys.executable, "-I", "-S"], [sys.executable, "-I"]
    install = {
        form: [str(pyz), "install", "--index", f"{url}/{index.name}", "--prefix", "."]
        for form, index in indexes.items()
    }
    hand = {form: _by_hand(form, url, index) for form, index in indexes.items()}
    synced = [*hand[Form.ZST][:2], f"{hand[Form.ZST][2]}; sync -f .; sync", *hand[Form.ZST][3:]]
    commands = {
        "ours": [*bare, *install[Form.ZST]],
        "module": [*plain, *install[Form.ZST]],
        "by hand": hand[Form.ZST],
        "synced": synced,
        "ours gz": [*bare, *install[Form.GZ]],
        "by hand gz": hand[Form.GZ],
    }
    if not shutil.which("zstd"):
        commands = {name: commands[name] for name in ("module", "ours gz", "by hand gz")}
    return [Way(name=name, run=partial(_timed, argv)) for name, argv in commands.items()]


def _by_hand(form: Form, url: str, index: Path) -> list[str]:
    (package,) = json.loads(index.read_text())["packages"]
    script = BY_HAND.format(unpack=UNPACK[form])
    return ["bash", "-c", script, f"{url}/{package['file']}", package["sha256"]]


def _compare(ways: list[Way], place: Path, runs: int) -> dict[str, float]:
    """Run the ways, print a table of them, and return the figures that have limits."""
    take_turns(ways, place, runs)
    seconds = {way.name: way.seconds for way in ways}
    print(f"{'':10} seconds  of by hand      CPU  peak MB")
    figures = {"peak MB of an install": max(way.peak for way in ways) / 1e6}
    for way in ways:
        hand = "by hand gz" if way.name.endswith("gz") else "by hand"
        ratio = f"{way.seconds / seconds[hand]:.2f}" if hand in seconds else ""
        print(f"{way.name:10} {way.seconds:7.2f} {ratio:>11} {way.cpu:8.2f} {way.peak / 1e6:8.0f}")
        if ratio:
            figures[f"{way.name}, of {hand}"] = way.seconds / seconds[hand]
    return {name: value for name, value in figures.items() if name in LIMITS}


def _cpu_package(pyz: Path, index: str, place: Path) -> dict[str, float]:
    """Install the package for the CPU from loopback, without a GPU."""
    argv = [sys.executable, "-I", "-S", str(pyz), "install", "--index", index, "--prefix", "."]
    way = Way(name="cpu", run=partial(_timed, argv, env=BARE))
    take_turns([way], place, 3)
    return {"install of a package for the CPU, s": way.seconds}


def _small(pyz: Path, index: Path, place: Path) -> dict[str, float]:
    """Return the figures of the second install and of the small commands."""
    client = [sys.executable, "-I", "-S", str(pyz)]
    with empty_folder(place) as empty:
        install = [*client, "install", "--index", str(index), "--prefix", "."]
        _timed(install, empty)
        again = min(_timed(install, empty).seconds for _ in range(3))
        hashed = min(_timed(["sh", "-c", "sha256sum current/lib/* > sum"], empty).seconds for _ in range(3))
        commands = (["detect"], ["env", "--prefix", "."], ["select", "--index", str(index)])
        return {"install again, s beyond sha256sum": again - hashed} | {
            f"{command[0]}, CPU s": min(
                _timed([*client, *command], empty, BARE if command == ["detect"] else ENV).cpu
                for _ in range(COMMANDS)
            )
            for command in commands
        }


def _timed(argv: list[str], folder: Path, env: Mapping[str, str] = ENV) -> Outcome:
    """Run a whole process in ``folder``, also its HOME, where ONNX Runtime writes, and return its outcome.

    A failure ends the benchmark with its output.
    """
    begin, before = time.perf_counter(), cpu_of_children()
    with subprocess.Popen(
        argv,
        cwd=folder,
        env={**env, "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        memory = _Memory(process.pid)
        said, _ = process.communicate()
    seconds = time.perf_counter() - begin
    if process.returncode:
        sys.exit(f"{argv} left with code {process.returncode}: {said}")
    return Outcome(seconds=seconds, cpu=cpu_of_children() - before, peak=memory.peak)


class _Memory(threading.Thread):
    """A thread that reads the high-water marks of a process and its children until the process ends."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._marks: dict[int, int] = {}
        self.start()

    @property
    def peak(self) -> int:
        """Sum of the high-water marks in bytes, known when the process has ended."""
        self.join()
        return sum(self._marks.values())

    def run(self) -> None:
        while peak_of(self._pid) is not None:
            marks = {pid: peak_of(pid) for pid in (self._pid, *descendants(self._pid))}
            self._marks |= {pid: mark for pid, mark in marks.items() if mark is not None}
            time.sleep(0.02)


def _serve(folder: Path) -> None:
    """Serve the folder's files over HTTP with ``sendfile``, and print the server's address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with (folder / Path(self.path).name).open("rb") as file:
                self.send_response(200)
                self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
                self.end_headers()
                self.connection.sendfile(file)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
