"""Tests of archives: the same bytes on any machine, none of a bad input, and none out of a hostile one."""

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from modulefinder import ModuleFinder
from pathlib import Path
from typing import TypeVar

import pytest
from backports import zstd

from builder.config.variants import Preset
from builder.contents.integrity import parse_checksums, read_checksums, update_checksums
from builder.contents.package_manifest import ChangedFileError, Content
from builder.errors import (
    BuilderError,
    DiskError,
    IntegrityError,
    NothingToDoError,
    ParseError,
    ValidationError,
)
from builder.files.digest import Digest, file_digest
from builder.formats.package_names import Form
from builder.io.archive.client_zipapp import imported_modules
from builder.io.archive.package_writer import PackageWriter
from builder.io.archive.unpacking import extract, manifest_bytes
from builder.prove.verify import members_in
from tests.support.factories import archiving
from tests.support.factories.archives import member
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Refused, Told

E = TypeVar("E", bound=BuilderError)

A, B = "a" * 64, "b" * 64


@pytest.mark.parametrize("form", list(Form))
def test_gnu_tar_lists_sorted_names_without_owner_or_time(tmp_path: Path, form: Form, told: Told) -> None:
    package = archiving.pack(tmp_path, archiving.FILES, form=form)
    list_it = ["tar", "--full-time", "--utc", "--numeric-owner", "-tvf"]
    listed = subprocess.run([*list_it, package], capture_output=True, check=True, text=True).stdout
    told(listed)


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("preset", list(Preset))
def test_bytes_depend_on_no_thread_folder_or_order(tmp_path: Path, preset: Preset, form: Form) -> None:
    noise = b"".join(hashlib.sha256(str(number).encode()).digest() * 3 for number in range(120_000))
    files = {"lib/b": noise, "lib/a": noise[:7_000_001], "NOTICE": b"x"}
    one = archiving.pack(tmp_path / "one", files, workers=1, preset=preset, form=form)
    other = archiving.pack(tmp_path / "5", dict(reversed(files.items())), workers=5, preset=preset, form=form)
    assert file_digest(other) == file_digest(one)
    assert one.stat().st_size < 12_000_000


@pytest.mark.parametrize("form", list(Form))
def test_what_went_in_comes_out(tmp_path: Path, form: Form) -> None:
    """Names of files and of members are odd; no shell sees them."""
    odd = ("a b.so", "-rf", "new\nline.so", "--help ;x", "ü.so", "empty")
    files = {**archiving.FILES, **{f"lib/{name}": b"" if name == "empty" else name.encode() for name in odd}}
    package = archiving.pack(tmp_path / "- odd\nfolder ", files, form=form)
    out = extract(package, tmp_path / "out")
    assert {path: (tmp_path / "out" / path).read_bytes() for path in files} == files
    assert out == {
        path: Digest(len(data), hashlib.sha256(data).hexdigest())
        for path, data in {**files, "manifest.json": archiving.MANIFEST}.items()
    }
    assert (next(iter(out)), manifest_bytes(package)) == ("manifest.json", archiving.MANIFEST)


def test_modes_are_the_archive_s_whatever_the_umask(tmp_path: Path) -> None:
    """With the umask's modes, the user of a runtime image could not read what root unpacked."""
    package = archiving.pack(tmp_path, archiving.FILES)
    before = os.umask(0o077)
    try:
        extract(package, tmp_path / "out")
    finally:
        os.umask(before)
    modes = {path.name: f"{path.stat().st_mode & 0o777:o}" for path in (tmp_path / "out").rglob("*")}
    assert modes == {
        **dict.fromkeys(("LICENSE", "manifest.json"), "644"),
        **dict.fromkeys(("lib", "libb.so", "libcudnn.so.9"), "755"),
    }


