"""This benchmark measures the memory of releasing a folder of packages, on each kind of host.

``python -m benchmarks.publishing DIST`` runs the verbs that users run, verification included:
``publish`` to the double of GitHub, ``mirror`` into a folder and into Debian's ``docker-registry``. DIST gets
the release's other files, as from these verbs.

Memory is that of the verb's process and of all that it starts, without servers and the engine's containers:
the sum of their proportional shares, read every 50 ms, and the high-water mark of the largest process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.measuring import empty_folder, peak_of
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.support.cache_servers import registry_server

LIMIT = 300e6
"""The most bytes that all processes of a verb together may take."""

_PAUSE = 0.05

_ALLOW = ("--allow-mixed", "--allow-unresolved", "--allow-lean", "--allow-partial")

_HOSTS = ("`publish` to the double of GitHub", "`mirror` to a folder", "`mirror` to a registry")


def main() -> None:
    """Print each verb's seconds and memory; exit with 1 if one is over the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publishing")
    parser.add_argument("dist", type=Path, help="the folder with packages, as for ./run publish --dist")
    parser.add_argument("--scratch", type=Path, metavar="FOLDER", help="where each release lies, for a while")
    asked = parser.parse_args()
    size = sum(file.stat().st_size for file in asked.dist.glob("ortpacks-*.tar.*") if file.is_file())
    print(f"| {size / 1e6:,.0f} MB of packages | seconds | all processes, MB | largest process, MB |")
    print("|---|---|---|---|", flush=True)
    peaks = []
    with tempfile.TemporaryDirectory(dir=asked.scratch, prefix="publishing-benchmark-") as place:
        for host in _HOSTS:
            with empty_folder(Path(place)) as empty, _verb(host, empty) as (words, env):
                seconds, together, largest = run([*words, "--dist", str(asked.dist), *_ALLOW], env)
            peaks.append(together)
            print(f"| {host} | {seconds:.0f} | {together / 1e6:.0f} | {largest / 1e6:.0f} |", flush=True)
    sys.exit(max(peaks) > LIMIT)


@contextmanager
def _verb(host: str, folder: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the words and the environment of a verb that releases to a host with its files in ``folder``."""
    if host == _HOSTS[0]:
        with GitHubDouble(folder).running() as double:
            words = ["publish", "--api", double.url, "--repository", REPOSITORY, "--allow-mutable"]
            yield words, {"GITHUB_TOKEN": TOKEN}
    elif host == _HOSTS[1]:
        yield ["mirror", "--to", str(folder / "mirror")], {}
    else:
        with registry_server(folder) as server:
            yield ["mirror", "--to", f"oci://127.0.0.1:{server.port}/owner/name"], {}


def run(words: Sequence[str], env: dict[str, str]) -> tuple[float, int, int]:
    """Run a verb; return its seconds, the peak of all its processes and that of the largest, in bytes.

    A verb that fails ends the benchmark with its output.
    """
    begin, together, largest = time.perf_counter(), 0, 0
    argv = [sys.executable, "-m", "builder.app.command_line", *words]
    with (
        tempfile.TemporaryFile("w+") as told,
        subprocess.Popen(argv, env={**os.environ, **env}, stdout=told, stderr=told) as process,
    ):
        while process.poll() is None:
            running = [process.pid, *descendants(process.pid)]
            together = max(together, sum(map(share_of, running)))
            largest = max(largest, *(peak_of(one) or 0 for one in running))
            time.sleep(_PAUSE)
        told.seek(0)
        if process.returncode:
            sys.exit(told.read())
    return time.perf_counter() - begin, together, largest


def descendants(process: int) -> Iterable[int]:
    """Yield the ids of all processes below one; those that end meanwhile are left out."""
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from descendants(child)


def share_of(process: int) -> int:
    """Return a process's share of the memory that it uses, in bytes; 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main()
