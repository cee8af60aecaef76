"""The Python wheels of a runtime image, unpacked: the project's own, and those of a requirements file."""

from __future__ import annotations

import sys
from pathlib import Path

from packageurl import PackageURL
from packaging.utils import parse_wheel_filename

from builder.adapters.wheel import first_choice, unpack_wheel
from builder.builds.python_wheels import SERVICE, make_models, make_wheel
from builder.builds.wiring import Wiring
from builder.errors import CommandError
from builder.files.atomic_write import scratch_folder
from builder.files.digest import file_digest
from builder.files.file_lock import exclusive
from builder.files.pip_download import pip_download, refusal
from builder.package.attestations import Part
from builder.package.contents import ORTPACKS
from builder.package.sbom import SUPPLIERS, pypi_purl
from builder.pipeline.image import ImageWheel, ServiceTrees
from builder.ports import Reporter
from builder.project.inputs import SELFTEST_MODEL, SELFTEST_TRANSFORMER, Input


def service_trees(wiring: Wiring, platform: str, reporter: Reporter) -> ServiceTrees:
    """Make the service's wheels and models in ``dist`` and return them.

    Raises ``TransferError`` if a wheel of the service's lock file, or of the models, cannot be fetched.
    """
    locked = locked_wheels(wiring, wiring.root / SERVICE / "requirements.lock", platform, reporter)
    return ServiceTrees(
        wheels=(*locked, own_wheel(wiring, SERVICE, reporter)),
        models=make_models(wiring),
        sources=tuple(part_of(wiring, wheel) for wheel in (SELFTEST_TRANSFORMER, SELFTEST_MODEL)),
    )


def own_wheel(wiring: Wiring, project: str, reporter: Reporter) -> ImageWheel:
    """Make the wheel of one of the project's own Python packages, and return it unpacked."""
    made = make_wheel(wiring, project)
    tree = wiring.cache / "unpacked" / file_digest(made).sha256
    lock = wiring.cache / "locks" / f"unpack-{tree.name[:16]}.lock"
    with exclusive(lock, lambda: reporter.say(f"another process unpacks {made.name}: waiting")):
        if not tree.is_dir():
            unpack_wheel(made, tree)
    name, version, *_ = parse_wheel_filename(made.name)
    return ImageWheel(tree=tree, part=our_part(name, str(version), made))


def our_part(name: str, version: str, file: Path) -> Part:
    """Return the part of one of our files, which no package index has."""
    purl = PackageURL("generic", None, name, version)
    return Part(purl=purl.to_string(), sha256=file_digest(file).sha256, supplier=SUPPLIERS[ORTPACKS])


def part_of(wiring: Wiring, wheel: Input) -> Part:
    """Return the part of a wheel with the sha256 of its pin in ``inputs.lock``."""
    return Part(purl=pypi_purl(wheel.spec), sha256=wiring.lock.pins[wheel.key].sha256)


def locked_wheels(wiring: Wiring, lock: Path, platform: str, reporter: Reporter) -> tuple[ImageWheel, ...]:
    """Return the unpacked wheels of a requirements file with hashes.

    pip fetches them once for each content of the file and platform. Their folders are ``<sha256 of the
    wheel>/<its name>``.
    """
    folder = wiring.cache / "requirements" / platform / file_digest(lock).sha256
    if not folder.is_dir():
        reporter.say(f"fetching what {lock.name} of the {lock.parent.name} names")
        with scratch_folder(folder, needed=0) as fresh:
            wheels = fresh.with_name(f"{fresh.name}.wheels")
            wanted = ["--require-hashes", f"--requirement={lock}", *first_choice(platform)]
            try:
                wiring.runner.run(pip_download(sys.executable, wheels, wanted))
                for wheel in sorted(wheels.glob("*.whl")):
                    unpack_wheel(wheel, fresh / file_digest(wheel).sha256 / wheel.name)
            except CommandError as error:
                raise refusal(lock.name, error.tail, "Check the network and pip's index.") from error
            fresh.rename(folder)
    return tuple(_locked_wheel(tree) for tree in sorted(folder.glob("*/*.whl"), key=lambda one: one.name))


def _locked_wheel(tree: Path) -> ImageWheel:
    name, version, *_ = parse_wheel_filename(tree.name)
    return ImageWheel(tree=tree, part=Part(purl=pypi_purl(f"{name}=={version}"), sha256=tree.parent.name))
