"""Folders of this machine as inputs: a tar of their files."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path

from builder.config.inputs import Input, Pin
from builder.errors import ToolMissingError, ValidationError
from builder.files.disk import disk_errors
from builder.io.process import ProcessRunner


def pack_tree(runner: ProcessRunner, item: Input, _pin: Pin | None, folder: Path) -> Path:
    """Return a tar of a folder as it is (``io.store.Source``); the same files give the same bytes.

    In a git work tree, what git ignores is left out, such as the results of a build. Raises
    ``ValidationError`` for what is no folder.
    """
    root, tar = Path(item.spec), folder / item.file_name
    if not root.is_dir():
        raise ValidationError(f"{root} is no folder.", advice="Name a folder, or an archive of one.")
    with disk_errors(tar), tarfile.open(tar, "w") as archive:
        for path in sorted(_paths(runner, root)):
            info = tarfile.TarInfo(str(path.relative_to(root)))
            info.mode = 0o755 if path.is_file() and path.stat().st_mode & 0o100 else 0o644
            if path.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
                archive.addfile(info)
            elif path.is_file():  # no submodule's folder
                info.size = path.stat().st_size
                with path.open("rb") as file:
                    archive.addfile(info, file)
    return tar


def _paths(runner: ProcessRunner, root: Path) -> Iterable[Path]:
    listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = runner.run(["git", "-C", str(root), "--git-dir=.git", "--work-tree=.", *listing], check=False)
    except ToolMissingError:
        done = None
    if done is None or done.code:
        return (path for path in root.rglob("*") if ".git" not in path.relative_to(root).parts)
    return {root / path for path in done.stdout.split("\0") if path}
