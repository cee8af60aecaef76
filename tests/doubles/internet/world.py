"""The folder of a double of the internet: what hosts serve, their authority, and images of a registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.doubles.internet.authority import Authority, make_authority
from tests.doubles.internet.sites import Sites

GATEWAY = "172.31.253.1"
"""The address of the hosts in the namespace: the engine's bridge, which its containers reach too."""

REGISTRY_PORT = 5000

HUB = "registry-1.docker.io"
"""Docker Hub, which the engine asks for what its mirror lacks. Here it has no image."""


@dataclass(frozen=True)
class World:
    """A double of the internet in ``folder``."""

    folder: Path
    authority: Authority

    @classmethod
    def of(cls, folder: Path) -> World:
        """Return the double that ``make`` has made in ``folder``."""
        made = folder / "authority"
        return cls(folder, Authority(made / "authority.pem", made / "server.pem", made / "bundle.pem"))

    @classmethod
    def make(cls, folder: Path, hosts: Iterable[str], registry_program: Path | None = None) -> World:
        """Make a double with empty ``hosts``; one without ``registry_program`` serves no engine."""
        named = {*hosts, HUB}
        for host in named:
            (folder / "sites" / host).mkdir(parents=True)
        ping = folder / "sites" / HUB / "v2/index.html"
        ping.parent.mkdir()
        ping.write_text("{}")
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        if registry_program:
            (folder / "docker-registry").symlink_to(registry_program)
        return cls(folder, make_authority(folder / "authority", named))

    @property
    def resolver(self) -> Path:
        """The resolv.conf of the namespace."""
        return self.folder / "resolv.conf"

    def site(self, address: str) -> Path:
        """Return the path of what is served at an address without its scheme."""
        return self.folder / "sites" / address

    def sites(self, upstreams: Mapping[str, str] | None = None) -> Sites:
        return Sites(self.folder / "sites", self.authority.context(), upstreams or {})

    def environment(self, proxy: str) -> dict[str, str]:
        """Return the variables that lead the programs of this machine to the hosts through ``proxy``."""
        return {**self.authority.environment(), "HTTPS_PROXY": proxy, "https_proxy": proxy}

    def registry_program(self) -> Path:
        return self.folder / "docker-registry"


def registry_config(folder: Path, port: int, *more: str) -> Path:
    """Write and return the configuration of a ``docker-registry`` with its data in ``folder``.

    ``more`` are further lines.
    """
    config = folder / f"registry-{port}.yml"
    lines = (
        "version: 0.1",
        "log: {level: error, accesslog: {disabled: true}}",
        f"storage: {{filesystem: {{rootdirectory: {folder / 'registry'}}}}}",
        f"http: {{addr: '127.0.0.1:{port}'}}",
        *more,
    )
    config.write_text("\n".join(lines))
    return config
