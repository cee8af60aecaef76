"""Cases for the client from a seed: hostile indexes, archives, server answers, prefixes and command lines."""

import gzip
import json
import random
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import StreamRequestHandler

from backports import zstd

from builder.files.disk import remove
from tests.doubles.loopback import LoopbackServer, listening
from tests.doubles.machine import Machine
from tests.doubles.release import archive, entry, manifest_of, name_of, write_index, write_release
from tests.support import ROOT
from tests.support.factories.archives import member

FILES = {"LICENSE": b"MIT\n", "lib/a.so": b"a" * 3000}
"""The files of a package without a host library, so that no child process tries it out."""

TOP = name_of("modern")

DEEP = "[" * 100_000

VALUES: tuple[object, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 1.5, -0.0, float("nan"), float("inf"),
    "", " ", "\0", "\x1b[31m\x07", "\N{RIGHT-TO-LEFT OVERRIDE}", "\ud800", "x" * 70_000, "9" * 5000,
    "..", "../../../x", "/dev/null/x", "C:\\x", "con", "a/" * 3000, "a:b", "é" * 300,
    "8.6", "linux-x64", "cuda", "modern", f"{TOP}.tar.zst", "0" * 64, "-" * 64, "http://127.0.0.1:1/",
    [], {}, [[]], [None], {"": {}}, [{}] * 1000, DEEP,
)  # fmt: skip
"""Values for JSON. ``DEEP`` becomes a hundred thousand nested lists, which ``json.dumps`` could not write."""


def seeded(text: str) -> random.Random:
    """Return a source of the same numbers for the same text."""
    return random.Random(text)  # noqa: S311 - cases must be repeatable


def spoiled(value: object, source: random.Random) -> object:
    """Return a JSON value of which one place is another value, absent, or there twice."""
    if isinstance(value, dict) and value and source.random() < 0.9:
        key = source.choice(list(value))
        kind = source.random()
        if kind < 0.1:
            return {name: one for name, one in value.items() if name != key}
        if kind < 0.15:
            return {**value, str(source.choice(VALUES))[:9]: source.choice(VALUES)}
        return {**value, key: spoiled(value[key], source)}
    if isinstance(value, list) and value and source.random() < 0.9:
        place = source.randrange(len(value))
        kind = source.random()
        if kind < 0.1:
            return [*value, value[place]]
        return [*value[:place], spoiled(value[place], source), *value[place + 1 :]]
    return source.choice(VALUES)


def json_text(value: object, source: random.Random) -> bytes:
    """Return ``value`` as JSON after one to three changes, and now and then not quite JSON or UTF-8."""
    for _ in range(source.randint(1, 3)):
        value = spoiled(value, source)
    text = json.dumps(value).replace(f'"{DEEP}"', DEEP)
    kind = source.random()
    if kind < 0.9:
        return text.encode()
    return source.choice((
        text[: source.randrange(len(text))].encode(),
        text.encode("utf-16"),
        b"\xef\xbb\xbf" + text.encode(),
        text.encode() + b"}",
        damaged(text.encode(), source),
    ))  # fmt: skip


def damaged(data: bytes, source: random.Random) -> bytes:
    """Return ``data`` cut short, lengthened, or with some bytes changed."""
    kind = source.random()
    if kind < 0.2:
        return data[: source.randrange(len(data) + 1)]
    if kind < 0.3:
        return data + source.randbytes(source.randint(1, 2000))
    changed = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 8, 64))):
        changed[source.randrange(len(changed))] = source.randrange(256)
    return bytes(changed)


TABLES = json.loads((ROOT / "tests/data/fuzz/client.json").read_text())
"""Names, command lines, variables and HTTP headers, most of them hostile."""

TEXTS = tuple(text for text in VALUES if isinstance(text, str) and text not in {"\ud800", DEEP})

NAMES = (*TEXTS, *TABLES["names"])
"""Names for a package's files."""


