"""A release in an OCI registry: the form of its address, and the types of its manifest.

A release is one artifact: an image manifest whose layers are the files, each with its name as title, as in
ORAS. Sources: OCI Image Specification 1.1, "Image Manifest"; OCI Distribution Specification 1.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from builder.errors import ConfigError

SCHEME = "oci://"

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"

RELEASE_TYPE = "application/vnd.ortpacks.release.v1"
"""The ``artifactType`` of a release's manifest."""

TITLE = "org.opencontainers.image.title"
"""The annotation with the file name of a layer."""

MANIFEST_LIMIT = 4 * 2**20
"""The size in bytes up to which registries must accept manifests: Distribution Specification, "Pushing
Manifests"."""

_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"

TAG_FORM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")

DIGEST_FORM = re.compile(r"sha256:[0-9a-f]{64}")

_ADDRESS = re.compile(
    rf"oci://(?:(?P<login>[^/@]*)@)?(?P<host>{_HOST})/(?P<name>{_PART}(?:/{_PART})*)"
    rf"(?::(?P<tag>{TAG_FORM.pattern})|@(?P<digest>{DIGEST_FORM.pattern}))?"
)

_LOOPBACK = re.compile(r"(?:localhost|127(?:\.[0-9]{1,3}){3})(?::[0-9]+)?")

_DOCKER_HUB = {"docker.io": "registry-1.docker.io"}


@dataclass(frozen=True)
class OciAddress:
    """The parts of an address ``oci://HOST/NAME:TAG``."""

    host: str
    name: str
    """The repository's name, in lower case."""
    reference: str = ""
    """A tag, or the digest of a manifest; empty where the address has neither."""
    login: str = ""
    """``user:password`` in URL encoding; empty where the address has none."""

    @property
    def shown(self) -> str:
        """Return the address without the login."""
        apart = "@" if ":" in self.reference else ":"
        return f"{SCHEME}{self.host}/{self.name}{apart if self.reference else ''}{self.reference}"


def is_oci(text: str) -> bool:
    """Return whether ``text`` is meant as an address in a registry, for ``parse_address`` to read."""
    return text.lower().startswith(SCHEME)


def parse_address(text: str) -> OciAddress:
    """Return the parts of the address ``text``. Raises ``ConfigError``."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        shown = f"{SCHEME}…@{text.rpartition('@')[2]}" if "@" in text else text
        raise ConfigError(
            f"{shown} is no address in a registry.",
            advice="Write it like oci://HOST/NAME:TAG, the name in lower case.",
        )
    return OciAddress(
        found["host"], found["name"], found["tag"] or found["digest"] or "", found["login"] or ""
    )


def registry_host(host: str) -> str:
    """Return the server of the registry ``host``, which differs for Docker Hub."""
    return _DOCKER_HUB.get(host, host)


def is_loopback(host: str) -> bool:
    """Return whether ``host``, with or without a port, is this machine, where plain HTTP is allowed."""
    return _LOOPBACK.fullmatch(host) is not None
