from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import os
import resource
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from backports import zstd

from builder.adapters.archive import EARLIEST_MTIME, PackageArchive
from builder.adapters.digests import chunks_of
from builder.core.package import ChangedFileError, Content, Digest, Member, PackageFile
from builder.core.variant import Form, Preset
from builder.errors import BuilderError, DiskError, IntegrityError, ValidationError
from tests.fakes import FakeReporter

NAME = "ortpacks-modern-1.23.2-cuda12.9-linux-x64"
MANIFEST = b'{"format": 1}\n'
GZIP_SHA256 = "969eb22240caac5e2278d6f4aadbb730c28504f202d7831f4bc10950d955ee8d"


def archive(workers: int = 1) -> PackageArchive:
    return PackageArchive(reporter=FakeReporter(), workers=workers)


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


def unpacked_by_gzip_or_zstd(package: Path) -> bytes:
    """The tar inside, by somebody else's decoder."""
    if package.name.endswith(".gz"):
        return subprocess.run(["gzip", "-dc", package], capture_output=True, check=True).stdout
    return zstd.decompress(package.read_bytes())


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


@pytest.mark.parametrize("form", list(Form))
def test_gnu_tar_lists_the_manifest_first_then_sorted_names_without_owner_or_time(
    tmp_path: Path, form: Form
) -> None:
    tar = unpacked_by_gzip_or_zstd(pack(tmp_path, FILES, form=form))
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


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("preset", list(Preset))
def test_the_bytes_depend_neither_on_the_thread_count_nor_on_the_folder_nor_on_the_order(
    tmp_path: Path, preset: Preset, form: Form
) -> None:
    noise = b"".join(hashlib.sha256(str(number).encode()).digest() * 3 for number in range(120_000))
    files = {"lib/b": noise, "lib/a": noise[:7_000_001], "NOTICE": b"x"}
    one = pack(tmp_path / "one", files, workers=1, preset=preset, form=form)
    for workers in (2, 5):
        other = tmp_path / f"{workers}"
        again = pack(other, dict(reversed(files.items())), workers=workers, preset=preset, form=form)
        os.utime(other / "in/input1", (1, 1))
        assert hashlib.sha256(one.read_bytes()).digest() == hashlib.sha256(again.read_bytes()).digest()
    assert one.stat().st_size < 12_000_000


def test_gzip_s_bytes_are_these_on_any_machine(tmp_path: Path) -> None:
    """Read under qemu-user as qemu64, core2duo, Nehalem and Haswell too: zlib-ng chooses code by the CPU."""
    text = b"".join(b"%d %x\n" % (number, number * number * 40503 % 65521) for number in range(200_000))
    package = pack(tmp_path, {"lib/text": text}, workers=2, form=Form.GZ)
    assert hashlib.sha256(package.read_bytes()).hexdigest() == GZIP_SHA256


def test_a_gzip_header_holds_no_name_no_time_and_no_system(tmp_path: Path) -> None:
    package = pack(tmp_path, FILES, form=Form.GZ)
    assert package.read_bytes()[:10] == bytes.fromhex("1f8b 08 00 00000000 00 ff")  # RFC 1952, 2.3
    assert gzip.decompress(package.read_bytes()) == unpacked_by_gzip_or_zstd(package)


def test_what_stays_in_its_wheel_is_not_packed_and_not_even_read(tmp_path: Path) -> None:
    made = content(tmp_path / "in", FILES)
    thin = replace(
        made, members=tuple(replace(one, packed=one.path != "lib/libcudnn.so.9") for one in made.members)
    )
    (tmp_path / "in/input0").unlink()
    dest = tmp_path / f"{NAME}.tar.zst"
    told = archive().write(dest, thin, Preset.FAST, accept)
    assert list(archive().extract(dest, tmp_path / "out")) == ["manifest.json", "LICENSE", "lib/libb.so"]
    assert told.unpacked_size == len(MANIFEST) + 4 + 4


def test_size_and_hash_told_are_those_of_the_file_written(tmp_path: Path) -> None:
    dest = tmp_path / f"{NAME}.tar.zst"
    told = archive().write(dest, content(tmp_path / "in", FILES), Preset.FAST, accept)
    hashed = subprocess.run(
        ["sha256sum", str(dest)], capture_output=True, check=True, text=True
    ).stdout.split()[0]
    assert (told.sha256, told.size) == (hashed, dest.stat().st_size)
    assert told.unpacked_size == len(MANIFEST) + sum(map(len, FILES.values()))
    assert archive().digest(dest) == Digest(told.size, hashed)


