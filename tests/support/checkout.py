"""Copies of the project as it is checked out."""

import shutil
from pathlib import Path

from tests.support import ROOT, ran


def copy_checkout(target: Path) -> Path:
    """Copy the files of git's index, and new ones that git does not ignore; return ``target``."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, ran(argv, cwd=ROOT, check=True).stdout.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    return target


def copy_to_run(target: Path) -> Path:
    """Copy the checkout with a link to its ``.venv``, as ``./run`` would make one in half a minute."""
    copy_checkout(target)
    (target / ".venv").symlink_to(ROOT / ".venv")
    return target
