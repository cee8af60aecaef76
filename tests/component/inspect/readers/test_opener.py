"""Tests of files, folders, archives and URLs that hold libraries, of archives in archives, and of faults."""

import gzip
import io
import json
import os
import shutil
import struct
import subprocess
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from backports.zstd import compress

from builder.errors import (
    BuilderError,
    DiskError,
    IntegrityError,
    NothingToDoError,
    TransferError,
    ValidationError,
)
from builder.inspect.archives import Scratch, read_tar, read_zip
from builder.inspect.opener import Opener, shown
from builder.inspect.reading import inspect_sources
from builder.io.transfer import HttpTransfer
from tests.doubles.fileserver import FileServer, serve
from tests.support import written
from tests.support.factories.archives import files, member, pax_tar, tar, zip_claiming, zipped
from tests.support.factories.archives_of_objects import ar, as_object
from tests.support.factories.binaries import patched, sass
from tests.support.factories.pe import pe
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Told
from tests.support.opened import LIBRARY, OTHER, Holds, Refuses, found, refused
from tests.support.tables import table

FATBIN = sass(90)

TREE = {
    "lib/libone.so": LIBRARY,
    "lib/libtwo.so.1.2": OTHER,
    "lib/plugin": OTHER + b"plugin",
    "lib/empty.so": b"",
    "lib/text.so.6": b"INPUT(-lone)\n",
    "kernels/all.fatbin": FATBIN,
    "README": b"text",
    "etc/ld.so.conf": b"include x\n",
    "etc/nothing": b"",
}

WANTED = {name: data for name, data in TREE.items() if name.startswith(("lib/", "kernels/"))}

EXBIBYTE = 1 << 60


@pytest.fixture
def tree(work: Path) -> Path:
    """Write a folder with libraries of every kind, links, and other files; return its path."""
    folder = written(work / "tree", TREE)
    (folder / "lib/libone.so.1").symlink_to("libone.so")
    (folder / "lib/libaway.so").symlink_to("/etc/passwd")
    (folder / "away").symlink_to("/usr/lib")
    return folder


def said(opener: Opener, source: Path | str, kind: type[BuilderError]) -> str:
    with pytest.raises(kind) as caught:
        found(opener, source)
    assert type(caught.value) is kind or kind is TransferError
    return str(caught.value)


def packed(folder: Path, target: Path, *options: str) -> Path:
    """Pack ``folder`` with GNU tar and its compressors; return ``target``."""
    subprocess.run(["tar", *options, "-cf", target, "-C", folder, "."], check=True)
    return target


def test_a_folder_is_its_libraries_by_magic_or_by_name(opener: Opener, tree: Path) -> None:
    """A link to a library of the folder adds none; a link to a file outside the folder adds one."""
    assert found(opener, tree) == {**WANTED, "lib/libaway.so": Path("/etc/passwd").read_bytes()}


def linked(work: Path, links: dict[str, str]) -> Path:
    """Write a folder with one library, a text and the links, and a library next to it; return the
    folder's path."""
    folder = work / "linked"
    (folder / "sub").mkdir(parents=True)
    (folder / "liba.so.1").write_bytes(LIBRARY)
    (folder / "README").write_bytes(b"text")
    (work / "outside").write_bytes(OTHER)
    for name, target in links.items():
        (folder / name).symlink_to(target)
    return folder


@pytest.mark.parametrize(("links", "seen"), table("inspect/links.txt"))
def test_a_link_is_shown_unless_its_file_is(opener: Opener, work: Path, links: str, seen: str) -> None:
    with opener.files(str(linked(work, json.loads(links)))) as held:
        assert [name for name, path in held.libraries if path.is_symlink()] == seen.split()


@pytest.mark.parametrize("name", ["lib/libone.so", "lib/plugin", "kernels/all.fatbin", "lib/empty.so"])
def test_a_file_by_itself_is_shown_by_its_name(opener: Opener, tree: Path, name: str) -> None:
    assert found(opener, tree / name) == {Path(name).name: TREE[name]}


@pytest.mark.parametrize(("name", "option"), table("inspect/tars.txt"))
def test_a_tar_of_any_compression_and_layout(
    opener: Opener, tree: Path, work: Path, name: str, option: str
) -> None:
    assert found(opener, packed(tree, work / name, option)) == WANTED