@pytest.mark.parametrize("form", list(Form))
def test_the_manifest_is_read_from_the_head_of_a_package_cut_in_half(tmp_path: Path, form: Form) -> None:
    package = archiving.pack(tmp_path, {"lib/big": os.urandom(3_000_000)}, form=form)
    os.truncate(package, package.stat().st_size // 2)
    assert manifest_bytes(package) == archiving.MANIFEST
    with pytest.raises(IntegrityError, match="is damaged"):
        extract(package, tmp_path / "out")


def test_a_package_under_another_name_is_told_to_take_its_own_again(tmp_path: Path, refused: Refused) -> None:
    renamed = archiving.pack(tmp_path, archiving.FILES).rename(tmp_path / "mine.tar.zst")
    with refused(IntegrityError):
        extract(renamed, tmp_path / "out")


def refusal(folder: Path, packed: Content, kind: type[E], by: PackageWriter | None = None) -> E:
    """Return the error with which packing into a folder below ``folder`` ends; nothing is left there."""
    dest = folder / "dist" / f"{archiving.NAME}.tar.zst"
    with pytest.raises(kind) as caught:
        (by or archiving.archive()).write(dest, packed, Preset.FAST, archiving.accept)
    assert list(dest.parent.iterdir()) == []
    return caught.value


LONGER = b"CUDNN" * 999


@pytest.mark.parametrize(
    ("change", "found"), [(LONGER, Digest(4995, hashlib.sha256(LONGER).hexdigest())), (b"cudnn" * 1000, None)]
)
def test_an_input_that_has_changed(tmp_path: Path, told: Told, change: bytes, found: Digest | None) -> None:
    packed = archiving.content(tmp_path / "in", archiving.FILES)
    packed.members[0].file.write_bytes(change)
    error = refusal(tmp_path, packed, ChangedFileError)
    assert (error.member, error.got) == (packed.members[0], found)
    told(error)


CHANGES: dict[str, Callable[[Path], None]] = {
    "touched": lambda file: os.utime(file, (1, 1)),
    "longer": lambda file: os.truncate(file, 5_000_004),
    "cut": lambda file: os.truncate(file, 1_500_000),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_input_that_changes_meanwhile(tmp_path: Path, told: Told, change: Callable[[Path], None]) -> None:
    """The file changes after its first bytes were packed and before its last ones are read."""
    packed = archiving.content(tmp_path / "in", {"lib/x": bytes(range(250)) * 20_000})

    class Racing(FakeReporter):
        @contextmanager
        def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
            yield lambda done: change(packed.members[0].file)

    told(refusal(tmp_path, packed, IntegrityError, by=PackageWriter(reporter=Racing(), workers=1)))


@pytest.mark.parametrize(
    "target",
    [None, "nowhere", "input1", ".", "/proc/self/mem"],
    ids=["absent", "dangling", "looping", "folder", "its first byte is an error"],
)
def test_an_input_that_cannot_be_read_is_named(tmp_path: Path, told: Told, target: str | None) -> None:
    packed = archiving.content(tmp_path / "in", archiving.FILES)
    packed.members[1].file.unlink()
    if target:
        packed.members[1].file.symlink_to(target)
    told(refusal(tmp_path, packed, IntegrityError))


def test_a_disk_that_fills_up_while_writing_is_named_with_the_bytes(tmp_path: Path) -> None:
    packed = archiving.content(tmp_path / "in", {"lib/noise": os.urandom(4_000_000)})
    with archiving.files_of_at_most(1_000_000):
        error = refusal(tmp_path, packed, DiskError)
    assert re.search(r"x64\.tar\.zst does not fit: .*About 3,000,\d+ bytes .* free", str(error))


def test_a_full_disk_is_seen_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    error = refusal(tmp_path, archiving.content(tmp_path / "in", archiving.FILES), DiskError)
    assert re.search(r"about 3,\d{3} bytes are needed, 1,000 are free", str(error))


def test_checksums_are_merged_sorted_dropped_and_accepted_by_sha256sum(tmp_path: Path) -> None:
    for name in ("b.tar.zst", "a.tar.zst", "gone.tar.zst"):
        (tmp_path / name).write_text(name)
        update_checksums(tmp_path, put={name: hashlib.sha256(name.encode()).hexdigest()})
    update_checksums(tmp_path, put={}, drop=("gone.tar.zst",))
    checked = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=True, text=True
    )
    assert checked.stdout == "a.tar.zst: OK\nb.tar.zst: OK\n"
    assert set(read_checksums(tmp_path)) == {"a.tar.zst", "b.tar.zst"}


def test_a_checksum_file_somebody_broke_is_named_with_its_line(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  a\nnonsense\n")
    with refused(ParseError):
        update_checksums(tmp_path, put={})


def test_checksums_are_read_as_sha256sum_writes_them() -> None:
    assert parse_checksums(f"{A}  a\n{B}  with blanks\n{A} *bin\n") == {"a": A, "with blanks": B, "bin": A}


@pytest.mark.parametrize("line", ["", "a", f"{A} a", f"{A[:-1]}  a", f"{A.upper()}  a", f"{A}  "])
def test_a_line_that_is_none_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        parse_checksums(f"{A}  ok\n{line}\n")


OUTSIDE = (
    "/etc/passwd",
    f"{archiving.NAME}/../../escape",
    f"{archiving.NAME}/lib/./x",
    f"{archiving.NAME}//etc/x",
    f"{archiving.NAME}\\..\\x",
)


MANIFEST = member(f"{archiving.NAME}/manifest.json", archiving.MANIFEST)


@pytest.mark.parametrize(
    "hostile",
    [
        *map(member, (*OUTSIDE, "other/lib/x", archiving.NAME, f"{archiving.NAME}/manifest.json")),
        member(f"{archiving.NAME}/lib/x", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member(f"{archiving.NAME}/lib/x", type=tarfile.LNKTYPE, linkname=f"{archiving.NAME}/manifest.json"),
        member(f"{archiving.NAME}/lib/x", type=tarfile.CHRTYPE),
        member(f"{archiving.NAME}/lib/x", type=tarfile.FIFOTYPE),
        member(f"{archiving.NAME}/lib", type=tarfile.DIRTYPE),
    ],
    ids=lambda hostile: f"{hostile[0].name}-{hostile[0].type.decode()}",
)
def test_only_regular_files_below_the_own_folder_are_unpacked(
    tmp_path: Path, hostile: tuple[tarfile.TarInfo, bytes]
) -> None:
    package = archiving.pack_raw(tmp_path, MANIFEST, hostile)
    with pytest.raises(IntegrityError):
        extract(package, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["manifest.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [package.name, "out"]


def test_a_package_whose_manifest_is_not_first_is_none(tmp_path: Path, refused: Refused) -> None:
    package = archiving.pack_raw(tmp_path, member(f"{archiving.NAME}/LICENSE", b"x"), MANIFEST)
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
    package = tmp_path / f"{archiving.NAME}{form.value}"
    package.write_bytes(data)
    with pytest.raises(IntegrityError, match=archiving.NAME):
        manifest_bytes(package)


@pytest.mark.parametrize(("form", "compress"), [(Form.ZST, zstd.compress), (Form.GZ, gzip.compress)])
def test_damage_is_seen(tmp_path: Path, form: Form, compress: Callable[[bytes], bytes]) -> None:
    package = archiving.pack(tmp_path, {"lib/x": os.urandom(100_000)}, form=form)
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


def test_modules_are_looked_for_by_one_thread_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``ModuleFinder`` empties a cache of the import system: two variants' builds ended with a KeyError."""
    looking = threading.Lock()

    def look(_finder: ModuleFinder, _entry: str) -> None:
        assert looking.acquire(blocking=False)
        time.sleep(0.05)
        looking.release()

    monkeypatch.setattr(ModuleFinder, "run_script", look)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(imported_modules, [tmp_path] * 2, ["a.py"] * 2)) == [(), ()]


def _tree(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return folder


def test_the_libraries_of_a_plain_folder(tmp_path: Path) -> None:
    folder = _tree(tmp_path, "libonnxruntime.so.1", "README", "include/onnx.h", "libcudart.so.12")
    assert [(member.path, member.vendor) for member in members_in(folder)] == [
        ("lib/libcudart.so.12", "nvidia"),
        ("lib/libonnxruntime.so.1", "onnxruntime"),
    ]


@pytest.mark.parametrize("names", [("README",), ("manifest.json", "licenses/a"), ("lib/sub/.keep",)])
def test_a_folder_without_any_library(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = _tree(tmp_path, *names)
    if names[0].startswith("lib/"):
        (folder / names[0]).unlink()
    with pytest.raises(NothingToDoError, match="No library in"):
        members_in(folder)


GZIP_SHA256 = "969eb22240caac5e2278d6f4aadbb730c28504f202d7831f4bc10950d955ee8d"


def test_gzip_s_bytes_are_these_on_any_machine(tmp_path: Path) -> None:
    """The same bytes were read under qemu-user as qemu64, core2duo, Nehalem and Haswell: zlib-ng
    selects code by CPU."""
    text = b"".join(b"%d %x\n" % (number, number * number * 40503 % 65521) for number in range(200_000))
    package = archiving.pack(tmp_path, {"lib/text": text}, workers=2, form=Form.GZ)
    assert hashlib.sha256(package.read_bytes()).hexdigest() == GZIP_SHA256
