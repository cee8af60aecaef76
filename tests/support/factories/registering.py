"""Factory of a dist folder with two small packages, which the real code mirrors into a registry double."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from docker.auth import AuthConfig

from builder.adapters.docker.registry import Registry
from builder.adapters.mirror.registry_host import RegistryHost
from builder.adapters.retries import Retrier, RetryPolicy
from builder.files.digest import LocalFile
from builder.release.assets import ReleasePlan
from builder.release.prepare import PublishOptions, ReleaseStatus
from builder.release.publish import converge_release, publish_release
from builder.release.signing import Signing
from tests.doubles.loopback import listening
from tests.doubles.registry import Served, digest
from tests.support.factories.mirroring import fill
from tests.support.factories.publishing import ATTEMPTS, TAG, of_two_variants, ports, project_at
from tests.support.factories.releases import FakeTime
from tests.support.factories.signing import signing
from tests.support.fakes.ports import FakeReporter


@dataclass
class Counter:
    """A dist folder, the registry double, and the real code that mirrors from one to the other."""

    dist: Path
    served: Served
    reporter: FakeReporter = field(default_factory=FakeReporter)
    time: FakeTime = field(default_factory=FakeTime)
    signing: Signing | None = None
    logins: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"oci://{self.served.host}/owner/name"

    def host(self) -> RegistryHost:
        repository = f"{self.served.host}/owner/name"
        logins = AuthConfig({"auths": {self.served.host: self.logins}})
        repeater = Retrier(
            reporter=self.reporter,
            sleep=self.time.sleep,
            host="The registry",
            policy=RetryPolicy(attempts=ATTEMPTS),
        )
        registry = Registry(repository, logins, insecure=True)
        registry._schemes = ("http",)  # test_registry tries https first, which takes 5 ms
        return RegistryHost(registry, repository, self.reporter, repeater)

    def mirror(self, options: PublishOptions | None = None) -> ReleaseStatus:
        project = of_two_variants(project_at("https://api.github.com"))
        made = replace(ports(self.host(), self.reporter), signing=self.signing)
        return publish_release(self.dist, project, made, options or PublishOptions())

    def converge(self, files: Sequence[LocalFile], options: PublishOptions | None = None) -> ReleaseStatus:
        """Put these files into the registry as the verb does, without reading packages or writing pages."""
        plan = ReleasePlan(TAG, "", "", tuple(files))
        return converge_release(plan, ports(self.host(), self.reporter), options or PublishOptions())

    def change(self, to_layer: Callable[[dict[str, Any]], object], name: str = "index.json") -> None:
        """Let the registry's manifest have another layer of this name, as the registry's owner can."""
        kind, content = self.served.manifests[TAG]
        manifest = json.loads(content)
        for layer in manifest["layers"]:
            if layer["annotations"]["org.opencontainers.image.title"] == name:
                to_layer(layer)
        self.served.hold(TAG, kind, json.dumps(manifest).encode())

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file of the release in the registry."""
        self.served.blobs[digest(content)] = content
        self.change(lambda layer: layer.update(digest=digest(content), size=len(content)), name)

    def seen(self, tag: str = TAG) -> dict[str, bytes] | None:
        return self.served.files(tag)

    def asked(self, route: str) -> int:
        return [name for name, _ in self.served.requests].count(route)

    @property
    def output(self) -> str:
        return "\n".join(self.reporter.lines)


def bundle(dist: Path, padding: int = 150_000) -> None:
    """Write two packages and a client into the emptied folder; another ``padding`` makes other bytes."""
    fill(dist, padding)
    (dist / "ortpacks.pyz").write_bytes(b"PK the client")


@contextmanager
def open_counter(folder: Path) -> Iterator[Counter]:
    dist = folder / "dist"
    bundle(dist)
    served = Served()
    with listening(served):
        yield Counter(dist, served, signing=signing())
