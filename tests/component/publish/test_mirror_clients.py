"""Tests of a mirror with real clients, on a static server and as a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from builder.publish.preflight import Leniency
from builder.publish.prepare import PublishOptions
from tests.doubles.loopback import static_server
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, write_release
from tests.support.factories.mirroring import Stand
from tests.support.factories.releases import TEXTS, append_sum


def test_what_was_mirrored_can_be_installed_from_a_server_and_from_the_folder(
    stand: Stand, tmp_path: Path
) -> None:
    files = {**FILES, **TEXTS}
    shutil.rmtree(stand.dist)
    write_release(stand.dist, files=files)
    for package in sorted(stand.dist.glob("*.tar.zst")):
        append_sum(stand.dist, package)
    stand.mirror(PublishOptions(allow=Leniency(unresolved=True)))
    machines = [Machine(tmp_path / "online"), Machine(tmp_path / "offline")]
    with static_server(stand.root) as url:
        assert machines[0].run("install", "--mirror", url) == 0, machines[0].err
    assert machines[1].run("install", "--offline", str(stand.root / "latest")) == 0, machines[1].err
    for machine in machines:
        for name, data in files.items():
            assert (machine.prefix / "current" / name).read_bytes() == data
