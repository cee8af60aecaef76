"""``variants.yaml`` and ``inputs.lock``: text to values, strictly, with every problem of a file at once.

Nothing here opens a file: callers read the text and say what the file is called.
"""

from builder.config.lock_file import parse_lock, render_lock
from builder.config.project import load_project, pick_variants

__all__ = ["load_project", "parse_lock", "pick_variants", "render_lock"]
