"""What lies beside a package in ``dist`` and speaks of it: the record of its build, and its provenance."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from builder.adapters.partfile import part_file
from builder.adapters.revision import revision_of
from builder.app.buildrecords import command_of, note
from builder.app.workshop import Workshop
from builder.core.manifest import Manifest
from builder.core.provenance import (
    Resource,
    Run,
    Subject,
    base_parts,
    base_revision,
    describe_provenance,
    dumps,
    image_revision,
    provenance_name,
    used_inputs,
)
from builder.core.rendered import Rendered
from builder.core.variant import BuildPlan, Origin
from builder.core.workplace import Workplace
from builder.stages.bundle import Bundled
from builder.stages.plan import Wishes


@dataclass(frozen=True, kw_only=True)
class Making:
    """How a variant's packages were made."""

    shop: Workshop
    place: Workplace
    plan: BuildPlan
    rendered: Rendered
    wishes: Wishes
    began: float
    """Seconds since 1970."""

    @property
    def base_parts(self) -> tuple[Resource, ...]:
        """What the assembled base that compiled it consists of."""
        return base_parts(self.plan, self.shop.lock.pins, self.rendered.system)

    @property
    def base_revision(self) -> str | None:
        """The base image's digest; of an assembled base that compiled anything, its parts'."""
        if self.plan.base == "nvidia":
            return image_revision(self.plan, self.shop.lock)
        parts = [(part.uri, part.digest["sha256"]) for part in self.base_parts]
        return base_revision(parts) if parts else None

    @property
    def command(self) -> str:
        """What makes them again."""
        return command_of(self.plan, self.wishes)


def record(one: Bundled, manifest: Manifest, making: Making) -> Path:
    """Write what building took: once a build, beside the first of its packages."""
    return note(
        one,
        manifest,
        making.shop.dist,
        command=making.command,
        artifact=making.place.artifact if making.plan.origin is Origin.SOURCE else None,
        clock=time.time,
    )


def vouch(one: Bundled, manifest: Manifest, making: Making) -> Path:
    """Write a package's provenance."""
    pins = making.shop.lock.pins
    used = {item: pins[item.key] for item in used_inputs(making.plan, making.rendered) if item.key in pins}
    statement = describe_provenance(
        making.plan, manifest, used, list(_subjects(one)), _run(making), making.base_parts
    )
    path = making.shop.dist / provenance_name(one.archive)
    with part_file(path) as file:
        file.write(dumps(statement).encode())
    return path


def _subjects(one: Bundled) -> Iterator[Subject]:
    """The archive, then the parts it was cut into."""
    yield Subject(one.archive, one.package.sha256)
    for file in one.files[:-1]:
        yield Subject(file.name, one.sums[file.name])


def _run(making: Making) -> Run:
    shop = making.shop
    return Run(
        command=making.command,
        started=making.began,
        finished=time.time(),
        revision=revision_of(shop.root, shop.runner),
        config_sha256=hashlib.sha256((shop.root / "variants.yaml").read_bytes()).hexdigest(),
    )
