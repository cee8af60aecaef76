"""Package URLs: names of other people's packages that scanners of SBOMs and provenance understand.

Source: the purl specification (ECMA-427) and its types pypi, deb, docker and github.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_PLAIN = re.compile(rb"[A-Za-z0-9._~:-]")

_DEB = re.compile(r"(?P<name>[^_]+)_(?P<version>[^_]+)_(?P<arch>[^_]+)\.deb")

_SOURCE = re.compile(r"(?P<name>[^_]+)_(?P<version>[^_]+)\.orig(?:-[A-Za-z0-9-]+)?\.tar\.[a-z0-9]+")


def pypi(spec: str) -> str:
    """A wheel by ``name==version``, or ``name==version@platform``: the type knows no platform."""
    name, _, version = spec.partition("@")[0].partition("==")
    return _purl("pypi", "", name.lower().replace("_", "-"), version)


def github(repository: str, version: str) -> str:
    """A repository ``owner/name`` at a tag or commit."""
    owner, _, name = repository.lower().partition("/")
    return _purl("github", owner, name, version)


def docker(spec: str) -> str:
    """An image by ``owner/name:tag``."""
    owner, _, image = spec.rpartition("/")
    name, _, tag = image.partition(":")
    return _purl("docker", owner, name, tag)


def deb(name: str, version: str, arch: str) -> str:
    """A binary package of Debian."""
    return _purl("deb", "debian", name, version, arch=arch)


def debian(path: str) -> str:
    """A file of Debian's archive by its path: a binary package, or a package's upstream source."""
    file = PurePosixPath(path).name
    binary = _DEB.fullmatch(file)
    if binary:
        return deb(binary["name"], binary["version"], binary["arch"])
    source = _SOURCE.fullmatch(file)
    if source:
        return deb(source["name"], source["version"], "source")
    return _purl("generic", "", file, "")


def _purl(kind: str, namespace: str, name: str, version: str, *, arch: str | None = None) -> str:
    path = [kind, *(part for part in namespace.split("/") if part), name]
    said = f"@{_quote(version)}" if version else ""
    asked = f"?arch={_quote(arch)}" if arch else ""
    return f"pkg:{'/'.join(map(_quote, path))}{said}{asked}"


def _quote(text: str) -> str:
    """Percent-encoded, all but what purl leaves plain."""
    octets = (bytes([octet]) for octet in text.encode())
    return "".join(octet.decode() if _PLAIN.match(octet) else f"%{octet[0]:02X}" for octet in octets)
