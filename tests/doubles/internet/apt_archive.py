"""A signed archive of packages, as apt reads it: one suite with packages, and suites without any."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from builder.files.atomic_write import write_file
from builder.files.file_lock import exclusive

COMPONENTS = ("main", "universe")

_SIGNED = "20251101T000000"
"""The time of the signatures."""


class AptArchive:
    """An archive in ``folder``, signed with the key in ``key``, which is made where there is none.

    One key and one time of signing make the same bytes in each run, so the archive's pins and what was
    compiled with its packages stay valid. ``home`` is a new folder for gpg.
    """

    def __init__(self, folder: Path, home: Path, key: Path) -> None:
        self._folder, self._home = folder, home
        home.mkdir(mode=0o700)
        with exclusive(key.with_suffix(".lock"), lambda: None):
            if key.exists():
                self._gpg("--import", str(key))
                return
            made = ("--quick-generate-key", "archive of the double", "ed25519", "sign", "never")
            self._gpg("--passphrase", "", *made)
            write_file(key, self._gpg("--export-secret-keys"))

    def lay(self, suites: Sequence[str], packages: Iterable[Path], date: str) -> bytes:
        """Lay out the suites, and return the public key, for ``/etc/apt/trusted.gpg.d``.

        The first suite has all packages, in main. ``date`` is that of the lists.
        """
        pool = self._folder / "pool"
        pool.mkdir(parents=True)
        stanzas = []
        for package in sorted(packages):
            shutil.copy(package, pool)
            content = package.read_bytes()
            told = subprocess.run(
                ["dpkg-deb", "--field", package], capture_output=True, text=True, check=True
            )
            stanzas.append(
                f"{told.stdout.rstrip()}\nFilename: pool/{package.name}\nSize: {len(content)}\n"
                f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
            )
        for suite in suites:
            self._lay_suite(suite, "\n".join(stanzas) if suite == suites[0] else "", date)
        key = self._gpg("--export")
        subprocess.run(["gpgconf", "--kill", "all"], env=self._env(), check=True)  # the agent with the key
        return key

    def _lay_suite(self, suite: str, stanzas: str, date: str) -> None:
        folder = self._folder / "dists" / suite
        sums = []
        for component in COMPONENTS:
            name = f"{component}/binary-amd64/Packages"
            file = folder / name
            file.parent.mkdir(parents=True)
            content = stanzas.encode() if component == COMPONENTS[0] else b""
            file.write_bytes(content)
            sums.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}\n")
        release = (
            f"Origin: Ubuntu\nLabel: Ubuntu\nSuite: {suite}\nCodename: {suite}\nDate: {date}\n"
            f"Architectures: amd64\nComponents: {' '.join(COMPONENTS)}\nSHA256:\n{''.join(sums)}"
        )
        (folder / "InRelease").write_bytes(self._gpg("--clear-sign", given=release.encode()))

    def _gpg(self, *words: str, given: bytes = b"") -> bytes:
        argv = ["gpg", "--batch", "--quiet", "--faked-system-time", _SIGNED, *words]
        return subprocess.run(argv, input=given, env=self._env(), capture_output=True, check=True).stdout

    def _env(self) -> dict[str, str]:
        return {**os.environ, "GNUPGHOME": str(self._home)}