@pytest.mark.parametrize("form", list(Form))
def test_what_went_in_comes_out_of_the_stream_of_the_extraction_and_of_the_head(
    tmp_path: Path, form: Form
) -> None:
    package = pack(tmp_path, FILES, form=form)
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


@pytest.mark.parametrize("form", list(Form))
def test_the_manifest_is_read_from_the_head_of_a_package_cut_in_half(tmp_path: Path, form: Form) -> None:
    package = pack(tmp_path, {"lib/big": os.urandom(3_000_000)}, form=form)
    os.truncate(package, package.stat().st_size // 2)
    assert archive().read_manifest(package) == MANIFEST
    with pytest.raises(IntegrityError, match="is damaged"):
        archive().extract(package, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (b"short", Digest(5, hashlib.sha256(b"short").hexdigest())),
        (b"CUDNN" * 999, Digest(4995, hashlib.sha256(b"CUDNN" * 999).hexdigest())),
        (b"cudnn" * 1000, None),
    ],
)
def test_an_input_that_changed_since_it_was_checked_leaves_nothing(
    tmp_path: Path, change: bytes, found: Digest | None
) -> None:
    packed = content(tmp_path / "in", FILES)
    packed.members[0].file.write_bytes(change)
    dest = tmp_path / "dist" / f"{NAME}.tar.zst"
    with pytest.raises(
        ChangedFileError, match=r"input0 changed while lib/libcudnn\.so\.9 was packed"
    ) as error:
        archive().write(dest, packed, Preset.FAST, accept)
    assert error.value.member == packed.members[0]
    assert error.value.wanted == packed.digests["lib/libcudnn.so.9"]
    assert error.value.got == found
    assert "Build again" in str(error.value)
    assert list(dest.parent.iterdir()) == []


def touched(file: Path) -> None:
    os.utime(file, (1, 1))


def appended(file: Path) -> None:
    with file.open("ab") as more:
        more.write(b"more")


def cut(file: Path) -> None:
    os.truncate(file, 1_500_000)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (touched, "input0 changed while it was read"),
        (appended, "input0 changed while lib/x was packed, or before: .* more bytes"),
        (cut, "input0 changed while it was read"),
    ],
)
def test_an_input_that_changes_while_it_is_read_leaves_nothing(
    tmp_path: Path, change: Callable[[Path], None], says: str
) -> None:
    """After its first bytes went into the archive and before its last are read."""
    packed = content(tmp_path / "in", {"lib/x": os.urandom(5_000_000)})

    class Racing(FakeReporter):
        @contextmanager
        def progress(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
            yield lambda done: change(packed.members[0].file)

    dest = tmp_path / "dist" / f"{NAME}.tar.zst"
    with pytest.raises(IntegrityError, match=says):
        PackageArchive(reporter=Racing(), workers=1).write(dest, packed, Preset.FAST, accept)
    assert list(dest.parent.iterdir()) == []


def test_a_file_that_is_written_to_while_it_is_hashed_has_no_digest(tmp_path: Path) -> None:
    """Else a mixture of two states would pass for the file."""
    file = tmp_path / "x"
    file.write_bytes(bytes(3_000_000))
    chunks = chunks_of(file)
    next(chunks)
    appended(file)
    with pytest.raises(IntegrityError, match="x changed while it was read"):
        list(chunks)


def absent(file: Path) -> None:
    file.unlink()


def dangling(file: Path) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def looping(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def failing(file: Path) -> None:
    file.unlink()
    file.symlink_to("/proc/self/mem")  # opens, and its first byte is an I/O error


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (absent, "No such file"),
        (dangling, "No such file"),
        (looping, "Too many levels of symbolic links"),
        (folder, "Is a directory"),
        (failing, "Input/output error"),
    ],
)
def test_an_input_that_cannot_be_read_is_named_and_leaves_nothing(
    tmp_path: Path, plant: Callable[[Path], None], why: str
) -> None:
    packed = content(tmp_path / "in", FILES)
    plant(packed.members[1].file)
    dest = tmp_path / "dist" / f"{NAME}.tar.zst"
    with pytest.raises(IntegrityError, match=f"input1 cannot be read: {why}"):
        archive().write(dest, packed, Preset.FAST, accept)
    assert list(dest.parent.iterdir()) == []


