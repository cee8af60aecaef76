"""This module writes the generated parts of README and docs, and the files in docs that are generated whole.

``./run docs`` writes them, a test compares. A generated part is between two comments, the first of which
names its generator in ``PARTS``; ``FILES`` has the makers of whole files.

Measured results are in ``docs/results``, a file each: lines ``key: value`` with command, date, commit and
machine, an empty line, and then the output. ``python -m benchmarks.record`` writes them.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import scaling, serving, serving_page
from builder.build.verbs import proofs, reference
from builder.build.verbs.verb_answers import SCHEMAS, schema_file
from builder.config import document
from builder.config.load import LockFile
from builder.config.variants import Project
from builder.console import Console
from builder.contents.rules.device_code import promised_devices
from builder.errors import ConfigError
from builder.facts.ort.known_rules import read_sources
from builder.farm import costs
from builder.files.atomic_write import write_file
from builder.formats.package_names import LINUX
from builder.formats.text import listed
from builder.inspect.atlas import RECORDS
from builder.inspect.command import CELL
from builder.inspect.report.heatmap import LEGEND, heat_maps, text
from builder.inspect.report.wheel_record import WheelRecord, loads
from builder.io.templates import template_environment
from builder.io.wiring import Wiring

Part = Callable[[Wiring, str], Iterable[str]]
"""A function that makes the lines of a part. Its second argument is the rest of the part's first comment."""

FACTS = ("command", "date", "commit", "machine")
"""The keys at the beginning of a result, in this order."""

_RESULTS = "docs/results"

_PLATFORM = "Linux x86-64"

_BENCHMARK = "docs/benchmark"

_BENCH_FILES = f"--figures {_BENCHMARK}.json --svg {_BENCHMARK}.svg --page {_BENCHMARK}.md"


def page_text(path: Path) -> str:
    """Return the text of a page. Raises ``ConfigError`` for a file that is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no UTF-8 text", cause=str(error)) from error


def result_file(root: Path, name: str) -> Path:
    """Return the path of a stored result."""
    return root / _RESULTS / f"{name}.txt"


def _stored(root: Path, name: str) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the facts of a stored result, and the lines of its output. Raises ``ConfigError``."""
    path = result_file(root, name)
    if not path.is_file():
        raise ConfigError(f"{path} is not there", advice="`python -m benchmarks.record` writes results.")
    head, _, output = page_text(path).partition("\n\n")
    facts = {key: value for key, _, value in (line.partition(": ") for line in head.splitlines())}
    if tuple(facts) != FACTS:
        raise ConfigError(f"{path} does not begin with the lines {', '.join(FACTS)}, each with a colon.")
    return facts, output.rstrip("\n").splitlines()


def _result(wiring: Wiring, name: str) -> Iterator[str]:
    """Yield a result: a table as it is, other output as code; then command, date, commit and machine."""
    facts, output = _stored(wiring.root, name)
    is_table = all(line.startswith("|") for line in output)
    yield from output if is_table else ("```text", *output, "```")
    yield from _measured_with(facts)


def _measured_with(facts: Mapping[str, str]) -> Iterator[str]:
    yield ""
    yield f"`{facts['command']}`, {facts['date']}, commit {facts['commit']}; {facts['machine']}."


def _variants(wiring: Wiring, _name: str) -> Iterator[str]:
    project = wiring.project
    yield "| package | SASS for | GPUs, or systems |"
    yield "|---|---|---|"
    for variant in project.variants.values():
        sm = " ".join(map(str, variant.sm))
        wider = "; 10.3 and 12.1 too" if variant.widen else ""
        where = f", {variant.platform}" if variant.platform != LINUX else ""
        toolkit = f", CUDA {variant.toolkit}" if variant.toolkit else ""
        yield f"| `{variant.name}` | sm_{sm}{wider} | {', '.join(variant.generations)}{where}{toolkit} |"
    for provider in project.providers.values():
        yield f"| `{provider.name}` | none | {provider.platform} |"
    named = [f"`{name}`" for name, one in project.packages.items() if not one.in_all]
    yield ""
    yield f"`--all` makes {len(project.packages) - len(named)} of these, without {listed(named)}."


