"""How a package is proved: from its archive alone, and with a model where there is a bench to run it on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from builder.app.workshop import Workshop
from builder.core.checks import Finding
from builder.core.manifest import Manifest
from builder.core.package import Member
from builder.core.ports import Reporter
from builder.core.variant import Variant
from builder.stages.check import CheckReport, check
from builder.stages.selftest import Bench, selftest
from builder.stages.verify import Verifier


def verifier(shop: Workshop, reporter: Reporter, bench: Bench | None) -> Verifier:
    """What proves a package; without ``bench`` its bytes are read and nothing is run."""

    def hold(members: Sequence[Member], variant: Variant) -> CheckReport:
        return check(members, variant, shop.project.check, None, reporter)

    def try_out(package: Path, manifest: Manifest) -> Sequence[Finding]:
        return selftest(package, manifest.onnxruntime.version, bench) if bench else ()

    return Verifier(
        archive=shop.archive(reporter),
        checksums=shop.checksums,
        reporter=reporter,
        check=hold,
        selftest=try_out if bench else None,
        work=shop.dist,
    )
