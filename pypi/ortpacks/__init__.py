"""The ortpacks client for pip: a release's ``ortpacks.pyz``, and the command ``ortpacks`` that starts it."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Run the command in ``sys.argv`` and return its exit code."""
    sys.path.insert(0, str(Path(__file__).with_name("ortpacks.pyz")))
    from builder.client.__main__ import run  # noqa: PLC0415 - it is in the file

    return run()