@pytest.mark.parametrize("name", ["x.whl", "x.zip", "x.nupkg"])
def test_a_zip_under_any_name(opener: Opener, tree: Path, work: Path, name: str) -> None:
    subprocess.run(["zip", "-qry", work / "x.zip", "."], cwd=tree, check=True)
    (work / "x.zip").rename(work / name)
    assert found(opener, work / name) == WANTED


@pytest.mark.parametrize("pack", [files, zipped])
def test_libraries_that_are_not_wanted_are_not_written(
    opener: Opener, work: Path, tmp_path: Path, pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    (work / "x").write_bytes(pack({"lib/a.so": LIBRARY, "lib/b.so": OTHER}))
    with opener.files(str(work / "x"), lambda path: path == "lib/a.so") as held:
        written = [path for path in (tmp_path / "dist").rglob("*") if path.is_file()]
        assert [*held.libraries] == [("lib/a.so", *written)]
    with opener.files(str(work / "x"), lambda _: False) as held:
        assert held.libraries == []


@pytest.mark.parametrize("pack", [files, zipped])
def test_how_far_an_archive_is_read_is_told_in_its_bytes(
    work: Path, pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    (work / "x").write_bytes(pack({"lib/a.so": LIBRARY * 9, "lib/b.so": OTHER * 9}))
    reporter, size = FakeReporter(), (work / "x").stat().st_size
    read = Scratch(work / "scratch")
    if pack is zipped:
        read_zip(work / "x", read, "x", reporter)
    else:
        read_tar(work / "x", "", "x", read, reporter)
    total, *steps = reporter.progressed
    assert total == size
    assert size / 2 < sum(steps) <= size


def test_how_far_libraries_are_read_is_told_in_their_bytes(work: Path) -> None:
    written(work / "x", {"a.so": LIBRARY, "b.so": OTHER})
    reporter = FakeReporter()
    transfer = HttpTransfer(reporter=reporter, sleep=time.sleep, env={})
    inspect_sources(Opener(transfer=transfer, scratch=work / "scratch"), [str(work / "x")])
    assert reporter.progressed == [len(LIBRARY) + len(OTHER), len(LIBRARY), len(OTHER)]


def test_a_link_to_a_library_that_is_not_wanted_is_no_fault(opener: Opener, work: Path) -> None:
    members = [member("b.so", LIBRARY), member("c.so", type=tarfile.LNKTYPE, linkname="b.so")]
    (work / "x.tar").write_bytes(tar(*members))
    with opener.files(str(work / "x.tar"), lambda _: False) as held:
        assert held.libraries == []


def test_a_top_folder_named_like_the_archive_is_left_out(opener: Opener, work: Path) -> None:
    data = files({"app-1.0/lib/a.so": LIBRARY, "app-1.0/README": b""})
    (work / "app-1.0.tar.gz").write_bytes(gzip.compress(data))
    (work / "other.tar").write_bytes(data)
    assert list(found(opener, work / "app-1.0.tar.gz")) == ["lib/a.so"]
    assert list(found(opener, work / "other.tar")) == ["app-1.0/lib/a.so"]


def test_links_in_a_tar_are_second_names(holds: Holds) -> None:
    members = [
        member("lib/a.so.1", LIBRARY),
        member("lib/a.so", type=tarfile.SYMTYPE, linkname="a.so.1"),
        member("lib/b.so", type=tarfile.LNKTYPE, linkname="./lib/a.so.1"),
        member("lib/passwd.so", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("copy/a.so", type=tarfile.LNKTYPE, linkname="lib/a.so"),  # as ``cp -al`` copies a link
        member("copy/again.so", type=tarfile.LNKTYPE, linkname="copy/a.so"),
    ]
    assert holds(tar(*members)) == {"lib/a.so.1": LIBRARY}


@pytest.mark.parametrize("target", ["/etc/passwd", "../../etc/passwd", "gone.so", "README"])
def test_a_hard_link_to_what_the_tar_does_not_hold_is_told(refuses: Refuses, target: str) -> None:
    members = [member("README", b"text"), member("a.so", type=tarfile.LNKTYPE, linkname=target)]
    assert "app.tar: a.so is a hard link to " in refuses(tar(*members))


@pytest.mark.parametrize("pack", [files, zipped])
def test_names_that_lead_outside(holds: Holds, pack: Callable[[Mapping[str, bytes]], bytes]) -> None:
    names = ["../../x.so", "/abs/y.so", "a/../../z.so"]
    assert sorted(holds(pack(dict.fromkeys(names, LIBRARY)))) == ["../../x.so", "a/../../z.so", "abs/y.so"]


def test_a_name_twice_is_what_unpacking_leaves(opener: Opener, work: Path) -> None:
    again = [member("a.so", LIBRARY), member("./a.so", OTHER), member("b.so", LIBRARY)]
    gone = member("b.so", type=tarfile.SYMTYPE, linkname="a.so")
    (work / "x.tar").write_bytes(tar(*again, gone))
    assert found(opener, work / "x.tar") == {"a.so": OTHER}
    with zipfile.ZipFile(work / "x.zip", "w") as archive:
        archive.writestr("a.so", LIBRARY)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.so", OTHER)
    assert found(opener, work / "x.zip") == {"a.so": OTHER}


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_are_no_libraries(holds: Holds, kind: bytes) -> None:
    assert holds(tar(member("dev/a.so", type=kind), member("b.so", LIBRARY))) == {"b.so": LIBRARY}


def test_a_member_of_a_kind_that_nobody_knows_is_a_file(opener: Opener, work: Path) -> None:
    (work / "x.tar").write_bytes(tar(member("a.so", LIBRARY, type=b"Z")))
    subprocess.run(["tar", "-xf", work / "x.tar", "-C", work], check=True, stderr=subprocess.DEVNULL)
    assert found(opener, work / "x.tar") == {"a.so": (work / "a.so").read_bytes()}


def test_names_are_shown_without_what_a_terminal_would_obey(holds: Holds) -> None:
    odd = files({"\x1b[2Ja\nb.so": LIBRARY, "caf\udce9.so": LIBRARY, "é.so": OTHER})
    assert sorted(holds(odd)) == ["\\x1b[2Ja\\nb.so", "caf\\udce9.so", "é.so"]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_sparse_library_is_whole(opener: Opener, work: Path, compressed: bool) -> None:
    folder = work / "sparse"
    folder.mkdir()
    with (folder / "a.so").open("wb") as file:
        file.write(LIBRARY)
        file.seek(5_000_000)
        file.write(b"end")
    for layout in ("--format=gnu", "--format=posix"):
        options = ("--sparse", layout, *(["--gzip"] if compressed else []))
        archive = packed(folder, work / "x.tar", *options)
        assert archive.stat().st_size < 1_000_000
        assert found(opener, archive) == {"a.so": (folder / "a.so").read_bytes()}


def oversized(name: str) -> bytes:
    return tar(member(name, LIBRARY, size=len(LIBRARY) + 9999), end=b"")


def header(name: str, kind: bytes, place: int, data: bytes) -> bytes:
    """Return a tar header with ``data`` at ``place`` and a correct checksum."""
    made = bytearray(member(name, type=kind)[0].tobuf(tarfile.GNU_FORMAT))
    made[place : place + len(data)] = data
    made[148:156] = b"        "
    made[148:156] = b"%06o\0 " % sum(made)
    return bytes(made)


def below_zero(name: str, size: int) -> bytes:
    """Return a tar with a member whose size is in base 256, which may be negative."""
    told = size.to_bytes(12, "big", signed=True)
    return files({"README": b"text"})[:1024] + header(name, tarfile.REGTYPE, 124, told) + bytes(2048)


def around_in_a_circle() -> bytes:
    """Return a tar whose second member's pax size makes it end where its own header begins."""
    first = files({"README": b"text"})[:1024]
    return first + pax_tar({"size": "-1536"}, "a.txt", b"text")


def broken_header() -> bytes:
    data = bytearray(files({"a.so": LIBRARY, "b.so": OTHER}))
    second = 512 + len(LIBRARY) + -len(LIBRARY) % 512
    data[second] ^= 0xFF
    return bytes(data)


LIES = {
    "past-the-end": oversized("a.so"),
    "past-the-end-of-no-library": oversized("a.txt"),
    "exbibytes": tar(member("a.txt", LIBRARY, size=EXBIBYTE << 20)),
    "exbibytes-to-skip": tar(member("a.txt", bytes(99_999), size=EXBIBYTE << 20)),
    "below-zero": below_zero("a.so", -256),
    "below-zero-no-library": below_zero("a.txt", -1536),
    "circle": around_in_a_circle(),
    "sparse-cut": header("a.so", tarfile.GNUTYPE_SPARSE, 482, b"\1"),
    "below-zero-by-pax": pax_tar({"size": "-4096"}, "a.so", LIBRARY),
    "pax-size-no-number": pax_tar({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, "a.so", LIBRARY),
    "broken-second-header": broken_header(),
    "cut-second-header": files({"a.so": LIBRARY})[: 512 + len(LIBRARY) + -len(LIBRARY) % 512 + 100],
    "behind-the-end": files({"a.so": LIBRARY}) + files({"b.so": OTHER}),
    "endless-name": tar(member("n", b"n" * 100_000, type=tarfile.GNUTYPE_LONGNAME), member("a.so", LIBRARY)),
    "headers-of-headers": tar(
        *[member("x", b"9 a=b\n...", type=tarfile.XHDTYPE)] * 3000, member("a.so", LIBRARY)
    ),
}


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("lie", LIES)
def test_a_tar_whose_headers_lie_is_told(refuses: Refuses, lie: str, compressed: bool) -> None:
    assert refuses(gzip.compress(LIES[lie]) if compressed else LIES[lie])


@pytest.mark.parametrize(
    ("kind", "size"), [("tar", 200_000_000), ("sparse", 200_000_000), ("zip", 1_200_000)]
)
def test_what_is_larger_than_the_disk_is_told_before_it_is_written(
    opener: Opener, work: Path, kind: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {f"{number}.so": bytes(300_000) for number in range(4)}
    data = zipped(members) if kind == "zip" else _claiming(size, sparse=kind == "sparse")
    (work / "x").write_bytes(data)
    free = shutil.disk_usage(work)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    told = said(opener, work / "x", DiskError)
    assert f"about {size:,} bytes are needed, 1,000,000 are free" in told
    assert told.endswith("Free space there and run again.")


def _claiming(size: int, *, sparse: bool) -> bytes:
    """Return a tar with a library whose header claims ``size`` bytes."""
    if sparse:
        return pax_tar({"GNU.sparse.size": str(size), "GNU.sparse.map": "0,512"}, "a.so", LIBRARY)
    return tar(member("a.so", LIBRARY + bytes(99_999), size=size))


MORE_BYTES = "has more bytes than belong into an archive of its size. If that is intended, unpack it"


@pytest.mark.parametrize("size", [EXBIBYTE, 20 << 30, 300 << 20])
@pytest.mark.parametrize("name", ["a.so", "readme.txt"])
def test_a_small_archive_that_claims_gigabytes_is_told(refuses: Refuses, size: int, name: str) -> None:
    """Defect: 655 KB of zstd became 13 GB on disk before the reader checked its limit on files."""
    assert MORE_BYTES in refuses(compress(tar(member(name, bytes(1 << 20), size=size))))
    assert MORE_BYTES in refuses(_claiming(size, sparse=True))


def test_a_member_larger_than_any_library_is_not_written(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "scratch")
    with pytest.raises(IntegrityError, match=r"a has 4,294,967,297 bytes: no library is larger than 4 GiB\."):
        scratch.keep(io.BytesIO(), (4 << 30) + 1, "a")


def sparse_by_pax(pieces: int) -> bytes:
    """Return a tar with a library in GNU's sparse format 1.0: two numbers for each piece, before
    the bytes."""
    told = b"%d\n" % pieces + b"0\n0\n" * pieces
    records = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}
    return pax_tar(records, "a.so", told + bytes(-len(told) % 512))


def sparse_by_gnu(blocks: int) -> bytes:
    """Return a tar in GNU's old sparse format: 21 pieces a block, and a byte that announces one
    more block."""
    block = b"00000000001\0" * 42 + b"\1" + bytes(7)
    return header("a.so", tarfile.GNUTYPE_SPARSE, 482, b"\1") + block * blocks + bytes(1024)


def pax_block(body: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return tar(member("x", body, type=kind), end=b"")


RECORDS = b"".join(b"9 %04d=a\n" % place for place in range(7000))

EMPTY = member("a.txt")[0].tobuf(tarfile.GNU_FORMAT)

ENDLESS: dict[str, Callable[[], bytes]] = {
    "sparse-pax": lambda: sparse_by_pax(8_000_000),
    "sparse-gnu": lambda: sparse_by_gnu(200_000),
    "sparse-often": lambda: sparse_by_pax(2500),
    "empty-files": lambda: EMPTY * 400_000,
    "empty-libraries": lambda: b"".join(tar(member(f"{place}.so"), end=b"") for place in range(4500)),
    "digits": lambda: pax_block(b"1" * 65_000) * 400,
    "records-for-all": lambda: pax_block(RECORDS, tarfile.XGLTYPE) + EMPTY * 20_000,
}
"""Archives with more of something than is read, each by the function that makes it."""


@pytest.mark.parametrize("kind", ENDLESS)
def test_little_that_would_take_long_is_told_soon(refuses: Refuses, kind: str, told: Told) -> None:
    packed_data = gzip.compress(ENDLESS[kind]() + bytes(1024), 6)
    assert len(packed_data) < 1_500_000
    started = time.process_time()
    told(refuses(packed_data))
    assert time.process_time() - started < 12


def test_members_are_not_kept(opener: Opener, work: Path) -> None:
    """``tarfile`` alone would keep about 400 bytes of each member: 5 MB in total."""
    many = b"".join(tar(member(f"{place:05}"), end=b"") for place in range(8000))
    (work / "x.tar").write_bytes(many + files({"a.so": LIBRARY}))
    tracemalloc.start()
    try:
        assert found(opener, work / "x.tar") == {"a.so": LIBRARY}
        assert tracemalloc.get_traced_memory()[1] < 3_500_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("option", ["--gzip", "--zstd", "--bzip2", "--xz"])
@pytest.mark.parametrize("part", [0.02, 0.5, 0.98])
def test_a_compressed_tar_that_is_cut_is_told(
    opener: Opener, work: Path, tmp_path: Path, option: str, part: float
) -> None:
    folder = work / "folder"
    folder.mkdir()
    (folder / "a.so").write_bytes(LIBRARY + os.urandom(300_000))
    archive = packed(folder, work / "x.tar", option)
    data = archive.read_bytes()
    archive.write_bytes(data[: int(len(data) * part)])
    told = refused(opener, archive)
    assert told.endswith("It may be damaged or cut short; fetch or make it again.")


def test_a_checksum_behind_the_last_member_is_compared(refuses: Refuses) -> None:
    data = bytearray(gzip.compress(tar(member("a.so", LIBRARY), end=bytes(3_000_000))))
    data[-8] ^= 0xFF
    assert "CRC check failed" in refuses(bytes(data))


@pytest.mark.parametrize("damage", ["cut", "flipped", "size", "method"])
def test_a_damaged_zip_is_told(refuses: Refuses, damage: str) -> None:
    contents = {"capi/a.so": LIBRARY * 50}
    data = zipped(contents)
    central = data.index(b"PK\x01\x02") + 10
    damaged = {
        "cut": data[:-40],
        "flipped": data[:60] + bytes(30) + data[90:],
        "size": zip_claiming(len(LIBRARY) * 51, contents),
        "method": patched(patched(data, 8, "<H", 99), central, "<H", 99),
    }
    assert refuses(damaged[damage])


def test_an_encrypted_zip_is_told(opener: Opener, tree: Path, work: Path, told: Told) -> None:
    subprocess.run(["zip", "-qr", "-P", "secret", work / "x.zip", "lib/libone.so"], cwd=tree, check=True)
    told(said(opener, work / "x.zip", ValidationError))


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.whl", "x.tar.zst"])
@pytest.mark.parametrize("data", [b"<html>Sign in</html>\n" * 99, b""], ids=["page", "empty"])
def test_an_archive_in_name_only_is_told(
    opener: Opener, work: Path, name: str, data: bytes, told: Told
) -> None:
    (work / name).write_bytes(data)
    told(said(opener, work / name, ValidationError))


def test_a_debian_package_is_no_archive_of_objects(opener: Opener, work: Path, told: Told) -> None:
    """Its libraries lie in a packed tar, so as an archive of objects it had no device code."""
    members = ar({"debian-binary": b"2.0\n", "data.tar.gz": gzip.compress(files({"a.so": LIBRARY}))})
    (work / "a.deb").write_bytes(members[:8] + members[72:])  # without the table of symbols
    told(said(opener, work / "a.deb", ValidationError))
    (work / "one.so").write_bytes(LIBRARY)
    assert found(opener, work) == {"one.so": LIBRARY}


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("a.rpm", b"\xed\xab\xee\xdb\x03\0"),
        ("a.7z", b"7z\xbc\xaf\x27\x1c\0\x04"),
        ("a.squashfs", b"hsqs\x07\0\0\0"),
        ("a.conda", b"PK\x03\x04\x14\0"),
        ("a.msi", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
        ("a.rar", b"Rar!\x1a\x07\x01\0"),
        ("a.cab", b"MSCF\0\0\0\0"),
        ("a.so.gz", gzip.compress(LIBRARY * 9)),
        ("a.cpio", b"070707"),
        ("a.txt.gz", b"\x1f\x8b\x08\0\0\0\0\0\x02\x03+I\xad(\x01\0\xc7\xa7\x8b;\x04\0\0\0"),
    ],
)
def test_formats_that_are_not_opened_are_told_alike(
    opener: Opener, work: Path, told: Told, name: str, head: bytes
) -> None:
    (work / name).write_bytes(head + bytes(64))
    told(said(opener, work / name, ValidationError))


@pytest.mark.parametrize("part", ["oci-layout", f"{'0' * 64}/layer.tar", f"blobs/sha256/{'a1' * 32}"])
def test_a_container_image_is_not_looked_into(opener: Opener, work: Path, part: str, told: Told) -> None:
    """Names of docker/docker's image/tarexport and of OCI's image-layout.md; the layer has a library."""
    contents = {"manifest.json": b"[]", part: files({"a.so": LIBRARY}), "b.so": LIBRARY}
    (work / "x.tar").write_bytes(files({f"./{name}": data for name, data in contents.items()}))
    for source in (work / "x.tar", written(work / "folder", contents)):
        told(said(opener, source, ValidationError))


@pytest.mark.parametrize("name", ["README", "empty", "empty.zip", "none.tar.gz", "folder"])
def test_what_holds_no_library_is_told(opener: Opener, work: Path, name: str, told: Told) -> None:
    inner, none = zipped({"one.so": LIBRARY}), gzip.compress(files({"README": b"text"}))
    sources = {"README": b"text", "empty": b"", "empty.zip": zipped({}), "none.tar.gz": none}
    written(work, {**sources, "folder/one.zip": inner})
    told(said(opener, work / name, NothingToDoError))


@pytest.mark.parametrize("name", ["gone.so", "fifo", "n" * 300, "file.so/x", "a\0b"])
def test_a_path_that_is_nothing_is_told(opener: Opener, work: Path, name: str) -> None:
    os.mkfifo(work / "fifo")
    (work / "file.so").touch()
    told = said(opener, f"{work}/{name}", ValidationError)
    assert told.startswith(f"{work}/{name}".replace("\0", "\\x00"))


def test_a_zstd_with_a_window_for_another_machine_is_told(refuses: Refuses) -> None:
    """A whole frame that asks for a window of 256 MiB: RFC 8878, 3.1.1.1.2."""
    data = files({"a.so": LIBRARY})
    block = struct.pack("<I", len(data) << 3 | 1)[:3] + data  # the last block, raw
    assert "needs a window of 256 MiB" in refuses(b"\x28\xb5\x2f\xfd\x00" + bytes([18 << 3]) + block)


@pytest.fixture
def server() -> Iterator[FileServer]:
    wheel = zipped({"capi/a.so": LIBRARY})
    with serve(FileServer({"a.whl": wheel, "libb.so?token=x": OTHER, "x.tar": b"sign in"})) as running:
        yield running


def test_a_url_is_fetched_and_opened(opener: Opener, work: Path, server: FileServer) -> None:
    assert found(opener, f"{server.url}/a.whl") == {"capi/a.so": LIBRARY}
    assert found(opener, f"{server.url}/libb.so?token=x#y") == {"libb.so": OTHER}


def test_the_signature_of_an_address_is_not_shown() -> None:
    """Stores of artifacts sign their addresses: whoever has read one may fetch the file."""
    assert shown("https://h/a?id=7&sig=5ecret&se=9#b") == "https://h/a?id=7&sig=…&se=9#b"
    assert shown("what?sig=1.so") == "what?sig=1.so"


PTX = b".version 8.4\n.target sm_90\n"

INSIDE = {
    "pkg/libone.so": LIBRARY,
    "pkg/two.dll": pe({".nv_fatbin": sass(80)}),
    "pkg/libthree.a": ar({"a.o": as_object(LIBRARY)}),
    "pkg/four.o": as_object(LIBRARY),
    "pkg/five": PTX,
    "README": b"text",
}

WANTED_INSIDE = {name: data for name, data in INSIDE.items() if name != "README"}


WHEEL = zipped(INSIDE)


@pytest.mark.parametrize("pack", [zipped, files])
@pytest.mark.parametrize("name", ["in.whl", "named.like.nothing"])
def test_a_wheel_in_an_archive(
    opener: Opener, work: Path, pack: Callable[[Mapping[str, bytes]], bytes], name: str
) -> None:
    (work / "outer").write_bytes(pack({"top.so": LIBRARY, f"wheels/{name}": WHEEL}))
    inner = {f"wheels/{name}/{path}": data for path, data in WANTED_INSIDE.items()}
    assert found(opener, work / "outer") == {"top.so": LIBRARY, **inner}


def test_a_wheel_in_a_wheel_in_a_wheel(opener: Opener, work: Path, told: Told) -> None:
    (work / "a.whl").write_bytes(zipped({"b.whl": zipped({"c.whl": zipped({"libx.so": LIBRARY})})}))
    assert found(opener, work / "a.whl") == {"b.whl/c.whl/libx.so": LIBRARY}
    (work / "deep.whl").write_bytes(zipped({"a.whl": (work / "a.whl").read_bytes()}))
    told(said(opener, work / "deep.whl", ValidationError))


def test_one_that_is_not_whole_is_told_by_its_path(opener: Opener, work: Path) -> None:
    (work / "a.zip").write_bytes(zipped({"x/b.whl": WHEEL[:-30]}))
    assert "a.zip: x/b.whl is damaged: File is not a zip file." in refused(opener, work / "a.zip")


def test_a_bomb_in_a_bomb_counts_as_one(opener: Opener, work: Path) -> None:
    """The limit of 256 MiB is that of the outer file; each of the inner two claims less."""
    inner = zip_claiming(150 << 20, {"x.so": LIBRARY})
    (work / "a.zip").write_bytes(zip_claiming(150 << 20, {"b.whl": inner, "y.so": LIBRARY}))
    assert MORE_BYTES in refused(opener, work / "a.zip")


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for sources; afterwards, no other file may be next to it."""
    folder = tmp_path / "work"
    (tmp_path / "dist").mkdir()
    folder.mkdir()
    yield folder
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dist", "work"]
    assert list((tmp_path / "dist").iterdir()) == []


@pytest.fixture
def opener(tmp_path: Path) -> Opener:
    transfer = HttpTransfer(reporter=FakeReporter(), sleep=lambda seconds: None, env={})
    return Opener(transfer=transfer, scratch=tmp_path / "dist" / "inspect")


def holding(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.fixture
def holds(opener: Opener, work: Path) -> Holds:
    return lambda data: found(opener, holding(work / "app.tar", data))


@pytest.fixture
def refuses(opener: Opener, work: Path) -> Refuses:
    return lambda data: refused(opener, holding(work / "app.tar", data))
