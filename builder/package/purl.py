"""Package URLs (ECMA-427) of what a package is made of, spelled by the purl project's own library."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from packageurl import PackageURL

_DEB = re.compile(r"(?P<name>[^_]+)_(?P<version>[^_]+)_(?P<arch>[^_]+)\.deb")

_SOURCE = re.compile(r"(?P<name>[^_]+)_(?P<version>[^_]+)\.orig(?:-[A-Za-z0-9-]+)?\.tar\.[a-z0-9]+")


def pypi(spec: str) -> str:
    """A wheel's purl, from ``name==version`` or ``name==version@platform``: the type knows no platform."""
    name, _, version = spec.partition("@")[0].partition("==")
    return PackageURL("pypi", None, name, version).to_string()


def github(repository: str, version: str) -> str:
    """The purl of a repository ``owner/name`` at a tag or commit."""
    owner, _, name = repository.partition("/")
    return PackageURL("github", owner, name, version).to_string()


def docker(spec: str) -> str:
    """An image's purl, from ``owner/name:tag``."""
    owner, _, image = spec.rpartition("/")
    name, _, tag = image.partition(":")
    return PackageURL("docker", owner, name, tag).to_string()


def deb(name: str, version: str, arch: str) -> str:
    """The purl of a binary package of Debian; ``arch`` is ``source`` for its upstream source."""
    return PackageURL("deb", "debian", name, version, {"arch": arch}).to_string()


def debian(path: str) -> str:
    """The purl of a file of Debian's archive by its path: a binary package or an upstream source."""
    file = PurePosixPath(path).name
    if binary := _DEB.fullmatch(file):
        return deb(binary["name"], binary["version"], binary["arch"])
    if source := _SOURCE.fullmatch(file):
        return deb(source["name"], source["version"], "source")
    return PackageURL("generic", None, file).to_string()
