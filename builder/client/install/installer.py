"""A package is fetched, verified, unpacked into a new folder, tried out, then switched to in one step."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Callable, Optional, Sequence, Tuple

from builder.client.install.complete import Libraries, complete, require_disk_space
from builder.client.install.current import (
    in_use,
    previous_package,
    remember,
    remove_packages,
    require_ours,
    switch,
    versions,
)
from builder.client.install.obtain import bytes_to_write, obtain, remove_leftovers
from builder.client.install.prefix import INFO, Prefix, changing, empty, write_json
from builder.client.install.source import Located
from builder.client.install.unpack import extract, manifest_in, open_tar, read_manifest, whole
from builder.client.selection.forms import ApplicationHost, host_refusal
from builder.client.selection.select import PackageChoice
from builder.client.trials.try_out import OrtTrials, TryOut, require_loading
from builder.errors import ConfigError, IntegrityError, NoCompatiblePackageError
from builder.files.decompression import no_zstd, readable
from builder.files.digest import Digest
from builder.files.disk import remove, rename, sync_folder
from builder.files.http_client import Web
from builder.files.safe_paths import bad_package
from builder.formats.index import IndexPackage, entry_of
from builder.formats.manifest import Manifest
from builder.formats.missing_kernels import consequence_of
from builder.formats.package_names import LIB, PROVIDER_LIBRARIES, Form, Layout, form_of, stem
from builder.formats.session_log import CUDA_PROVIDER
from builder.formats.stored_file import StoredFile
from builder.formats.text import amount, shortened

_AGAIN = "The package in use is unchanged; run install again, or with --prefix for another folder."


@dataclass(frozen=True)
class InstallResult:
    """The package that is in use now, and what became of older packages."""

    folder: Path
    package: IndexPackage
    manifest: Manifest
    tried: TryOut
    fresh: bool
    """Whether this install made the folder; false where it existed already, whole."""
    why: str
    """The layout that was taken and the reason, in a sentence."""
    upgrade: Optional[str] = None
    """The reason for which a package that could not run every operator is replaced; ``None`` for any
    other."""
    previous: Optional[str] = None
    """The package that ``rollback`` returns to."""
    dropped: Tuple[str, ...] = ()
    """Names of the older packages that were removed."""
    freed: int = 0
    """Bytes that the removal freed."""


@dataclass(frozen=True)
class Installation:
    """The install of the package that was chosen from a release."""

    located: Located
    choice: PackageChoice
    libraries: Libraries
    web: Web
    trials: OrtTrials
    free: Callable[[Path], int]
    """``free(path)``: free bytes on the file system of ``path``."""
    now: Callable[[], datetime]
    host: Optional[ApplicationHost] = None
    """The application's ONNX Runtime, in which a plug-in is tried out; ``None`` where there is none."""

    @property
    def prefix(self) -> Prefix:
        """Return the folder that packages are installed in."""
        return self.libraries.prefix

    def run(self, offers: Sequence[IndexPackage], layout: Optional[str]) -> InstallResult:
        """Install the chosen package and switch ``current`` to it in the last step.

        ``offers`` are the package in every layout and kind of archive, best first; ``layout`` is ``full`` or
        ``thin``, ``None`` where the client chooses. The package in use stays in use until the last step, and
        is kept for ``rollback``. Raises ``NoCompatiblePackageError`` (not released in that layout),
        ``TransferError``, ``IntegrityError``, ``DiskError``, ``ToolMissingError`` (no zstd, no pip) or
        ``LoadError`` (its libraries do not load here).
        """
        wanted = _within(offers, layout)
        require_ours(self.prefix)
        with changing(self.prefix, self.web.say, also=_AGAIN):
            remove_leftovers(self.prefix, wanted)
            placed = self._already_installed(wanted) or self._bring(wanted, layout)
            if not placed.fresh:
                self._describe(placed.folder, placed.package, placed.manifest)
            upgrade = _upgrade(self.prefix, placed)
            remember(self.prefix, placed.folder.name)
            switch(self.prefix, placed.folder)
            if self.prefix.pointer.is_file():  # the switch made no link: libsPath must name the folder
                self._describe(placed.folder, placed.package, placed.manifest)
            empty(self.prefix.downloads)
            return self._without_older(replace(placed, upgrade=upgrade))

    def _without_older(self, placed: InstallResult) -> InstallResult:
        """Remove all packages but the one in use and the one before it, and return the result.

        A package that cannot be removed gives a message.
        """
        previous, freed = previous_package(self.prefix), 0
        old = [
            folder for folder in versions(self.prefix) if folder.name not in {placed.folder.name, previous}
        ]
        if previous is None:  # without a history it is unknown which package was in use before
            old = []
        try:
            freed = remove_packages(self.prefix, old)
        except OSError as error:
            name = error.filename or old[0]
            self.web.say(f"{name}: an older package is not removed: {error.strerror}.")
        dropped = tuple(folder.name for folder in old if not folder.exists())
        return replace(placed, previous=previous, dropped=dropped, freed=freed)

    def _already_installed(self, wanted: Sequence[IndexPackage]) -> Optional[InstallResult]:
        """Return a wanted package that is installed and whole; ``None`` where none is.

        The package in use is examined first. Raises ``LoadError`` where its libraries do not load.
        """
        current = in_use(self.prefix)
        for package in sorted(wanted, key=lambda package: self.prefix.folder(package).name != current):
            folder = self.prefix.folder(package)
            manifest = whole(folder) if folder.is_dir() else None
            if manifest is not None:
                tried = self._try_out(folder, manifest)
                why = f"Layout {package.layout}: it is installed already."
                return InstallResult(folder, package, manifest, tried, fresh=False, why=why)
        return None

    def _try_out(self, folder: Path, manifest: Manifest) -> TryOut:
        self.web.say("Trying it out: its libraries are loaded.")
        plugin, host = manifest.plugin, self.host
        if plugin and (host is None or host.library is None or host_refusal(host, plugin)):
            tried = self.trials.link(folder / plugin.library)
        elif plugin and host:
            tried = self.trials.register(Path(str(host.library)), folder / plugin.library)
        else:
            tried = self.trials.load(folder, manifest)
        return require_loading(tried, manifest.name)

    def _bring(self, wanted: Sequence[IndexPackage], layout: Optional[str]) -> InstallResult:
        if not any(readable(form_of(offer.file)) for offer in wanted):
            raise no_zstd()
        package, why = self._pick(wanted, layout)
        folder = self.prefix.folder(package)
        manifest, tried = self._unpack(package, self._fetch(package), folder)
        return InstallResult(folder, package, manifest, tried, fresh=True, why=why)

    def _pick(self, offers: Sequence[IndexPackage], layout: Optional[str]) -> Tuple[IndexPackage, str]:
        """Return one of ``offers``, which ``_within`` returned, best first; and the reason in a sentence.

        The thin layout is chosen where only its archive must be fetched, else the full one; zstd where it can
        be decompressed, else gzip.
        """
        usable = [offer for offer in offers if readable(form_of(offer.file))] or list(offers)
        full, thin = _first(usable, Layout.FULL), _first(usable, Layout.THIN)
        if full is None or thin is None:
            chosen, why = usable[0], _no_choice(offers, layout)
        elif self._nothing_missing(thin):
            saved = f"{amount(thin.size)} are fetched instead of {amount(full.size)}"
            chosen, why = thin, f"NVIDIA's libraries are on this machine, {saved}"
        else:
            chosen, why = full, "not all of NVIDIA's libraries are on this machine"
        return chosen, f"Layout {chosen.layout}: {why}.{_form_note(chosen, offers)}"

    def _nothing_missing(self, thin: IndexPackage) -> bool:
        if not self.libraries.may_have_some():
            return False
        with open_tar(self._fetch(thin), form_of(thin.file)) as stream:
            absent = read_manifest(stream, stem(thin.file)).absent
        return len(self.libraries.survey(absent)) == len(absent)

    def _fetch(self, package: IndexPackage) -> Path:
        """Return the path of the fetched archive.

        Raises ``DiskError`` without space for the archive and its files, both of which are then on the disk.
        """
        needed = bytes_to_write(package, self.located, self.prefix) + package.unpacked_size
        require_disk_space(self.prefix, needed, f"to install {package.name}", self.free)
        return obtain(package, self.located, self.prefix, self.web)

    def _unpack(self, package: IndexPackage, archive: Path, folder: Path) -> Tuple[Manifest, TryOut]:
        part, say = self.prefix.part(folder.name), self.web.say
        ours = archive == self.prefix.piece(package)  # nobody else writes to a download
        to_hold = None if ours else Digest(package.size, package.sha256)
        try:
            part.mkdir()
            say(f"Unpacking {amount(package.unpacked_size)}; every file is compared with its sha256.")
            with open_tar(archive, form_of(package.file), to_hold) as stream:
                manifest = extract(stream, stem(package.file), part, package.unpacked_size)
            _require_agreement(manifest, package)
            complete(manifest, part, self.libraries, say, self.free)
            tried = self._try_out(part, manifest)
            self._describe(part, package, manifest)
            sync_folder(part)
            _put_in_place(part, folder, aside=self.prefix.part("damaged"))
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        sync_folder(folder.parent)
        return manifest, tried

    def _describe(self, where: Path, package: IndexPackage, manifest: Manifest) -> None:
        """Write ``gpu-package-info.json``, whose keys docs/client.md explains.

        ``where`` is the package's folder, or one that will be renamed to it.
        """
        prefix, choice = self.prefix, self.choice
        home = prefix.folder(package) if prefix.pointer.is_file() else prefix.current.absolute()
        capability = choice.device.capability if choice.device else None
        plugin = manifest.plugin
        provider = plugin.library if plugin else f"{LIB}{PROVIDER_LIBRARIES.get(manifest.platform)}"
        info = {
            "format": 1,
            "name": package.name,
            "variant": package.variant,
            "provider": package.provider,
            "layout": package.layout,
            "architectures": [
                f"sm_{sm}" for item in manifest.coverage if item.path == provider for sm in item.sass
            ],
            "smVersion": capability.number if capability else None,
            "computeCap": str(capability) if capability else None,
            "gpuName": choice.device.name if choice.device else None,
            "support": choice.support,
            "cudaVisibleDevices": choice.visible,
            "version": package.onnxruntime.version,
            "libsPath": str(home / LIB),
            "installedAt": self.now().isoformat(timespec="seconds"),
            "sha256": package.sha256,
        }
        if plugin:
            host = self.host.library if self.host else None
            info["plugin"] = {"library": plugin.library, "name": CUDA_PROVIDER, "host": host}
        write_json(prefix, where / INFO, info)


