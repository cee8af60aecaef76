"""A made-up source of ORT in other words than the real one, from which the rules of a build are read."""

from collections.abc import Mapping

from builder.facts.ort.rule_reader import read_rules
from builder.facts.ort.source_rules import SourceRules
from builder.facts.ort.source_tree import SourceTree
from builder.io.wiring import Wiring
from tests.support import ROOT

_FOLDER = ROOT / "tests/data/ort/source"

FILES: Mapping[str, str] = {
    file.relative_to(_FOLDER).as_posix(): file.read_text(encoding="utf-8")
    for file in sorted(_FOLDER.rglob("*"))
    if file.is_file()
}
"""The texts of the source by path below its root."""


def rules(more: Mapping[str, str] = FILES) -> SourceRules:
    """Return the rules that are read from the source with CMake; ``more``: files in place of its own."""
    files = {**FILES, **more}
    scripts = {path: text if path.startswith("cmake/") else "" for path, text in files.items()}
    with Wiring(ROOT).cmake(scripts) as configure:
        return read_rules(SourceTree.read(files), configure, {"onnxruntime_USE_CUDA": "ON"})
