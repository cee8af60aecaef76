"""The pages below ``docs/reference``, each made from the code that it describes.

``FILES`` of ``pages`` has them; ``./run docs`` writes them.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from invoke.collection import Collection

from builder.build.verbs.command_line import ROLES
from builder.client.arguments import COMMANDS, ENVIRONMENT, EXIT_CODES, FLAGS
from builder.client.commands.environment import SHELLS
from builder.client.doctor.advice import catalogue
from builder.config import document
from builder.config.variants import Project
from builder.errors import BuilderError
from builder.finding import Code
from builder.formats.text import grouped

FOLDER = "docs/reference"

_FAMILIES = {
    "A": "Device code",
    "B": "Packages",
    "C": "Plans",
    "E": "Libraries",
    "R": "Releases",
    "V": "Virtual cards",
}

_FINDINGS = """\
Every finding has a code, which is never given to another one. [package-format.md](../package-format.md) and
[doctor.md](../doctor.md) say what is looked at."""

_SEVERITIES = """\
An **error** keeps the GPU or the package from being used. A **warning** may do so, or gives wrong or slow
results. A **note** is information. The first digit is the subject: 0 driver and cards, 1 containers, WSL and
systems, 2 the package in use, 3 its surroundings, 4 the session. Values that a finding fills in are dots."""


def _verbs() -> Iterator[str]:
    yield "What `./run VERB --help` prints, of every verb. `./run` starts them; in `.venv`, so does `invoke`."
    collection = Collection.from_module(importlib.import_module("tasks"))
    contexts = {context.name: context for context in collection.to_contexts()}
    for role, examples in ROLES.items():
        yield from ("", f"## {role}")
        for name, example in examples.items():
            yield from ("", f"### {name}", "", _code(inspect.getdoc(collection[name]) or ""))
            yield from ("", "```sh", example, "```")
            yield from _table(("flag", "what"), contexts[name].help_tuples())


def _client() -> Iterator[str]:
    yield "What `ortpacks COMMAND --help` prints, of every command of [the client](../client.md)."
    for name, (_, help_line) in COMMANDS.items():
        flags = [flag for flag in FLAGS if name in flag.get("commands", [name])]
        yield from ("", f"## {name}", "", f"{help_line[0].upper()}{help_line[1:]}.")
        yield from _table(("flag", "what"), map(_client_flag, flags))
    yield from ("", "## Environment", "")
    yield from ("```text", *ENVIRONMENT.splitlines(), "```")


def _client_flag(flag: Mapping[str, dict[str, str]]) -> tuple[str, str]:
    options = flag["options"]
    names = f"{', '.join(flag['flag'])} {options.get('metavar', '')}"
    return names.strip(), options["help"].replace("%(choices)s", ", ".join(SHELLS))


def _variants() -> Iterator[str]:
    yield "The keys of `variants.yaml`. [variants.md](../variants.md) explains them, "
    yield "[the schema](../schemas/variants.schema.json) checks them."
    schema = json.loads(document.schema_file(Project, "variants.yaml"))
    sections = {"The file": schema, **{_title(name): part for name, part in schema["$defs"].items()}}
    for title, section in sections.items():
        rows = []
        for name, key in section.get("properties", {}).items():
            value = key.get("items", key)
            value = schema["$defs"].get(_section(value), value)
            choices = value.get("enum", [value["const"]] if "const" in value else [])
            rows.append(_key(name, key, choices))
        if rows:
            yield from ("", f"## {title}")
            yield from _table(("key", "values", "default", "what"), rows)


def _key(name: str, key: Mapping[str, object], choices: Iterable[object]) -> tuple[str, str, str, str]:
    default = json.dumps(key["default"]) if "default" in key else ""
    section = _section(key)
    what = str(key.get("description", section and f"{_title(section)}, below"))
    return name, ", ".join(f"`{choice}`" for choice in choices), default, what


def _section(key: Mapping[str, object]) -> str:
    return str(key.get("$ref", "")).rpartition("/")[2]


def _title(section: str) -> str:
    words = " ".join(re.findall(r"[A-Z][a-z]*", section)).lower()
    return f"{words[:1].upper()}{words[1:]}"


def _codes() -> Iterator[str]:
    yield _FINDINGS
    for family, codes in grouped((code.name[0], code) for code in Code).items():
        yield from ("", f"## {family}: {_FAMILIES[family]}")
        yield from _table(("code", "finding"), ((code.name, code.value) for code in codes))
    yield from ("", "## D: the user's machine", "")
    yield _SEVERITIES
    texts = (
        (code, entry.severity.value, *map(_dotted, (entry.seen, entry.means, entry.do)))
        for code, entry in catalogue().items()
    )
    yield from _table(("code", "severity", "seen", "it means", "do"), texts, code=False)


def _dotted(text: str) -> str:
    """Return a finding's text with dots for its values; its links to pages lead out of this folder."""
    return re.sub(r"\{\w+\}", "…", text).replace("](", "](../").replace("](../http", "](http")


def _exit_codes() -> Iterator[str]:
    kinds: list[type[BuilderError]] = [BuilderError, *BuilderError.__subclasses__()]
    meanings = {
        kind.exit_code: _code((kind.__doc__ or "").splitlines()[0])
        for kind in kinds
        if "exit_code" in vars(kind)
    }
    interrupted = "The user interrupted the command; the same command continues from there."
    yield "## `./run`"
    yield from _table(("code", "meaning"), [*sorted(meanings.items()), (130, interrupted)], code=False)
    yield from ("", "## `ortpacks`, the client")
    yield from _table(("code", "meaning"), EXIT_CODES.items(), code=False)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], *, code: bool = True) -> Iterator[str]:
    """Yield a Markdown table after an empty line, none without rows; first cells are code where asked for."""
    lines = [[str(cell).replace("|", r"\|") for cell in row] for row in rows]
    if lines:
        yield from ("", f"| {' | '.join(head)} |", "|" + "---|" * len(head))
    for first, *rest in lines:
        cells = (" ".join(_code(cell).split()) for cell in rest)
        yield f"| {f'`{first}`' if code else first} | {' | '.join(cells)} |"


def _code(text: str) -> str:
    return text.replace("``", "`")


_PAGES: Mapping[str, tuple[str, Callable[[], Iterable[str]]]] = {
    "verbs": ("Verbs of `./run`", _verbs),
    "client": ("Commands of the client", _client),
    "variants": ("Keys of variants.yaml", _variants),
    "codes": ("Codes of findings", _codes),
    "exit-codes": ("Exit codes", _exit_codes),
}


def reference_page(name: str) -> str:
    """Return the text of one of the pages of ``REFERENCE`` by its name without folder and ending."""
    title, lines = _PAGES[name]
    return "\n".join((f"# {title}", "", *(line.rstrip() for line in lines()))) + "\n"


REFERENCE: Sequence[str] = tuple(_PAGES)
"""Names of the pages."""
