"""This benchmark compares packing of archives with ``tar czf`` and with the compressor alone, in turn.

    python -m benchmarks.bundle FOLDER [--runs N] [--threads N] [--only TEXT] [--scratch FOLDER]

FOLDER holds the files of a package, the libraries at least; links in it are followed. Every way ends with its
archive on the disk, synced. There are three kinds of ways:

- by hand: ``cp -L`` of every file into a folder, then ``tar czf`` of the folder (gzip -6);
- ours: a whole process that writes a package (read, hash, compare, tar, compress, hash). The sha256 that each
  file must have is computed before, as a wheel's RECORD has it for a build;
- alone: the compressor without tar and hashes, as the same library in a whole process, and as the program
  ``zstd`` where it is installed.

All files are read once before, so that every way finds them in the page cache. The disk must have room for
about 1.7 times the size of the files.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import Outcome, Way, answer, take_turns
from builder.adapters.archive.compression import compressor
from builder.adapters.archive.package_archive import PackageArchive
from builder.console import Console
from builder.files.digest import Digest, chunks_of, file_digest
from builder.formats.package_names import Form, form_of
from builder.package.archive import Content, Member
from builder.project.variants import Preset

NAME = "ortpacks-benchmark-1.0.0-cuda12.9-linux-x64"
BY_HAND = "cp -L, tar czf"
BEFORE = 'for file in "$@"; do cp -L "$file" copies/; done; tar czf out -C copies . && sync out'
CLI = {
    Preset.FAST: 'cat "$@" | zstd -q -3 -T$THREADS -o out && sync out',
    Preset.SMALL: 'cat "$@" | zstd -q -9 --long=27 -T$THREADS -o out && sync out',
}


@dataclass(frozen=True, kw_only=True)
class Packing(Way):
    """A way to pack, and its runs."""

    alone: str = ""
    """Name of the way that compresses alike and does nothing else; empty if there is none."""

    @property
    def seconds(self) -> float:
        """The median of the runs, in seconds."""
        return statistics.median(outcome.seconds for outcome in self.outcomes)

    @property
    def size(self) -> int:
        """Size of the archive in bytes, the same in every run."""
        return self.outcomes[0].size


def main() -> None:
    """Print for each way its seconds, bytes and ratios."""
    asked = _arguments()
    if asked.child:
        _child(asked)
        return
    files = sorted(path for path in asked.folder.rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files)
    if not size:
        sys.exit(f"{asked.folder} holds no files. Name the lib folder of an unpacked package.")
    digests = {str(path): file_digest(path) for path in files}
    print(f"{len(files)} files, {size:,} bytes; {asked.threads} threads of {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory(dir=asked.scratch, prefix="bundle-benchmark-") as place:
        listing = Path(place) / "files.json"
        listing.write_text(json.dumps({path: [got.size, got.sha256] for path, got in digests.items()}))
        ways = [way for way in _ways(files, listing, asked.threads) if asked.only in way.name]
        take_turns(ways, Path(place), asked.runs)
    _print(ways, size)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bundle")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--runs", type=int, default=1, metavar="N", help="of each way, in turn; medians are told"
    )
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="of zstd and zlib-ng")
    parser.add_argument("--only", default="", metavar="TEXT", help="ways with this in their name")
    parser.add_argument("--scratch", type=Path, metavar="FOLDER", help="where archives go, for a while")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def _ways(files: list[Path], listing: Path, threads: int) -> list[Packing]:
    ways = [Packing(name=BY_HAND, run=lambda empty: _shell(BEFORE, files, empty, threads))]
    for form in Form:
        for preset in Preset:
            what = f"{preset.value} {form.value}"
            ours, alone = (_process(kind, form, preset, listing, threads) for kind in ("ours", "alone"))
            ways += [
                Packing(name=f"ours {what}", run=ours, alone=f"alone {what}"),
                Packing(name=f"alone {what}", run=alone),
            ]
    if shutil.which("zstd"):
        ways += [Packing(name=f"zstd {preset.value}", run=_cli(preset, files, threads)) for preset in Preset]
    return ways


def _cli(preset: Preset, files: list[Path], threads: int) -> Callable[[Path], Outcome]:
    return lambda empty: _shell(CLI[preset], files, empty, threads)


def _shell(script: str, files: list[Path], empty: Path, threads: int) -> Outcome:
    """Run a shell script in the folder ``empty`` and return its outcome; a failure ends the benchmark."""
    (empty / "copies").mkdir()
    begin = time.perf_counter()
    paths = [str(path.resolve()) for path in files]
    argv = ["env", f"THREADS={threads}", "sh", "-ec", script, "sh", *paths]
    answer(argv, cwd=empty)
    return Outcome(seconds=time.perf_counter() - begin, size=(empty / "out").stat().st_size)


def _process(kind: str, form: Form, preset: Preset, listing: Path, threads: int) -> Callable[[Path], Outcome]:
    def run(empty: Path) -> Outcome:
        out = empty / f"{NAME}{form.value}"
        child = ["--child", kind, preset.value, str(out)]
        begin = time.perf_counter()
        argv = [sys.executable, "-m", "benchmarks.bundle", str(listing), f"--threads={threads}", *child]
        peak = int(answer(argv).stdout)
        return Outcome(seconds=time.perf_counter() - begin, size=out.stat().st_size, peak=peak)

    return run


def _child(asked: argparse.Namespace) -> None:
    """Write one archive and print this process's peak memory in bytes."""
    kind, preset, out = asked.child
    listing = json.loads(asked.folder.read_text())
    digests = {Path(path): Digest(size, sha256) for path, (size, sha256) in listing.items()}
    pack = _ours if kind == "ours" else _alone
    pack(Path(out), digests, Preset(preset), asked.threads)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _ours(out: Path, digests: dict[Path, Digest], preset: Preset, threads: int) -> None:
    named = {f"lib/{number:03}-{path.name}": path for number, path in enumerate(digests)}
    members = tuple(
        Member(path=name, file=path, source="built", licence="LICENSE", vendor="ortpacks")
        for name, path in named.items()
    )
    content = Content(b"{}\n", members, {name: digests[path] for name, path in named.items()})
    archive = PackageArchive(reporter=Console(env={}, stream=sys.stderr), workers=threads)
    archive.write(out, content, preset, lambda _: None)


