"""Run a program, a dockerd, on the double of the internet in a network namespace.

    python -m tests.doubles.internet FOLDER PROGRAM ARGUMENT...

``FOLDER`` is ``World.folder``. Run it as root below ``unshare --net --mount``.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

from tests.doubles.internet.name_server import serve_names
from tests.doubles.internet.sites import SiteServer
from tests.doubles.internet.world import GATEWAY, REGISTRY_PORT, World, registry_config


def main(folder: Path, argv: list[str]) -> int:
    """Run ``argv`` with the servers beside it and return its exit status."""
    world = World.of(folder)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["mount", "--bind", world.resolver, "/etc/resolv.conf"], check=True)
    sites = world.sites()
    for port in (80, 443):
        serve = SiteServer(sites, ("", port), tls=port == 443).serve_forever
        threading.Thread(target=serve, daemon=True).start()
    threading.Thread(target=serve_names, args=(GATEWAY, sites.knows), daemon=True).start()
    config = registry_config(world.folder, REGISTRY_PORT)
    with subprocess.Popen([world.registry_program(), "serve", config], stdout=subprocess.DEVNULL):
        return subprocess.run(
            argv, env={**os.environ, **world.authority.environment()}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
