"""Factory of a signed release in a folder, with a machine whose client has its root."""

from datetime import datetime
from pathlib import Path

from builder.formats.trust import TARGETS
from builder.publish.signing import Signer
from tests.doubles.machine import NOW
from tests.doubles.release import write_release
from tests.support.factories.signing import CI, FIRST, targets
from tests.support.faults.client import Quick


class Signed:
    """A signed release in a folder, and a machine whose client came with the first root."""

    def __init__(self, folder: Path) -> None:
        self.folder = write_release(folder / "release").parent
        self.machine = Quick(
            folder / "home", env={"ORTPACKS_FORCE_CC": "5.2", "ORTPACKS_FORCE_DRIVER": "550.54.14"}
        )
        self.sign()

    def sign(self, *roots: bytes, by: Signer | tuple[Signer, ...] = CI, now: datetime = NOW) -> None:
        for number, content in enumerate(roots or (FIRST,), start=1):
            (self.folder / f"{number}.root.json").write_bytes(content)
        made = [file for file in self.folder.iterdir() if not file.name.endswith((TARGETS, ".root.json"))]
        files = {file.name: file.read_bytes() for file in made}
        file = self.folder / TARGETS
        before = file.read_bytes() if file.is_file() else b""
        file.write_bytes(targets(files, *roots, by=by, now=now, before=before))

    def sign_other(self, now: datetime) -> None:
        """Sign a release of other files at the time ``now``."""
        (self.folder / "notes.txt").write_text(str(now))
        self.sign(now=now)

    def run(self, command: str = "select", place: str | Path = "", *flags: str) -> int:
        return self.machine.run(command, "--index", str(place or self.folder), *flags)

    def refused(self, command: str = "select", place: str | Path = "") -> str:
        assert self.run(command, place) == 7, self.machine.out
        return self.machine.err
