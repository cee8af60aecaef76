"""Tests of archives with members outside their folder or too many bytes: the installed version stays in use.

Each archive has the size and hash of its index, so that only unpacking finds the fault.
"""

import io
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from backports import zstd

from tests.doubles.release import members, name_of, write_one
from tests.support.factories import archives
from tests.support.factories.archives import member
from tests.support.faults.client import Ground, Quick, outlive

TOP = name_of("modern")

FILES = {"LICENSE": b"MIT\n", "lib/a.so": b"a" * 100}

MEGABYTES = 200 * 2**20
"""Memory limit in bytes: an honest install takes less, an unpacked bomb more."""


def tar(files: dict[str, bytes] = FILES) -> bytes:
    """Return the tar of an honest package without the two empty blocks at its end."""
    return archives.tar(*members("modern", files), end=b"")


def raw(name: str, kind: bytes = b"0", content: bytes = b"", **header: object) -> bytes:
    """Return one tar member; ``header`` may have another ``size`` than the content."""
    return archives.tar(member(name, content, type=kind, **header), end=b"")


def pax(**records: str) -> bytes:
    """Return an extended pax header for the next member."""
    body = b""
    for key, value in records.items():
        text = f" {key.replace('__', '.')}={value}\n".encode(errors="surrogateescape")
        size = len(text) + 1
        while len(str(size)) + len(text) != size:
            size += 1
        body += str(size).encode() + text
    return raw("pax", b"x", body)


def escaping(path: str) -> bytes:
    return tar() + raw(path, content=b"x")


def kind(letter: bytes, link: str = "") -> bytes:
    return tar() + raw(f"{TOP}/lib/b.so", letter, linkname=link)


def listed_as(letter: bytes, link: str) -> bytes:
    """Return an archive in which a listed file has the member type ``letter``."""
    instead = member(f"{TOP}/lib/a.so", type=letter, linkname=link)
    return archives.tar(*members("modern", FILES)[:-1], instead, end=b"")


NEXT = raw(f"{TOP}/lib/b.so", content=b"x")

SPARSE = {"GNU__sparse__major": "1", "GNU__sparse__minor": "0"}

KINDS: dict[str, dict[str, bytes]] = {
    "absolute": {"/tmp": escaping("/tmp/ortpacks-escaped"), "by pax": tar() + pax(path="/tmp/e") + NEXT},
    "dot dot": {
        "up": escaping(f"{TOP}/../escaped"),
        "at the end": escaping(f"{TOP}/lib/.."),
        "by pax": tar() + pax(path=f"{TOP}/../../escaped") + NEXT,
        "by a long name": tar() + raw("././@LongLink", b"L", f"{TOP}/../{'y' * 200}".encode()) + NEXT,
        "beside": escaping("other/b.so"),
        "a folder": tar() + raw(f"{TOP}/lib/..", b"5"),
    },
    "symlink": {
        "out": kind(b"2", "/etc"),
        "in": kind(b"2", "a.so"),
        "listed": listed_as(b"2", "/etc/passwd"),
        "then through it": tar() + raw(f"{TOP}/out", b"2", linkname="/tmp") + raw(f"{TOP}/out/x"),
    },
    "hard link": {
        "out": kind(b"1", "/etc/passwd"),
        "in": kind(b"1", f"{TOP}/LICENSE"),
        "listed": listed_as(b"1", "/etc/passwd"),
    },
    "device or fifo": {
        "character": kind(b"3"), "block": kind(b"4"), "fifo": kind(b"6"), "contiguous": kind(b"7"),
        "listed": listed_as(b"3", ""),
    },
    "twice": {"file": tar() + raw(f"{TOP}/lib/a.so", content=b"a" * 100), "manifest": tar() + tar()},
    "case": {"LIB": escaping(f"{TOP}/LIB/a.so"), "license": escaping(f"{TOP}/license")},
    "a name": {
        "backslash": escaping(f"{TOP}/lib\\..\\..\\x"),
        "drive": escaping(f"{TOP}/C:/x"),
        "stream": escaping(f"{TOP}/lib/a.so:x"),
        "nul": tar() + pax(path=f"{TOP}/lib/a.so\0x") + NEXT,
        "empty part": escaping(f"{TOP}//x"),
        "dot": escaping(f"{TOP}/./x"),
        "no UTF-8": tar() + pax(path=f"{TOP}/lib/\udc80") + NEXT,
        "controls": escaping(f"{TOP}/lib/\x1b[2J"),
    },
    "sparse": {
        "old": tar() + raw(f"{TOP}/lib/b.so", b"S"),
        "map that is none": tar() + pax(GNU__sparse__map="1,2,x,y") + NEXT,
        "1.0 that ends": tar() + pax(**SPARSE) + NEXT,
        "1.0 of 2 EiB": tar() + pax(**SPARSE, GNU__sparse__realsize=str(2**61)) + NEXT,
        "listed": tar({"LICENSE": b"MIT\n"})[:-1024] + pax(GNU__sparse__size="9") + NEXT,
    },
    "a header": {
        "recursion": tar() + pax(comment="x") * 3000 + NEXT,
        "a long number": tar() + raw("pax", b"x", b"9" * 5000 + b" a=b\n") + NEXT,
        "2 EiB": tar() + raw(f"{TOP}/lib/b.so", size=2**61),
        "negative": tar() + pax(size="-5") + NEXT,
        "truncated": tar()[:-700],
    },
    "too many": {
        "folders": tar({"LICENSE": b"MIT\n"})[:-1024] + raw(f"{TOP}/d", b"5") * 21_000,
        "files": tar() + b"".join(raw(f"{TOP}/lib/{number}.so") for number in range(3000)),
    },
}  # fmt: skip

