"""Tests of archives that contradict their manifests: each has the right hash, is refused and leaves nothing.

``test_faults_tar`` has archives with members outside their folder.
"""

import gzip
import io
import itertools
import lzma
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from backports import zstd

from builder.client.install.unpack import extract, open_tar
from builder.errors import CommandError, IntegrityError, ToolMissingError
from builder.files import decompression
from builder.files.decompression import output_of, require_zstd, window_of
from builder.formats.manifest import Manifest
from builder.formats.package_names import Form
from tests.doubles.gpus import program
from tests.doubles.machine import Machine
from tests.doubles.release import archive, members, name_of, write_one
from tests.support.factories.archives import member

TOP = name_of("modern")

FILES = {"LICENSE": b"MIT\n", "lib/a.so": b"a" * 100}

Members = list[tuple[tarfile.TarInfo, bytes]]

Readers = Callable[..., None]
"""A function that makes modules and programs the only ones here that can decompress zstd."""


MACS_BSDTAR = """\
echo "bsdtar: Error opening archive: Can't initialize filter; unable to run program \\"zstd -d -qq\\"" >&2
exit 1
"""
"""Message and exit status of libarchive 3.5 without libzstd on a machine without zstd."""


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Readers]:
    def only(*modules: str, **scripts: str) -> None:
        monkeypatch.setattr(decompression, "MODULES", modules)
        programs = {name: program(tmp_path, script, name) for name, script in scripts.items()}
        monkeypatch.setattr(shutil, "which", programs.get)
        decompression._reader.cache_clear()

    yield only
    decompression._reader.cache_clear()


def good(files: dict[str, bytes] = FILES) -> Members:
    return members("modern", files)


def taken(packed: Members, folder: Path, end: bytes = b"") -> Manifest:
    """Unpack a tar of ``packed`` with these bytes at its end into the new ``folder``."""
    folder.mkdir()
    return extract(io.BytesIO(zstd.decompress(archive(packed)) + end), TOP, folder, 104)


