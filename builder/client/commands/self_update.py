"""The command ``self-update`` replaces this client by that of the newest release.

``targets.json``, which is signed by the keys of this client's root, names the new client's sha256. The index
is not read, because a newer release may have an index of a format that this client does not know.
"""

from __future__ import annotations

import re
import shutil
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Optional

from builder.client import __version__
from builder.client.commands.select_package import trust_of
from builder.client.context import CommandAnswer, CommandContext, ReleaseSource, require_yes
from builder.client.install.source import FilesBeside, shown_place
from builder.errors import ConfigError, IntegrityError, LoadError, NothingToDoError, TransferError
from builder.facts.gpu.compatibility import version_of
from builder.files.digest import Digest, require_bytes, sha256_of
from builder.files.disk import disk_errors, remove, rename, sync_file
from builder.files.file_lock import exclusive
from builder.files.http_client import Web
from builder.formats.package_names import CHECKSUMS, CLIENT, INDEX
from builder.formats.stored_file import SHA256
from builder.formats.trust import SignedRelease

if TYPE_CHECKING:  # as in builder.client.context
    from builder.client.install.signed import Trust

_VERSION = re.compile(rb'^__version__ = "([0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6})"$', re.MULTILINE)

_ROOT = "builder/client/root.json"
"""Path of the root in a client."""

_UPDATES = {"__init__.py": "pip install --upgrade", "package.json": "npm update"}
"""The command that updates the package that a client belongs to, by the file beside it."""

_KEPT_FROM_YOU = "Somebody may hide newer releases from you. To install an older client, copy it by hand."

_SECONDS = 60.0
"""Time limit in seconds for the new client to print its version."""


@dataclass(frozen=True)
class _OfferedClient:
    files: FilesBeside
    shown: str
    """The release's place, without a login."""
    sha256: str
    size: Optional[int]
    signed: Optional[SignedRelease]
    trust: Optional[Trust]


def answer_self_update(context: CommandContext, release: ReleaseSource, *, check: bool) -> CommandAnswer:
    """Replace this program by that of the newest release, after verifying it; a copy of this one is kept.

    With ``check``, only says whether there is another one.
    """
    own = _own(context)
    web = context.web
    offer = _offer(context, release, web)
    same = sha256_of(own) == offer.sha256
    value: Dict[str, object] = {
        "program": str(own),
        "release": offer.shown,
        "from": __version__,
        "to": __version__ if same else None,
        "newer": not same,
        "previous": None,
    }
    if same:
        return CommandAnswer(value, (f"{own} is the release's own: {__version__}.",))
    if check:
        what = f"The release has another {CLIENT} than this {__version__}. `self-update` installs it."
        return CommandAnswer(value, (what,))
    require_yes(context, f"Replace {own} by that of {offer.shown}?")
    if offer.trust and offer.signed:
        offer.trust.remember(offer.shown, offer.signed)  # a disk that refuses it stops before the program
    version = _replace(context, own, offer)
    before = _previous(own)
    lines = (
        f"{own} is {version} now; it was {__version__}.",
        f"The previous one is {before}: move it back to undo this.",
    )
    return CommandAnswer({**value, "to": version, "previous": str(before)}, lines)


def _own(context: CommandContext) -> Path:
    """Return the file of this program.

    Raises ``NothingToDoError`` where git or pip updates the program instead.
    """
    own = context.program
    if own is None:
        raise NothingToDoError(
            "This program runs from its sources, not from an ortpacks.pyz.",
            advice="Update the sources as you got them, for example with git pull.",
        )
    for mark, update in _UPDATES.items():
        if (own.parent / mark).exists():
            name = own.parent.name.replace("_", "-")
            raise NothingToDoError(f"{own} belongs to the package {name}.", advice=f"Run {update} {name}.")
    return own


