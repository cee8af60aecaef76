"""The work of the verbs client and install: the client for the packages in ``dist``, made and started."""

from __future__ import annotations

import sys
from pathlib import Path

from builder.adapters.archive.client_zipapp import INSPECTOR, build_client, build_inspector
from builder.builds.wiring import Wiring
from builder.files.atomic_write import write_file
from builder.files.digest import LocalFile
from builder.formats.index import build_index
from builder.formats.json_values import json_text
from builder.formats.package_names import CLIENT, INDEX
from builder.package.archive import manifest_of
from builder.release.dist_files import archives_in, stored
from builder.release.prepare import ROOTS
from builder.release.signing import roots_in


def write_client(wiring: Wiring, index: str | None) -> Path:
    """Write ``dist/ortpacks.pyz`` with the default index ``index``, and return its path.

    Without ``index`` the client is for ``dist`` and verifies no signature.
    """
    roots = roots_in(wiring.root / ROOTS) if index else []
    return build_client(wiring.root, wiring.dist / CLIENT, index, roots[-1] if roots else None)


def make_client(wiring: Wiring) -> Path:
    """Write client, inspector, and ``dist/index.json`` over the packages in ``dist``; return the client."""
    packages = archives_in(wiring.dist)
    client = write_client(wiring, None)
    inspector = build_inspector(wiring.root, wiring.dist / INSPECTOR)
    archive = wiring.archive(wiring.reporter)
    listed = [(manifest_of(package, archive), stored(LocalFile.of(package))) for package in packages]
    index = build_index("local", listed, wiring.project.models)
    write_file(wiring.dist / INDEX, json_text(index).encode())
    wiring.reporter.say(f"{client.name}, {inspector.name} and {INDEX} in {wiring.dist}")
    return client


def install(wiring: Wiring, index: str | None, prefix: str | None, layout: str) -> int:
    """Run the client on this machine and return its exit code."""
    program = ["-m", "builder.client"] if index else [str(make_client(wiring))]
    where = ["--index", index or str(wiring.dist), *(["--prefix", prefix] if prefix else [])]
    argv = [sys.executable, *program, "install", *where, "--layout", layout]
    return wiring.runner.run(argv, cwd=wiring.root, on_line=wiring.console.show, check=False).code