def test_an_input_of_somebody_else_is_named() -> None:
    """Root reads everything, so the test is somebody else, where he can enter."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        packed = content(Path(place) / "in", FILES)
        packed.members[1].file.chmod(0)
        with nobody(), pytest.raises(IntegrityError, match=r"input1 cannot be read: Permission denied.*mode"):
            archive().write(Path(place) / f"{NAME}.tar.zst", packed, Preset.FAST, accept)
        assert [path.name for path in Path(place).iterdir()] == ["in"]


@contextmanager
def nobody() -> Iterator[None]:
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("form", list(Form))
def test_names_with_spaces_newlines_and_dashes_are_names(tmp_path: Path, form: Form) -> None:
    """Of files here and of members: what is odd about a name is told nobody's shell."""
    files = {f"lib/{name}": name.encode() for name in ("a b.so", "-rf", "new\nline.so", "--help ;x", "ü.so")}
    home = tmp_path / "- odd\nfolder "
    package = pack(home, files, form=form)
    out = archive().extract(package, tmp_path / "out")
    assert sorted(out) == sorted(["manifest.json", *files])
    assert {path: (tmp_path / "out" / path).read_bytes() for path in files} == files
    listed = subprocess.run(
        ["tar", "-tf", "-"], input=unpacked_by_gzip_or_zstd(package), capture_output=True, check=True
    ).stdout.decode()
    assert rf"{NAME}/lib/new\nline.so" in listed.splitlines()


def test_an_empty_file_is_packed_as_it_is(tmp_path: Path) -> None:
    """Whether a library may be empty is for ``locate`` and ``check`` to say, and they say no."""
    out = archive().extract(pack(tmp_path, {"lib/x": b""}), tmp_path / "out")
    assert out["lib/x"] == Digest(0, hashlib.sha256(b"").hexdigest())


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


@pytest.mark.parametrize(
    ("form", "data"),
    [
        *((form, data) for form in Form for data in (b"", b"nothing of the kind")),
        (Form.ZST, zstd.compress(b"no tar at all" * 100)),
        (Form.GZ, gzip.compress(b"no tar at all" * 100)),
    ],
)
def test_files_that_are_no_package_are_refused(tmp_path: Path, form: Form, data: bytes) -> None:
    package = tmp_path / f"{NAME}{form.value}"
    package.write_bytes(data)
    with pytest.raises(IntegrityError, match=NAME):
        archive().read_manifest(package)


@pytest.mark.parametrize(("form", "compress"), [(Form.ZST, zstd.compress), (Form.GZ, gzip.compress)])
def test_damage_is_seen(tmp_path: Path, form: Form, compress: Callable[[bytes], bytes]) -> None:
    package = pack(tmp_path, {"lib/x": os.urandom(100_000)}, form=form)
    whole = package.read_bytes()
    for number, broken in enumerate(
        (
            whole[:60_000] + bytes([whole[60_000] ^ 1]) + whole[60_001:],
            whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:],  # gzip's sum; zstd's last block
            whole[:-2],
            whole + b"behind the end",
            whole + compress(os.urandom(3_000_000)),
        )
    ):
        package.write_bytes(broken)
        with pytest.raises(IntegrityError, match=f"{package.name} is damaged"):
            archive().extract(package, tmp_path / f"out{number}")


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


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("preset", list(Preset))
def test_an_estimate_is_near_what_comes_out(tmp_path: Path, form: Form, preset: Preset) -> None:
    """Of noise and text: nothing far back repeats, which zstd's estimate allows for, so it is too low."""
    text = b"".join(b"%d %x\n" % (number, number * 40503 % 65521) for number in range(500_000))
    made = content(tmp_path / "in", {"lib/noise": os.urandom(5_000_000), "lib/text": text})
    dest = tmp_path / f"{NAME}{form.value}"
    written = archive().write(dest, made, preset, accept)
    guessed = archive().estimate(made.members, form, preset)
    assert 0.8 < guessed / written.size < 1.2
    assert archive().estimate(made.members[:1], form, preset) < guessed


def test_an_estimate_of_a_file_that_is_gone_names_it(tmp_path: Path) -> None:
    made = content(tmp_path / "in", FILES)
    made.members[2].file.unlink()
    with pytest.raises(IntegrityError, match="input2 cannot be read: No such file"):
        archive().estimate(made.members, Form.ZST, Preset.FAST)
