"""Factories of small packages: by the real adapter, and by Python's ``tarfile``."""

import hashlib
import resource
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from builder.config.variants import Preset
from builder.contents.package_manifest import Content, Member
from builder.files.digest import Digest, LocalFile
from builder.formats.package_names import Form
from builder.io.archive.package_writer import PackageWriter
from tests.doubles import release
from tests.support.fakes.ports import FakeReporter

NAME = "ortpacks-modern-1.23.2-cuda12.9-linux-x64"

MANIFEST = b'{"format": 1}\n'


def archive(workers: int = 1) -> PackageWriter:
    return PackageWriter(reporter=FakeReporter(), workers=workers)


def accept(_: LocalFile) -> None: ...


def content(folder: Path, files: Mapping[str, bytes], manifest: bytes = MANIFEST) -> Content:
    members = []
    for number, (path, data) in enumerate(files.items()):
        file = folder / f"input{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        member = Member(path=path, file=file, source="built", licence="LICENSE", vendor="ortpacks")
        members.append(member.of_bytes(Digest(len(data), hashlib.sha256(data).hexdigest())))
    return Content(manifest=manifest, members=tuple(members))


FILES = {"lib/libcudnn.so.9": b"cudnn" * 999, "LICENSE": b"MIT\n", "lib/libb.so": b"\x7fELF"}


def pack(
    folder: Path,
    files: dict[str, bytes],
    *,
    workers: int = 1,
    preset: Preset = Preset.FAST,
    form: Form = Form.ZST,
) -> Path:
    dest = folder / f"{NAME}{form.value}"
    archive(workers).write(dest, content(folder / "in", files), preset, accept)
    return dest


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let this process write no file beyond ``size`` bytes, so that a write fails like on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def pack_raw(folder: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """Write a package of these members with ``tarfile``, without the project's rules, and return its path."""
    dest = folder / f"{NAME}.tar.zst"
    dest.write_bytes(release.archive([*members]))
    return dest
