"""How a package is proved: from its archive alone, and with models where there is a bench to run them on."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from builder.adapters.partfile import disk_errors
from builder.adapters.tarstream import stream_files
from builder.adapters.wheel import record_text
from builder.app.cards import CardBench
from builder.app.workshop import Workshop
from builder.core.absent import check_absent
from builder.core.checks import Finding, require
from builder.core.inputs import Input, Lock, Pin
from builder.core.manifest import Manifest, WheelEntry
from builder.core.package import Member
from builder.core.ports import Reporter
from builder.core.providers import CUDA
from builder.core.variant import Variant
from builder.stages.check import CheckReport, check
from builder.stages.selftest import Bench, selftest
from builder.stages.verify import Stream, Verifier


def verifier(
    shop: Workshop, reporter: Reporter, bench: Bench | None, cards: CardBench | None = None
) -> Verifier:
    """What proves a package; without ``bench`` its bytes are read and nothing is run in a container."""

    def hold(members: Sequence[Member], variant: Variant) -> CheckReport:
        return check(members, variant, shop.project.check, None, reporter)

    def try_out(manifest: Manifest, stream: Stream) -> Sequence[Finding]:
        if bench is None:
            return ()
        cuda = manifest.provider == CUDA
        return selftest(manifest.name, stream, manifest.onnxruntime.version, bench, cuda=cuda)

    return Verifier(
        archive=shop.archive(reporter),
        bom=shop.bom,
        checksums=shop.checksums,
        reporter=reporter,
        tree=lambda wheel: wheel_tree(shop, reporter, wheel),
        record=record_text,
        check=hold,
        selftest=try_out if bench else None,
        tar=lambda top, files: stream_files({f"/{top}/{path}": file for path, file in files.items()}),
        work=shop.dist,
        cards=cards,
    )


def complete(shop: Workshop, reporter: Reporter, manifest: Manifest, folder: Path) -> None:
    """Lay the files that a thin package leaves to their wheels into its unpacked ``folder``.

    Raises ``CheckFailedError`` for a manifest whose words would lead out of it.
    """
    require(list(check_absent(manifest)), f"{manifest.name} is not completed")
    wheels = {wheel.source: wheel for wheel in manifest.wheels}
    for entry in manifest.absent:
        tree = wheel_tree(shop, reporter, wheels[entry.source])
        with disk_errors(folder):
            shutil.copyfile(tree / str(entry.member), folder / entry.path)


def wheel_tree(shop: Workshop, reporter: Reporter, wheel: WheelEntry) -> Path:
    """The unpacked tree of the wheel that a manifest names: these very bytes, whatever our own lock pins."""
    pin = Pin(filename=wheel.file, size=wheel.size, sha256=wheel.sha256)
    store = shop.store(Lock(pins={wheel.source: pin}), reporter)
    return store.unpack(Input.parse(wheel.source))