CASES = [(family, case) for family, cases in KINDS.items() for case in cases]


def release_of(folder: Path, content: bytes) -> str:
    return str(write_one(folder, zstd.compress(content), 104))


@pytest.mark.parametrize(("family", "case"), CASES)
def test_nothing_gets_out(quick: Quick, ground: Ground, tmp_path: Path, family: str, case: str) -> None:
    index = release_of(tmp_path / "release", KINDS[family][case] + bytes(1024))
    before = {path for path in quick.prefix.rglob("*") if "versions" in path.parts}
    assert quick.run("install", "--index", index) == 7, quick.err
    assert {path for path in quick.prefix.rglob("*") if "versions" in path.parts} == before
    assert quick.litter() == [str(path) for path in (quick.prefix / ".ortpacks" / "downloads").iterdir()]
    outlive(quick, index, {7}, cure=str(ground.newer))
    assert {path.name for path in tmp_path.iterdir()} == {"release", "home"}
    assert not list(Path("/tmp").glob("ortpacks-escaped*"))


def test_an_honest_one_of_the_same_making_is_installed(quick: Quick, tmp_path: Path) -> None:
    assert quick.run("install", "--index", release_of(tmp_path / "release", tar() + bytes(1024))) == 0
    assert quick.run("verify") == 0


@pytest.mark.parametrize("mode", [0o6777, 0o1777, 0o000])
def test_every_user_can_read_what_was_installed(tmp_path: Path, mode: int) -> None:
    """The modes are ours, whatever the archive says, and under a strict umask."""
    packed = [member(TOP, type=b"5"), *members("modern", FILES)]
    for info, _ in packed:
        info.mode = mode
    index = release_of(tmp_path / "release", archives.tar(*packed))
    machine, before = Quick(tmp_path / "home"), os.umask(0o077)
    try:
        assert machine.run("install", "--index", index) == 0, machine.err
    finally:
        os.umask(before)
    folder = (machine.prefix / "current").resolve()
    for path in (folder.parent, folder, *folder.rglob("*")):
        run_or_entered = path.is_dir() or ".so" in path.name
        assert path.stat().st_mode & 0o7777 == (0o755 if run_or_entered else 0o644), path


BOMBS = {
    "pax": raw("bomb", b"x", size=2**30),
    "global": raw("bomb", b"g", size=2**30),
    "name": raw("bomb", b"L", size=2**30),
    "link": raw("bomb", b"K", size=2**30),
    "sparse": pax(**SPARSE) + raw("bomb", size=2**30) + b"999999999\n" * 50 + b"1\n" * 6,
}


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Limit this process's address space to ``MEGABYTES`` more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    old = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEGABYTES, old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, old)


@pytest.mark.parametrize("head", BOMBS.values(), ids=list(BOMBS))
def test_a_header_of_a_gigabyte_is_not_read_into_memory(
    quick: Quick, ground: Ground, tmp_path: Path, little_memory: None, head: bytes
) -> None:
    bomb = io.BytesIO()
    with zstd.open(bomb, "wb") as stream:
        stream.write(tar() + head)
        for _ in range(2**10):
            stream.write(b"1\n" * 2**19)
        stream.write(NEXT + bytes(1024))
    index = write_one(tmp_path / "release", bomb.getvalue(), 104)
    outlive(quick, str(index), {7}, cure=str(ground.newer))