class Field:
    """A folder with a good release, in which the cases of a run are made and tried."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.decoy = place / "decoy"
        for name in ("kept", "parts/kept", "downloads/kept", "lib/kept"):
            (self.decoy / name).parent.mkdir(parents=True, exist_ok=True)
            (self.decoy / name).write_text("somebody's")
        self.good = write_release(place / "good", files=FILES, forms=(".tar.zst", ".tar.gz"))

    def index(self, machine: Machine, source: random.Random) -> Iterator[tuple[str, ...]]:
        """Yield a command for a spoiled index beside good packages."""
        index = self.good.with_name("case.json")
        index.write_bytes(json_text(json.loads(self.good.read_text()), source))
        command = source.choice(("install", "install", "select", "list", "recommend"))
        yield (command, "--index", str(index), *(["--json"] if source.random() < 0.3 else []))

    def archive(self, machine: Machine, source: random.Random) -> Iterator[tuple[str, ...]]:
        """Yield an install of a spoiled archive, whose size and sha256 the index states as they are."""
        folder = self.place / "case"
        folder.mkdir()
        form = source.choice((".tar.zst", ".tar.gz"))
        content, size = spoiled_archive(form, source)
        file = folder / f"{TOP}{form}"
        file.write_bytes(content)
        index = write_index(folder, [entry("modern", content, size, form=form)])
        yield ("install", *source.choice((("--index", str(index)), ("--offline", str(file)))))
        shutil.rmtree(folder)

    def server(self, machine: Machine, source: random.Random) -> Iterator[tuple[str, ...]]:
        """Yield an install from a server whose first answers are wrong."""
        with answering(self.good.parent, source, source.randint(1, 6)) as url:
            yield ("install", "--index", f"{url}/index.json")

    def prefix(self, machine: Machine, source: random.Random) -> Iterator[tuple[str, ...]]:
        """Yield a command on an installed package after some files of the prefix were spoiled."""
        machine.run("install", "--index", str(self.good))
        for _ in range(source.randint(1, 3)):
            spoil_file(machine.prefix, source, self.decoy)
        command = source.choice(COMMANDS)
        yield (*command, "--index", str(self.good)) if command == ("install",) else command

    def words(self, machine: Machine, source: random.Random) -> Iterator[tuple[str, ...]]:
        """Yield a command line with hostile flags, in a hostile environment."""
        machine.env = {
            name: source.choice(WORDS) for name in source.sample(TABLES["variables"], source.randint(0, 4))
        }
        command = source.choice([*COMMANDS, ("select",), ("recommend",), ("detect",), ("list",), ()])
        flags = [source.choice(TABLES["flags"]) for _ in range(source.randint(0, 3))]
        words = [
            word for flag in flags for word in (flag, source.choice(WORDS))[: source.choice((1, 2, 2, 2))]
        ]
        if source.random() < 0.5:
            words += ["--index", str(self.good)]
        yield (*command, *words)


COMMANDS = tuple(map(tuple, TABLES["commands"]))


WORDS = (*(text for text in TEXTS if text not in {"\0", "a:b"}), "\udcff", "570." * 2000, *TABLES["words"])
"""Words behind flags. ``--prefix`` is no flag of ``TABLES``: a case may write below its home folder only."""


def spoil_file(prefix: Path, source: random.Random, decoy: Path) -> None:
    """Spoil one file, link or folder under the prefix: its content, its kind, its being there.

    A link leads to ``decoy``, a folder with files that nothing may change.
    """
    places = sorted(prefix.rglob("*"))
    if not places:
        return
    path = source.choice(places)
    kind = source.choice(("content", "content", "absent", "folder", "file", "link", "loop", "elsewhere"))
    if kind == "content" and path.is_file() and not path.is_symlink():
        data = path.read_bytes()
        with suppress(ValueError):  # it was spoiled before
            if path.suffix == ".json" and source.random() < 0.8:
                path.write_bytes(json_text(json.loads(data), source))
                return
        path.write_bytes(damaged(data or b"x", source))
        return
    remove(path)
    targets = {"link": decoy, "loop": Path(path.name), "elsewhere": Path("versions/none")}
    if kind in targets:
        path.symlink_to(targets[kind])
    elif kind == "folder":
        (path / "a").mkdir(parents=True)
    elif kind == "file":
        path.write_bytes(source.randbytes(9))


def spoiled_archive(form: str, source: random.Random) -> tuple[bytes, int]:
    """Return a package whose names, manifest, members, headers or bytes are spoiled, and its size."""
    kind = source.random()
    files = {**FILES, source.choice(NAMES): b"x"} if kind < 0.2 else FILES
    manifest = json.dumps(manifest_of("modern", files)).encode()
    if 0.2 <= kind < 0.5:
        manifest = json_text(manifest_of("modern", files), source)
    members = [member(f"{TOP}/{path}", data) for path, data in {"manifest.json": manifest, **files}.items()]
    if 0.5 <= kind < 0.75:
        for _ in range(source.randint(1, 3)):
            _spoil_member(members, source)
    if kind < 0.9:
        tar = gzip.decompress(archive(members, ".tar.gz"))
        tar = damaged(tar, source) if kind >= 0.75 else tar
        content = zstd.compress(tar) if form == ".tar.zst" else gzip.compress(tar)
    else:
        content = damaged(archive(members, form), source)
    return content, sum(map(len, files.values()))


def _spoil_member(members: list[tuple[tarfile.TarInfo, bytes]], source: random.Random) -> None:
    place = source.randrange(len(members))
    info, content = members[place]
    name = source.choice(NAMES)
    change = source.choice(("name", "below", "kind", "link", "drop", "twice", "swap", "bytes", "sparse"))
    if change == "drop" and len(members) > 1:
        del members[place]
    elif change == "twice":
        members.append(members[place])
    elif change == "swap":
        members.reverse()
    elif change == "bytes":
        members[place] = member(info.name, damaged(content, source))
    else:
        named = {"name": name, "below": f"{TOP}/{name}"}.get(change, info.name)
        kinds = b"0123456789\0LKSxg" if change in {"kind", "link"} else b"0"
        at = source.randrange(len(kinds))
        link = name if change == "link" else ""
        members[place] = member(named[:200], content, type=kinds[at : at + 1], linkname=link)
        if change == "sparse":
            members[place][0].pax_headers = {
                "GNU.sparse.major": "1",
                "GNU.sparse.minor": "0",
                "size": "9" * 30,
            }


STATUSES = (*(line.encode("latin-1") for line in TABLES["statuses"]), b"HTTP/1.1 " + b"9" * 5000)


HEADERS = (
    *(("Content-Length", value) for value in TABLES["lengths"]),
    *map(tuple, TABLES["headers"]),
    ("ETag", '"' + "x" * 9000 + '"'),
    ("X" * 70_000, ""),
)


def wrong_answer(content: bytes, source: random.Random) -> bytes:
    """Return the bytes of an answer with a file's ``content`` and some wrong headers, or no HTTP at all."""
    body = source.choice((content, b"", b"<html>sorry</html>", damaged(content or b"x", source)))
    chosen = source.sample(HEADERS, source.choice((0, 1, 1, 2, 3, 8)))
    lines = [source.choice(STATUSES[: source.choice((1, 3, len(STATUSES)))])]
    lines += [f"{name}: {value.format(len(content))}".encode("utf-8", "replace") for name, value in chosen]
    return b"\r\n".join([*lines, b"", body])


