"""What the flags that name a release mean: URLs, folders, archives, mirrors."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path
from typing import Optional
from urllib.parse import urlsplit

from builder.errors import ConfigError

INDEX_NAME = "index.json"
_RELEASE = re.compile(r"/releases/download/(.+)/index\.json$")


def default_index() -> Optional[str]:
    """The index of the release this program was published with; ``None`` when run from the source tree."""
    try:
        data = pkgutil.get_data("builder.client", "default_index.txt")
    except OSError:
        return None
    return data.decode().strip() if data else None


def mirrored(base: str, default: Optional[str]) -> str:
    """The index on the mirror ``base``: of the release this program comes from, else the newest."""
    if not is_url(base):
        raise ConfigError(f"--mirror {base}: a URL is wanted, http or https. --index also takes folders.")
    release = _RELEASE.search(default or "")
    return f"{base.rstrip('/')}/{release[1] if release else 'latest'}/{INDEX_NAME}"


def offline(text: str) -> str:
    """``text``, the folder or archive of ``--offline``. ``ConfigError`` where it is not there."""
    if is_url(text) or not expanded(Path(text)).exists():
        raise ConfigError(f"--offline {text}: a folder with index.json, or a package's archive, is wanted.")
    return text


def is_url(text: str) -> bool:
    """Whether it is to be fetched."""
    try:
        return urlsplit(text).scheme in {"http", "https"}
    except ValueError as error:
        raise ConfigError(f"{text}: not a URL: {error}.") from error


def expanded(path: Path) -> Path:
    """``path`` with ``~`` and ``~name`` replaced. ``ConfigError`` where that user has no home."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{path}: no home is known for that user. Write the path in full.") from error
