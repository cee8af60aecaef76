"""This module writes the generated parts of README and docs: ``./run docs`` writes them, a test compares.

A generated part is between two comments, the first of which names its generator in ``page_parts.PARTS``;
``page_parts.FILES`` has the files that are generated as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from builder.app.documentation.page_parts import FILES, PARTS, page_text
from builder.builds.wiring import Wiring
from builder.errors import ConfigError
from builder.files.atomic_write import write_file

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