HOSTILE: dict[str, tuple[Members, str]] = {
    "not listed": ([*good(), member(f"{TOP}/lib/extra.so", b"x")], "its manifest does not list"),
    "other bytes": ([*good()[:2], member(f"{TOP}/lib/a.so", b"b" * 100)], "sha256 differs"),
    "longer than listed": ([*good()[:2], member(f"{TOP}/lib/a.so", b"a" * 101)], "size differs"),
    "one missing": (good()[:2], "lacks lib/a.so"),
    "manifest last": ([*good()[1:], good()[0]], "does not begin with manifest.json"),
    "empty": ([], "does not begin with manifest.json"),
    "manifest lists dot dot": (good({"../escaped": b"x"}), "does not lie in its folder"),
    "manifest lists no UTF-8": (good({"lib/\udc80.so": b"x"}), "half of a surrogate pair"),
    "manifest lists deep folders": (good({"lib/" + "a/" * 40 + "a.so": b"x"}), "does not lie in its folder"),
    "manifest lists itself": (good({"manifest.json": b"x"}), "lists itself"),
    "manifest lists our own file": (good({"gpu-package-info.json": b"x"}), "lists itself, gpu-package-info"),
    "manifest lists a file in a file": (good({"lib": b"x", "lib/a.so": b"y"}), "a part of that path"),
    "manifest lists a file in itself": (good({"manifest.json/a.so": b"x"}), "a part of that path"),
    "two names that are one on Windows and macOS": (good({"A.so": b"1", "a.SO": b"2"}), "some twice"),
    "two names that are one on macOS": (good({"caf\u00e9": b"1", "cafe\u0301": b"2"}), "some twice"),
    "two orders of marks": (good({"\u03b1\u0345\u0301": b"1", "\u03b1\u0301\u0345": b"2"}), "some twice"),
    "folders without end": (
        [*good(), *([member(f"{TOP}/d", type=tarfile.DIRTYPE)] * 20_000)], "has more files than belong",
    ),
    "larger than the index says": (good({"lib/huge.so": b"0" * 5000}), "unpacked size differs: 5000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize(("packed", "words"), HOSTILE.values(), ids=HOSTILE)
def test_an_archive_against_its_manifest_is_refused(tmp_path: Path, packed: Members, words: str) -> None:
    with pytest.raises(IntegrityError, match=f"{TOP}: .*{words}"):
        taken(packed, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_lies_behind_the_end_of_the_tar_is_refused(tmp_path: Path) -> None:
    taken(good(), tmp_path / "zeros", end=bytes(9000))
    with pytest.raises(IntegrityError, match="bytes behind the end"):
        taken(good(), tmp_path / "text", end=bytes(9000) + b"text")


@pytest.mark.parametrize(
    "name",
    ["lib/nul", "lib/CON.so", "com1.dll/x", "lib/a.", "lib /a", "lib/a?b", "lib/a<b", "lib/a|b", "lib/\x07"],
)
def test_a_name_that_windows_takes_for_something_else_is_in_no_package(tmp_path: Path, name: str) -> None:
    """A device, another file, a pattern: refused on every system, because packages are made for
    all systems."""
    with pytest.raises(IntegrityError, match="is no name of a file on Windows"):
        taken(good({name: b"x"}), tmp_path / "out")


@pytest.mark.parametrize("script", ["", MACS_BSDTAR, "exit 0", "echo not what was asked for", "kill -9 $$"])
def test_a_seeming_program_is_none(readers: Readers, capfd: pytest.CaptureFixture[str], script: str) -> None:
    readers(**(dict.fromkeys(("bsdtar", "tar"), script) if script else {}))
    with pytest.raises(ToolMissingError, match=r"(?s)Nothing here can.*apt install zstd") as caught:
        require_zstd()
    assert caught.value.exit_code == 4
    assert capfd.readouterr() == ("", ""), "nobody has to read what a mere try says"


def test_what_works_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: Readers) -> None:
    """No temporary file can be made for the try."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    readers(zstd="exit 1", bsdtar=MACS_BSDTAR, tar="exec zstd -dcq")
    assert unpacked(tmp_path, zstd.compress(b"text")) == b"text"


def test_a_broken_module_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: Readers) -> None:
    (tmp_path / "broken_zstd.py").write_text("ZstdFile = None\ndef open(file, mode): raise MemoryError\n")
    monkeypatch.syspath_prepend(tmp_path)
    readers("broken_zstd", "backports.zstd")
    require_zstd()
    readers("broken_zstd")
    with pytest.raises(ToolMissingError):
        require_zstd()


def test_a_program_that_fails_is_the_reason_and_not_what_came_of_it(tmp_path: Path, readers: Readers) -> None:
    """A program that refuses a window prints nothing: its failure is reported, not an empty archive."""
    tried = tmp_path / "tried"
    readers(zstd=f"[ -e {tried} ] && exit 1; touch {tried}; exec zstd -dcq")
    (tmp_path / "x.zst").write_bytes(archive(good()))
    with (
        pytest.raises(IntegrityError, match="zstd exited with 1"),
        open_tar(tmp_path / "x.zst", Form.ZST) as it,
    ):
        extract(it, TOP, tmp_path / "out", 100)


def test_a_frame_whose_window_nobody_reads_is_not_called_damaged(machine: Machine, tmp_path: Path) -> None:
    long = ["zstd", "--long=28", "--stdout", "--quiet"]
    content = subprocess.run(long, input=zstd.decompress(archive(good())), capture_output=True, check=True)
    with pytest.raises(zstd.ZstdError, match="too much memory"):
        zstd.decompress(content.stdout)
    assert machine.run("install", "--index", str(write_one(tmp_path / "release", content.stdout, 104))) == 7
    assert "its zstd frame needs a window of 256 MiB, and packages have at most 128 MiB." in machine.err
    assert "The file is not damaged" in machine.err


@pytest.mark.parametrize("log", range(10, 32))
def test_the_window_is_that_of_the_frame(log: int) -> None:
    options: dict[int, int] = {zstd.CompressionParameter.window_log: log}
    packer = zstd.ZstdCompressor(options=options)
    assert window_of(packer.compress(b"x", packer.FLUSH_BLOCK)) == 2**log


@pytest.mark.parametrize("length", [5, 300, 70_000])
def test_a_frame_of_one_segment_needs_the_memory_of_its_content(length: int) -> None:
    assert window_of(zstd.compress(bytes(length))) == length


def unpacked(folder: Path, content: bytes) -> bytes:
    (folder / "x.zst").write_bytes(content)
    with open_tar(folder / "x.zst", Form.ZST) as stream:
        return stream.read()


@pytest.fixture(params=["module", "program"])
def read(request: pytest.FixtureRequest, readers: Readers, tmp_path: Path) -> Callable[[bytes], bytes]:
    """Return a function that unpacks bytes by one reader of zstd."""
    if request.param == "module":
        readers("backports.zstd")
    else:
        readers(zstd='exec zstd "$@"')
    return partial(unpacked, tmp_path)


def test_every_reader_gives_the_same_bytes_of_many_frames(read: Callable[[bytes], bytes]) -> None:
    """Blocks are raw, compressed or one byte repeated; sizes have 0 to 8 bytes; checksums are optional."""
    texts = [b"", b"x", os.urandom(300), bytes(70_000), b"ab" * 200_000 + os.urandom(300_000)]
    flags = (zstd.CompressionParameter.checksum_flag, zstd.CompressionParameter.content_size_flag)
    packed = struct.pack("<II", 0x184D2A50, 3) + b"abc"  # a frame to be skipped
    for checksum, sized in itertools.product((0, 1), repeat=2):
        options: dict[int, int] = dict(zip(flags, (checksum, sized), strict=True))
        packed += b"".join(zstd.compress(text, options=options) for text in texts)
    argv = ["zstd", "-q", "-c", "--ultra", "-20"]
    packed += subprocess.run(argv, input=texts[-1], capture_output=True, check=True).stdout
    assert read(packed) == b"".join(texts) * 4 + texts[-1]


def test_a_program_that_is_left_early_is_ended_and_not_read_to_its_end() -> None:
    with Path("/dev/zero").open("rb") as zeros:
        endless = ["sh", "-c", "head -c 3000000; exit 5"]
        with output_of(endless, zeros) as stream:
            assert stream.read(10) == bytes(10)
        with pytest.raises(CommandError), output_of(endless, zeros) as stream:
            stream.read()


GOOD = archive(good())

NOT_WHOLE = {
    "half": GOOD[:-20],
    "none": b"not zstd at all",
    "gzip": archive(good(), ".tar.gz"),
    "empty": b"",
    "then-gzip": GOOD + archive(good(), ".tar.gz"),
    "gzip-between": GOOD + gzip.compress(b"more") + GOOD,
    "then-xz": GOOD + lzma.compress(b"more"),
    "then-half": GOOD + GOOD[:-20],
    "then-a-magic": GOOD + b"\x28\xb5\x2f\xfd",
    "then-text": GOOD + b"behind",
    "then-a-byte": GOOD + b"\x1f",
    "skip": GOOD + struct.pack("<II", 0x184D2A5F, 9) + b"short",
}


@pytest.mark.parametrize("content", NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_every_reader_refuses_what_is_no_whole_zstd(read: Callable[[bytes], bytes], content: bytes) -> None:
    with pytest.raises(IntegrityError):
        read(content)
