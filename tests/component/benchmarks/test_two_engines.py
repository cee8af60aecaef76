"""Tests of the benchmark of two engines: its arguments, its rows, and when it stops the first engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import two_engines
from benchmarks.two_engines import StoppingConsole, arguments, line, main, recorded, wrong
from builder.adapters.docker.engine import DockerEngine
from builder.adapters.process import ProcessRunner
from builder.binary.library_names import PROVIDER
from builder.errors import CommandError, EngineLostError
from builder.pipeline.compile import StageBuild
from builder.ports import Completed
from builder.project.build_plan import NOTHING_RENDERED

PIECES = """\
# CMakeFiles/cmTC_1.dir/test.cu.o.pieces/compute_60.ii
cache_miss
# /src/a.cu
cache_miss
# CMakeFiles/onnxruntime_providers_cuda.dir/a.cu.o.pieces/compute_60.ii
cache_miss
# CMakeFiles/onnxruntime_providers_cuda.dir/a.cu.o.pieces/compute_60/ptx
direct_cache_hit
# CMakeFiles/onnxruntime_providers_cuda.dir/a.cu.o.pieces/host.ii
cache_miss
"""
"""A log that begins with a test by CMake."""


def row(engine: str, outcome: str = "compiled") -> dict[str, object]:
    return {"engine": engine, "outcome": outcome, "seconds": 9}


def trial() -> list[dict[str, object]]:
    same = {"provider": "ab"}
    return [row("one", "killed at 6/10 units"), row("two") | same, row("three") | same]


@pytest.mark.parametrize(
    "argument",
    ["--variant=none", "--variant=cpu", "--profile=tiny", "--json=/no/folder/file", "--json=/"],
)
def test_a_wrong_argument_is_refused(
    argument: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["two_engines", "--variant=legacy", argument])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert argument.partition("=")[2] in capsys.readouterr().err


def test_a_variant_must_be_named_and_is_compiled_in_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["two_engines", "--variant=legacy"])
    assert arguments({"legacy": None}).profile == "full"
    monkeypatch.setattr("sys.argv", ["two_engines"])
    with pytest.raises(SystemExit):
        arguments({"legacy": None})
    assert "--variant" in capsys.readouterr().err


def test_a_tree_without_a_record_is_recorded(tmp_path: Path) -> None:
    """The engine was killed: its last line is cut off."""
    tree = tmp_path / "overlay2/x/diff"
    tree.mkdir(parents=True)
    (tree / "runs.log").write_text("1000 2\n")
    (tree / "units.log").write_text("1000 3000 1500 2048 0 a.cc.o\n1500 4000 2000 1024 0 a.cu.o\n1600 17")
    (tree / "ccache-stats.log").write_text("# a.cc\ndirect_cache_hit\n")
    (tree / "ccache-pieces.log").write_text(PIECES)
    found = recorded(tmp_path)
    expected = {"units": 2, "cache_hits": 2, "cpu_s": 3.5, "device_code": 2, "device_code_found": 1}
    assert found | expected == found


def test_an_engine_that_compiled_nothing_has_no_record(tmp_path: Path) -> None:
    assert recorded(tmp_path) == recorded(tmp_path / "missing") == {}
    assert line(row("one", "no space left")) == "one         9 s  nothing compiled  no space left"


def test_a_line_has_units_hits_and_seconds() -> None:
    figures = {
        "units": 812,
        "cache_hits": 480,
        "cpu_s": 1234.5,
        "device_code": 1300,
        "device_code_found": 700,
    }
    assert line(row("two") | figures) == (
        "two         9 s  812 units, 480 from the cache in whole or in part, 1234.5 CPU s, "
        "700 of 1300 PTX and SASS found  compiled"
    )


def test_a_trial_that_went_as_it_should_has_no_faults() -> None:
    assert wrong(trial()) == []


def test_faults_are_told() -> None:
    _, two, three = trial()
    assert wrong([]) == ["one: not reached", "two: not reached", "three: not reached"]
    assert wrong([row("one"), two, three]) == ["one: compiled"]
    assert wrong([trial()[0], two, three | {"provider": "cd"}]) == [
        f"{PROVIDER} differs from engine to engine"
    ]


def test_the_engine_is_stopped_once_when_the_share_is_done() -> None:
    stopped: list[None] = []
    console = StoppingConsole({}, lambda: stopped.append(None))
    with console.live("compile") as see:
        see(0.59, "5/10 units")
        assert stopped == []
        see(0.7, "6/10 units")
        see(0.8, "7/10 units")
    assert (len(stopped), console.stopped_at) == (1, "6/10 units")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[dict[str, float]], None]:
    """Return a function that runs the trial without Docker.

    Its argument has the share at which an engine's compile fails with a compiler's error.
    """
    dead: list[Path] = []

    @contextmanager
    def engine(data: Path) -> Iterator[SimpleNamespace]:
        data.mkdir()
        yield SimpleNamespace(host="unix:///none", kill=lambda: dead.append(data))

    @contextmanager
    def server() -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(port=1)

    def run(fails_at: dict[str, float]) -> None:
        def export(
            _target: str, artifact: Path, _rendered: object, _place: object, means: StageBuild
        ) -> None:
            assert means.builder
            with means.reporter.live("compile") as show:
                for share in (0.2, 0.5, 0.7, 1):
                    show(share, f"{share:.0%}")
                    if artifact.with_name(means.builder) in dead:
                        raise EngineLostError(f"{means.builder} went away")
                    if share >= fails_at.get(means.builder, 2):
                        raise CommandError("a compiler failed")
            artifact.mkdir()
            (artifact / PROVIDER).write_bytes(b"same")

        monkeypatch.setattr(two_engines, "export", export)
        main()

    for name, value in (("dying_engine", engine), ("redis_server", server)):
        monkeypatch.setattr(two_engines, name, value)
    monkeypatch.setattr(two_engines.Trial, "_laid_out", lambda *_: NOTHING_RENDERED)
    monkeypatch.setattr(ProcessRunner, "run", lambda *_, **__: Completed(code=0, stdout="", stderr=""))
    monkeypatch.setattr(DockerEngine, "wake", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["two_engines", "--variant=legacy", f"--json={tmp_path / 'rows.json'}"])
    return run


def outcomes(folder: Path) -> list[tuple[str, str]]:
    rows = json.loads((folder / "rows.json").read_text())
    return [(row["engine"], row["outcome"].partition(".")[0]) for row in rows]


def test_the_killed_engines_work_goes_to_the_second(
    run: Callable[[dict[str, float]], None], tmp_path: Path
) -> None:
    run({})
    assert outcomes(tmp_path) == [("one", "killed at 70%"), ("two", "compiled"), ("three", "compiled")]


@pytest.mark.parametrize("engine", ["one", "two", "three"])
def test_a_compile_that_fails_does_not_keep_the_others_from_being_tried(
    run: Callable[[dict[str, float]], None], tmp_path: Path, engine: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        run({engine: 0.5})
    assert str(ended.value.code).startswith(f"{engine}: a compiler failed")
    expected = {"one": "killed at 70%", "two": "compiled", "three": "compiled"}
    assert dict(outcomes(tmp_path)) == expected | {engine: "a compiler failed"}
