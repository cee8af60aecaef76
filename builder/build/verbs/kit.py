"""The work of the verb kit: one folder with which a card is proved on a machine without a network."""

from __future__ import annotations

import shutil
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from builder.client.selection.select import select
from builder.config.inputs import PLUGIN_HOSTS, host_wheel
from builder.errors import NoCompatiblePackageError
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.devices import Device
from builder.files.atomic_write import replace_folder, scratch_folder, write_file
from builder.files.digest import size_of
from builder.formats.index import build_index, offers
from builder.formats.json_values import json_text
from builder.formats.manifest import Manifest
from builder.formats.package_names import CLIENT, LINUX, Form, Profile, form_of
from builder.formats.proof import FORMAT, SampleModel, SampleSet
from builder.formats.stored_file import StoredFile
from builder.io.archive.client_zipapp import build_client
from builder.io.archive.unpacking import manifest_of
from builder.io.wiring import Wiring
from builder.prove.sample_models import selftest_trials
from builder.prove.selftest import SelftestTrial, trials_for
from builder.publish.locations import archives_in

_HOST = 25_000_000
"""Bytes that the oldest stock host, the smallest, takes at most."""

_SMALL = 10_000_000
"""A model of fewer bytes is in every kit; a larger one where there is room left."""


def make_kit(wiring: Wiring, architectures: Sequence[Arch], limit: int) -> None:
    """Make ``dist/kit``, a folder of at most ``limit`` MB.

    It has the self-test's models, the client, a script that runs it all, and a package of ``dist`` for each
    of ``architectures``; for a plug-in also a stock host. Raises ``NoCompatiblePackageError`` where no
    package fits, and ``DiskError``.
    """
    store = wiring.store(wiring.lock, wiring.reporter)
    trials = selftest_trials(store, wiring.cache / "made")
    kit, left = wiring.dist / "kit", limit * 1_000_000
    with scratch_folder(kit, needed=left) as part:
        for name in ("models", "packages", "host"):
            (part / name).mkdir(parents=True)
        script = Path(shutil.copy(wiring.templates / "prove.sh", part))
        script.chmod(0o755)
        left -= size_of(script) + size_of(build_client(wiring.root, part / CLIENT, None))
        left -= sum(_size(trial) for trial in trials if _size(trial) < _SMALL)
        chosen = _chosen(wiring, architectures, left)
        if any(manifest.plugin for manifest in chosen.values()):
            (host,) = store.unpack(host_wheel(PLUGIN_HOSTS[0])).glob("*/capi/libonnxruntime.so.*")
            left -= size_of(Path(shutil.copy(host, part / "host")))
        for package, manifest in chosen.items():
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


def _chosen(wiring: Wiring, architectures: Sequence[Arch], room: int) -> Mapping[Path, Manifest]:
    """Return the packages of ``dist`` that the client chooses among those that fit into ``room`` bytes."""
    there = {path.name: manifest_of(path) for path in archives_in(wiring.dist)} if architectures else {}
    sizes = {name: size_of(wiring.dist / name) + _HOST * bool(there[name].plugin) for name in there}
    files = [(manifest, StoredFile(name, sizes[name], "0" * 64)) for name, manifest in there.items()]
    index = build_index("kit", files, ())
    taken: dict[str, Manifest] = {}
    for arch in architectures:
        left = room - sum(sizes[name] for name in taken)
        fitting = [one for one in index.packages if one.size <= left or one.file in taken]
        card = Device(0, "", "a card", Capability(arch.major, arch.minor), None, None)
        choice = select([card], replace(index, packages=tuple(fitting)), LINUX)
        if choice.package is None or not choice.on_gpu:
            raise NoCompatiblePackageError(
                f"--arch {arch}: no package for it in {wiring.dist} fits into the {max(left, 0) / 1e6:.0f} "
                "MB that are left of the kit.",
                advice="Build a variant of this architecture alone, or a minimal one, or give --limit.",
            )
        best = min(offers(fitting, choice.package), key=lambda one: form_of(one.file) is not Form.GZ)
        taken[best.file] = there[best.file]
    return {wiring.dist / name: manifest for name, manifest in taken.items()}
