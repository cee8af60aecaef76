"""pip fetches wheels whose sha256 is known: NVIDIA's, and zstandard's where nothing here decompresses zstd.

Python decompresses zstd itself from 3.14 on. Before, zstandard is imported from its wheel, for one install.
The pinned files are the wheels that pip takes on the platforms of packages; ``cp39`` is CPython 3.9.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Iterator, Optional, Sequence, Tuple

from builder.client.install.prefix import Prefix
from builder.client.probe.processes import ProcessAnswer, Work
from builder.errors import IntegrityError, ToolMissingError, TransferError
from builder.files.decompression import no_zstd, require_zstd
from builder.files.digest import other_bytes, sha256_of
from builder.files.pip_download import MOST_BYTES, NO_PIP, downloaded, pip_download, refusal


@dataclass(frozen=True)
class Pip:
    """The pip of the first of ``pythons`` that has pip."""

    pythons: Tuple[str, ...]
    """Names or paths of interpreters, first the running one."""
    work: Work

    def download(
        self,
        requirement: str,
        hashes: Sequence[str],
        folder: Path,
        *,
        platform: Optional[str] = None,
        otherwise: str = "",
        size: int = MOST_BYTES,
    ) -> Path:
        """Fetch the wheel of ``requirement`` into ``folder``, which is empty, and return its path.

        The wheel's sha256 is one of ``hashes``. ``platform`` is a platform tag for pip; ``otherwise`` ends
        the advice of an error; ``size`` is the wheel's. ``folder`` also holds pip's temporary files. Raises
        ``ToolMissingError`` (no pip), ``TransferError`` (not available), ``IntegrityError`` (other bytes) or
        ``DiskError``.
        """
        requirements = folder / "requirements.txt"
        options = "".join(f" --hash=sha256:{sha256}" for sha256 in hashes)
        requirements.write_text(f"{requirement}{options}\n", encoding="utf-8")
        tags = ["--platform", platform] if platform else []
        answer = self._run(["--require-hashes", "-r", str(requirements), *tags], folder, size)
        if answer is None:
            raise ToolMissingError(
                f"None of {', '.join(self.pythons)} has pip, which fetches {requirement}.",
                advice=f"Install it (apt install python3-pip, python3 or py -m ensurepip){otherwise}.",
            )
        if answer.code != 0:
            advice = f"Set its index (PIP_INDEX_URL, pip.conf){otherwise}."
            raise refusal(requirement, answer.stderr.splitlines(), advice)
        path = downloaded(folder, requirement)
        digest = sha256_of(path)
        if digest not in hashes:
            raise other_bytes(f"{path.name}: sha256 differs", " or ".join(hashes), digest)
        return path

    def _run(self, wanted: Sequence[str], folder: Path, size: int) -> Optional[ProcessAnswer]:
        """Return the answer of the first interpreter with pip; ``None`` where none has pip."""
        for python in self.pythons:
            with suppress(OSError):  # there is no such program
                answer = self.work(pip_download(python, folder, wanted, size), folder)
                if answer.code != NO_PIP:
                    return answer
        return None


REQUIREMENT = "zstandard==0.25.0"

HASHES = (
    "53e08b2445a6bc241261fea89d065536f00a581f02535f8122eba42db9375530",  # cp39 manylinux2014_x86_64
    "3b870ce5a02d4b22286cf4944c628e0f0881b11b3f14667c1d62185a99e04f53",  # cp39 manylinux2014_aarch64
    "37daddd452c0ffb65da00620afb8e17abd4adaae6ce6310702841760c2c26860",  # cp39 win_amd64
    "4b14abacf83dfb5c25eb4e4a79520de9e7e205f72c9ee7702f91233ae57d33a2",  # cp39 macosx_11_0_arm64
    "4b6d83057e713ff235a12e73916b6d356e3084fd3d14ced499d84240f3eecee0",  # cp310 manylinux2014_x86_64
    "e05ab82ea7753354bb054b92e2f288afb750e6b439ff6ca78af52939ebbc476d",  # cp310 manylinux2014_aarch64
    "ea9d54cc3d8064260114a0bbf3479fc4a98b21dffc89b3459edd506b69262f6e",  # cp310 win_amd64
    "4d441506e9b372386a5271c64125f72d5df6d2a8e8a2a45a0ae09b03cb781ef7",  # cp310 macosx_11_0_arm64
    "9300d02ea7c6506f00e627e287e0492a5eb0371ec1670ae852fefffa6164b072",  # cp311 manylinux2014_x86_64
    "01582723b3ccd6939ab7b3a78622c573799d5d8737b534b86d0e06ac18dbde4a",  # cp311 manylinux2014_aarch64
    "daab68faadb847063d0c56f361a289c4f268706b598afbf9ad113cbe5c38b6b2",  # cp311 win_amd64
    "a3f79487c687b1fc69f19e487cd949bf3aae653d181dfb5fde3bf6d18894706f",  # cp311 macosx_11_0_arm64
    "5a56ba0db2d244117ed744dfa8f6f5b366e14148e00de44723413b2f3938a902",  # cp312 manylinux2014_x86_64
    "6dffecc361d079bb48d7caef5d673c88c8988d3d33fb74ab95b7ee6da42652ea",  # cp312 manylinux2014_aarch64
    "ffef5a74088f1e09947aecf91011136665152e0b4b359c42be3373897fb39b01",  # cp312 win_amd64
    "913cbd31a400febff93b564a23e17c3ed2d56c064006f54efec210d586171c00",  # cp312 macosx_11_0_arm64
    "8e735494da3db08694d26480f1493ad2cf86e99bdd53e8e9771b2752a5c0246a",  # cp313 manylinux2014_x86_64
    "bfc4e20784722098822e3eee42b8e576b379ed72cca4a7cb856ae733e62192ea",  # cp313 manylinux2014_aarch64
    "1f830a0dac88719af0ae43b8b2d6aef487d437036468ef3c2ea59c51f9d55fd5",  # cp313 win_amd64
    "a1a4ae2dec3993a32247995bdfe367fc3266da832d82f8438c8570f989753de1",  # cp313 macosx_11_0_arm64
)


def bring_zstd(pip: Optional[Pip], prefix: Prefix, say: Callable[[str], None]) -> None:
    """Fetch the wheel of ``zstandard``, import the module from it and remove the files again.

    Raises ``ToolMissingError`` where the wheel is not available or does not decompress zstd here, and where
    nothing may be fetched (``pip`` is ``None``).
    """
    if pip is None:
        raise no_zstd()
    say(f"Nothing here can unpack zstd: fetching {REQUIREMENT} through pip, for this install only.")
    work = prefix.part("zstd")
    work.mkdir()
    try:
        wheel = replace(pip, pythons=pip.pythons[:1]).download(REQUIREMENT, HASHES, work)
        unpacked = work / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        with _importing_from(unpacked):
            require_zstd()
    except (ToolMissingError, TransferError, IntegrityError) as error:
        raise no_zstd(f"{REQUIREMENT} does not help: {error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)  # Windows keeps loaded files: the next install removes them


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
