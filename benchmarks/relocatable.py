r"""This benchmark compiles CUDA units with relocatable device code, by a later nvcc at once and in pieces.

    pip download --no-deps --dest WHEELS nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 \
        nvidia-cuda-crt==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
    python -m benchmarks.relocatable --wheels WHEELS [--json FILE]

Twelve of ORT's units are compiled for sm_75 and sm_90 by the toolkit in WHEELS, in a container of the
toolchain: by NVIDIA's nvcc; in pieces, of which two machines make those of one architecture each, and a third
the object from both; and by NVIDIA's nvcc without relocatable code. After the device link, each kernel of the
object in pieces must have the name and the bytes of NVIDIA's.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.heaviest import of_step
from benchmarks.pieces import configured_image, result_file
from builder.errors import BuilderError
from tests.support.cubins import kernels

_UNITS = (
    *("tensor/gather_nd", "tensor/split", "tensor/scatter_nd", "rnn/rnn", "tensor/slice", "tensor/concat"),
    *("tensor/eye_like", "tensor/reverse_sequence", "math/cumsum", "math/clip", "tensor/trilu", "nn/shrink"),
)
"""The units, below ``core/providers/cuda`` and without the end ``_impl.cu``."""

_ARCHITECTURES = ("75", "90")

_VARIANT = "modern"

_TOOLKIT = "nvidia/cu13/"
"""The folder in the wheels."""

_INSTALL = """\
cd /usr/local/cuda
rm -rf include/cub include/thrust include/cuda include/nv nvvm bin/crt
cp -r /toolkit/. .
chmod +x bin/* nvvm/bin/*
mv bin/nvcc bin/nvcc-toolkit
install --mode=0755 /ortpacks/builder/inside/nvcc.py bin/nvcc
cd /build
ninja $(ninja -t targets all | sed -n 's/^\\(\\S*\\.pb\\.h\\): .*/\\1/p') >/dev/null
"""
"""The script that puts the later toolkit in the place of the toolchain's."""

_WAYS = """\
at_once() { nvcc-toolkit $CODES "$@" -o /out/at-once.o; }
machine() { NVCC_ONLY=$1 CCACHE_DIR=/out/ccache-$1 nvcc $CODES "${@:2}" -o pieces.o; }
pieces() {
    for arch in $ARCHITECTURES; do machine $arch "$@"; cp -rn /out/ccache-$arch/. /out/ccache; done
    rm -f "$NVCC_STATSLOG"
    CCACHE_DIR=/out/ccache nvcc $CODES "$@" -o pieces.o
    cp pieces.o "$NVCC_STATSLOG" /out
}
rm -rf /out/*
at_once -rdc=true "$@"
pieces -rdc=true "$@"
for arch in $ARCHITECTURES; do
    for way in at-once pieces; do nvlink --arch=sm_$arch /out/$way.o -o /out/$way.sm_$arch.cubin; done
    alone="--gpu-architecture=sm_$arch --cubin --output-file=/out/without.sm_$arch.cubin"
    nvcc-toolkit "${@:1:$#-2}" $alone "${@: -1}"
done
"""
"""The script after the compile step's variables; its arguments are nvcc's for a unit, ``-c FILE`` last."""

Row = Mapping[str, object]


def main() -> None:
    """Print a line for each unit and architecture; the exit status is 1 if a kernel in pieces differs."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.relocatable",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--json", type=result_file)
    asked = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        unpack(asked.wheels, Path(folder, "toolkit"))
        for row in _compared(Path(folder)):
            print(" ".join(f"{name} {value}" for name, value in row.items()), flush=True)
            rows.append(row)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    sys.exit(any(row["differ_in_pieces"] or row["pieces_made_again"] for row in rows))


def unpack(wheels: Path, into: Path) -> None:
    """Unpack the toolkit's files of all wheels in a folder. Raises ``SystemExit`` without a readable one."""
    found = sorted(wheels.glob("*.whl"))
    if not found:
        raise SystemExit(f"{wheels}: no wheel. Fetch the toolkit: python -m benchmarks.relocatable --help")
    for wheel in found:
        try:
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(into, [name for name in packed.namelist() if name.startswith(_TOOLKIT)])
        except zipfile.BadZipFile as error:
            raise SystemExit(f"{wheel}: {error}. Fetch the wheel again.") from error


def _compared(folder: Path) -> Iterator[Row]:
    out = folder / "out"
    out.mkdir()
    with configured_image(_VARIANT) as (image, dockerfile), _container(image, folder) as name:
        _run(name, _INSTALL)
        entries = json.loads(_run(name, "ninja -t compdb"))
        commands = {entry["file"]: entry["command"] for entry in entries}
        variables = of_step(dockerfile).partition("drive() {")[0]
        codes = " ".join(f"--generate-code=arch=compute_{one},code=[sm_{one}]" for one in _ARCHITECTURES)
        ours = f'ARCHITECTURES="{" ".join(_ARCHITECTURES)}" CODES="{codes}"\n'
        for unit in _UNITS:
            command = next(
                found for file, found in commands.items() if file.endswith(f"/providers/cuda/{unit}_impl.cu")
            )
            _run(name, f"{variables}{ours}{_WAYS}", *arguments(command))
            for architecture in _ARCHITECTURES:
                yield {"unit": unit, "sm": architecture, **_row(out, architecture)}


@contextmanager
def _container(image: str, folder: Path) -> Iterator[str]:
    """Start a container of an image, with the folder's ``toolkit`` and ``out``; yield its name."""
    name = f"ortpacks-relocatable-{uuid.uuid4().hex[:8]}"
    volumes = [f"--volume={folder / 'out'}:/out", f"--volume={folder / 'toolkit' / _TOOLKIT}:/toolkit:ro"]
    argv = ["docker", "run", "--detach", "--rm", "--init", "--network=none", f"--name={name}", *volumes]
    subprocess.run([*argv, image, "sleep", "infinity"], check=True, stdout=subprocess.DEVNULL)
    try:
        yield name
    finally:
        subprocess.run(["docker", "rm", "--force", name], check=True, capture_output=True)


def _run(container: str, script: str, *words: str) -> str:
    argv = ["docker", "exec", "--workdir=/build", container, "bash", "-euc", script, "bash", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout[-2000:]}{done.stderr[-4000:]}\nstatus {done.returncode}")
    return done.stdout


def arguments(command: str) -> list[str]:
    """Return nvcc's arguments in a unit's command, without the set's architectures and the object."""
    words = re.sub(r"^.*?/bin/nvcc ", "", command)
    without = re.sub(r'"?--generate-code=\S+|-Xfatbin=\S+|-M[TF] \S+|-MD| -o \S+', "", words)
    return shlex.split(without)


def _row(out: Path, architecture: str) -> dict[str, object]:
    at_once, pieces, without = (
        kernels((out / f"{way}.sm_{architecture}.cubin").read_bytes())
        for way in ("at-once", "pieces", "without")
    )
    made = re.findall(
        rf"^# \S+/compute_{architecture}\S*\ncache_miss$",
        (out / "ccache-pieces.log").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return {
        "kernels": len(at_once),
        "differ_in_pieces": differing(at_once, pieces),
        "differ_without_relocation": differing(at_once, without),
        "pieces_made_again": len(made),
    }


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> int:
    """Return how many kernels, of digests by name, only one of two has, or has with other bytes."""
    return len(dict(one.items() ^ other.items()))


if __name__ == "__main__":
    try:
        main()
    except BuilderError as error:
        sys.exit(f"error: {error}")
