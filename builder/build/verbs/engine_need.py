"""``python -m builder.build.verbs.engine_need VERB …`` exits with 1 if no named variant needs an engine.

``./run`` asks this where no engine answers, before it installs one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from builder.config.load import load_project
from builder.config.variants import Variant


def needs_engine(words: Sequence[str], packages: Mapping[str, Variant]) -> bool:
    """Return whether a verb with these words needs a container engine, to try a package in it.

    ``True`` if no variant is named. Unknown names are skipped: the verb itself refuses them.
    """
    named = [after for word, after in pairwise(words) if word == "--variant"]
    named += [word.partition("=")[2] for word in words if word.startswith("--variant=")]
    if not named or "--all" in words:
        return True
    return any(packages[name].is_tried_here for name in named if name in packages)


if __name__ == "__main__":
    project = load_project(Path("variants.yaml").read_text(encoding="utf-8"), "variants.yaml")
    sys.exit(not needs_engine(sys.argv[1:], project.packages))
