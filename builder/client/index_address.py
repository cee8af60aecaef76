"""The address of a release's index, which the flags, the environment or the program's own release names."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path
from typing import Mapping, Optional, Union
from urllib.parse import urljoin, urlsplit

from builder.errors import ConfigError, TransferError
from builder.files.disk import absolute
from builder.formats.oci import is_oci, parse_address
from builder.formats.package_names import INDEX
from builder.formats.text import redacted

_RELEASE = re.compile(r"/releases/download/(.+)/index\.json$")

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
"""The beginning of a URL; a single letter is a drive of Windows."""

_NEWEST = {"self-update"}
"""The commands that read the newest release's index where the user names no index."""


def index_address(given: Mapping[str, object], env: Mapping[str, str]) -> Union[str, Path, None]:
    """Return the place of the index; ``None`` where no option, variable or default names one.

    At most one of ``--index``, ``--offline`` and ``--mirror`` is given.
    """
    default = _default_index()
    here, mirror, index = (given.get(name) for name in ("offline", "mirror", "index"))
    if here is not None:
        return _offline(str(here))
    if mirror is not None:
        return mirrored(str(mirror), default if given["command"] not in _NEWEST else None)
    if given["command"] in _NEWEST and default:
        default = _RELEASE.sub(f"/releases/latest/download/{INDEX}", default)
    named = str(index) if index else env.get("ORTPACKS_INDEX") or default
    return place(named) if named else None


def _default_index() -> Optional[str]:
    """Return the URL of the index of this program's release; ``None`` when it runs from the source tree."""
    data = shipped("default_index.txt")
    return data.decode().strip() if data else None


def own_release() -> Optional[str]:
    """Return the release that this program is of; ``None`` when it is of none."""
    release = _RELEASE.search(_default_index() or "")
    return release[1] if release else None


def shipped(name: str) -> Optional[bytes]:
    """Return the bytes of the file ``name`` in this program's archive; ``None`` where there is none."""
    try:
        return pkgutil.get_data("builder.client", name)
    except OSError:
        return None


def mirrored(base: str, default: Optional[str]) -> str:
    """Return the place of the index on the mirror ``base``. Raises ``ConfigError`` where ``base`` is no URL.

    The index is that of the release that the URL ``default`` names, else that of the newest release.
    """
    if not is_url(base):
        what = f"--mirror {_without_login(base)}: a URL is wanted, http, https or oci."
        raise ConfigError(what, advice="--index also takes folders.")
    release = _RELEASE.search(default or "")
    apart = ":" if is_oci(base) else "/"
    return str(place(f"{base.rstrip('/')}{apart}{release[1] if release else 'latest'}/{INDEX}"))


def _offline(text: str) -> Path:
    """Return the folder or archive of ``--offline``. Raises ``ConfigError`` where it does not exist."""
    path = None if is_url(text) else absolute(Path(text))
    if path is None or not path.exists():
        named = redacted(text)
        raise ConfigError(f"--offline {named}: a folder with index.json, or a package's archive, is wanted.")
    return path


def place(text: str) -> Union[str, Path]:
    """Return the URL or absolute path that ``text`` names.

    The URL of a folder, or of a release in a registry, becomes the URL of its index. A fragment stays. Raises
    ``ConfigError`` for a malformed address, ``TransferError`` for a URL that is not fetched.
    """
    if not is_url(text):
        if _SCHEME.match(text):  # as a path it would be shown with its login
            what = f"{redacted(text)}: only http, https and oci are fetched."
            raise TransferError(what, advice="A file or folder is named by its path.")
        return absolute(Path(text))
    address, _, pin = text.partition("#")
    if is_oci(address):
        release = address.rstrip("/").removesuffix(f"/{INDEX}")
        parse_address(release)  # refuses what is no release
        address = f"{release}/{INDEX}"
    elif address.endswith("/"):
        address = urljoin(address, INDEX)
    return f"{address}#{pin}" if pin else address


def is_url(text: str) -> bool:
    """Return whether ``text`` is an http, https or oci URL. Raises ``ConfigError`` for a malformed URL."""
    try:
        scheme = urlsplit(text).scheme
        if scheme not in {"http", "https", "oci"}:
            return False
        if text.partition(":")[2].startswith("//"):
            return True
    except ValueError:
        pass
    raise ConfigError(f"{_without_login(text)}: not a URL.", advice="Write it like https://HOST/PATH.")


def _without_login(text: str) -> str:
    """Return an address without a login, also where a part of ``://`` is missing."""
    whole = "://" in text or "@" not in text
    return redacted(text) if whole else f"…@{text.rpartition('@')[2]}"
