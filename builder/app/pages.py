"""This module writes the generated parts of README and docs: ``./run docs`` writes them, a test compares.

A generated part is between two comments, the first of which names its generator. Measured results are in
``docs/results``, a file each: lines ``key: value`` with command, date, commit and machine, an empty line, and
then the output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from builder.builds.wiring import Wiring
from builder.errors import BuilderError, ConfigError
from builder.files.atomic_write import write_file
from builder.formats.package_names import LINUX
from builder.project.variants import Project

_RESULTS = "docs/results"

_PART = re.compile(
    r"(?P<begin><!-- \./run docs: (?P<what>[a-z-]+)(?: (?P<name>[a-z0-9-]+))? -->\n).*?(?=<!-- end -->)",
    re.DOTALL,
)

_BEGIN = re.compile(r"^<!-- \./run docs: .*?-->", re.MULTILINE)

_FACTS = ("command", "date", "commit", "machine")


def write_pages(wiring: Wiring) -> None:
    """Write every generated part of every page. Raises ``ConfigError`` for a part without a generator."""
    for path in pages(wiring.root):
        text = _text(path)
        made = rendered(text, wiring.root, wiring.project)
        if made != text:
            write_file(path, made.encode())
            wiring.reporter.say(f"{path.relative_to(wiring.root)} is new")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no UTF-8 text", cause=str(error)) from error


def pages(root: Path) -> list[Path]:
    """Return the paths of all Markdown files in the project's folder and below docs."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def rendered(text: str, root: Path, project: Project) -> str:
    """Return the page with its parts generated from the current state."""

    def part(found: re.Match[str]) -> str:
        what, name = found["what"], found["name"]
        if what == "result" and name:
            lines = _result(root / _RESULTS / f"{name}.txt")
        elif what == "variants":
            lines = _variants(project)
        elif what == "exit-codes":
            lines = _exit_codes()
        else:
            raise ConfigError(f"<!-- ./run docs: {what} --> names nothing that makes a part of a page.")
        return found["begin"] + "".join(f"{line}\n" for line in lines)

    made, count = _PART.subn(part, text)
    begun = _BEGIN.findall(text)
    if len(begun) != count:
        raise ConfigError(
            f"Of {len(begun)} parts that begin ({', '.join(dict.fromkeys(begun))}) {count} are whole: a part "
            "wants a line of its own like <!-- ./run docs: result first-build -->, and <!-- end --> below."
        )
    return made


def _result(path: Path) -> Iterator[str]:
    head, _, output = _text(path).partition("\n\n")
    facts = {key: value for key, _, value in (line.partition(": ") for line in head.splitlines())}
    if tuple(facts) != _FACTS:
        raise ConfigError(f"{path} does not begin with the lines {', '.join(_FACTS)}, each with a colon.")
    yield "```text"
    yield from output.rstrip("\n").splitlines()
    yield "```"
    yield ""
    yield f"`{facts['command']}`, {facts['date']}, commit {facts['commit']}; {facts['machine']}."


def _variants(project: Project) -> Iterator[str]:
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


def _exit_codes() -> Iterator[str]:
    kinds: list[type[BuilderError]] = [BuilderError, *BuilderError.__subclasses__()]
    meanings = {
        kind.exit_code: (kind.__doc__ or "").splitlines()[0] for kind in kinds if "exit_code" in vars(kind)
    }
    yield "| code | meaning |"
    yield "|---|---|"
    yield from (f"| {code} | {meanings[code].replace('``', '`')} |" for code in sorted(meanings))
    yield "| 130 | The user interrupted the command; the same command continues from there. |"
