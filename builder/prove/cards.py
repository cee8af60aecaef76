"""``verify --card`` opens the self-test's models on virtual cards and compares them with the coverage."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from builder.binary.coverage import LibraryCoverage, Support
from builder.client.doctor.observations import NO_DEVICE
from builder.client.selection.reasons import RUNS, driver_refusal
from builder.client.selection.select import select
from builder.config.inputs import PLUGIN_HOSTS
from builder.contents.card_grid import (
    FORMAT,
    CardRow,
    Grid,
    LibraryOnCard,
    ModelOnCard,
    disagreements,
    from_bytes,
    grid_name,
    lines,
)
from builder.contents.package_manifest import BinaryReport
from builder.contents.reading import read_file
from builder.errors import NoCompatiblePackageError, ToolMissingError, ValidationError
from builder.facts.gpu.architectures import Capability, capabilities
from builder.facts.gpu.devices import Device, parse_driver
from builder.facts.gpu.table import BY_CAPABILITY, CAPABILITIES
from builder.files.atomic_write import write_file
from builder.files.digest import file_digest
from builder.finding import Finding
from builder.formats.index import Index, build_index
from builder.formats.json_values import json_text
from builder.formats.manifest import Manifest, OrtEntry
from builder.formats.missing_kernels import MissingKernels
from builder.formats.package_names import LINUX
from builder.formats.stored_file import StoredFile
from builder.io.wiring import Wiring
from builder.prove.selftest import SelftestTrial
from builder.prove.virtualcard.sessions import (
    DRIVER,
    Array,
    CardRuntime,
    CardSession,
    ModelToOpen,
    VirtualCard,
    open_models,
)

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class CardRequest:
    """The cards that the flags name."""

    capabilities: tuple[Capability, ...]
    driver: str
    whole: bool
    """Whether these are all known cards, so that a grid is written to each package's folder."""
    hosts: tuple[str, ...] = PLUGIN_HOSTS
    """Versions of stock hosts that plug-ins are opened in."""


def card_request(
    cards: Sequence[str], driver: str | None, grid: str | None, hosts: Sequence[str] = ()
) -> CardRequest | None:
    """Return the flags as values; ``None`` without flags. Raises ``ValidationError`` for a wrong value."""
    if not cards:
        for flag, value in (("--driver", driver), ("--grid", grid), ("--host", ",".join(hosts) or None)):
            if value is not None:
                raise ValidationError(
                    f"{flag} {value} is about a card: name one with --card, or all with --card all."
                )
        return None
    whole = ALL in cards
    if grid is not None and not whole:
        raise ValidationError(f"--grid {grid} is a page of all cards", advice="Ask for them: --card all.")
    wanted = CAPABILITIES if whole else _capabilities(",".join(cards))
    try:
        parse_driver(driver or DRIVER)
    except ValueError as error:
        raise ValidationError(f"--driver: {error}.") from error
    versions = tuple(",".join(hosts).split(",")) if hosts else PLUGIN_HOSTS
    if unknown := [version for version in versions if version not in PLUGIN_HOSTS]:
        there = ", ".join(PLUGIN_HOSTS)
        raise ValidationError(
            f"--host {unknown[0]}: no stock host of this version is pinned. There are {there}."
        )
    return CardRequest(capabilities=wanted, driver=driver or DRIVER, whole=whole, hosts=versions)


def _capabilities(text: str) -> tuple[Capability, ...]:
    known = ", ".join(map(str, CAPABILITIES))
    try:
        wanted = tuple(dict.fromkeys(capabilities(text)))
    except ValueError as error:
        raise ValidationError(f"--card: {error}, nor {ALL}. There are {known}.") from error
    if unknown := [capability for capability in wanted if capability not in CAPABILITIES]:
        raise ValidationError(
            f"--card {unknown[0]}: no NVIDIA GPU has this compute capability. There are {known}."
        )
    return wanted