def _record(wiring: Wiring, name: str, version: str) -> WheelRecord:
    """Return the atlas's record of a wheel for Linux on x86-64. Raises ``ConfigError`` if there is none."""
    files = sorted((wiring.root / RECORDS).glob(f"{name.replace('-', '_')}-{version}-*.json"))
    records = [
        record
        for record in (loads(file.read_bytes(), file.name) for file in files)
        if record.platform == _PLATFORM
    ]
    if not records:
        raise ConfigError(
            f"{RECORDS} has no record of {name} {version}", advice=f"./run atlas --add {name}=={version}"
        )
    return records[0]


def _official(wiring: Wiring) -> WheelRecord:
    return _record(wiring, "onnxruntime-gpu", wiring.project.onnxruntime.version)


def _picture(wiring: Wiring, _name: str) -> Iterator[str]:
    version = wiring.project.onnxruntime.version
    yield f"![GPUs of the official wheel of ONNX Runtime {version} and of our packages](docs/gpus.svg)"


def _gpus_svg(wiring: Wiring) -> str:
    """Return a picture with a row for each GPU: the official wheel's support, and our package for it."""
    (official,) = heat_maps([_official(wiring).source()])
    ours = {
        name: promised_devices(variant)
        for name, variant in wiring.project.variants.items()
        if variant.in_all and variant.platform == LINUX
    }
    rows = [
        (gpu, cell, [name for name, promised in ours.items() if gpu.capability in promised])
        for gpu, cell in zip(official.gpus, official.overall.cells, strict=True)
    ]
    template = template_environment(wiring.loader, html=True).get_template("cards.svg.j2")
    return template.render(
        rows=rows,
        packages=list(ours),
        version=wiring.project.onnxruntime.version,
        legend=[entry for entry in LEGEND if entry[0] in {cell.kind for _, cell, _ in rows}],
        cell=CELL,
    )


def _inspected(wiring: Wiring, _name: str) -> Iterator[str]:
    record = _official(wiring)
    shown = text(heat_maps([replace(record.source(), label=record.filename)]))
    yield from ("```text", *shown.splitlines(), "```")


def _scaling(wiring: Wiring, profile: str) -> Iterator[str]:
    yield from scaling.table(scaling.rows(_planned(wiring, profile)))


def _machines(wiring: Wiring, profile: str) -> Iterator[str]:
    ahead, build = scaling.one_architecture_a_machine(_planned(wiring, profile))
    yield (
        f"Profile {profile}: {ahead / 60:.1f} min on the slowest machine for an architecture, then "
        f"{build / 60:.1f} min on the slowest for a variant."
    )


def _compared(wiring: Wiring, name: str) -> Iterator[str]:
    facts, builds = _stored(wiring.root, name)
    yield "| variants | profile | cores, GiB | simulated, s | measured, s | error |"
    yield "|---|---|---|---|---|---|"
    for build in map(scaling.Build.parse, builds):
        wall = scaling.simulated(build, _planned(wiring, build.profile))
        names = listed([f"`{variant}`" for variant in build.variants])
        yield (
            f"| {names} | {build.profile} | {build.cores}, {build.gib} "
            f"| {wall:,.0f} | {build.seconds:,} | {wall / build.seconds - 1:+.0%} |"
        )
    yield from _measured_with(facts)


def _rules(_wiring: Wiring, _name: str) -> Iterator[str]:
    """Yield what was read from each source of ORT (``facts.ort.known_rules``)."""
    yield "| source | stands for | CUDA | gcc | C++ | get the suffix `a` | CUDA units | compiled for a part |"
    yield "|---|---|---|---|---|---|---|---|"
    for read in read_sources():
        rules = read.rules
        least = " | ".join(rules.minimums[name].value for name in ("cuda", "gcc", "cxx"))
        units = len(list(rules.paths))
        parts: Counter[str] = Counter()
        for group in rules.groups:
            parts[group.name] += group.units
        split = ", ".join(f"{count} {name}" for name, count in parts.items())
        release = read.first if read.is_release else f"{read.first} and newer"
        accelerated = " ".join(map(str, rules.rewriting.accelerated))
        yield f"| {read.source} | {release} | {least} | {accelerated} | {units} | {split} |"


def _scaling_svg(wiring: Wiring) -> str:
    profile = "full"
    rows = list(scaling.rows(_planned(wiring, profile)))
    return scaling.picture(rows, profile, wiring.templates)


def _planned(wiring: Wiring, profile: str) -> list[list[scaling.Planned]]:
    quiet = Wiring(wiring.root, dist=wiring.dist, reporter=Console(env={}, stream=io.StringIO()))
    known = costs.read(wiring.root / "builder/farm/costs.tsv")
    return scaling.planned(quiet, known, profile)


