"""Runner of cuobjdump in its own image: one container per library, answers cached by the library's sha256."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from builder.contents.cuobjdump import KNOWN_IMAGES, CuobjdumpError, Listing, disagreements, parse_listings
from builder.errors import CommandError, ToolMissingError
from builder.files.atomic_write import write_file
from builder.io.docker.engine import OVERTIME, ContainerRun, DockerEngine
from builder.io.process import Completed

_FOLDER = "/inspect"

_NOT_FOUND = 127

_SCRIPT = Path(__file__).with_suffix(".sh").read_text(encoding="utf-8")
"""A script in sh that prints each listing's exit code and streams separately, so that none is hidden."""

_PARTS = ("elf.code", "elf.out", "elf.err", "ptx.code", "ptx.out", "ptx.err", "end")

_ANSWERS = frozenset({0, 255})
"""The exit codes that depend only on the library's bytes. Answers with other exit codes are not cached."""

_PART = re.compile(r"^@@ (.+)\n", re.MULTILINE)


class _Listings(BaseModel):
    elf: Listing
    ptx: Listing


class ContainerInspector:
    """A cuobjdump in a container; implements ``contents.cuobjdump.Inspector``."""

    def __init__(self, engine: DockerEngine, image: str, version: str, answers: Path) -> None:
        """Take an image with cuobjdump ``version`` on its PATH, and the folder of cached ``answers``."""
        self._engine = engine
        self._image = image
        self.version = version
        self._answers = answers

    def list_images(self, library: Path, sha256: str) -> tuple[Listing, Listing]:
        """See ``contents.cuobjdump.Inspector.list_images``.

        Raises ``ToolMissingError`` when the image has no cuobjdump and ``CommandError`` when the container
        ends before both listings were made.
        """
        file = self._answers / f"{sha256}.json"
        try:
            kept = _Listings.model_validate_json(file.read_bytes())
        except (OSError, ValueError):  # no answer yet, or a damaged one
            kept = self._ask(library)
            if {kept.elf.code, kept.ptx.code} <= _ANSWERS:
                write_file(file, kept.model_dump_json(indent=1).encode())
        return kept.elf, kept.ptx

    def try_out(self, known: Path) -> None:
        """Check cuobjdump with a file that holds ``KNOWN_IMAGES``, ignoring cached answers.

        Raises ``CommandError`` when cuobjdump lists other images, and what ``list_images`` raises.
        """
        asked = self._ask(known)
        try:
            listed = parse_listings(asked.elf, asked.ptx)
            wrong = disagreements(KNOWN_IMAGES, listed)
        except CuobjdumpError as error:
            wrong = [str(error)]
        if wrong:
            raise CommandError(
                f"cuobjdump {self.version} is not reliable here: it lists other images in {known.name} than "
                "that file is known to hold",
                argv=("cuobjdump", known.name),
                code=max(asked.elf.code, asked.ptx.code),
                tail=wrong,
                advice=f"Nothing was compiled. Remove its image (docker image rm {self._image}) and run the "
                "same command again.",
            )

    def _ask(self, library: Path) -> _Listings:
        inside = f"{_FOLDER}/{library.name}"
        argv = ("sh", "-c", _SCRIPT, "sh", inside)
        request = ContainerRun(image=self._image, argv=argv, files={inside: library})
        done, parts = self._run(request)
        if done.code == 0 and tuple(parts) != _PARTS:  # a busy Docker engine lost the container's output
            done, parts = self._run(request)
        if done.code != 0 or tuple(parts) != _PARTS:
            tail = [*done.stdout.splitlines()[-5:], *done.stderr.splitlines()[-5:]]
            raise CommandError(
                f"cuobjdump's container ended early on {library.name}",
                argv=argv[:2],
                code=done.code,
                tail=tail,
                cause=f"{request.seconds} s were over" if done.code == OVERTIME else f"exit code {done.code}",
                advice="The machine may be out of memory or disk; free some and run again.",
            )
        elf, ptx = (
            Listing(int(parts[f"{kind}.code"]), parts[f"{kind}.out"], parts[f"{kind}.err"])
            for kind in ("elf", "ptx")
        )
        return _Listings(elf=elf, ptx=ptx)

    def _run(self, request: ContainerRun) -> tuple[Completed, Mapping[str, str]]:
        """Return how the container ended, and the parts of its output."""
        done = self._engine.run(request)
        if done.code == _NOT_FOUND:
            raise ToolMissingError(
                f"The image {self._image} has no cuobjdump",
                advice="Remove it (docker image rm) and run again.",
            )
        _, *parts = _PART.split(done.stdout)
        return done, dict(zip(parts[::2], parts[1::2], strict=True))