@dataclass(frozen=True, kw_only=True)
class CardBench:
    """The virtual card, models and requested cards with which packages are tried."""

    wiring: Wiring
    runtime: CardRuntime
    trials: tuple[SelftestTrial, ...]
    cards: CardRequest
    grids: list[Grid]
    """Grids made so far, one for each package."""
    hosts: Mapping[str, Path] = field(default_factory=dict)
    """Host libraries by version, in which plug-ins are opened."""

    def require_machine(self, manifest: Manifest) -> None:
        """Raise an error if the cards cannot be tried for the package.

        Raises ``ToolMissingError`` on a machine other than x86-64 Linux, ``NoCompatiblePackageError`` if the
        package needs another driver, and ``ValidationError`` if no machine can have the card and the driver.
        """
        machine = os.uname()
        if (machine.sysname, machine.machine) != ("Linux", "x86_64"):
            raise ToolMissingError(
                f"--card opens {manifest.name} here",
                cause=f"that needs Linux on x86-64; this is {machine.sysname} on {machine.machine}",
                advice="Run it there, or leave --card out.",
            )
        (entry,), driver = _index(manifest).packages, self.cards.driver
        if refused := driver_refusal(entry, _device(self.cards.capabilities[0], driver)):
            raise NoCompatiblePackageError(
                f"{manifest.name} does not run on the card that was asked for",
                cause=refused,
                advice="Name such a driver with --driver, or leave it out.",
            )
        for capability in self.cards.capabilities:
            if self._error(capability) == NO_DEVICE and not self.cards.whole:
                names = BY_CAPABILITY[capability].cards
                raise ValidationError(
                    f"--card {capability} --driver {driver}",
                    cause=f"no machine has both, because drivers of this branch do not know {names}",
                    advice=f"Name one that does, or leave --driver out for {DRIVER}.",
                )

    def __call__(
        self, package: Path, manifest: Manifest, libraries: Path, report: BinaryReport
    ) -> tuple[Finding, ...]:
        """Open the models on each card, a plug-in also in each host.

        Returns the findings of ``contents.card_grid.disagreements``.
        """
        driver, index = self.cards.driver, _index(manifest)

        def judged(capability: Capability) -> tuple[str, str | None]:
            choice = select([_device(capability, driver)], index, LINUX)
            support = manifest.capabilities.get(str(capability), Support.NONE.value)
            return support, choice.support if choice.on_gpu else None

        plugin = libraries.parent / manifest.plugin.library if manifest.plugin else None
        rows = self._rows(libraries, plugin, report.coverage, judged)
        self._say(line for row in rows for line in lines(row))
        if self.cards.whole:
            self._keep(package, manifest, rows)
        return tuple(
            finding
            for row in rows
            for finding in disagreements(
                manifest.name, row, report.coverage, _missing(manifest.onnxruntime, row.capability)
            )
        )

    def open_plugin(self, library: Path) -> tuple[Finding, ...]:
        """Do the same with a plug-in that is in no package; its coverage stands for the selection."""
        library = library.resolve()
        coverage = read_file(library.name, library, symbols=False).coverage
        if coverage is None:
            raise ValidationError(f"{library} is no plug-in", cause="no device code can be read in it")
        if all(map(self._error, self.cards.capabilities)):
            raise ValidationError(
                f"--driver {self.cards.driver}", cause="no machine has it and one of these cards with CUDA"
            )

        def judged(capability: Capability) -> tuple[str, str | None]:
            support = coverage.support[capability].value
            return support, support if support in RUNS else None

        rows = self._rows(library.parent, library, [coverage], judged)
        self._say(line for row in rows for line in lines(row, selected=False))
        return tuple(one for row in rows for one in disagreements(library.name, row, [coverage], ()))

    def _rows(
        self,
        libraries: Path,
        plugin: Path | None,
        coverage: Sequence[LibraryCoverage],
        judged: Callable[[Capability], tuple[str, str | None]],
    ) -> list[CardRow]:
        """Return the row of each possible card, of a plug-in for each host.

        ``judged`` returns a card's support by the coverage, and by the selection.
        """
        possible = [capability for capability in self.cards.capabilities if not self._error(capability)]
        cells = list(product(self.hosts if plugin else [None], possible))
        models = [ModelToOpen(model=trial.model, feed=_feed(trial)) for trial in self.trials]

        def row(cell: tuple[str | None, Capability]) -> CardRow:
            host, capability = cell
            card = VirtualCard(capability=str(capability), driver=self.cards.driver)
            place = self.hosts[host] if host else libraries
            openings = list(open_models(place, models, card, runtime=self.runtime, plugin=plugin))
            support, chosen = judged(capability)
            return CardRow(
                capability=card.capability,
                support=support,
                chosen=chosen,
                libraries=tuple(_libraries(openings, coverage, card.capability)),
                models=tuple(_model(trial, seen) for trial, seen in zip(self.trials, openings, strict=True)),
                host=host,
            )

        hosts = f" in {len(self.hosts)} stock host{'s' * (len(self.hosts) > 1)}" if plugin else ""
        count = len(self.cards.capabilities)
        what = f"open {len(self.trials)} models on {count} virtual card{'s' * (count > 1)}{hosts}"
        with self.wiring.reporter.step(what), ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(row, cells))

    def _say(self, told: Iterable[str]) -> None:
        for line in told:
            self.wiring.reporter.say(line)

    def _error(self, capability: Capability) -> int:
        """Return the CUDA error of this card with the driver; 0 if a machine can have both."""
        return self.runtime.error_of(VirtualCard(capability=str(capability), driver=self.cards.driver))

    def _keep(self, package: Path, manifest: Manifest, rows: Sequence[CardRow]) -> None:
        grid = Grid(
            format=FORMAT,
            package=package.name,
            sha256=file_digest(package).sha256,
            variant=manifest.variant,
            onnxruntime=manifest.onnxruntime.version,
            profile=manifest.onnxruntime.profile,
            driver=self.cards.driver,
            cards=tuple(rows),
        )
        self.grids.append(grid)
        write_file(package.with_name(grid_name(package.name)), json_text(grid).encode())


