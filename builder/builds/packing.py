"""One variant's packages, from gathered files to verified archives in ``dist``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from builder.adapters.wheel import record_text
from builder.builds.kit import Kit
from builder.builds.proving import verifier
from builder.builds.records import Making, record, vouch
from builder.files.digest import file_digest
from builder.formats.manifest import Manifest
from builder.formats.providers import CUDA
from builder.package.archive import Member
from builder.pipeline.bundle import Bench, Bundled, Goods, bundle, discard
from builder.pipeline.check import CheckReport, check, tell
from builder.pipeline.gather import originals
from builder.pipeline.selftest import Bench as Trial
from builder.pipeline.verify import verify
from builder.ports import Inspector, Reporter, Store
from builder.project.inputs import Input
from builder.project.plan import package_name


class Packing:
    """Checks, packs and proves; what fails on the way leaves no package in ``dist``."""

    def __init__(self, making: Making, kit: Kit | None, store: Store, reporter: Reporter) -> None:
        """Nothing happens before a method is called. Without ``kit`` nothing is run on a package."""
        self._making = making
        self._kit = kit
        self._store = store
        self._reporter = reporter

    def clear(self) -> None:
        """Remove the variant's packages of before."""
        bench = self._bench(self._making.shop.dist)
        for layout in self._making.plan.possible_layouts:
            discard(package_name(self._making.plan, layout), bench)

    def check(self, members: Sequence[Member]) -> tuple[tuple[Member, ...], CheckReport]:
        """The members that something needs, and what they hold, natively and by cuobjdump."""
        variant = self._making.plan.variant
        inspector = self._inspector()
        report = check(members, variant, self._making.shop.project.check, inspector, self._reporter)
        for path in report.unneeded:
            self._reporter.say(f"left out {path}: nothing in the package needs it")
        needed = report.without(report.unneeded)
        tell(needed, variant, self._reporter)
        return tuple(member for member in members if member.path not in report.unneeded), needed

    def pack(self, members: Sequence[Member]) -> tuple[Bundled, ...]:
        """Check, pack and verify aside; only then do the packages stand in ``dist``."""
        goods = self._goods(*self.check(members))
        with self._reporter.step(f"bundle {goods.plan.variant.name}"):
            bundled = bundle(goods, self._bench(self._making.place.unverified))
        prove = verifier(self._making.shop, self._reporter, self._trial())
        manifests = [verify(one.package.path, prove) for one in bundled]
        if goods.plan.variant.provider == CUDA:
            record(bundled[0], manifests[0], self._making)
        return tuple(
            _settle(one, manifest, self._making) for one, manifest in zip(bundled, manifests, strict=True)
        )

    def _inspector(self) -> Inspector | None:
        """Cuobjdump, where there is code of CUDA to look at."""
        if self._kit is None or self._making.plan.variant.provider != CUDA:
            return None
        with self._reporter.step("make the image that has cuobjdump"):
            return self._kit.inspector()

    def _trial(self) -> Trial | None:
        """Where packages are tried out."""
        if self._kit is None:
            return None
        with self._reporter.step("make what it is tried out with"):
            return self._kit.bench()

    def _goods(self, members: tuple[Member, ...], report: CheckReport) -> Goods:
        plan, lock = self._making.plan, self._making.shop.lock
        return Goods(
            plan=plan,
            members=members,
            originals=originals(plan, members, self._store.unpack),
            report=report,
            record=lambda key: record_text(self._store.unpack(Input.parse(key))),
            lock=lock,
            revision=self._making.base_revision,
        )

    def _bench(self, dist: Path) -> Bench:
        shop = self._making.shop
        return Bench(
            archive=shop.archive(self._reporter),
            bom=shop.bom,
            checksums=shop.checksums,
            reporter=self._reporter,
            dist=dist,
            work=self._making.place.root,
        )


def _settle(one: Bundled, manifest: Manifest, making: Making) -> Bundled:
    """Give a verified package its place in ``dist``, and put beside it what speaks of it."""
    dist, checksums = making.shop.dist, making.shop.checksums
    provenance = vouch(one, manifest, making)
    files = tuple(dist / file.name for file in one.files)
    for old, new in zip(one.files, files, strict=True):
        os.replace(old, new)  # noqa: PTH105 - a rename over what may be there, in one step
    checksums.update(dist, put={**one.sums, provenance.name: file_digest(provenance).sha256})
    return replace(one, package=replace(one.package, path=files[-1]), files=files)
