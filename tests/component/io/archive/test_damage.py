"""Tests that a damaged or hostile archive is refused and writes nothing outside its folder."""

from __future__ import annotations

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


def plain(name: str) -> tarfile.TarInfo:
    return tarfile.TarInfo(name)


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "info",
    [
        plain("/etc/passwd"),
        plain(f"{NAME}/../../escape"),
        plain(f"{NAME}/lib/./x"),
        plain(f"{NAME}//etc/x"),
        plain(f"{NAME}\\..\\x"),
        plain("other/lib/x"),
        plain(NAME),
        link(f"{NAME}/lib/x", "/etc/passwd", tarfile.SYMTYPE),
        link(f"{NAME}/lib/x", f"{NAME}/manifest.json", tarfile.LNKTYPE),
        link(f"{NAME}/lib/x", "", tarfile.CHRTYPE),
        link(f"{NAME}/lib/x", "", tarfile.FIFOTYPE),
        link(f"{NAME}/lib", "", tarfile.DIRTYPE),
        plain(f"{NAME}/manifest.json"),
    ],
    ids=lambda info: f"{info.name}-{info.type.decode()}",
)
def test_only_regular_files_below_the_own_folder_are_unpacked(tmp_path: Path, info: tarfile.TarInfo) -> None:
    package = pack_raw(tmp_path, (plain(f"{NAME}/manifest.json"), MANIFEST), (info, b""))
    with pytest.raises(IntegrityError):
        extract(package, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["manifest.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [package.name, "out"]


def test_a_package_whose_manifest_is_not_first_is_none(tmp_path: Path) -> None:
    package = pack_raw(tmp_path, (plain(f"{NAME}/LICENSE"), b"x"), (plain(f"{NAME}/manifest.json"), MANIFEST))
    with pytest.raises(IntegrityError, match=r"first member is .*LICENSE"):
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


def test_no_such_package_says_where_packages_are(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"nowhere\.tar\.zst: no such package"):
        manifest_bytes(tmp_path / "nowhere.tar.zst")
