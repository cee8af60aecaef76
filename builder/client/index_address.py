"""The address of a release's index, which the flags, the environment or the program's own release names."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path
from typing import Mapping, Optional, Union
from urllib.parse import urljoin, urlsplit

from builder.errors import ConfigError
from builder.files.disk import absolute
from builder.formats.oci import is_oci, parse_address
from builder.formats.package_names import INDEX
from builder.formats.text import without_userinfo

_RELEASE = re.compile(r"/releases/download/(.+)/index\.json$")

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
        raise ConfigError(
            f"--mirror {without_userinfo(base)}: a URL is wanted, http, https or oci. --index also takes "
            "folders."
        )
    release = _RELEASE.search(default or "")
    apart = ":" if is_oci(base) else "/"
    return str(place(f"{base.rstrip('/')}{apart}{release[1] if release else 'latest'}/{INDEX}"))


def _offline(text: str) -> Path:
    """Return the folder or archive of ``--offline``. Raises ``ConfigError`` where it does not exist."""
    path = None if is_url(text) else absolute(Path(text))
    if path is None or not path.exists():
        named = without_userinfo(text)
        raise ConfigError(f"--offline {named}: a folder with index.json, or a package's archive, is wanted.")
    return path


def place(text: str) -> Union[str, Path]:
    """Return the URL or absolute path that ``text`` names. Raises ``ConfigError`` for a malformed address.

    The URL of a folder, or of a release in a registry, becomes the URL of its index. A fragment stays.
    """
    if not is_url(text):
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
        return urlsplit(text).scheme in {"http", "https", "oci"}
    except ValueError as error:
        raise ConfigError(
            f"{without_userinfo(text)}: not a URL.", advice="Write it like https://HOST/PATH."
        ) from error
