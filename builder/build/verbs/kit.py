"""The work of the verb kit: one folder with which a card is proved on a machine without a network."""

from __future__ import annotations

import shutil
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from builder.client.selection.reasons import RUNS
from builder.errors import NoCompatiblePackageError
from builder.facts.gpu.architectures import Arch
from builder.files.atomic_write import replace_folder, scratch_folder, write_file
from builder.files.digest import size_of
from builder.formats.index import LAYOUTS
from builder.formats.json_values import json_text
from builder.formats.manifest import Manifest
from builder.formats.package_names import CLIENT, HOSTS, LIB, LINUX, REDUCED, Form, Profile, form_of
from builder.formats.proof import FORMAT, SampleModel, SampleSet
from builder.io.archive.client_zipapp import build_client
from builder.io.archive.unpacking import manifest_of
from builder.io.wiring import Wiring
from builder.prove.sample_models import selftest_trials
from builder.prove.selftest import SelftestTrial, trials_for
from builder.publish.locations import archives_in

_SMALL = 10_000_000
"""A model of fewer bytes is in every kit; a larger one where there is room left."""


def make_kit(wiring: Wiring, architectures: Sequence[Arch], variant: str | None, limit: int) -> None:
    """Make ``dist/kit``, a folder of at most ``limit`` MB.

    It has the self-test's models, the client, a script that runs it all, and a package of ``dist`` for each
    of ``architectures``, or one of ``variant``, or none. Raises ``NoCompatiblePackageError`` where no package
    fits, and ``DiskError``.
    """
    trials = selftest_trials(wiring.store(wiring.lock, wiring.reporter), wiring.cache / "made")
    kit, left = wiring.dist / "kit", limit * 1_000_000
    with scratch_folder(kit, needed=left) as part:
        for name in ("models", "packages"):
            (part / name).mkdir(parents=True)
        script = Path(shutil.copy(wiring.templates / "prove.sh", part))
        script.chmod(0o755)
        left -= size_of(script) + size_of(build_client(wiring.root, part / CLIENT, None))
        left -= sum(_size(trial) for trial in trials if _size(trial) < _SMALL)
        for package, manifest in _chosen(wiring, architectures, variant, left).items():
            trials = trials_for(manifest, trials)
            left -= size_of(Path(shutil.copy(package, part / "packages")))
            if manifest.onnxruntime.profile == Profile.MINIMAL.value:
                wiring.reporter.warn(f"{package.name}: no node of a model runs on the card with this profile")
        taken = [trial for trial in trials if _size(trial) < max(_SMALL, left)]
        for trial in taken:
            shutil.copyfile(trial.model, part / "models" / f"{trial.name}.onnx")
        samples = SampleSet(FORMAT, tuple(map(_sample, taken)))
        write_file(part / "models" / "models.json", json_text(samples).encode())
        replace_folder(kit, part)
    wiring.reporter.say(f"{kit}: {', '.join(sorted(path.name for path in kit.glob('*/*')))}")


def _size(trial: SelftestTrial) -> int:
    """Return about how many bytes a model takes, with its inputs in Base64."""
    return size_of(trial.model) + sum(2 * len(item.data) + 200 for item in trial.inputs)


def _sample(trial: SelftestTrial) -> SampleModel:
    return SampleModel(
        name=trial.name,
        tolerance=trial.on_gpu,
        inputs=tuple(f"{item.argument}{b64encode(item.data).decode()}" for item in trial.inputs),
        outputs=tuple(output.name for output in onnx.load(trial.model).graph.output),
    )


def _chosen(
    wiring: Wiring, architectures: Sequence[Arch], variant: str | None, room: int
) -> Mapping[Path, Manifest]:
    """Return the packages of ``dist`` that run most of those that fit into ``room`` bytes together."""
    wanted: Sequence[Arch | None] = architectures or ([None] if variant else [])
    there = {package: manifest_of(package) for package in archives_in(wiring.dist)} if wanted else {}
    best_first = sorted(there, key=lambda package: _rank(package, there[package]))
    taken: dict[Path, Manifest] = {}
    for arch in wanted:
        left = room - sum(map(size_of, taken))
        fitting = (
            package
            for package in best_first
            if variant in {None, there[package].variant} and _runs(there[package], arch)
            if package in taken or size_of(package) <= left
        )
        if (best := next(fitting, None)) is None:
            raise NoCompatiblePackageError(
                f"--{f'arch {arch}' if arch else f'variant {variant}'}: no package for it in {wiring.dist} "
                f"fits into the {max(left, 0) / 1e6:.0f} MB that are left of the kit.",
                advice="Build a variant of this architecture alone, or a minimal one, or give --limit.",
            )
        taken[best] = there[best]
    return taken


def _runs(manifest: Manifest, arch: Arch | None) -> bool:
    """Return whether a package with a host library for Linux claims a card of ``arch``, or any card."""
    claims = manifest.capabilities
    runs = claims.get(f"{arch.major}.{arch.minor}") in RUNS if arch else bool({*RUNS} & {*claims.values()})
    has_host = f"{LIB}{HOSTS[LINUX]}" in {file.path for file in manifest.files}
    return has_host and manifest.platform == LINUX and runs


def _rank(package: Path, manifest: Manifest) -> tuple[int, bool, int, int]:
    """Return a key by which the best package is first: profile; gzip, which every Python reads; layout."""
    profile = manifest.onnxruntime.profile
    reduced = REDUCED.index(profile) + 1 if profile in REDUCED else 0
    is_zstd = form_of(package.name) is not Form.GZ
    return reduced, is_zstd, LAYOUTS.index(manifest.layout), size_of(package)
