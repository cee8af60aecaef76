"""pip fetches NVIDIA's wheels, whose sha256 is known."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence, Tuple

from builder.client.probe.processes import ProcessAnswer, Work
from builder.errors import ToolMissingError
from builder.files.digest import other_bytes, sha256_of
from builder.files.pip_download import NO_PIP, downloaded, pip_download, refusal


@dataclass(frozen=True)
class Pip:
    """The pip of the first of ``pythons`` that has pip."""

    pythons: Tuple[str, ...]
    """Names or paths of interpreters, first the running one."""
    work: Work

    def download(
        self,
        requirement: str,
        sha256: str,
        folder: Path,
        *,
        platform: Optional[str],
        otherwise: str,
        size: int,
    ) -> Path:
        """Fetch the wheel of ``requirement`` into ``folder``, which is empty, and return its path.

        ``sha256`` and ``size`` are the wheel's, ``platform`` is a platform tag for pip; ``otherwise`` ends
        the advice of an error. ``folder`` also holds pip's temporary files. Raises ``ToolMissingError`` (no
        pip), ``TransferError`` (not available), ``IntegrityError`` (other bytes) or ``DiskError``.
        """
        requirements = folder / "requirements.txt"
        requirements.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
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
        if digest != sha256:
            raise other_bytes(f"{path.name}: sha256 differs", sha256, digest)
        return path

    def _run(self, wanted: Sequence[str], folder: Path, size: int) -> Optional[ProcessAnswer]:
        """Return the answer of the first interpreter with pip; ``None`` where none has pip."""
        for python in self.pythons:
            with suppress(OSError):  # there is no such program
                answer = self.work(pip_download(python, folder, wanted, size), folder)
                if answer.code != NO_PIP:
                    return answer
        return None