def _upgrade(prefix: Prefix, placed: InstallResult) -> Optional[str]:
    """Return why the package in use is replaced: it is of another form, or the new one lacks no kernels.

    ``None`` in any other case.
    """
    current, new = in_use(prefix), placed.manifest
    if current is None:
        return None
    try:
        old = manifest_in(prefix.versions / current)
    except (IntegrityError, ConfigError):
        return None
    if old.form is not new.form:
        return f"{old.name} ({old.form.value}) is replaced by {new.name} ({new.form.value}): run env again."
    if new.onnxruntime.cannot_run:
        return None
    consequence = consequence_of(old.onnxruntime.cannot_run, old.onnxruntime.host)
    return f"{old.name} is replaced by {new.name}. {consequence.means}" if consequence else None


def _require_agreement(manifest: Manifest, package: IndexPackage) -> None:
    """Raise ``IntegrityError`` where the manifest differs from the index, by which the package was chosen."""
    by_manifest = entry_of(manifest, StoredFile(package.file, package.size, package.sha256))
    if package.onnxruntime.host is None:  # an index of format 3
        by_manifest = replace(by_manifest, onnxruntime=replace(by_manifest.onnxruntime, host=None))
    for field in fields(by_manifest):
        wanted, got = getattr(package, field.name), getattr(by_manifest, field.name)
        if wanted != got:
            details = (
                f"    wanted: {shortened(str(wanted))} (index)",
                f"    got:    {shortened(str(got))} (manifest)",
            )
            raise bad_package(package.file, f"its manifest and the index disagree on {field.name}.", details)