@contextmanager
def answering(folder: Path, source: random.Random, wrong: int) -> Iterator[str]:
    """Serve the files of ``folder``, after so many wrong answers, and yield the server's URL."""
    left = [source.random() < 0.7 for _ in range(wrong)]
    seed = source.random()

    class Answer(StreamRequestHandler):
        def handle(self) -> None:
            path = self.rfile.readline().split(b" ")[1].decode().partition("?")[0]
            while self.rfile.readline().strip():
                pass
            file = folder / path.lstrip("/")
            content = file.read_bytes() if file.is_file() else b""
            if left and left.pop():
                self.wfile.write(wrong_answer(content, seeded(f"{seed} {len(left)}")))
            else:
                status = b"200 OK" if content else b"404 No"
                self.wfile.write(
                    b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(content), content)
                )

    class Answers(LoopbackServer):
        def handle_error(self, *_: object) -> None:
            """Print nothing: the client hangs up on wrong answers."""

    with listening(Answers(Answer)) as url:
        yield url


SURFACES: dict[str, Callable[[Field, Machine, random.Random], Iterator[tuple[str, ...]]]] = {
    "index": Field.index,
    "archive": Field.archive,
    "server": Field.server,
    "prefix": Field.prefix,
    "words": Field.words,
}

FIRST = ("index", "archive", "server")
"""The surfaces whose cases find an empty prefix and know where their package comes from."""
