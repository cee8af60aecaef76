"""A plug-in execution provider in C that this machine's compiler makes, and packages with it."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from builder.formats.json_values import json_text
from builder.formats.manifest import Manifest, PluginEntry
from tests.support.factories.releases import manifest

SOURCE = Path(__file__).with_name("plugin.c")
ENTRY = PluginEntry("lib/libonnxruntime_providers_cuda.so", ("CUDAExecutionProvider",), "1.24.4", 24, None)


def compiled(target: Path, code: Path | None = None, cudart: Path | None = None) -> Path:
    """Compile the double; with ``code``, a fatbin container, also the ``cudart`` that it is linked with."""
    target.parent.mkdir(parents=True, exist_ok=True)
    more = [f'-DCODE="{code}"', f"-L{cudart.parent}", f"-l:{cudart.name}"] if cudart else []
    argv: list[str | Path] = [
        "gcc",
        "-std=c11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fPIC",
        "-shared",
        "-o",
        target,
        SOURCE,
    ]
    done = subprocess.run([*argv, *more], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def described(name: str, capabilities: Mapping[str, str], oldest_host: str = ENTRY.oldest_host) -> Manifest:
    """Return the manifest of a package with the double."""
    entry = replace(ENTRY, oldest_host=oldest_host)
    return replace(manifest("modern"), name=name, capabilities=dict(capabilities), plugin=entry)


def installed(data: Path, *packages: Manifest) -> None:
    """Install packages under ``XDG_DATA_HOME``, as the client does; the last one is the one in use."""
    for package in packages:
        folder = data / "ortpacks/versions" / package.name
        compiled(folder / ENTRY.library)
        (folder / "manifest.json").write_text(json_text(package), encoding="utf-8")
        (folder / "gpu-package-info.json").write_text(json.dumps({"support": "native"}), encoding="utf-8")
        current = data / "ortpacks/current"
        current.unlink(missing_ok=True)
        current.symlink_to(f"versions/{package.name}")