def _offer(context: CommandContext, source: ReleaseSource, web: Web) -> _OfferedClient:
    """Return the client of the release.

    Raises ``ConfigError`` where no release is named, ``IntegrityError`` for a release that is not signed,
    ``TransferError`` for a release that is not there.
    """
    if source.index is None:
        raise ConfigError("No release: pass --index URL|FILE|DIR or set ORTPACKS_INDEX.")
    index = source.index
    if isinstance(index, Path) and index.is_dir():
        index /= INDEX
    files, shown = FilesBeside(index, web), shown_place(index)
    trust = trust_of(context, source)
    if trust is not None:
        release = trust.require_release(shown, files)
        client = release.files.get(CLIENT)
        if client is None:
            raise IntegrityError(f"{shown}: the signed release has no {CLIENT}.")
        return _OfferedClient(files, shown, client.hashes.sha256, client.length, release, trust)
    if not source.unsigned:
        raise IntegrityError(
            f"{shown}: this client has no keys, so it cannot verify another one.",
            advice="Download it from the project's own page, or pass --trust-unsigned.",
        )
    sums = files(CHECKSUMS)
    if sums is None:
        raise TransferError(f"{shown}: there is no {CHECKSUMS} beside it.", advice=web.hint)
    return _OfferedClient(files, shown, _listed(sums, shown), None, None, None)


def _listed(sums: bytes, shown: str) -> str:
    for line in sums.decode(errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        if name == CLIENT and SHA256.fullmatch(digest):
            return digest
    raise TransferError(f"{shown}: {CHECKSUMS} names no {CLIENT}.", advice="That release has no client.")


def _replace(context: CommandContext, own: Path, offer: _OfferedClient) -> str:
    """Fetch and verify the new client, replace this program by it, and return its version.

    One at a time does so. The next one removes what a killed one left, and finds the work done. Raises
    ``DiskError``, ``IntegrityError``, ``TransferError`` or ``LoadError``.
    """
    work, lock = (own.with_name(f"{own.name}.{end}") for end in ("new", "lock"))
    with disk_errors(own), exclusive(lock, lambda: context.say("Waiting for another update to finish.")):
        try:
            if sha256_of(own) == offer.sha256:
                return _newer(own, offer)
            remove(work)
            work.mkdir()
            fresh = work / own.name
            _bring(offer, fresh)
            version = _newer(fresh, offer)
            shutil.copymode(own, fresh)
            _try(context, fresh)
            sync_file(fresh)
            kept = work / _previous(own).name
            shutil.copy2(own, kept)
            sync_file(kept)
            rename(kept, _previous(own))
            rename(fresh, own)
        finally:
            remove(work)
            with suppress(PermissionError):  # Windows keeps the lock while it is held
                lock.unlink()
    return version


def _bring(offer: _OfferedClient, fresh: Path) -> None:
    content = offer.files(CLIENT)
    if content is None:
        raise TransferError(f"{offer.shown}: its {CLIENT} is not there.", advice="It lies beside index.json.")
    fresh.write_bytes(content)
    promised = Digest(offer.size or fresh.stat().st_size, offer.sha256)
    require_bytes(fresh, promised, f"{offer.shown}: {CLIENT}")


def _newer(fresh: Path, offer: _OfferedClient) -> str:
    """Return the new client's version.

    It may be this one's version: a client has its release's address and root inside. Raises
    ``IntegrityError`` where the file is no client, or is older than this one, or has a root that does not
    follow this one's.
    """
    shown, trust = offer.shown, offer.trust
    try:
        with zipfile.ZipFile(fresh) as archive:
            match = _VERSION.search(archive.read("builder/client/__init__.py"))
            theirs = archive.read(_ROOT) if trust else b""
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, KeyError, OSError) as error:
        raise IntegrityError(f"{shown}: its {CLIENT} is no client: {error}.") from error
    version = match[1].decode() if match else "0.0.0"
    if version_of(version) < version_of(__version__):
        raise IntegrityError(
            f"{shown}: its {CLIENT} is {version}, older than this {__version__}.",
            advice=_KEPT_FROM_YOU,
        )
    if trust:
        try:
            trust.require_successor(theirs, _ROOT, offer.files)
        except IntegrityError as error:
            what = f"{shown}: the keys in its {CLIENT} do not follow this one's"
            raise IntegrityError(what, cause=error.what, advice=_KEPT_FROM_YOU) from error
    return version


def _try(context: CommandContext, fresh: Path) -> None:
    around = context.around
    try:
        answer = around.ask([around.python, "-I", str(fresh), "--version"], _SECONDS)
        said = answer.stderr.strip().rpartition("\n")[2] if answer.code else ""
    except (OSError, TimeoutError) as error:
        answer, said = None, str(error)
    if answer is None or answer.code:
        raise LoadError(
            f"The new {CLIENT} does not start with {around.python}, so this one stays", cause=said
        )


def _previous(own: Path) -> Path:
    return own.with_name(f"{own.name}.previous")
