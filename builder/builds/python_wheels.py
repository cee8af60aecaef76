"""The wheels of the project's own Python packages, and the models that the service is shipped with."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from builder.adapters.archive.client_zipapp import build_client
from builder.adapters.archive.package_archive import EARLIEST_MTIME
from builder.adapters.archive.zip_file import EXECUTABLE, PLAIN, ZipWriter
from builder.builds.wiring import Wiring
from builder.files.atomic_write import part_file
from builder.formats.package_names import CLIENT
from builder.project.inputs import SELFTEST_MODEL, SELFTEST_TRANSFORMER

RUNTIME, SERVICE = "runtime", "service"
"""Folders of the Python projects."""

WHEEL_NAME = "ortpacks_runtime"
"""Name of the runtime layer's package.

Its wheel contains the client, which finds GPU and installed package.
"""

MODELS = "models"


def make_wheel(wiring: Wiring, project: str) -> Path:
    """Write the wheel of ``project`` to ``dist`` and return its path.

    The bytes depend on the sources alone: flit's own zip depends on Python's zlib and on the files' modes.
    Raises ``DiskError``.
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
    from builder.adapters.test_models.service_models import write_models  # noqa: PLC0415

    folder = wiring.dist / MODELS
    store = wiring.store(wiring.lock, wiring.reporter)
    with wiring.reporter.step("make the service's models"):
        wheels = (store.unpack(SELFTEST_TRANSFORMER), store.unpack(SELFTEST_MODEL))
        write_models(folder, wiring.cache / "made", *wheels)
    wiring.reporter.say(str(folder))
    return folder
