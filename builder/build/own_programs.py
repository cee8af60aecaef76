"""The project's programs for its users: client, inspector, packages for pip and npm, the service's models."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from zlib_ng import zlib_ng

from builder.config.inputs import SELFTEST_MODEL, SELFTEST_TRANSFORMER
from builder.files.atomic_write import part_file, write_file
from builder.files.digest import LocalFile, file_digest
from builder.formats.index import build_index
from builder.formats.json_values import json_text
from builder.formats.package_names import CLIENT, INDEX, INSTALL_SCRIPT
from builder.io.archive.client_zipapp import INSPECTOR, build_client, build_inspector
from builder.io.archive.package_writer import EARLIEST_MTIME
from builder.io.archive.unpacking import manifest_of
from builder.io.archive.zip_file import EXECUTABLE, LEVEL, PLAIN, ZipWriter
from builder.io.templates import template_environment
from builder.io.wiring import Wiring
from builder.publish.locations import archives_in, stored
from builder.publish.prepare import ROOTS
from builder.publish.signing import roots_in

RUNTIME, SERVICE, PYPI, NPM = "runtime", "service", "pypi", "npm"
"""Folders of the Python projects, and of the package for Node."""

BESIDE_CLIENT = ("ortpacks-*-py3-none-any.whl", "ortpacks-[0-9]*.tgz", INSTALL_SCRIPT)
"""Patterns of the names of what brings ``ortpacks.pyz`` to a machine: by pip, by npm, by a shell."""

MODELS = "models"


def make_wheel(wiring: Wiring, project: str) -> Path:
    """Write the wheel of ``project`` to ``dist`` and return its path.

    That of ``PYPI`` has ``dist/ortpacks.pyz`` inside. The bytes depend on the sources alone. Raises
    ``DiskError`` if the disk is full.
    """
    with tempfile.TemporaryDirectory(prefix=f"ortpacks-{project}-") as work:
        source = Path(work, project)
        shutil.copytree(wiring.root / project, source, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(wiring.root / "LICENSE", source)
        if project == RUNTIME:  # the client finds GPU and installed package for it
            build_client(wiring.root, source / "ortpacks_runtime" / CLIENT, None)
        if project == PYPI:
            shutil.copyfile(wiring.dist / CLIENT, source / "ortpacks" / CLIENT)
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


def make_npm_package(wiring: Wiring) -> Path:
    """Write the package for Node, with ``dist/ortpacks.pyz`` inside, to ``dist`` and return its path.

    It has the files that npm itself would pack. The bytes depend on the sources alone. Raises ``DiskError``.
    """
    source, packed = wiring.root / NPM, BytesIO()
    described = json.loads((source / "package.json").read_text("utf-8"))
    names = {"LICENSE": wiring.root, CLIENT: wiring.dist}
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in sorted({"LICENSE", "README.md", "package.json", *described["files"]}):
            content = (names.get(name, source) / name).read_bytes()
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mtime, member.mode = len(content), EARLIEST_MTIME, PLAIN
            archive.addfile(member, BytesIO(content))
    package = wiring.dist / f"ortpacks-{described['version']}.tgz"
    write_file(package, zlib_ng.compress(packed.getvalue(), LEVEL, zlib_ng.MAX_WBITS + 16))  # 16: gzip
    wiring.reporter.say(str(package))
    return package


def write_install_script(wiring: Wiring, downloads: str) -> Path:
    """Write ``dist/install.sh`` and return its path.

    The script fetches ``ortpacks.pyz`` from the address ``downloads``, and accepts that of ``dist`` alone.
    """
    text = (
        template_environment(wiring.loader)
        .get_template(f"{INSTALL_SCRIPT}.j2")
        .render(downloads=downloads, client=CLIENT, sha256=file_digest(wiring.dist / CLIENT).sha256)
    )
    write_file(wiring.dist / INSTALL_SCRIPT, text.encode())
    return wiring.dist / INSTALL_SCRIPT


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
    """Write the programs, and ``dist/index.json`` over the packages in ``dist``; return the client.

    The programs are client, inspector, and the client's packages for pip and npm.
    """
    packages = archives_in(wiring.dist)
    client = write_client(wiring, None)
    inspector = build_inspector(wiring.root, wiring.dist / INSPECTOR)
    make_wheel(wiring, PYPI)
    make_npm_package(wiring)
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
