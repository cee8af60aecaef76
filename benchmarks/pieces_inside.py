"""This program compiles units of a configured tree in two ways, in a container, for ``benchmarks.pieces``.

    python3 pieces_inside.py UNITS FATBINARY PARTS ROWS

UNITS is a file with an object's path in each line, FATBINARY the program in fatbinary's place of before,
PARTS the table of units by architectures of before, ROWS the file for the results: a line of JSON for each
unit and way, with CPU seconds, the peak of its largest process, ccache's size after it (both in MiB), and
what the object holds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from multiprocessing import Pool
from pathlib import Path

from builder.inside import ninja

TREE = Path("/build")
TOOLKIT, BEFORE = Path("/usr/local/cuda"), Path("/before")
PARTS = Path("/src/parts.tsv")
"""Today's table of units by architectures."""
WAYS = ("nvcc", "pieces")


def main() -> None:
    """Compile each unit in both ways, in turn, two units at a time."""
    units = Path(sys.argv[1]).read_text(encoding="utf-8").split()
    _toolkit_of_before(sys.argv[2])
    _generated_headers()
    statements = (TREE / "build.ninja").read_text(encoding="utf-8")
    tables = {"nvcc": Path(sys.argv[3]), "pieces": PARTS}
    commands = {way: _commands(statements, table) for way, table in tables.items()}
    work = [
        (unit, {way: commands[way][unit] for way in WAYS}, number)
        for number, unit in enumerate(units)
        if unit in commands["nvcc"]
    ]
    with Pool(os.cpu_count()) as pool, Path(sys.argv[4]).open("w", encoding="utf-8") as rows:
        for found in pool.imap_unordered(_both_ways, work):
            rows.writelines(json.dumps(row) + "\n" for row in found)


def _commands(statements: str, parts: Path) -> dict[str, str]:
    """Return each object's command, for the architectures that ``parts`` has for its unit."""
    narrowed = ninja.narrowed(statements, ninja.read(parts))
    (TREE / "build.ninja").write_text(narrowed, encoding="utf-8")
    return {entry["output"]: entry["command"] for entry in json.loads(_ninja("-t", "compdb"))}


def _toolkit_of_before(fatbinary: str) -> None:
    """Make a toolkit with NVIDIA's own nvcc, whose ``fatbinary`` is the stand-in of before."""
    (BEFORE / "bin").mkdir(parents=True)
    for path in TOOLKIT.iterdir():
        if path.name != "bin":
            (BEFORE / path.name).symlink_to(path)
    for path in (TOOLKIT / "bin").iterdir():
        if path.is_file():
            shutil.copy2(path, BEFORE / "bin" / path.name)
    (BEFORE / "bin/nvcc-toolkit").rename(BEFORE / "bin/nvcc")
    (BEFORE / "bin/fatbinary").rename(BEFORE / "bin/fatbinary-toolkit")
    shutil.copy2(fatbinary, BEFORE / "bin/fatbinary")
    (BEFORE / "bin/fatbinary").chmod(0o755)


def _generated_headers() -> None:
    """Let Ninja make the headers of protobuf's messages, by the units in the machine's own cache."""
    listed = _ninja("-t", "targets", "all")
    _ninja(*re.findall(r"^(\S+\.pb\.h): ", listed, re.MULTILINE))


def _ninja(*words: str) -> str:
    return subprocess.run(["ninja", *words], cwd=TREE, stdout=subprocess.PIPE, text=True, check=True).stdout


def _both_ways(work: tuple[str, dict[str, str], int]) -> list[dict[str, object]]:
    unit, commands, number = work
    ways = WAYS if number % 2 else WAYS[::-1]
    return [_compiled(unit, commands[way], way) for way in ways]


def _compiled(unit: str, command: str, way: str) -> dict[str, object]:
    cache = Path(f"/sample/{way}")
    with tempfile.TemporaryFile() as said:
        words = shlex.split(worded(command, way))
        process = subprocess.Popen(words, cwd=TREE, env=_environment(way, cache), stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            said.seek(0)
            sys.exit(f"{unit} by {way}: {said.read().decode(errors='replace')[-2000:]}")
    holds = _holds(TREE / unit)
    (TREE / unit).unlink()
    return {
        "unit": unit,
        "way": way,
        "cpu": round(used.ru_utime + used.ru_stime, 3),
        "peak": used.ru_maxrss >> 10,
        "cache": _size(cache),
        "holds": holds,
    }


def worded(command: str, way: str) -> str:
    """Return the command without the program that waits for a slot, by the compiler of the way."""
    own = re.sub(r"^\S*\bunit ", "", command)
    if way == "pieces":
        return own
    without = re.sub(r"^.*?(\S*\bccache) ", r"\1 ", own)
    return without.replace(f"{TOOLKIT}/bin/nvcc ", f"{BEFORE}/bin/nvcc ", 1)


def _size(folder: Path) -> int:
    """Return what a folder takes, in MiB; another process may remove files meanwhile."""
    argv = ["du", "--summarize", "--block-size=1M", str(folder)]
    return int(subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()[0])


def _environment(way: str, cache: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name != "CCACHE_READONLY"}
    if way == "nvcc":
        ours["PATH"] = f"{BEFORE}/bin:{ours['PATH']}"
    return {**ours, "CCACHE_DIR": str(cache)}


def _holds(file: Path) -> dict[str, object]:
    """Return digests of the object's kernels by architecture, and the number of symbols of each kind."""
    symbols = subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout
    kinds = Counter(re.findall(r"^.{16} (\w) ", symbols, re.MULTILINE))
    kernels: dict[str, list[str]] = {}
    if file.name.endswith(".cu.o"):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cuobjdump", "-xelf", "all", file], cwd=folder, check=True, capture_output=True)
            for cubin in sorted(Path(folder).iterdir()):
                architecture = next(end for end in cubin.suffixes[::-1] if end.startswith(".sm_"))
                kernels.setdefault(architecture, []).extend(_code(cubin.read_bytes()))
    return {
        "symbols": dict(kinds),
        "kernels": {name: [len(found), _digest(sorted(found))] for name, found in kernels.items()},
    }


def _code(cubin: bytes) -> list[str]:
    """Return a digest of each section of code. Source: ELF-64 Object File Format."""
    start = struct.unpack_from("<Q", cubin, 40)[0]
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + size * number) for number in range(count)]
    texts = sections[names][4]
    return [
        hashlib.sha256(cubin[offset : offset + length]).hexdigest()
        for name, _, _, _, offset, length in sections
        if cubin[texts + name :].startswith(b".text.")
    ]


def _digest(values: list[str]) -> str:
    return hashlib.sha256("".join(values).encode()).hexdigest()[:16]


if __name__ == "__main__":
    main()
