"""This benchmark measures uploading an asset, in seconds and memory, against curl.

``python -m benchmarks.upload`` sends one file of noise to a server on loopback that reads and discards it.
The server is a process of its own, the same for all ways. In turn:

- ours: ``GitHub.upload``, as ``./run publish`` calls it, in a process that imports only what it needs;
- publish: the same in a process that has imported all that ``./run publish`` imports;
- curl: ``curl -X POST -T FILE``.

The file was just written, so that all ways find it in the page cache. Seconds are those of the request,
without the start of the process; for curl they are its ``time_total``. Of several runs the fastest counts,
since other load only slows. CPU seconds are the sender's alone; curl's include its start.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import shutil
import socket
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.measuring import Outcome, Way, answer, cpu_of_children, peak_of, served, take_turns
from builder.adapters.github.http import GitHubHttp
from builder.adapters.github.releases import GitHub
from builder.console import Console
from builder.files.digest import LocalFile
from builder.release.assets import Release

REPOSITORY = "owner/name"
BLOCK = 1 << 20
NOISE = 1 << 26
"""Size in bytes of the incompressible noise that is repeated to fill a file."""
WAYS = ("ours", "publish", "curl")
LIMITS = (0.8, 60e6)
"""The least share of curl's throughput, and the most bytes of memory."""


def main() -> None:
    """Print each way's seconds, throughput, ratio to curl's and peak memory."""
    asked = _arguments()
    if asked.serve:
        _serve(asked.file, asked.serve)
    elif asked.child:
        _child(asked.child, asked.file, asked.url, asked.sha256)
    else:
        _compare(asked)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.upload")
    parser.add_argument("--size", type=int, default=1_500_000_000, metavar="BYTES", help="of the file")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="of each way, in turn")
    parser.add_argument("--scratch", type=Path, metavar="FOLDER", help="where the file lies, for a while")
    for hidden in ("--child", "--url", "--sha256", "--serve"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _compare(asked: argparse.Namespace) -> None:
    names = [name for name in WAYS if name != "curl" or shutil.which("curl")]
    with tempfile.TemporaryDirectory(dir=asked.scratch, prefix="upload-benchmark-") as place:
        file = Path(place) / "asset.bin"
        sha256 = _make(file, asked.size)
        with served("benchmarks.upload", "--serve", sha256, "--file", str(file)) as url:
            ways = [Way(name=name, run=partial(_run, name, file, url, sha256)) for name in names]
            take_turns(ways, Path(place), asked.runs)
    _print(ways, asked.size)


def _make(file: Path, size: int) -> str:
    noise = hashlib.shake_256(b"upload").digest(NOISE)
    digest = hashlib.sha256()
    with file.open("wb") as stream:
        for start in range(0, size, NOISE):
            block = noise[: size - start]
            stream.write(block)
            digest.update(block)
    return digest.hexdigest()


def _run(name: str, file: Path, url: str, sha256: str, _empty: Path) -> Outcome:
    if name == "curl":
        before = cpu_of_children()
        seconds = float(answer(_curl(file, url)).stderr)
        return Outcome(seconds=seconds, cpu=cpu_of_children() - before)
    child = ["--child", name, "--file", str(file), "--url", url, "--sha256", sha256]
    return Outcome(**json.loads(answer([sys.executable, "-m", "benchmarks.upload", *child]).stdout))


def _curl(file: Path, url: str) -> list[str]:
    kind = ["-H", "Content-Type: application/octet-stream"]
    target = f"{url}/assets?name={file.name}"
    return [
        "curl",
        "-sS",
        "-X",
        "POST",
        *kind,
        "-T",
        str(file),
        "-o",
        "-",
        "-w",
        "%{stderr}%{time_total}",
        target,
    ]


def _child(name: str, file: Path, url: str, sha256: str) -> None:
    """Send one file and print the fields of an ``Outcome`` as JSON."""
    if name == "publish":
        importlib.import_module("builder.app.releases.releasing")
    console = Console(env={}, stream=sys.stderr)
    http = GitHubHttp(api=url, token="none", reporter=console, sleep=time.sleep, clock=time.time)  # noqa: S106
    host = GitHub(repository=REPOSITORY, http=http, reporter=console)
    release = Release("v1", True, (), url, id=1, upload_url=f"{url}/assets{{?name,label}}")
    begin, cpu = time.perf_counter(), time.process_time()
    host.upload(release, LocalFile(file, file.stat().st_size, sha256))
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "cpu": time.process_time() - cpu, "peak": peak_of()}))


def _serve(file: Path, sha256: str) -> None:
    """Receive uploads of the file, one at a time, answer as GitHub does, and print the server's address."""
    asset = {"id": 1, "name": file.name, "size": file.stat().st_size}
    body = json.dumps({**asset, "state": "uploaded", "digest": f"sha256:{sha256}"}).encode()
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(f"http://127.0.0.1:{server.getsockname()[1]}", flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                _swallow(connection)
                head = f"HTTP/1.1 201 Created\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode() + body)


def _swallow(connection: socket.socket) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(BLOCK)
    text, _, rest = head.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in text.split(b"\r\n")[1:])
    if b"expect" in fields:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    left = int(fields[b"content-length"]) - len(rest)
    room = bytearray(BLOCK)
    while left:
        got = connection.recv_into(room)
        if not got:
            return
        left -= got


def _print(ways: list[Way], size: int) -> None:
    curl = next((way for way in ways if way.name == "curl"), None)
    runs, (share, peak) = len(ways[0].outcomes), LIMITS
    print(f"{size:,} bytes, best of {runs}; wanted: {share:.0%} of curl, {peak / 1e6:.0f} MB at most")
    print(f"{'':8} seconds   MB/s  of curl  CPU s  peak MB")
    for way in ways:
        ratio = f"{curl.seconds / way.seconds:.0%}" if curl else ""
        memory = f"{way.peak / 1e6:.0f}" if way.peak else ""
        rate = size / way.seconds / 1e6
        print(f"{way.name:8} {way.seconds:7.2f} {rate:6.0f} {ratio:>8} {way.cpu:6.2f} {memory:>8}")


if __name__ == "__main__":
    main()
