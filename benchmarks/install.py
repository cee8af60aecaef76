"""This benchmark measures installing a package, in seconds and memory, against the same by hand.

``python -m benchmarks.install [--size BYTES]`` serves a release with one package, whose archive has about
that size, from a process of its own on loopback. These ways take turns, each with an empty folder:

- ours: ``ortpacks.pyz install`` as a user runs it, with the program ``zstd``;
- module: the same with ``backports.zstd``, as from Python 3.14 on;
- by hand: ``curl | tee >(sha256sum) | zstd -d | tar x``, which checks the archive after all is unpacked;
- synced: the same, and then ``sync`` of the unpacked files. Ours syncs each file before it switches.

Of several runs the fastest counts, since other load only slows. Memory is the sum of the high-water marks of
the client and of the ``zstd`` that it starts. ``detect``, ``select``, and a second install, which hashes
every file, are measured last; the second install is compared with ``sha256sum`` of the same files. The
package holds no host library, so the client does not try one.
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.measuring import Outcome, Way, cpu_of_children, empty_folder, peak_of, served, take_turns
from benchmarks.release import make_release
from builder.formats.index import loads
from builder.gpu.architectures import Capability
from builder.gpu.devices import Device
from builder.pipeline.client_zipapp import build_client
from builder.selection.select import select

ROOT = Path(__file__).parents[1]
ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "ORTPACKS_FORCE_CC": "8.6",
    "ORTPACKS_FORCE_DRIVER": "570.133.07",
}
BY_HAND = (
    'set -eo pipefail; curl -sSf "$0" | tee >(sha256sum > sum) | zstd -dcq | tar x; '
    'until [ -s sum ]; do sleep 0.01; done; grep -q "$1" sum'
)
"""Script of the way by hand. It waits for ``sha256sum``, for which the shell does not wait."""
LIMITS = {"ours of by hand": 1.3, "MB": 150, "detect": 0.5, "select": 0.02, "again": 1.0}
"""Upper limits: a ratio, megabytes, then seconds. ``again`` counts the seconds beyond the hashing."""


def main() -> None:
    """Print each way's seconds, ratio and memory, then the small commands."""
    asked = _arguments()
    if asked.serve:
        _serve(asked.serve)
        return
    with tempfile.TemporaryDirectory(dir=asked.scratch, prefix="install-benchmark-") as name:
        place = Path(name)
        index = make_release(place / "release", asked.size)
        pyz = build_client(ROOT, place / "ortpacks.pyz", None)
        with served("benchmarks.install", "--serve", str(index.parent)) as url:
            _compare(_ways(pyz, url, index), place, asked.runs)
        _small(pyz, index, place)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.install")
    parser.add_argument("--size", type=int, default=1_500_000_000, metavar="BYTES", help="of the archive")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="of each way, in turn")
    parser.add_argument("--scratch", type=Path, metavar="FOLDER", help="needs 6 times the size, for a while")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _ways(pyz: Path, url: str, index: Path) -> list[Way]:
    (package,) = json.loads(index.read_text())["packages"]
    hand = ["bash", "-c", BY_HAND, f"{url}/{package['file']}", package["sha256"]]
    synced = [*hand[:2], f"{BY_HAND}; sync -f .; sync", *hand[3:]]
    install = [str(pyz), "install", "--index", f"{url}/index.json", "--prefix", "."]
    ways = [
        Way(name="ours", run=lambda empty: _timed([sys.executable, "-I", "-S", *install], empty)),
        Way(name="module", run=lambda empty: _timed([sys.executable, "-I", *install], empty)),
        Way(name="by hand", run=lambda empty: _timed(hand, empty)),
        Way(name="synced", run=lambda empty: _timed(synced, empty)),
    ]
    return [way for way in ways if way.name == "module" or shutil.which("zstd")]


def _compare(ways: list[Way], place: Path, runs: int) -> None:
    take_turns(ways, place, runs)
    hand = next((way.seconds for way in ways if way.name == "by hand"), None)
    print(f"{'':10} seconds  of by hand      CPU  peak MB")
    for way in ways:
        ratio = f"{way.seconds / hand:.2f}" if hand else ""
        print(f"{way.name:10} {way.seconds:7.2f} {ratio:>11} {way.cpu:8.2f} {way.peak / 1e6:8.0f}")


def _small(pyz: Path, index: Path, place: Path) -> None:
    """Print the seconds of the second install, of ``detect`` and of ``select``."""
    client = [sys.executable, "-I", "-S", str(pyz)]
    with empty_folder(place) as empty:
        install = [*client, "install", "--index", str(index), "--prefix", "."]
        _timed(install, empty)
        again = min(_timed(install, empty).seconds for _ in range(3))
        hashed = min(_timed(["sh", "-c", "sha256sum current/lib/* > sum"], empty).seconds for _ in range(3))
    bare = {name: value for name, value in ENV.items() if not name.startswith("ORTPACKS_")}
    detect = min(_timed([*client, "detect"], place, bare).seconds for _ in range(5))
    command = min(_timed([*client, "select", "--index", str(index)], place).seconds for _ in range(5))
    print(f"install again {again:.2f} s, sha256sum of its files {hashed:.2f} s: {again - hashed:+.2f} s")
    print(f"detect {detect:.2f} s, select {command:.2f} s, of it choosing {_choosing(index) * 1000:.2f} ms")


def _choosing(index: Path) -> float:
    """Return the seconds of the choice alone, without reading the index."""
    device = Device(
        index=0,
        name="GPU",
        uuid="",
        capability=Capability.parse("8.6"),
        memory_mib=8192,
        driver=None,
        mig=None,
    )
    offered = loads(index.read_text(), "index.json")
    begin = time.perf_counter()
    select((device,), offered, "linux-x64", "2.36")
    return time.perf_counter() - begin


def _timed(argv: list[str], folder: Path, env: dict[str, str] | None = None) -> Outcome:
    """Run a whole process in ``folder`` and return its outcome.

    A failure ends the benchmark with its output.
    """
    begin, before = time.perf_counter(), cpu_of_children()
    with subprocess.Popen(
        argv, cwd=folder, env=env or ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
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
        while self._look(self._pid):
            time.sleep(0.02)

    def _look(self, pid: int) -> bool:
        mark = peak_of(pid)
        if mark is not None:
            self._marks[pid] = mark
            for child in _children(pid):
                self._look(child)
        return mark is not None


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


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