def _put_in_place(part: Path, folder: Path, aside: Path) -> None:
    """Rename ``part`` to ``folder``. A folder with that name is damaged, and is removed."""
    if folder.exists():
        rename(folder, aside)
    rename(part, folder)
    with suppress(OSError):
        remove(aside)


def _within(offers: Sequence[IndexPackage], wish: Optional[str]) -> Tuple[IndexPackage, ...]:
    """Return the offers of the layout that the user asked for; all where ``wish`` is ``None``.

    Raises ``NoCompatiblePackageError`` where the package is not released in that layout.
    """
    mine = tuple(offer for offer in offers if wish in {None, offer.layout})
    if not mine:
        there = ", ".join(sorted({offer.layout for offer in offers}))
        raise NoCompatiblePackageError(
            f"--layout {wish}: {offers[0].name} is released in layout {there} only.",
            advice="Leave --layout out, or name that layout.",
        )
    return mine


def _first(offers: Sequence[IndexPackage], layout: Layout) -> Optional[IndexPackage]:
    return next((offer for offer in offers if offer.layout == layout.value), None)


def _no_choice(offers: Sequence[IndexPackage], wish: Optional[str]) -> str:
    if wish is not None:
        return "as asked with --layout"
    one_layout = len({offer.layout for offer in offers}) == 1
    return "the release has no other" if one_layout else "nothing here can unpack the other"


def _form_note(chosen: IndexPackage, offers: Sequence[IndexPackage]) -> str:
    better = any(offer.layout == chosen.layout and form_of(offer.file) is Form.ZST for offer in offers)
    if form_of(chosen.file) is Form.GZ and better:
        return " As gzip: nothing here can unpack zstd."
    return ""
