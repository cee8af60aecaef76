"""CMake configures a source of ONNX Runtime: no compiler, program or package of the machine is asked.

What it made is read in its trace (``facts.ort.configured``), with the line of each command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from builder.facts.ort.configured import Configured, Trace, read_trace
from builder.facts.ort.source import not_understood
from builder.files.disk import resolved
from builder.io.process import ProcessRunner

_READER = Path(__file__).with_name("reader.cmake")

_UNKNOWN = re.compile(r'Unknown CMake command\s+"(\w+)"')

_ERROR = re.compile(
    r"CMake Error at (?:source/)?(?P<place>[^\n]+?:\d+)[^\n]*:\n(?P<text>.+?)(?:\n\n|\nCall Stack)", re.DOTALL
)

_BROKEN = "Parse error."


@contextmanager
def laid_out(runner: ProcessRunner, program: str, files: Mapping[str, str]) -> Iterator[CMake]:
    """Lay files of a source into a folder for a while, and let CMake configure them.

    ``files`` are texts by path below the source's root. A path that leads out of the source is left out.
    """
    with TemporaryDirectory(prefix="ortpacks-source-") as folder:
        root = resolved(Path(folder))
        for path in filter(_is_below, files):
            file = root / "source" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(files[path], encoding="utf-8")
        (root / "CMakeLists.txt").write_text(_READER.read_text(encoding="utf-8"), encoding="utf-8")
        yield CMake(runner, program, root)


def _is_below(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts


@dataclass(frozen=True)
class CMake:
    """CMake on a source that is laid out."""

    runner: ProcessRunner
    program: str
    root: Path
    unknown: list[str] = field(default_factory=list)
    """The commands that it does not know. They do nothing."""

    def __call__(self, settings: Mapping[str, str], trace: Trace) -> Configured:
        """Return what CMake makes of the source (``facts.ort.configured.Configure``)."""
        source, reader, log = self.root / "source", self.root / "CMakeLists.txt", self.root / "trace"
        own = {"READER_SOURCE": str(source), "READER_UNKNOWN": ";".join(self.unknown)}
        words = [f"-D{name}={value}" for name, value in {**settings, **own}.items()]
        words += ["--fresh", "-G", "Unix Makefiles", "-DCMAKE_MAKE_PROGRAM=make"]
        flags = [trace.value] if trace.value else ["--trace-expand", f"--trace-source={reader}"]
        flags += ["--trace-format=json-v1", f"--trace-redirect={log}"]
        where = ["-S", str(self.root), "-B", str(self.root / "build")]
        log.unlink(missing_ok=True)
        said = self.runner.run([self.program, *flags, *words, *where], check=False).stderr
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else ()
        made = read_trace(filter(None, lines), str(source), str(reader), self.unknown)
        if made is not None and _BROKEN not in said:
            return made
        if (unknown := _UNKNOWN.search(said)) and unknown[1] not in self.unknown:
            self.unknown.append(unknown[1])
            return self(settings, trace)
        errors = [error.groups() for error in _ERROR.finditer(said)]
        broken = [error for error in errors if error[1].strip().startswith(_BROKEN)]
        place, text = (broken or errors or [("cmake/CMakeLists.txt", said)])[-1]
        raise not_understood(place, " ".join(text.split()))
