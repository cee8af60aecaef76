"""The project's programs for its users: client, inspector, Python wheels, and the service's models."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from builder.config.inputs import SELFTEST_MODEL, SELFTEST_TRANSFORMER
from builder.files.atomic_write import part_file, write_file
from builder.files.digest import LocalFile
from builder.formats.index import build_index
from builder.formats.json_values import json_text
from builder.formats.package_names import CLIENT, INDEX
from builder.io.archive.client_zipapp import INSPECTOR, build_client, build_inspector
from builder.io.archive.package_writer import EARLIEST_MTIME
from builder.io.archive.unpacking import manifest_of
from builder.io.archive.zip_file import EXECUTABLE, PLAIN, ZipWriter
from builder.io.wiring import Wiring
from builder.publish.locations import archives_in, stored
from builder.publish.prepare import ROOTS
from builder.publish.signing import roots_in

RUNTIME, SERVICE = "runtime", "service"
"""Folders of the Python projects."""

WHEEL_NAME = "ortpacks_runtime"
"""Name of the runtime layer's package.

Its wheel contains the client, which finds GPU and installed package.
"""

MODELS = "models"


def make_wheel(wiring: Wiring, project: str) -> Path:
    """Write the wheel of ``project`` to ``dist`` and return its path.

    The bytes depend on the sources alone. Raises ``DiskError`` if the disk is full.
    """
    with tempfile.TemporaryDirectory(prefix=f"ortpacks-{project}-") as work:
        source = Path(work, project)
        shutil.copytree(wiring.root / project, source, ignore=shutil.ignore_patterns("__pycache__"))
        if (source / WHEEL_NAME).is_dir():
            build_client(wiring.root, source / WHEEL_NAME / CLIENT, None)
        argv = [sys.executable, "-m", "flit_core.wheel", "--outdir", work, str(source)]
        wiring.runner.run(argv, env={"SOURCE_DATE_EPOCH": str(EARLIEST_MTIME), **wiring.env})
        (made,) = Path(work).glob("*.whl")
        wheel = wiring.dist / made.name
        with ZipFile(made) as flits, part_file(wheel) as file, ZipWriter(file) as writer:
            for member in flits.infolist():
                mode = EXECUTABLE if member.external_attr >> 16 & 0o111 else PLAIN
                writer.compress(member.filename, [flits.read(member)], mode)
    wiring.reporter.say(str(wheel))
    return wheel


def make_models(wiring: Wiring) -> Path:
    """Write the models that ``/embed`` and ``/vad`` run to ``dist/models`` and return this folder.

    Raises ``TransferError`` and ``DiskError``.
    """
    # Imported late: onnx is slow to import.
    from builder.prove.sample_models import write_models  # noqa: PLC0415

    folder = wiring.dist / MODELS
    store = wiring.store(wiring.lock, wiring.reporter)
    with wiring.reporter.step("make the service's models"):
        wheels = (store.unpack(SELFTEST_TRANSFORMER), store.unpack(SELFTEST_MODEL))
        write_models(folder, wiring.cache / "made", *wheels)
    wiring.reporter.say(str(folder))
    return folder


def write_client(wiring: Wiring, index: str | None) -> Path:
    """Write ``dist/ortpacks.pyz`` with the default index ``index``, and return its path.

    Without ``index`` the client installs from the index beside it and verifies no signature.
    """
    roots = roots_in(wiring.root / ROOTS) if index else []
    return build_client(wiring.root, wiring.dist / CLIENT, index, *roots)


def make_client(wiring: Wiring) -> Path:
    """Write client, inspector, and ``dist/index.json`` over the packages in ``dist``; return the client."""
    packages = archives_in(wiring.dist)
    client = write_client(wiring, None)
    inspector = build_inspector(wiring.root, wiring.dist / INSPECTOR)
    listed = [(manifest_of(package), stored(LocalFile.of(package))) for package in packages]
    index = build_index("local", listed, wiring.project.models)
    write_file(wiring.dist / INDEX, json_text(index).encode())
    wiring.reporter.say(f"{client.name}, {inspector.name} and {INDEX} in {wiring.dist}")
    return client


def install_package(wiring: Wiring, index: str | None, prefix: str | None, layout: str) -> int:
    """Run the client on this machine and return its exit code."""
    program = ["-m", "builder.client"] if index else [str(make_client(wiring))]
    where = ["--index", index or str(wiring.dist), *(["--prefix", prefix] if prefix else [])]
    argv = [sys.executable, *program, "install", *where, "--layout", layout]
    return wiring.runner.run(argv, cwd=wiring.root, on_line=wiring.console.show, check=False).code