def _benchmark_rows(wiring: Wiring) -> tuple[list[serving.Row], dict[str, object]]:
    stored = json.loads(page_text(wiring.root / f"{_BENCHMARK}.json"))
    figures = [[serving.Figures(**figure) for figure in row["figures"]] for row in stored["rows"]]
    rows = zip(stored["rows"], figures, strict=True)
    return [serving.Row(**{**row, "figures": found}) for row, found in rows], stored["facts"]


def _benchmark_page(wiring: Wiring) -> str:
    rows, facts = _benchmark_rows(wiring)
    providers = dict.fromkeys(f"--provider {row.provider}" for row in rows)
    command = " ".join(["./run bench", *providers, _BENCH_FILES])
    return serving_page.page(rows, facts, command, f"{Path(_BENCHMARK).name}.svg")


def _benchmark_svg(wiring: Wiring) -> str:
    return serving_page.picture(_benchmark_rows(wiring)[0], wiring.templates)


def _schema(name: str, _wiring: Wiring) -> str:
    return schema_file(name)


def _reference(name: str, _wiring: Wiring) -> str:
    return reference.reference_page(name)


PARTS: Mapping[str, Part] = {
    "result": _result,
    "variants": _variants,
    "picture": _picture,
    "inspect": _inspected,
    "scaling": _scaling,
    "machines": _machines,
    "compared": _compared,
    "rules": _rules,
    "proofs": lambda wiring, _name: proofs.table(wiring.root),
}
"""The generators of parts, by the word in the comment that begins a part."""

FILES: Mapping[str, Callable[[Wiring], str]] = {
    "docs/gpus.svg": _gpus_svg,
    "docs/scaling.svg": _scaling_svg,
    f"{_BENCHMARK}.md": _benchmark_page,
    f"{_BENCHMARK}.svg": _benchmark_svg,
    "docs/schemas/variants.schema.json": lambda _: document.schema_file(Project, "variants.yaml"),
    "docs/schemas/inputs.schema.json": lambda _: document.schema_file(LockFile, "inputs.lock"),
    **{f"{reference.FOLDER}/{name}.md": partial(_reference, name) for name in reference.REFERENCE},
    **{f"docs/schemas/{name}.schema.json": partial(_schema, name) for name in SCHEMAS},
}
"""The makers of whole files, by their paths."""

_PART = re.compile(
    r"(?P<begin><!-- \./run docs: (?P<what>[a-z-]+)(?: (?P<name>[a-z0-9-]+))? -->\n).*?(?=<!-- end -->)",
    re.DOTALL,
)

_BEGIN = re.compile(r"^<!-- \./run docs: .*?-->", re.MULTILINE)


def write_pages(wiring: Wiring) -> None:
    """Write every generated part and file. Raises ``ConfigError`` for a part without a generator."""
    for path, made in generated(wiring):
        if not path.exists() or page_text(path) != made:
            write_file(path, made.encode())
            wiring.reporter.say(f"{path.relative_to(wiring.root)} is new")


def generated(wiring: Wiring) -> Iterator[tuple[Path, str]]:
    """Yield the path and the current content of each file that is generated, wholly or in parts."""
    for name, file in FILES.items():
        yield wiring.root / name, file(wiring)
    for path in pages(wiring.root):
        if str(path.relative_to(wiring.root)) not in FILES:
            yield path, rendered(page_text(path), wiring)


def pages(root: Path) -> list[Path]:
    """Return the paths of all Markdown files in the project's folder and below docs."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def rendered(text: str, wiring: Wiring) -> str:
    """Return the page with its parts generated from the current state."""

    def part(found: re.Match[str]) -> str:
        if found["what"] not in PARTS:
            raise ConfigError(
                f"<!-- ./run docs: {found['what']} --> names nothing that makes a part of a page.",
                advice=f"Name one of {', '.join(PARTS)}.",
            )
        lines = PARTS[found["what"]](wiring, found["name"] or "")
        return found["begin"] + "".join(f"{line}\n" for line in lines)

    made, count = _PART.subn(part, text)
    begun = _BEGIN.findall(text)
    if len(begun) != count:
        raise ConfigError(
            f"Of {len(begun)} parts that begin ({', '.join(dict.fromkeys(begun))}) {count} are whole: a part "
            "wants a line of its own like <!-- ./run docs: result first-build -->, and <!-- end --> below."
        )
    return made
