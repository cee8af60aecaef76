"""Maker of Debian root file systems as tar files, with mmdebstrap.

The slim root file system, which runtime images start from, has neither apt nor dpkg (``slim.sh``).
"""

from __future__ import annotations

import hashlib
import shlex
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.config.inputs import DebianPackage
from builder.console import Reporter
from builder.errors import CommandError, DiskError, IntegrityError, TransferError
from builder.files.atomic_write import scratch_folder
from builder.files.disk import says_full, sync_file
from builder.files.file_lock import exclusive
from builder.io.debian.apt_mirror import AptMirrors, stanzas
from builder.io.process import ProcessRunner

NEWEST_MTIME = 1704067200
"""2024-01-01 as Unix time, so that times do not differ between runs: no file of a root file system is newer,
and those of an image's layers above it have this time."""

_APART = ("setsid", "--wait")
"""A command that starts mmdebstrap in a new session, because on failure it signals its process group."""

_CONTAINED = (
    *("setpriv", "--pdeathsig=KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *_APART,
)
"""Commands that also give root's mmdebstrap mount and process namespaces, which end with this process."""

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""The keyring of Debian's archive; the apt of other distributions does not trust it by default."""

_LIST = "var/lib/ortpacks/packages"
"""The file in the tar that lists each package with its file in the archive (``man 5 deb822``)."""

_FIELDS = ("Package", "Architecture", "Version", "Filename", "SHA256")

_HOSTS_OWN = ("etc/apt/sources.list", "etc/hostname", "etc/resolv.conf")
"""Files that mmdebstrap copies from this machine, or that have the mirror's URL, maybe with a password."""

_NO_DEVICES = "--skip=output/dev"
"""An option of mmdebstrap: no device files. Engines make ``/dev``; rootless ones cannot unpack devices."""

REMOVE_HOST_FILES_HOOK = " ".join(["rm -f", *(f'"$1/{path}"' for path in _HOSTS_OWN)])
"""A hook of mmdebstrap in sh that removes ``_HOSTS_OWN``; ``$1`` is the installed system's folder."""

_WRITE_LIST_HOOK = "; ".join(
    (
        "set -e",
        f'mkdir -p "$1/{_LIST.rpartition("/")[0]}"',
        """shown=$(dpkg-query --admindir="$1/var/lib/dpkg" -W -f '${binary:Package}=${Version} ')""",
        'found=$(APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-cache show --no-all-versions $shown)',
        f"""echo "$found" | grep -E '^({"|".join(_FIELDS)}): |^$' > "$1/{_LIST}\"""",
    )
)
"""A hook of mmdebstrap in sh that writes ``_LIST`` from the mirror's signed index."""

_SLIM = Path(__file__).with_name("slim.sh").read_text(encoding="utf-8")

_OURS = "amd64"
"""Debian's name for the build machines' architecture."""

_STATUS = "var/lib/dpkg/status"

_STATUSES = f"{_STATUS}.d"
"""The folder in a slim system with a status file for each package."""

_NETWORK = (
    "Could not resolve",
    "Temporary failure",
    "Unable to connect",
    "Could not connect",
    "Failed to fetch",
)


_NO_IDS = ("newuidmap", "/etc/subuid")
"""Parts of mmdebstrap's message to a user who has no subordinate ids for a user namespace."""


@dataclass(kw_only=True)
class DebianRootfs:
    """A maker of Debian root file systems as tar files, without files newer than ``NEWEST_MTIME``.

    ``root``: whether this process runs as root.
    """

    cache: Path
    runner: ProcessRunner
    mirrors: AptMirrors
    reporter: Reporter
    root: bool
    offline: bool = False
    keyring: Path = _KEYRING

    def tar(self, suite: str, packages: Sequence[str]) -> Path:
        """Return a tar file of Debian ``suite`` with the minimal set and ``packages``, cached by both.

        Raises ``ToolMissingError`` without mmdebstrap, ``TransferError`` without a mirror.
        """
        wanted = sorted(packages)
        what = f"Debian {suite} with {', '.join(wanted) or 'nothing more'}"
        return self._kept(suite, wanted, what, lambda part: self._bootstrap(part, suite, wanted))

    def has(self, suite: str, packages: Sequence[str]) -> bool:
        """Return whether the cache has what ``tar`` returns."""
        return self._path(suite, sorted(packages)).is_file()

    def slim(self, suite: str, packages: Sequence[str], arch: str) -> Path:
        """Return a tar file with the files of exactly ``packages`` for ``arch``, without apt and dpkg.

        The tar is cached by all three arguments. It also has busybox's links, certificates, the user
        ``ortpacks`` (id 10001) and, in ``var/lib/dpkg/status.d``, the package list that scanners read. Raises
        ``ToolMissingError`` without mmdebstrap, ``TransferError`` without a mirror. No program of another
        architecture than ``_OURS`` is run.
        """
        links = "" if arch == _OURS else " ".join(_busybox_links(self.slim(suite, packages, _OURS)))
        hook = f'LINKS={shlex.quote(links)}\nset -- "$1" {shlex.join(sorted(packages))}\n{_SLIM}'
        what = f"a slim Debian {suite} of {len(packages)} packages for {arch}"
        return self._kept(suite, [hook, arch], what, lambda part: self._slim(part, suite, hook, arch))

    def slim_packages(self, suite: str, packages: Sequence[str], arch: str) -> tuple[DebianPackage, ...]:
        """Return the packages in the tar that ``slim`` makes, as the archive's index lists them, sorted.

        Raises what ``slim`` raises.
        """
        return _listed(self.slim(suite, packages, arch), _of_slim)

    def _kept(self, suite: str, recipe: Sequence[str], what: str, make: Callable[[Path], None]) -> Path:
        """Return the tar of a recipe, which ``make`` writes unless the cache has it."""
        path = self._path(suite, recipe)
        held = self.cache / "locks" / f"rootfs-{path.stem}.lock"
        with exclusive(held, lambda: self.reporter.say(f"another process is making {what}: waiting")):
            if not path.is_file():
                self._make(path, what, make)
        return path

    def _path(self, suite: str, recipe: Sequence[str]) -> Path:
        return self.cache / "rootfs" / f"{suite}-{_digest(recipe, self.mirrors.snapshot)}.tar"

    def packages(self, suite: str, packages: Sequence[str]) -> tuple[DebianPackage, ...]:
        """Return all packages installed in the tar that ``tar`` makes, sorted. Raises what ``tar`` raises."""
        return _listed(self.tar(suite, packages), _of_installed)

    def _make(self, path: Path, what: str, make: Callable[[Path], None]) -> None:
        if self.offline:
            raise TransferError(
                f"{what} is not in the cache ({path}) and --offline was given",
                advice="Run the same command once without --offline.",
            )
        self.reporter.say(f"making {what}")
        with scratch_folder(path, needed=0) as folder:
            folder.mkdir()
            part = folder / path.name
            make(part)
            sync_file(part)
            part.replace(path)

    def _bootstrap(self, part: Path, suite: str, packages: list[str]) -> None:
        options = ("--variant=minbase", _NO_DEVICES, f"--customize-hook={_WRITE_LIST_HOOK}")
        included = [f"--include={','.join(packages)}"] if packages else []
        self._mmdebstrap(part, suite, (*options, *included))
        _require_packages(part, packages)

    def _slim(self, part: Path, suite: str, hook: str, arch: str) -> None:
        # mmdebstrap's own clean-up fails when one of apt's folders is missing
        skipped = f"{_NO_DEVICES},cleanup,check/qemu"
        options = ("--variant=custom", f"--architectures={arch}", skipped, f"--customize-hook={hook}")
        self._mmdebstrap(part, suite, options)

    def _mmdebstrap(self, part: Path, suite: str, options: Sequence[str]) -> None:
        """Run mmdebstrap, root's with a TMPDIR that only root's tools can enter.

        Raises ``DiskError`` when the disk is full, ``TransferError`` when the mirror is out of reach, else
        ``CommandError``.
        """
        mirror = self.mirrors.find()[0]
        self.runner.run(["mmdebstrap", "--version"])
        argv = [
            *(_CONTAINED if self.root else _APART),
            "mmdebstrap",
            f"--mode={'root' if self.root else 'unshare'}",
            *options,
            "--format=tar",
            f"--customize-hook={REMOVE_HOST_FILES_HOOK}",
            *([f"--keyring={self.keyring}"] if self.keyring.is_file() else []),
            suite,
            str(part),
            mirror,
        ]
        scratch = {"TMPDIR": str(part.parent)} if self.root else {}
        env = {"SOURCE_DATE_EPOCH": str(NEWEST_MTIME), **scratch}
        try:
            self.runner.run(argv, env=env)
        except CommandError as error:
            if says_full(error.tail):
                raise DiskError(
                    f"the Debian file system does not fit into {self.cache}",
                    details=error.tail[-5:],
                    advice="Free space and run again.",
                ) from error
            if any(sign in line for line in error.tail for sign in _NETWORK):
                raise TransferError(
                    "the Debian mirror cannot be reached",
                    details=error.tail[-5:],
                    advice="Check the network or ORTPACKS_DEBIAN_MIRROR.",
                ) from error
            if not self.root and any(sign in line for line in error.tail for sign in _NO_IDS):
                raise CommandError(
                    "mmdebstrap cannot make a Debian file system as this user",
                    argv=error.argv,
                    code=error.code,
                    tail=error.tail[-5:],
                    advice="As root: apt-get install uidmap, and usermod --add-subuids 100000-165535 "
                    "--add-subgids 100000-165535 USER. Then run the same command again.",
                ) from error
            raise


def _digest(recipe: Iterable[str], snapshot: str) -> str:
    """Return 16 hex digits of a sha256 over a recipe, the tools' options and the archive's time."""
    made = (str(NEWEST_MTIME), _NO_DEVICES, REMOVE_HOST_FILES_HOOK, _WRITE_LIST_HOOK)
    whole = (*made, snapshot, *recipe)
    return hashlib.sha256("\n".join(whole).encode()).hexdigest()[:16]


def _busybox_links(tar: Path) -> list[str]:
    with tarfile.open(tar, "r:") as archive:
        return [member.name for member in archive if member.issym() and member.linkname == "/bin/busybox"]


def _require_packages(tar: Path, packages: Sequence[str]) -> None:
    there = {package.name for package in _listed(tar, _of_installed)}
    missing = sorted({"base-files", "dpkg", *packages} - there)
    if missing:
        raise IntegrityError(
            f"the Debian file system lacks {', '.join(missing)}", advice="Run the same command again."
        )


def _listed(
    tar: Path, read: Callable[[tarfile.TarFile], Iterable[DebianPackage]]
) -> tuple[DebianPackage, ...]:
    """Return the packages that ``read`` finds in a tar of the cache, sorted.

    A tar that is not whole is removed. Raises ``IntegrityError``.
    """
    try:
        with tarfile.open(tar, "r:") as archive:
            return tuple(sorted(read(archive)))
    except (OSError, tarfile.TarError, KeyError, ValueError) as error:
        tar.unlink(missing_ok=True)
        raise IntegrityError(
            "the Debian file system is incomplete", cause=str(error), advice="Run the same command again."
        ) from error


def _of_slim(archive: tarfile.TarFile) -> Iterator[DebianPackage]:
    names = [name.removeprefix("./") for name in archive.getnames()]
    texts = [_text(archive, name) for name in names if name.startswith(f"{_STATUSES}/")]
    return (_package(stanza) for text in texts for stanza in stanzas(text))


def _of_installed(archive: tarfile.TarFile) -> Iterator[DebianPackage]:
    """Yield the installed packages. Raises ``ValueError`` if ``_LIST`` lacks one."""
    status, index = (_text(archive, name) for name in (_STATUS, _LIST))
    known = {_key(stanza): stanza for stanza in stanzas(index) if "SHA256" in stanza}
    for stanza in stanzas(status):
        if stanza.get("Status") == "install ok installed":
            indexed = known.get(_key(stanza))
            if indexed is None:
                raise ValueError(f"no index names the file of {' '.join(_key(stanza))}")
            yield _package(indexed)


def _package(stanza: Mapping[str, str]) -> DebianPackage:
    return DebianPackage(stanza["Filename"], *_key(stanza), sha256=stanza["SHA256"])


def _key(stanza: Mapping[str, str]) -> tuple[str, str, str]:
    return stanza["Package"], stanza["Version"], stanza["Architecture"]


def _text(archive: tarfile.TarFile, name: str) -> str:
    file = archive.extractfile(f"./{name}")
    return "" if file is None else file.read().decode(errors="replace")
