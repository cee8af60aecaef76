from __future__ import annotations

import fcntl
import hashlib
import io
import os
import resource
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from backports import zstd

from builder.adapters.archive import EARLIEST_MTIME, TarZst
from builder.core.package import Content, Digest, Member, PackageFile
from builder.core.variant import Preset
from builder.errors import BuilderError, DiskError, IntegrityError, ValidationError
from tests.fakes import FakeReporter

NAME = "ortpacks-modern-1.23.2-cuda12.9-linux-x64"
MANIFEST = b'{"format": 1}\n'


def archive(workers: int = 1) -> TarZst:
    return TarZst(reporter=FakeReporter(), workers=workers)


def accept(_: PackageFile) -> None: ...


def content(folder: Path, files: dict[str, bytes]) -> Content:
    members = []
    for number, (path, data) in enumerate(files.items()):
        file = folder / f"input{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        members.append(Member(path=path, file=file, source="built", licence="LICENSE", vendor="ortpacks"))
    digests = {path: Digest(len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()}
    return Content(manifest=MANIFEST, members=tuple(members), digests=digests)


FILES = {"lib/libcudnn.so.9": b"cudnn" * 999, "LICENSE": b"MIT\n", "lib/libb.so": b"\x7fELF"}


def pack(folder: Path, files: dict[str, bytes], *, workers: int = 1, preset: Preset = Preset.FAST) -> Path:
    dest = folder / f"{NAME}.tar.zst"
    archive(workers).write(dest, content(folder / "in", files), preset, accept)
    return dest


def pack_raw(folder: Path, *infos: tuple[tarfile.TarInfo, bytes]) -> Path:
    """A package as somebody else would make it."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for info, data in infos:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    dest = folder / f"{NAME}.tar.zst"
    dest.write_bytes(zstd.compress(raw.getvalue()))
    return dest


def test_gnu_tar_lists_the_manifest_first_then_sorted_names_without_owner_or_time(tmp_path: Path) -> None:
    package = pack(tmp_path, FILES)
    tar = zstd.decompress(package.read_bytes())
    listed = subprocess.run(
        ["tar", "--full-time", "--utc", "--numeric-owner", "-tvf", "-"],
        input=tar,
        capture_output=True,
        check=True,
    )
    rows = [line.split() for line in listed.stdout.decode().splitlines()]
    assert [row[-1].removeprefix(f"{NAME}/") for row in rows] == [
        "manifest.json",
        "LICENSE",
        "lib/libb.so",
        "lib/libcudnn.so.9",
    ]
    assert {tuple(row[1:2] + row[3:5]) for row in rows} == {("0/0", "1980-01-01", "00:00:00")}
    assert [row[0] for row in rows] == ["-rw-r--r--", "-rw-r--r--", "-rwxr-xr-x", "-rwxr-xr-x"]
    assert EARLIEST_MTIME == 315532800


@pytest.mark.parametrize("preset", list(Preset))
def test_the_bytes_depend_neither_on_the_thread_count_nor_on_the_folder_nor_on_the_order(
    tmp_path: Path, preset: Preset
) -> None:
    noise = b"".join(hashlib.sha256(str(number).encode()).digest() * 3 for number in range(200_000))
    files = {"lib/b": noise, "lib/a": noise[:7_000_001], "NOTICE": b"x"}
    one = pack(tmp_path / "one", files, workers=1, preset=preset)
    two = pack(tmp_path / "two", dict(reversed(files.items())), workers=2, preset=preset)
    os.utime(tmp_path / "two/in/input1", (1, 1))
    assert hashlib.sha256(one.read_bytes()).digest() == hashlib.sha256(two.read_bytes()).digest()
    assert one.stat().st_size < 10_000_000


def test_size_and_hash_told_are_those_of_the_file_written(tmp_path: Path) -> None:
    dest = tmp_path / f"{NAME}.tar.zst"
    told = archive().write(dest, content(tmp_path / "in", FILES), Preset.FAST, accept)
    hashed = subprocess.run(
        ["sha256sum", str(dest)], capture_output=True, check=True, text=True
    ).stdout.split()[0]
    assert (told.sha256, told.size) == (hashed, dest.stat().st_size)
    assert told.unpacked_size == len(MANIFEST) + sum(map(len, FILES.values()))
    assert archive().digest(dest) == Digest(told.size, hashed)


def test_what_went_in_comes_out_of_the_stream_of_the_extraction_and_of_the_head(tmp_path: Path) -> None:
    package = pack(tmp_path, FILES)
    out = archive().extract(package, tmp_path / "out")
    assert {path: (tmp_path / "out" / path).read_bytes() for path in FILES} == FILES
    assert out["lib/libb.so"] == Digest(4, hashlib.sha256(b"\x7fELF").hexdigest())
    assert next(iter(out)) == "manifest.json"
    assert archive().read_manifest(package) == MANIFEST
    with tarfile.open(fileobj=io.BytesIO(b"".join(archive().tar_stream(package)))) as tar:
        assert len(tar.getnames()) == 4


def test_modes_are_the_archive_s_whatever_the_umask(tmp_path: Path) -> None:
    """Else the user of a runtime image could not read what root unpacked."""
    package = pack(tmp_path, {**FILES, "licenses/x.txt": b"text"})
    before = os.umask(0o077)
    try:
        archive().extract(package, tmp_path / "out")
    finally:
        os.umask(before)
    listed = subprocess.run(
        ["find", "out", "-printf", "%m %P\n"], cwd=tmp_path, capture_output=True, check=True, text=True
    )
    assert sorted(listed.stdout.splitlines()) == [
        "644 LICENSE",
        "644 licenses/x.txt",
        "644 manifest.json",
        "755 ",
        "755 lib",
        "755 lib/libb.so",
        "755 lib/libcudnn.so.9",
        "755 licenses",
    ]


def test_the_manifest_is_read_from_the_head_of_a_package_cut_in_half(tmp_path: Path) -> None:
    package = pack(tmp_path, {"lib/big": os.urandom(3_000_000)})
    os.truncate(package, package.stat().st_size // 2)
    assert archive().read_manifest(package) == MANIFEST
    with pytest.raises(IntegrityError, match="is damaged"):
        archive().extract(package, tmp_path / "out")


@pytest.mark.parametrize("change", [b"short", b"cudnn" * 1000, b"CUDNN" * 999])
def test_an_input_that_changed_since_it_was_checked_leaves_nothing(tmp_path: Path, change: bytes) -> None:
    packed = content(tmp_path / "in", FILES)
    packed.members[0].file.write_bytes(change)
    dest = tmp_path / "dist" / f"{NAME}.tar.zst"
    with pytest.raises(IntegrityError, match=r"input0 changed while lib/libcudnn\.so\.9 was packed"):
        archive().write(dest, packed, Preset.FAST, accept)
    assert list(dest.parent.iterdir()) == []


def test_an_input_that_vanished_is_named(tmp_path: Path) -> None:
    packed = content(tmp_path / "in", FILES)
    packed.members[1].file.unlink()
    with pytest.raises(IntegrityError, match="input1 cannot be read: No such file"):
        archive().write(tmp_path / f"{NAME}.tar.zst", packed, Preset.FAST, accept)


def test_a_package_that_is_not_accepted_leaves_the_old_one_and_no_part(tmp_path: Path) -> None:
    dest = tmp_path / f"{NAME}.tar.zst"
    dest.write_bytes(b"old")

    def refuse(package: PackageFile) -> None:
        assert package.size > 0
        raise BuilderError("no")

    with pytest.raises(BuilderError, match="no"):
        archive().write(dest, content(tmp_path / "in", FILES), Preset.FAST, refuse)
    assert dest.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []


def test_a_disk_that_fills_up_while_writing_is_named_with_the_bytes(tmp_path: Path) -> None:
    packed = content(tmp_path / "in", {"lib/noise": os.urandom(4_000_000)})
    dest = tmp_path / "dist" / f"{NAME}.tar.zst"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(DiskError, match=r"x64\.tar\.zst does not fit: .*About 3,000,\d+ bytes .* free"):
            archive().write(dest, packed, Preset.FAST, accept)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(dest.parent.iterdir()) == []


def test_a_full_disk_is_seen_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DiskError, match=r"about 3,\d{3} bytes are needed, 1,000 are free"):
        archive().write(tmp_path / f"{NAME}.tar.zst", content(tmp_path / "in", FILES), Preset.FAST, accept)


def test_what_a_killed_run_left_goes_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    orphan = tmp_path / f"{NAME}.tar.zst.part-1"
    orphan.write_bytes(b"half")
    other = tmp_path / f"{NAME.replace('modern', 'legacy')}.tar.zst.part-1"
    other.write_bytes(b"half")
    living = tmp_path / f"{NAME}.tar.zst.part-2"
    with living.open("xb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        pack(tmp_path, FILES)
        assert (orphan.exists(), living.exists(), other.exists()) == (False, True, True)


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
        archive().extract(package, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["manifest.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [package.name, "out"]


def test_a_package_whose_manifest_is_not_first_is_none(tmp_path: Path) -> None:
    package = pack_raw(tmp_path, (plain(f"{NAME}/LICENSE"), b"x"), (plain(f"{NAME}/manifest.json"), MANIFEST))
    with pytest.raises(IntegrityError, match=r"first member is .*LICENSE"):
        archive().read_manifest(package)


@pytest.mark.parametrize("data", [b"", b"no zstd at all", zstd.compress(b"no tar at all" * 100)])
def test_files_that_are_no_package_are_refused(tmp_path: Path, data: bytes) -> None:
    package = tmp_path / f"{NAME}.tar.zst"
    package.write_bytes(data)
    with pytest.raises(IntegrityError, match=NAME):
        archive().read_manifest(package)


def test_a_flipped_bit_and_bytes_behind_the_end_are_seen(tmp_path: Path) -> None:
    package = pack(tmp_path, {"lib/x": os.urandom(100_000)})
    whole = package.read_bytes()
    package.write_bytes(whole[:60_000] + bytes([whole[60_000] ^ 1]) + whole[60_001:])
    with pytest.raises(IntegrityError, match="is damaged"):
        archive().extract(package, tmp_path / "flipped")
    package.write_bytes(whole + zstd.compress(os.urandom(3_000_000)))
    with pytest.raises(IntegrityError, match="behind the end"):
        archive().extract(package, tmp_path / "appended")


def test_no_such_package_says_where_packages_are(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"nowhere\.tar\.zst: no such package"):
        archive().read_manifest(tmp_path / "nowhere.tar.zst")


def test_a_scratch_folder_goes_and_takes_what_a_killed_run_left_with_it(tmp_path: Path) -> None:
    (tmp_path / "verify.part-1" / "verify" / "lib").mkdir(parents=True)
    with archive().scratch(tmp_path / "verify", 10) as folder:
        assert not folder.exists()
        archive().extract(pack(tmp_path, FILES), folder)
        assert not (tmp_path / "verify.part-1").exists()
    assert [path.name for path in tmp_path.iterdir() if "verify" in path.name] == []
    with (
        pytest.raises(DiskError, match="verify does not fit"),
        archive().scratch(tmp_path / "verify", 1 << 60),
    ):
        pass
