"""A plug-in in C that this machine's compiler makes, packages with it, and machines that run them."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from builder.formats.json_values import json_text
from builder.formats.manifest import Manifest, PluginEntry
from builder.prove.virtualcard.sessions import machine_with_gpus
from tests.doubles.release import FILES, HOST, PLUGINS, write_release
from tests.support import ROOT, ran
from tests.support.factories.releases import manifest
from tests.support.tables import data_text

ENTRY = PluginEntry("lib/libonnxruntime_providers_cuda.so", ("CUDAExecutionProvider",), "1.24.4", 24, None)

PROGRAM = data_text("programs/session-on-a-plugin.txt")


def compiled(target: Path, code: Path | None = None, cudart: Path | None = None) -> Path:
    """Compile the double; with ``code``, a fatbin container, also the ``cudart`` that it is linked with."""
    target.parent.mkdir(parents=True, exist_ok=True)
    more = [f'-DCODE="{code}"', f"-L{cudart.parent}", f"-l:{cudart.name}"] if cudart else []
    argv = ["gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", str(target)]
    source = str(Path(__file__).with_name("plugin.c"))
    done = ran([*argv, source, *more])
    assert done.returncode == 0, done.stderr
    return target


def described(name: str, capabilities: Mapping[str, str], oldest_host: str = "1.24.4") -> Manifest:
    """Return the manifest of a package with the double."""
    entry = replace(ENTRY, oldest_host=oldest_host)
    return replace(manifest("modern"), name=name, capabilities=dict(capabilities), plugin=entry)


def release_of_plugins(folder: Path) -> Path:
    """Write a release, ``folder/release``, with packages that have the double inside."""
    files = {name: content for name, content in FILES.items() if name != HOST}
    files[ENTRY.library] = compiled(folder / "plugin.so").read_bytes()
    forms = (".tar.zst", ".tar.gz")
    return write_release(folder / "release", files=files, builds=[PLUGINS], forms=forms).parent


@dataclass(frozen=True)
class Machine:
    """A machine whose client states its GPUs, and which finds as many below /sys."""

    folder: Path
    client: Path

    def install(self, *packages: Manifest) -> None:
        """Install packages as the client does; the last one is the one in use."""
        for package in packages:
            folder = self.folder / "ortpacks/versions" / package.name
            compiled(folder / ENTRY.library)
            (folder / "manifest.json").write_text(json_text(package), encoding="utf-8")
            (folder / "gpu-package-info.json").write_text("{}", encoding="utf-8")
            (self.folder / "ortpacks/current").unlink(missing_ok=True)
            (self.folder / "ortpacks/current").symlink_to(f"versions/{package.name}")

    def runs(
        self, cards: str, host: Path | None = None, named: Path | None = None, **given: object
    ) -> dict[str, Any]:
        """Return what the program says on GPUs of these capabilities, with the onnxruntime of ``host``.

        ``named`` is the plug-in of an image.
        """
        gpus = self.folder.with_name(f"sys-{len(list(self.folder.parent.iterdir()))}")
        argv = [*machine_with_gpus(gpus, 1 + cards.count(",")), sys.executable, "-B", "-c", PROGRAM]
        stated = {"ORTPACKS_FORCE_CC": cards, "ORTPACKS_FORCE_DRIVER": "580.65.06"}
        where = {"XDG_DATA_HOME": str(self.folder), "ORTPACKS_CLIENT": str(self.client)}
        where |= {"ORTPACKS_EP_LIBRARY": str(named)} if named else {}
        env = {**os.environ, **stated, **where, "PYTHONPATH": f"{host or ''}:{ROOT / 'runtime'}"}
        done = ran([*argv, json.dumps(given)], env=env)
        if done.returncode and "unshare" in done.stderr:
            pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))
