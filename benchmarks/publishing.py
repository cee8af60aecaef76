"""This benchmark releases a folder of packages on each kind of host, and installs them from there.

``python -m benchmarks.publishing DIST`` runs the verbs that users run, verification included:
``publish`` to the double of GitHub, ``mirror`` into a folder and into Debian's ``docker-registry``. Each
release is signed with new keys in a clone of this project. Then the release's ``ortpacks.pyz``, which has
nothing but its pinned root, installs from there for a card of each generation and for a machine without one.
DIST gets the release's other files, as from these verbs.

Memory is that of the verb's process and of all that it starts, without servers and the engine's containers:
the sum of their proportional shares, read every 50 ms, and the high-water mark of the largest process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from benchmarks.measuring import answer, descendants, empty_folder, peak_of
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.doubles.loopback import static_server
from tests.support import ROOT
from tests.support.cache_servers import registry_server

LIMIT = 300e6
"""The most bytes that all processes of a verb together may take."""

_PAUSE = 0.05

_CARDS = ("5.2", "8.6", "12.0", None)
"""Capability of each machine that installs; ``None``: no GPU."""

_HOSTS = ("`publish` to the double of GitHub", "`mirror` to a folder", "`mirror` to a registry")


def main() -> None:
    """Print each verb's seconds and memory and what was installed; exit with 1 if one is over the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publishing")
    parser.add_argument("dist", type=Path, help="the folder with packages, as for ./run publish --dist")
    parser.add_argument("--scratch", type=Path, metavar="FOLDER", help="where each release lies, for a while")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=("lean", "mixed", "partial", "unresolved"),
        help="pass --allow-lean and so on to the verbs; may be given more than once",
    )
    asked = parser.parse_args()
    dist = asked.dist.absolute()
    size = sum(file.stat().st_size for file in dist.glob("ortpacks-*.tar.*") if file.is_file())
    print(
        f"| {size / 1e6:,.0f} MB of packages | seconds | all processes, MB | largest process, MB | installs |"
    )
    print("|---|---|---|---|---|", flush=True)
    peaks = []
    with tempfile.TemporaryDirectory(dir=asked.scratch, prefix="publishing-benchmark-") as place:
        project, key = clone_with_keys(Path(place))
        more = ["--dist", str(dist), "--sign", str(key), *(f"--allow-{what}" for what in asked.allow)]
        for host in _HOSTS:
            with empty_folder(Path(place)) as empty, _verb(host, empty) as (words, env, index):
                seconds, together, largest = run([*words, *more], env, project)
                installed = ", ".join(install(dist / "ortpacks.pyz", index, card, empty) for card in _CARDS)
            peaks.append(together)
            memory = f"{together / 1e6:.0f} | {largest / 1e6:.0f}"
            print(f"| {host} | {seconds:.0f} | {memory} | {installed} |", flush=True)
    sys.exit(max(peaks) > LIMIT)


def clone_with_keys(place: Path) -> tuple[Path, Path]:
    """Return a clone of this project with a root of two keys, which both have signed, and a release key."""
    project = place / "project"
    answer(["git", "clone", "--quiet", str(ROOT), str(project)])
    first, second, release = (_write_key(place / name) for name in ("first", "second", "release"))
    keys = [f"--root-key={first.public}", f"--root-key={second.public}", f"--release-key={release.public}"]
    run(["root", *keys, "--threshold=2", f"--sign={first.private}"], {}, project)
    run(["root", f"--sign={second.private}"], {}, project)
    return project, release.private


class _Key(NamedTuple):
    private: Path
    public: Path


def _write_key(path: Path) -> _Key:
    key = Ed25519PrivateKey.generate()
    made = _Key(path.with_suffix(".pem"), path.with_suffix(".pub"))
    made.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    made.public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return made


@contextmanager
def _verb(host: str, folder: Path) -> Iterator[tuple[list[str], dict[str, str], str]]:
    """Yield a verb that releases to a host with its files in ``folder``: words, environment, index."""
    if host == _HOSTS[0]:
        with GitHubDouble(folder / "github", immutable=True).running() as double:
            double.admin = True  # else nobody may read whether releases are immutable
            words = ["publish", "--api", double.url, "--repository", REPOSITORY]
            index = f"{double.url}/{REPOSITORY}/releases/latest/download/index.json"
            yield words, {"GITHUB_TOKEN": TOKEN}, index
    elif host == _HOSTS[1]:
        (folder / "mirror").mkdir()
        with static_server(folder / "mirror") as url:
            yield ["mirror", "--to", str(folder / "mirror")], {}, f"{url}/latest/index.json"
    else:
        with registry_server(folder) as server:
            name = f"oci://127.0.0.1:{server.port}/owner/name"
            yield ["mirror", "--to", name], {}, f"{name}:latest"


def install(client: Path, index: str, card: str | None, folder: Path) -> str:
    """Install from ``index`` for a card; return the card, the variant and the seconds that it took."""
    home = folder / "home"
    home.mkdir()
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    if card is not None:
        env |= {"ORTPACKS_FORCE_CC": card, "ORTPACKS_FORCE_DRIVER": "575.57.08"}
    begin = time.perf_counter()
    argv = [sys.executable, "-I", "-S", str(client), "install", "--yes", "--json", "--index", index]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    seconds = time.perf_counter() - begin
    shutil.rmtree(home)
    package = json.loads(done.stdout)["package"]
    return f"{card or 'no GPU'}: {package['variant'] if package else 'none'} ({seconds:.0f} s)"


def run(words: Sequence[str], env: dict[str, str], project: Path = ROOT) -> tuple[float, int, int]:
    """Run a verb; return its seconds, the peak of all its processes and that of the largest, in bytes.

    ``project``: the folder whose code and keys it uses. A verb that fails ends the benchmark with its output.
    """
    begin, together, largest = time.perf_counter(), 0, 0
    argv = [sys.executable, "-m", "builder.app.command_line", *words]
    with (
        tempfile.TemporaryFile("w+") as told,
        subprocess.Popen(argv, cwd=project, env={**os.environ, **env}, stdout=told, stderr=told) as process,
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


def share_of(process: int) -> int:
    """Return a process's share of the memory that it uses, in bytes; 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main()
