"""This program compiles units of a configured tree in several ways, for ``benchmarks.pieces``.

    python3 pieces_inside.py UNITS FATBINARY PARTS ROWS WAY...

It runs in the toolchain's container. UNITS is a file with an object's path in each line, FATBINARY the
program in fatbinary's place of before, PARTS the table of units by architectures of before, ROWS the file for
the results: a line of JSON for each unit and way, with CPU seconds, the peak of its largest process, the
cache's size after it (both in MiB), and what the object holds, or what a program said that failed in an
alternative way.
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
from collections.abc import Sequence
from multiprocessing import Pool
from pathlib import Path

from builder.inside import ninja

TREE = Path("/build")
TOOLKIT, BEFORE = Path("/usr/local/cuda"), Path("/before")
PARTS = Path("/src/parts.tsv")
"""Today's table of units by architectures."""

SCRIPTS = {
    "nvcc": '"$@"',
    "pieces": '"$@"',
    "sccache": """
        SCCACHE_START_SERVER=1 SCCACHE_NO_DAEMON=1 /sccache &
        until [ -S "$SCCACHE_SERVER_UDS" ]; do kill -0 "$!"; sleep 0.02; done
        status=0
        "$@" || status=$?
        /sccache --stop-server >/dev/null
        wait
        exit "$status"
        """,
    "union": """
        "$@"
        folder=$(mktemp --directory)
        cd "$folder"
        cuobjdump -xelf all "$OBJECT" >cuobjdump.txt
        for sm in $CHOSEN; do set -- "$@" "--image3=kind=elf,sm=$sm,file=$(echo *.sm_$sm.cubin)"; done
        while [ "${1#--image3}" = "$1" ]; do shift; done
        fatbinary -64 --raw "$@" --create=chosen
        objcopy --update-section=.nv_fatbin=chosen "$OBJECT"
        rm -r "$folder"
        """,
    "nvprune": """
        "$@"
        set --
        for sm in $CHOSEN; do set -- "$@" --generate-code "arch=compute_$sm,code=sm_$sm"; done
        nvprune "$@" "$OBJECT" --output-file "$OBJECT.pruned"
        mv "$OBJECT.pruned" "$OBJECT"
        """,
}
"""What a shell does in each way with the compiler's command as its arguments.

``sccache`` gets a server for itself, so that the server's CPU seconds count. The object of ``union`` is made
for the architectures of all variants, and holds ``$CHOSEN`` in the end; ``nvprune`` chooses from the same
object, which ccache has by then: its CPU seconds are in addition to that object's.
"""
ALTERNATIVES = frozenset({"sccache", "union", "nvprune"})
"""The ways in which a program may fail."""

_PTX = {50: 50, 52: 50, 60: 60, 61: 60, 70: 70, 75: 75, 80: 80, 86: 86, 89: 89, 90: 90}
_UNION = [
    *(f"--generate-code=arch=compute_{ptx},code=[sm_{sm}]" for sm, ptx in _PTX.items()),
    "--generate-code=arch=compute_90,code=[compute_90]",
    "-Xfatbin=--assemble=100:120",
]
"""The architectures of all variants, with the PTX that each variant's plan of before has for them."""
_OF_A_SET = ("--generate-code=", "-Xfatbin=--assemble=")


def main() -> None:
    """Compile each unit in each way, in turn, two units at a time."""
    units = Path(sys.argv[1]).read_text(encoding="utf-8").split()
    ways = sys.argv[5:]
    _toolkit_of_before(sys.argv[2])
    _generated_headers()
    statements = (TREE / "build.ninja").read_text(encoding="utf-8")
    before = _commands(statements, Path(sys.argv[3]))
    today = _commands(statements, PARTS)
    work = [
        [(unit, (today if way == "pieces" else before)[unit], way) for way in in_turn(ways, number)]
        for number, unit in enumerate(units)
        if unit in before
    ]
    with Pool(os.cpu_count()) as pool, Path(sys.argv[4]).open("w", encoding="utf-8") as rows:
        for found in pool.imap_unordered(_each_way, work):
            rows.writelines(json.dumps(row) + "\n" for row in found)


def in_turn(ways: Sequence[str], number: int) -> list[str]:
    """Return the ways in the order in which the unit of this number is compiled."""
    turned = ways if number % 2 else ways[::-1]
    return sorted(turned, key=lambda way: way == "nvprune")


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


def _each_way(work: list[tuple[str, str, str]]) -> list[dict[str, object]]:
    return [_compiled(*one) for one in work]


def _compiled(unit: str, command: str, way: str) -> dict[str, object]:
    cache = Path("/sample", "union" if way == "nvprune" else way)
    cache.mkdir(exist_ok=True)
    words = worded(command, way)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        own = {
            "OBJECT": str(TREE / unit),
            "CHOSEN": " ".join(chosen(command)),
            "SCCACHE_SERVER_UDS": f"{folder}/socket",
        }
        argv = ["sh", "-ec", SCRIPTS[way], way, *words]
        process = subprocess.Popen(
            argv, cwd=TREE, env=_environment(way, cache) | own, stdout=said, stderr=said
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        told = (said.read().decode(errors="replace")[-2000:] or "no word") if status else ""
    if told and way not in ALTERNATIVES:
        sys.exit(f"{unit} by {way}: {told}")
    holds = {"failed": told} if told else _holds(TREE / unit)
    (TREE / unit).unlink(missing_ok=True)
    return {
        "unit": unit,
        "way": way,
        "cpu": round(used.ru_utime + used.ru_stime, 3),
        "peak": used.ru_maxrss >> 10,
        "cache": _size(cache),
        "holds": holds,
    }


def worded(command: str, way: str) -> list[str]:
    """Return the command without the program that waits for a slot, by the compiler of the way."""
    own = re.sub(r"^\S*\bunit ", "", command)
    if way == "pieces":
        return shlex.split(own)
    without = re.sub(r"^.*?(\S*\bccache) ", r"\1 ", own)
    words = shlex.split(without.replace(f"{TOOLKIT}/bin/nvcc ", f"{BEFORE}/bin/nvcc ", 1))
    if way in {"union", "nvprune"}:
        kept = [word for word in words if not word.startswith(_OF_A_SET)]
        return [*kept[:2], *_UNION, *kept[2:]]
    return ["/sccache", *words[1:]] if way == "sccache" else words


def chosen(command: str) -> list[str]:
    """Return the numbers of the architectures that the command makes SASS for."""
    assembled = [
        word for numbers in re.findall(r"--assemble=([\d:]+)", command) for word in numbers.split(":")
    ]
    return [*re.findall(r"code=\[sm_(\d+)\]", command), *assembled]


def _size(folder: Path) -> int:
    """Return what a folder takes, in MiB; another process may remove files meanwhile."""
    argv = ["du", "--summarize", "--block-size=1M", str(folder)]
    return int(subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()[0])


def _environment(way: str, cache: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name != "CCACHE_READONLY"}
    if way != "pieces":
        ours["PATH"] = f"{BEFORE}/bin:{ours['PATH']}"
    return {**ours, "CCACHE_DIR": str(cache), "SCCACHE_DIR": str(cache)}


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