def _alone(out: Path, digests: dict[Path, Digest], preset: Preset, threads: int) -> None:
    with out.open("wb") as file, compressor(form_of(out.name), preset, threads) as compress:
        for path in digests:
            for chunk in chunks_of(path):
                file.write(compress.compress(chunk))
        file.write(compress.flush())
        file.flush()
        os.fsync(file.fileno())


def _print(ways: list[Packing], size: int) -> None:
    """Print each way's medians, and their ratios to ``BY_HAND`` and to the compressor alone."""
    by_name = {way.name: way for way in ways}
    before = by_name.get(BY_HAND)
    print(f"{'':20} seconds          bytes  of files  of gzip -6  times faster  of alone  peak MB")
    for way in ways:
        print(
            f"{way.name:20} {way.seconds:7.1f} {way.size:14,} {way.size / size:9.3f}"
            f" {_of(before, way):>11} {_faster(before, way):>13}"
            f" {_ratio(way, by_name.get(way.alone)):>9} {_peak(way):>8}"
        )


def _of(before: Packing | None, way: Packing) -> str:
    return f"{way.size / before.size:.3f}" if before else ""


def _faster(before: Packing | None, way: Packing) -> str:
    return f"{before.seconds / way.seconds:.1f}" if before else ""


def _ratio(way: Packing, alone: Packing | None) -> str:
    return f"{way.seconds / alone.seconds:.2f}" if alone else ""


def _peak(way: Packing) -> str:
    return f"{way.peak / 1e6:.0f}" if way.peak else ""


if __name__ == "__main__":
    main()
