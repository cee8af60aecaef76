"""The self-test stage over a fake engine: what goes into the container and how a crash is told."""

from __future__ import annotations

import json
from pathlib import Path

from builder.core.checks import Code
from builder.core.ports import Completed
from builder.stages.selftest import Bench, selftest
from tests.fakes import FakeEngine

PACKAGE = Path("dist/ortpacks-legacy-1.21.0-cuda12.9-minimal-linux-x64.tar.zst")
GOOD = json.dumps(
    {
        "version": "1.21.0",
        "providers": ["CUDAExecutionProvider"],
        "cuda": {"ok": False, "message": "CUDA failure 35"},
        "outputs": {"output": [0.5]},
    }
)


def bench(engine: FakeEngine) -> Bench:
    return Bench(
        engine=engine,
        image="ortpacks/bare",
        smoke=Path("smoke"),
        model=Path("model"),
        tar_stream=lambda path: [b"tar of ", path.name.encode()],
        stock_outputs=lambda model, inputs: {"output": [0.5]},
    )


def test_the_archive_itself_is_streamed_into_a_container_without_network() -> None:
    engine = FakeEngine(answer=Completed(argv=(), code=0, stdout=GOOD, stderr=""))
    assert selftest(PACKAGE, "1.21.0", bench(engine)) == ()
    run = engine.runs[0]
    assert not run.network
    assert b"".join(run.archives["/opt"]()) == b"tar of " + PACKAGE.name.encode()
    top = "ortpacks-legacy-1.21.0-cuda12.9-minimal-linux-x64"
    assert run.argv[:3] == (
        "/selftest/ortpacks-smoke",
        f"/opt/{top}/lib/libonnxruntime.so.1",
        "/selftest/model.onnx",
    )
    assert run.argv[3:] == (
        "input:f32:1x512:/selftest/input",
        "state:f32:2x1x128:/selftest/state",
        "sr:i64:scalar:/selftest/sr",
    )


def test_a_crash_is_a_finding_with_what_was_said() -> None:
    engine = FakeEngine(answer=Completed(argv=(), code=139, stdout="", stderr="Segmentation fault"))
    (finding,) = selftest(PACKAGE, "1.21.0", bench(engine))
    assert finding.code is Code.B010
    assert "exit 139: Segmentation fault" in finding.got