def _missing(ort: OrtEntry, capability: str) -> tuple[MissingKernels, ...]:
    """Return the operators that do not run on a card."""
    card = Capability.parse(capability)
    return (*ort.cannot_run, *(one for one in ort.cannot_run_below if card < Capability.parse(one.below)))


def _feed(trial: SelftestTrial) -> dict[str, Array]:
    return {item.name: item.array() for item in trial.blind or trial.inputs}


def _model(trial: SelftestTrial, seen: CardSession) -> ModelOnCard:
    return ModelOnCard(
        name=trial.name,
        nodes=seen.counts,
        launches=seen.launched,
        refused={str(error): count for error, count in Counter(seen.refused.values()).items()},
        error=seen.error,
    )


def _libraries(
    openings: Sequence[CardSession], coverage: Sequence[LibraryCoverage], capability: str
) -> Iterable[LibraryOnCard]:
    """Yield the containers of each library: as the card resolved them if loaded, else as they were read."""
    loaded = {name: seen for opening in openings for name, seen in opening.libraries.items()}
    for library in coverage:
        read = from_bytes(library, capability)
        seen = loaded.get(library.path.rpartition("/")[2])
        if seen is None:
            yield read
        else:
            refused = {str(error): count for error, count in seen.refused.items()}
            yield replace(read, native=seen.native, jit=seen.jit, refused=refused, registered=True)


def _device(capability: Capability, driver: str) -> Device:
    return Device(0, "", "virtual card", capability, None, driver)


def _index(manifest: Manifest) -> Index:
    """Return an index of this package alone, which the selection judges by the GPU, whatever its form."""
    manifest = replace(manifest, plugin=None)
    archive = StoredFile(f"{manifest.name}.tar.zst", 1, "0" * 64)
    return build_index("local", [(manifest, archive)], ())
