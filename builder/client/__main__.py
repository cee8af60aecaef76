"""Starts the client: the only place of it that reads the real environment."""

from __future__ import annotations

import math
import os
import platform
import shutil
import site
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Tuple

from builder.client.answers import World
from builder.client.cli import main
from builder.client.commands import asker, worker
from builder.client.detect import Surroundings
from builder.client.web import Web, open_url
from builder.core.device import platform_of


def run() -> int:
    """The command in ``sys.argv``, on this machine."""
    env = dict(os.environ)  # noqa: TID251 the client's own composition root
    world = World(
        around=Surroundings(env=env, ask=asker(env), python=sys.executable or "python3"),
        web=Web(open=open_url, sleep=time.sleep, progress=_progress),
        platform=platform_of(platform.system(), platform.machine()),
        cores=os.cpu_count() or 1,
        ram_gib=_ram_gib(),
        say=_to_stderr,
        now=lambda: datetime.now(timezone.utc),
        free=lambda path: shutil.disk_usage(path).free,
        work=worker(env),
        environments=_environments(),
    )
    return main(sys.argv[1:], world, Path.home(), _to_stdout, _to_stderr)


def _environments() -> Tuple[Path, ...]:
    """Where this Python looks for packages, and where it would look for the user's."""
    named = (*sys.path, *site.getsitepackages(), site.getusersitepackages())
    return tuple(Path(name) for name in dict.fromkeys(named) if Path(name).is_dir())


def _ram_gib() -> int:
    """Rounded up: a 16 GiB machine keeps some for its firmware. 0 where the system does not say."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return 0
    return math.ceil(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r{done * 100 // total:3d} % of {total / 2**20:.1f} MiB{end}")
        sys.stderr.flush()


def _to_stdout(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(run())
