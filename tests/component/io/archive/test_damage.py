"""Tests that a damaged or hostile archive is refused and writes nothing outside its folder."""

import gzip
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd

from builder.errors import IntegrityError, ValidationError
from builder.formats.package_names import Form
from builder.io.archive.unpacking import extract, manifest_bytes
from tests.support.factories.archiving import MANIFEST, NAME, pack, pack_raw
from tests.support.messages import Refused


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


OUTSIDE = ("/etc/passwd", f"{NAME}/../../escape", f"{NAME}/lib/./x", f"{NAME}//etc/x", f"{NAME}\\..\\x")


@pytest.mark.parametrize(
    "info",
    [
        *map(tarfile.TarInfo, (*OUTSIDE, "other/lib/x", NAME, f"{NAME}/manifest.json")),
        link(f"{NAME}/lib/x", "/etc/passwd", tarfile.SYMTYPE),
        link(f"{NAME}/lib/x", f"{NAME}/manifest.json", tarfile.LNKTYPE),
        link(f"{NAME}/lib/x", "", tarfile.CHRTYPE),
        link(f"{NAME}/lib/x", "", tarfile.FIFOTYPE),
        link(f"{NAME}/lib", "", tarfile.DIRTYPE),
    ],
    ids=lambda info: f"{info.name}-{info.type.decode()}",
)
def test_only_regular_files_below_the_own_folder_are_unpacked(tmp_path: Path, info: tarfile.TarInfo) -> None:
    package = pack_raw(tmp_path, (tarfile.TarInfo(f"{NAME}/manifest.json"), MANIFEST), (info, b""))
    with pytest.raises(IntegrityError):
        extract(package, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["manifest.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [package.name, "out"]


def test_a_package_whose_manifest_is_not_first_or_that_is_not_there_is_none(
    tmp_path: Path, refused: Refused
) -> None:
    files = {"LICENSE": b"x", "manifest.json": MANIFEST}
    package = pack_raw(tmp_path, *((tarfile.TarInfo(f"{NAME}/{name}"), data) for name, data in files.items()))
    with refused(IntegrityError):
        manifest_bytes(package)
    package.unlink()
    with refused(ValidationError):
        manifest_bytes(package)


@pytest.mark.parametrize(
    ("form", "data"),
    [
        *((form, data) for form in Form for data in (b"", b"nothing of the kind")),
        (Form.ZST, zstd.compress(b"no tar at all" * 100)),
        (Form.GZ, gzip.compress(b"no tar at all" * 100, mtime=0)),
    ],
)
def test_files_that_are_no_package_are_refused(tmp_path: Path, form: Form, data: bytes) -> None:
    package = tmp_path / f"{NAME}{form.value}"
    package.write_bytes(data)
    with pytest.raises(IntegrityError, match=NAME):
        manifest_bytes(package)


@pytest.mark.parametrize(("form", "compress"), [(Form.ZST, zstd.compress), (Form.GZ, gzip.compress)])
def test_damage_is_seen(tmp_path: Path, form: Form, compress: Callable[[bytes], bytes]) -> None:
    package = pack(tmp_path, {"lib/x": os.urandom(100_000)}, form=form)
    whole = package.read_bytes()
    for number, broken in enumerate(
        (
            whole[:60_000] + bytes([whole[60_000] ^ 1]) + whole[60_001:],
            whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:],  # gzip's checksum; zstd's last block
            whole[:-2],
            whole + b"behind the end",
            whole + compress(os.urandom(3_000_000)),
        )
    ):
        package.write_bytes(broken)
        with pytest.raises(IntegrityError, match=f"{package.name} is damaged"):
            extract(package, tmp_path / f"out{number}")
