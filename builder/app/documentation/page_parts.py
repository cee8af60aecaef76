"""The generators of parts of pages, and of whole files in docs, from the project, records and stored results.

Measured results are in ``docs/results``, a file each: lines ``key: value`` with command, date, commit and
machine, an empty line, and then the output. ``python -m benchmarks.record`` writes them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import scaling, serving, serving_page
from builder.app.documentation.atlas_records import RECORDS
from builder.app.verb_answers import SCHEMAS, schema_file
from builder.builds.wiring import Wiring
from builder.client.arguments import EXIT_CODES
from builder.config.project import LOCK, PROJECT
from builder.console import Console
from builder.errors import BuilderError, ConfigError
from builder.formats.package_names import LINUX
from builder.formats.text import listed
from builder.inside import costs
from builder.report.heatmap import heat_maps
from builder.report.heatmap_text import text
from builder.report.pictures import svg
from builder.report.wheel_record import WheelRecord, loads

Part = Callable[[Wiring, str], Iterable[str]]
"""A function that makes the lines of a part; its second argument is the rest of the comment."""

FACTS = ("command", "date", "commit", "machine")
"""The keys at the beginning of a result, in this order."""

_RESULTS = "docs/results"

_PLATFORM = "Linux x86-64"

_BENCHMARK = "docs/benchmark"

_BENCH_FILES = f"--json {_BENCHMARK}.json --svg {_BENCHMARK}.svg --page {_BENCHMARK}.md"


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
    for one in project.variants.values():
        sm = " ".join(map(str, one.sm))
        wider = "; 10.3 and 12.1 too" if one.widen else ""
        where = f", {one.platform}" if one.platform != LINUX else ""
        toolkit = f", CUDA {one.toolkit}" if one.toolkit else ""
        yield f"| `{one.name}` | sm_{sm}{wider} | {', '.join(one.generations)}{where}{toolkit} |"
    for one in project.providers.values():
        yield f"| `{one.name}` | none | {one.platform} |"
    named = [f"`{name}`" for name, one in project.packages.items() if not one.in_all]
    yield ""
    yield f"`--all` makes {len(project.packages) - len(named)} of these, without {listed(named)}."


def _exit_codes(_wiring: Wiring, _name: str) -> Iterator[str]:
    kinds: list[type[BuilderError]] = [BuilderError, *BuilderError.__subclasses__()]
    meanings = {
        kind.exit_code: (kind.__doc__ or "").splitlines()[0] for kind in kinds if "exit_code" in vars(kind)
    }
    yield "| code | meaning |"
    yield "|---|---|"
    yield from (f"| {code} | {meanings[code].replace('``', '`')} |" for code in sorted(meanings))
    yield "| 130 | The user interrupted the command; the same command continues from there. |"


def _client_exit_codes(_wiring: Wiring, _name: str) -> Iterator[str]:
    """Yield the exit codes of the client, which its own help lists too."""
    yield "| exit code | meaning |"
    yield "|---|---|"
    yield from (f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())


def _record(wiring: Wiring, name: str, version: str) -> WheelRecord:
    """Return the atlas's record of a wheel for Linux on x86-64. Raises ``ConfigError`` if there is none."""
    files = sorted((wiring.root / RECORDS).glob(f"{name.replace('-', '_')}-{version}-*.json"))
    found = [
        one for one in (loads(file.read_bytes(), file.name) for file in files) if one.platform == _PLATFORM
    ]
    if not found:
        raise ConfigError(
            f"{RECORDS} has no record of {name} {version}", advice=f"./run atlas --add {name}=={version}"
        )
    return found[0]


def _official(wiring: Wiring) -> WheelRecord:
    return _record(wiring, "onnxruntime-gpu", wiring.project.onnxruntime.version)


def _picture(wiring: Wiring, _name: str) -> Iterator[str]:
    version = wiring.project.onnxruntime.version
    yield f"![Which GPUs the official wheel of ONNX Runtime {version} runs on](docs/gpus.svg)"


def _gpus_svg(wiring: Wiring) -> str:
    return svg(heat_maps([_official(wiring).source()]), wiring.loader)


def _inspected(wiring: Wiring, _name: str) -> Iterator[str]:
    """Yield what ``inspect`` prints of the official wheel."""
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
    """Yield a result's builds beside the seconds that the simulator finds for them."""
    facts, builds = _stored(wiring.root, name)
    yield "| variants | profile | cores, GiB | simulated, s | measured, s | error |"
    yield "|---|---|---|---|---|---|"
    for build in map(scaling.Build.parse, builds):
        wall = scaling.simulated(build, _planned(wiring, build.profile))
        names = listed([f"`{one}`" for one in build.variants])
        yield (
            f"| {names} | {build.profile} | {build.cores}, {build.gib} "
            f"| {wall:,.0f} | {build.seconds:,} | {wall / build.seconds - 1:+.0%} |"
        )
    yield from _measured_with(facts)


def _scaling_svg(wiring: Wiring) -> str:
    profile = "full"
    found = list(scaling.rows(_planned(wiring, profile)))
    return scaling.picture(found, profile, wiring.templates)


def _planned(wiring: Wiring, profile: str) -> list[list[scaling.Planned]]:
    quiet = Wiring(wiring.root, dist=wiring.dist, reporter=Console(env={}, stream=io.StringIO()))
    known = costs.read(wiring.root / "builder/inside/costs.tsv")
    return scaling.planned(quiet, known, profile)


def _benchmark_rows(wiring: Wiring) -> tuple[list[serving.Row], dict[str, object]]:
    """Return the rows and facts that the last ``bench`` stored."""
    stored = json.loads(page_text(wiring.root / f"{_BENCHMARK}.json"))
    figures = [[serving.Figures(**one) for one in row["figures"]] for row in stored["rows"]]
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


PARTS: Mapping[str, Part] = {
    "result": _result,
    "variants": _variants,
    "exit-codes": _exit_codes,
    "client-exit-codes": _client_exit_codes,
    "picture": _picture,
    "inspect": _inspected,
    "scaling": _scaling,
    "machines": _machines,
    "compared": _compared,
}
"""The generators of parts, by the word in the comment that begins a part."""

FILES: Mapping[str, Callable[[Wiring], str]] = {
    "docs/gpus.svg": _gpus_svg,
    "docs/scaling.svg": _scaling_svg,
    f"{_BENCHMARK}.md": _benchmark_page,
    f"{_BENCHMARK}.svg": _benchmark_svg,
    "docs/schemas/variants.schema.json": lambda _: PROJECT.schema_file("variants.yaml"),
    "docs/schemas/inputs.schema.json": lambda _: LOCK.schema_file("inputs.lock"),
    **{f"docs/schemas/{name}.schema.json": partial(_schema, name) for name in SCHEMAS},
}
"""The makers of whole files, by their paths."""
