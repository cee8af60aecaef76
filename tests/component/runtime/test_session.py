"""Tests of the runtime layer's sessions: on the real CPU, and on failing GPUs that a stand-in plays."""

import ctypes
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnx
import onnxruntime
import pytest
from ortpacks_runtime import ProviderError, Report, Session, Step, open_session, places
from ortpacks_runtime import session as session_module
from ortpacks_runtime.__main__ import main
from ortpacks_runtime.alias import let_lie_in, load_as
from ortpacks_runtime.client import devices
from ortpacks_runtime.libraries import Libraries
from ortpacks_runtime.limits import Needs, limit_of_package
from ortpacks_runtime.one_node import ONE_NODE
from ortpacks_runtime.places import Place
from ortpacks_runtime.settings import VARIABLES, Settings
from ortpacks_runtime.warm_up import Recording

from tests.support import ROOT, ran
from tests.support.factories.onnx_models import MATRIX, write_model
from tests.support.messages import Told


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide this machine's GPU, packages and settings, and the client, which is a process for each session."""
    ours = [name for names in VARIABLES.values() for name in names]
    for name in (*ours, "ORT_DYLIB_PATH", "ORTPACKS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ORTPACKS_CLIENT", "/no/such/ortpacks.pyz")
    monkeypatch.setenv("ORTPACKS_FORCE_CC", "none")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def client(pyz: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions ask the client."""
    monkeypatch.setenv("ORTPACKS_CLIENT", str(pyz))


asking = pytest.mark.usefixtures("client")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write the model ``y = x @ w`` for any number of rows of four values; return its path."""
    return write_model(tmp_path / "model.onnx", MATRIX)


ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)
PRODUCT = ROWS @ np.arange(8, dtype=np.float32).reshape(4, 2)


@asking
def test_a_gpu_that_the_package_predates_is_taken_as_select_takes_it() -> None:
    """NVIDIA's compatibility guides: SASS runs on a higher minor version, PTX on any newer GPU. Defect:
    ``select`` installed the package for such a GPU, and sessions went on with the CPU: it had no code."""
    package = Libraries("ours", Path(), {"8.6": "native", "9.0": "native", "10.3": "jit", "12.0": "jit"})
    old, new, newest = (
        {"name": "a card", "uuid": None, "memory_mib": 8192, "capability": capability, "profile": None}
        for capability in ("3.5", "8.8", "13.0")
    )
    assert [places.fitting([one], package, Settings()).jit for one in (new, newest)] == [False, True]
    with pytest.raises(ProviderError, match=r"ours has no code for a card, compute capability 3\.5"):
        places.fitting([old], package, Settings())


def test_the_threads_that_were_asked_for_compute(model: Path) -> None:
    def threads(session: Session) -> int:
        return int(session.inner.get_session_options().intra_op_num_threads)

    assert threads(open_session(model, "cpu")) == 0  # in ONNX Runtime, 0 means one thread for each core
    assert threads(open_session(model, "cpu", threads=3)) == 3
    with pytest.raises(ProviderError, match=r"^threads=0: "):
        open_session(model, "cpu", threads=0)


def test_a_session_on_the_cpu_computes_and_says_what_ran_where(model: Path) -> None:
    session = open_session(model, "cpu")
    assert (session.report.provider, session.report.proved) == ("cpu", True)
    assert session.report.nodes == {"CPUExecutionProvider": 1}
    assert session.report.fallback is None
    np.testing.assert_array_equal(session.run(None, {"x": ROWS})[0], PRODUCT)


def in_a_fork(work: Callable[[], str]) -> str:
    """Return what ``work`` returns in a process that is forked from this one; it has 60 s."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        with suppress(BaseException):
            os.write(writer, work().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def test_a_session_in_a_forked_process_is_opened_anew(model: Path) -> None:
    """microsoft/onnxruntime#21368, #12785: the threads of the parent are not in its child, which waited for
    them without end."""
    session = open_session(model, "cpu", threads=2)
    assert in_a_fork(lambda: str(session.run(None, {"x": ROWS})[0].tolist())) == str(PRODUCT.tolist())
    np.testing.assert_array_equal(session.run(None, {"x": ROWS})[0], PRODUCT)


def test_a_gpu_that_a_forked_process_cannot_use_is_told(model: Path, told: Told) -> None:
    """CUDA's programming guide: a context does not survive a fork."""

    def work(session: Session) -> str:
        product = session.run(None, {"x": ROWS})[0]
        assert session.report.fallback is not None
        return f"{product.tolist() == PRODUCT.tolist()}: {session.report.fallback}"

    session = Session(Mock(), Report(provider="cuda", model=str(model), proved=True), Settings(), model)
    answer = in_a_fork(lambda: work(session))
    assert answer.startswith("True: ")
    told(answer)
    strict = Session(Mock(), Report(provider="cuda", proved=True), Settings(strict=True), model)
    told(in_a_fork(lambda: refused(strict)))


def refused(session: Session) -> str:
    try:
        session.run(None, {"x": ROWS})
    except ProviderError as error:
        return str(error)
    return "no error"


@asking
def test_the_report_has_the_libraries_in_use_and_from_where(model: Path) -> None:
    used = open_session(model, "cpu").report.loaded
    wheel = Path(onnxruntime.__file__).parent.resolve()
    assert str(wheel / "capi") in {str(Path(path).parent) for path in used}


def test_libraries_that_were_there_before_the_session_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenNMT/CTranslate2#1897, microsoft/onnxruntime#24266: torch's cuDNN was in the process first."""
    theirs = "/venv/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9"
    report = Report(loaded={theirs: "9.1.0", "/package/lib/libcublasLt.so.12": "12.9.1"})
    said = session_module._loaded_before("cuda", (theirs, "/opt/libcudart.so.12"), report)
    assert said == f"in this process before the session, and used by it: {theirs} 9.1.0"
    assert session_module._loaded_before("cpu", (theirs,), report) == ""


@pytest.mark.parametrize("command", ["-c", "-m"])
def test_an_onnxruntime_whose_files_another_wheel_took_is_told(
    tmp_path: Path, told: Told, command: str
) -> None:
    """microsoft/onnxruntime#8623: of two wheels in one folder, one was uninstalled."""
    (tmp_path / "site/onnxruntime/capi").mkdir(parents=True)
    here = f"{tmp_path / 'site'}{os.pathsep}{ROOT / 'runtime'}"
    program = {"-c": ["from ortpacks_runtime import open_session"], "-m": ["ortpacks_runtime", "doctor"]}
    argv = [sys.executable, "-S", command, *program[command]]
    numpys = Path(np.__file__).parents[1]
    (tmp_path / "site/numpy").symlink_to(numpys / "numpy")
    done = ran(argv, env={"PYTHONPATH": here})
    assert done.returncode == 1
    told(done.stderr.strip().splitlines()[-1].replace(sys.executable, "<python>"))


def test_auto_without_a_gpu_is_the_cpu(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    session = open_session(model)
    assert [(step.provider, step.taken) for step in session.report.steps] == [
        ("tensorrt", False),
        ("cuda", False),
        ("cpu", True),
    ]
    assert all("built without" in step.reason for step in session.report.steps[:2])
    (warning,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert warning.getMessage().startswith("Falling back to CPU: cuda: onnxruntime ")


def test_a_provider_that_this_build_has_not_is_refused_for_the_cpu_or_by_strict(model: Path) -> None:
    report = open_session(model, "dml").report
    refused, taken = report.steps
    assert "was built without DmlExecutionProvider" in refused.reason
    assert refused.advice.startswith("pip install onnxruntime-directml in place")
    assert (taken.provider, report.fallback) == ("cpu", refused)
    with pytest.raises(ProviderError, match=r"^CUDA requested but not available: "):
        open_session(model, "gpu", strict=True)
    assert open_session(model, "auto", strict=True).report.provider == "cpu", "auto asked for nothing else"


LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d' * 32}\nsize 90405214\n".encode()
"""What git leaves in a model's place without LFS: a clone's of Hugging Face, with another hash."""


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("gone.onnx", None),
        (os.fsdecode(b"caf\xe9.onnx"), ONE_NODE),
        ("model.onnx", LFS),
        *((odd, None) for odd in (None, b"", LFS, 3)),
    ],
    ids=["gone", "not UTF-8", "pointer", "None", "no bytes", "bytes of a pointer", "number"],
)
def test_what_is_no_model_is_told(tmp_path: Path, told: Told, name: object, data: bytes | None) -> None:
    path = tmp_path / name if isinstance(name, str) else name
    if data:
        (tmp_path / str(name)).write_bytes(data)
    with pytest.raises((OSError, TypeError, ValueError)) as refused:
        open_session(path, "cpu")  # type: ignore[arg-type]
    told(f"{refused.type.__name__}: {refused.value}")


@asking
def test_empty_inputs_are_refused_where_onnx_runtime_would_end_the_process(tmp_path: Path) -> None:
    graph = "g (float[s, b, 1] x) => (float[s, 1, b, 1] y) <float[1, 4, 1] w = {1, 1, 1, 1}> { y = %s }"
    lstm = write_model(tmp_path / "lstm.onnx", graph % "LSTM <hidden_size = 1> (x, w, w)", '"" : 14')
    nothing = {"x": np.zeros((2, 0, 1), np.float32)}
    session = open_session(lstm, "cpu")
    empties: list[Any] = [nothing["x"], onnxruntime.OrtValue.ortvalue_from_numpy(nothing["x"]), [[], []]]
    for empty in empties:
        with pytest.raises(ValueError, match=r"^x: no item"):
            session.run(None, {"x": empty})
    with pytest.raises(RuntimeError, match="given input list"):
        session.run(None, {"x": [[[1.0]], []]})
    with pytest.raises(ValueError, match=r"^x: no item"):
        open_session(lstm, "cpu", feed=nothing)
    assert session.run(None, {"x": np.zeros((2, 3, 1), np.float32)})[0].shape == (2, 1, 3, 1)
    same = write_model(tmp_path / "same.onnx", "g (float[s, b, 1] x) => (float[s, b, 1] y) { y = Abs (x) }")
    assert open_session(same, "cpu").run(None, nothing)[0].shape == (2, 0, 1)


@asking
def test_an_opset_that_is_too_new_is_told_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """ONNX Runtime refuses the model afterwards, and names the newest opset that it knows itself."""
    made, report = onnx.load_from_string(ONE_NODE), Report()
    made.opset_import[0].version = 99
    onnx.save(made, tmp_path / "new.onnx")
    with pytest.raises(Exception, match="till opset") as refused:
        open_session(tmp_path / "new.onnx", report=report)
    known = str(refused.value).partition("till opset ")[2].partition(".")[0]
    (note,) = report.notes
    assert note.startswith("new.onnx asks for opset 99 of ai.onnx, ")
    assert f"Export it with opset_version={known}, " in note
    assert caplog.messages[0] == note


def relu_and(folder: Path, operator: str) -> Path:
    """Write a model of opset 13 that computes Relu, and then an operator ``domain.Name``; return its path."""
    domain = operator.rpartition(".")[0]
    graph = f"g (float[n] x) => (float[n] y) {{ a = Relu (x) y = {operator} (a) }}"
    return write_model(folder / "model.onnx", graph, '"" : 13' + (f', "{domain}" : 1' if domain else ""))


@asking
@pytest.mark.parametrize(
    ("operator", "opset"),
    [("com.microsoft.Gleu", 1), ("Mish", 13)],  # ONNX has Mish from opset 18 on
)
def test_operators_that_onnx_runtime_does_not_know_are_told_before_the_model_loads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, operator: str, opset: int
) -> None:
    report = Report()
    with pytest.raises(Exception, match=rf"{operator.rpartition('.')[2]}.*registered"):
        open_session(relu_and(tmp_path, operator), "cpu", report=report)
    (note,) = report.notes
    assert f"in the model's opset: {operator} (opset {opset}). Export it without them" in note
    assert caplog.messages == [note]


LEAN = (
    {"domain": "", "operators": ["Affine", "LayerNormalization(1)"]},
    {"domain": "com.microsoft", "operators": []},
)
MINIMAL: tuple[dict[str, Any], ...] = tuple(
    {"domain": domain, "operators": []} for domain in ("", "com.microsoft")
)
"""``cannot_run`` of two packages."""


@asking
def test_operators_that_a_package_lacks_are_told_before_the_model_loads(
    tmp_path: Path, told: Told, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "require", lambda _: None)
    monkeypatch.setattr(session_module, "prepare", lambda *_: Place("ours-lean", cannot_run=LEAN))
    open_session(relu_and(tmp_path, "com.microsoft.Gelu"), "cuda")
    told(caplog.messages[0])


@pytest.mark.parametrize(
    ("name", "cannot_run", "opset"),
    [
        ("ours-lean", LEAN[:1], 13),
        ("ours-lean", LEAN[:1], 17),
        ("ours-minimal", MINIMAL, 17),
        ("plugin", LEAN[:1], 13),
        ("plugin", LEAN[:1], 17),
    ],
)
def test_an_operator_s_version_counts(
    told: Told, name: str, cannot_run: tuple[dict[str, Any], ...], opset: int
) -> None:
    """ONNX has LayerNormalization from opset 17 on, ONNX Runtime one of its own before."""
    operators = (("ai.onnx", "LayerNormalization"), ("com.microsoft", "Gelu"))
    needs = Needs("m.onnx", {"ai.onnx": opset, "com.microsoft": 1}, operators)
    told(limit_of_package(name, cannot_run, needs))


def test_the_file_of_the_level_is_opened(model: Path) -> None:
    quantized = model.with_name("model_quantized.onnx")
    quantized.write_bytes(model.read_bytes())
    low, medium = open_session(model, "cpu", level="low"), open_session(model, "cpu")
    assert (low.report.model, low.report.dtype, low.report.notes) == (str(quantized), "int8", [])
    assert (medium.report.model, medium.report.dtype) == (str(model), None)


def test_a_model_that_takes_no_made_up_input_is_open_and_not_proved(tmp_path: Path) -> None:
    """The model reshapes its input to one row of five: an input that is not five values fails."""
    graph = "g (float[n] x) => (float[1, 5] y) <int64[2] s = {1, 5}> { y = Reshape (x, s) }"
    file = write_model(tmp_path / "m.onnx", graph)
    session = open_session(file, "cpu")
    assert not session.report.proved
    assert session.report.steps[-1].reason == "opened, not run yet"
    assert "no warm-up: the model takes no made-up input" in session.report.notes[0]
    session.run(None, {"x": np.ones(5, np.float32)})
    assert session.report.proved
    assert session.report.steps[-1].reason == "1 nodes on CPUExecutionProvider"
    fed = open_session(file, "cpu", feed={"x": np.ones(5, np.float32)})
    assert fed.report.proved


@dataclass
class Gpu:
    """A session whose GPU has memory for ``holds`` rows and fails with the message ``says`` for more."""

    holds: int
    says: str
    batches: list[int] = field(default_factory=list)
    together: threading.Barrier | None = None
    output: tuple[object, ...] = ("batch", 2)
    ran_on: str = "CPUExecutionProvider"

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="x", shape=["batch", 4])]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="y", shape=[*self.output])]

    def end_profiling(self) -> str:
        """Return the file of ONNX Runtime's profiler, with one event for the one node."""
        event = {"cat": "Node", "name": "MatMul", "args": {"provider": self.ran_on, "node_index": "0"}}
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            json.dump([event], file)
        return file.name

    def run(self, outputs: None, feed: Mapping[str, Any], options: None) -> list[Any]:
        self.batches.append(len(feed["x"]))
        if self.together:
            self.together.wait()
        if len(feed["x"]) > self.holds:
            raise RuntimeError(self.says)
        return [feed["x"] @ np.arange(8, dtype=np.float32).reshape(4, 2)]


def on_gpu(gpu: Gpu, model: Path, *, strict: bool = False, recording: bool = False) -> Session:
    report = Report(provider="cuda", model=str(model), batch=64)
    return Session(gpu, report, Settings(strict=strict), model, Recording() if recording else None)


FULL = "Non-zero status code … BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer"
LIMITED = "… AllocateRawInternal Available memory of 0 is smaller than requested bytes of 2048"
"""ONNX Runtime's message when ``gpu_mem_limit`` is reached: microsoft/onnxruntime#23121."""
CUDNN_9 = "CUDNN failure 4004: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ; GPU=0 ; hostname=x"
"""cudnn_graph.h of cuDNN 9.10.2. Defect: cuDNN 8's name alone was known, and the session left the GPU."""
DEAD = "CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=x"


@pytest.mark.parametrize("says", [FULL, LIMITED, CUDNN_9])
def test_a_batch_that_the_memory_does_not_hold_is_halved(model: Path, says: str) -> None:
    gpu = Gpu(1, says)
    session = on_gpu(gpu, model)
    np.testing.assert_array_equal(session.run(None, {"x": ROWS})[0], PRODUCT)
    assert gpu.batches == [3, 1, 2, 1, 1]
    assert (session.report.provider, session.report.batch) == ("cuda", 1)


@pytest.mark.parametrize("says", [FULL, DEAD], ids=["not one row fits", "the GPU died"])
def test_a_gpu_that_fails_is_left_for_the_cpu_once(
    model: Path, says: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "advice", lambda _: "Restart the driver.")
    session = on_gpu(Gpu(0, says), model)
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"x": ROWS})[0], PRODUCT)
    assert session.report.provider == "cpu"
    steps = [(step.provider, step.taken, step.advice) for step in session.report.steps]
    assert steps == [("cuda", False, "Restart the driver."), ("cpu", True, "")]
    assert len([one for one in caplog.records if "Falling back to CPU" in one.getMessage()]) == 1
    assert session.inner.get_providers() == ["CPUExecutionProvider"]


def test_of_threads_that_meet_a_dead_gpu_one_reopens_and_all_get_their_answer(model: Path) -> None:
    gpu = Gpu(0, DEAD)
    gpu.together = threading.Barrier(8)
    session = on_gpu(gpu, model)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: session.run(None, {"x": ROWS})[0], range(8)))
    for answer in answers:
        np.testing.assert_array_equal(answer, PRODUCT)
    assert len(session.report.steps) == 2


def test_on_a_gpu_a_refused_tensorrt_is_no_fallback() -> None:
    steps = [Step("tensorrt", taken=False, reason="no TensorRT"), Step("cuda", taken=True, reason="1 nodes")]
    assert Report(provider="cuda", steps=steps).fallback is None
    steps[1] = Step("cuda", taken=False, reason="no GPU")
    assert Report(provider="cpu", steps=steps).fallback == steps[1]


@pytest.mark.parametrize("output", [("batch", "batch"), ("seq", 2), (2, 2)])
def test_what_is_no_batch_is_not_halved(model: Path, output: tuple[object, ...]) -> None:
    """Models that compute across rows or along time give other numbers for a part of their input."""
    gpu = Gpu(1, FULL, output=output)
    session = on_gpu(gpu, model)
    np.testing.assert_array_equal(session.run(None, {"x": ROWS})[0], PRODUCT)
    assert gpu.batches == [3]
    assert session.report.provider == "cpu"


def test_a_provider_that_no_warm_up_proved_is_judged_by_the_first_run(model: Path) -> None:
    idle, busy = Gpu(9, ""), Gpu(9, "", ran_on="CUDAExecutionProvider")
    session = on_gpu(busy, model, recording=True)
    session.run(None, {"x": ROWS})
    assert (session.report.provider, session.report.proved) == ("cuda", True)
    assert session.report.nodes == {"CUDAExecutionProvider": 1}
    session = on_gpu(idle, model, recording=True)
    session.run(None, {"x": ROWS})
    assert session.report.provider == "cpu"
    assert session.report.fallback is not None
    assert session.report.fallback.reason == "CUDAExecutionProvider runs no node of the model"
    with pytest.raises(ProviderError, match="runs no node"):
        on_gpu(Gpu(9, ""), model, strict=True, recording=True).run(None, {"x": ROWS})


class InvalidArgument(Exception):  # noqa: N818 - ONNX Runtime's name
    """ONNX Runtime's class for a caller's fault, whatever the message quotes."""


@pytest.mark.parametrize(
    "fault",
    [
        InvalidArgument("input 'CUDA failure 2:' has no rows"),
        ValueError("Required inputs (['x']) are missing from input feed (['CUDA failure 2: out of memory'])"),
        RuntimeError("INVALID_ARGUMENT : Got invalid dimensions for input: x"),
    ],
)
def test_callers_faults_are_theirs(model: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    """ONNX Runtime's Python code raises a plain ValueError that quotes the names it was given."""
    gpu = Gpu(9, "")
    monkeypatch.setattr(gpu, "run", Mock(side_effect=fault))
    session = on_gpu(gpu, model)
    with pytest.raises(type(fault)):
        session.run(None, {"x": ROWS})
    assert session.report.provider == "cuda"


@pytest.mark.parametrize("strict", [False, True])
def test_without_the_cpu_the_gpus_failure_is_raised(model: Path, strict: bool) -> None:
    session = on_gpu(Gpu(0, DEAD), model, strict=strict)
    if not strict:
        model.unlink()
    with pytest.raises(RuntimeError, match="CUDA failure 700"):
        session.run(None, {"x": ROWS})


@pytest.mark.parametrize("damage", ["broken", "other inputs"])
def test_a_file_beside_the_model_that_does_not_serve_is_left_alone(model: Path, damage: str) -> None:
    beside = model.with_name("model_int8.onnx")
    write_model(beside, "g (int64[batch, 4] x) => (int64[batch, 4] y) { y = Identity (x) }")
    if damage == "broken":
        beside.write_bytes(b"no model")
    session = open_session(model, "cpu", level="low")
    assert (session.report.model, session.report.dtype) == (str(model), None)
    assert "model_int8.onnx" in session.report.notes[0]


def test_a_record_that_is_cut_short_costs_no_session(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cut := model.with_name("cut.json")).write_text('[{"cat"')
    monkeypatch.setattr(onnxruntime.InferenceSession, "end_profiling", lambda _: str(cut))
    session = open_session(model, "cpu")
    assert (session.report.proved, session.report.nodes) == (True, {})


def test_a_device_that_the_cpu_does_not_use_is_told(model: Path, told: Told) -> None:
    told(open_session(model, "cpu", device=7).report.notes)


def test_tensorrts_first_load_is_announced_before_it_begins(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.setattr("ortpacks_runtime.session.require", lambda _: None)
    monkeypatch.setattr("ortpacks_runtime.session.prepare", lambda *_: Place("the wheel"))
    for provider in ("cuda", "tensorrt"):
        open_session(model, provider)
    told = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert [one.partition(":")[0] for one in told] == [
        "Falling back to CPU",
        "TensorRT compiles an engine for 30 to 60 s if /cache/ortpacks/tensorrt has none of this model",
        "Falling back to CPU",
    ]


@pytest.mark.parametrize("jit", [True, False])
def test_where_only_jit_fits_the_report_says_so_while_the_model_loads(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, jit: bool
) -> None:
    place = Place("ours", {"name": "RTX 5090", "index": 0, "profile": None}, jit=jit)
    monkeypatch.setattr(session_module, "require", lambda _: None)
    monkeypatch.setattr(session_module, "prepare", lambda *_: place)
    report, told = Report(), []
    taken = session_module._open_and_run

    def seen(path: Path, name: str, *others: Any) -> Any:  # noqa: ANN401 - passed on
        told.append((name, *report.notes))
        return taken(path, name, *others)

    monkeypatch.setattr(session_module, "_open_and_run", seen)
    assert open_session(model, "cuda", report=report).report is report
    slow = "ours serves RTX 5090 by JIT alone: the driver compiles kernels for minutes if its cache has none"
    assert told == [("cuda", *([slow] if jit else [])), ("cpu",)]
    assert report.notes == [], "the CPU needs no JIT"
    assert (slow in caplog.messages) == jit


@asking
def test_of_two_gpus_the_session_gets_the_named_one(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client detects the stated GPUs; the limit is 9/10 of 4 GiB."""
    for name, value in {"FORCE_CC": "8.6,5.2", "FORCE_MEMORY": "8192,4096", "DEVICE": "1"}.items():
        monkeypatch.setenv(f"ORTPACKS_{name}", value)
    devices.cache_clear()
    asked: list[tuple[str, dict[str, str]]] = []
    inner = session_module._Inner

    def opened(file: str, options: object, providers: list[Any]) -> object:
        asked.extend(one for one in providers if one[0] == "CUDAExecutionProvider")
        return inner(file, options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(session_module, "_Inner", opened)
    monkeypatch.setattr(session_module, "require", lambda _: None)
    monkeypatch.setattr("ortpacks_runtime.plugins.takes_plugins", lambda: False)
    monkeypatch.setattr("ortpacks_runtime.libraries.load", lambda *_: None)
    open_session(model, "cuda")
    devices.cache_clear()
    ((_, options),) = asked
    wanted = {"device_id": "1", "gpu_mem_limit": str(3686 << 20), "use_tf32": "0"}
    assert wanted.items() <= options.items()


@pytest.mark.parametrize("folder", [b"plain", b"M\xfcller"])
def test_an_alias_is_what_the_loader_finds_under_its_name(tmp_path: Path, folder: bytes) -> None:
    """The loader itself finds a symbol of the file under a name that is on no search path.

    Defect: of a path that is not UTF-8, CUDA was refused with a message of Python's codec.
    """
    lines = Path("/proc/self/maps").read_text().splitlines()
    math = next(line.split()[-1] for line in lines if "/libm.so.6" in line)
    place = tmp_path / os.fsdecode(folder)
    place.mkdir()
    shutil.copy(math, place / "libm.so")
    name = f"libortpacks-test-{len(folder)}.so"
    load_as(name, place / "libm.so")
    loaded = ctypes.CDLL(name)
    loaded.fabs.restype, loaded.fabs.argtypes = ctypes.c_double, [ctypes.c_double]
    assert loaded.fabs(-27.0) == 27.0


def test_a_loaded_library_is_said_to_lie_in_another_folder(tmp_path: Path) -> None:
    """``dladdr`` itself says so, twice, and what is not loaded is refused."""
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    shutil.copy(next(line.split()[-1] for line in lines if "/libm.so.6" in line), tmp_path / "libmine.so")
    loaded, info = ctypes.CDLL(str(tmp_path / "libmine.so")), (ctypes.c_char_p * 4)()
    for folder in (tmp_path / "one", tmp_path / "two"):
        let_lie_in(folder, tmp_path / "libmine.so")
        assert ctypes.CDLL(None).dladdr(loaded.fabs, info)
        assert info[0] == os.fsencode(folder / "libmine.so")
    with pytest.raises(OSError, match="the loader does not know"):
        let_lie_in(tmp_path, tmp_path / "libother.so")


@asking
def test_doctor_opens_its_own_model_and_prints_the_report(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that is named needs no temporary folder."""
    assert main(["doctor", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["provider"], value["proved"], value["steps"][-1]["taken"]) == ("cpu", True, True)
    assert main(["doctor", "--provider", "cuda"]) == 0
    assert "cuda: refused: onnxruntime" in capsys.readouterr().out
    assert main(["doctor", "--provider", "cuda", "--strict"]) == 1
    assert "CUDA requested but not available" in capsys.readouterr().err
    assert main(["doctor", "--provider", "cud"]) == 1
    assert "Did you mean cuda?" in capsys.readouterr().err
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    assert main(["doctor", "--provider", "cpu", "--model", str(model)]) == 0
    assert "cpu: taken: has run, without a record of its nodes" in capsys.readouterr().out
    assert main(["doctor", "--provider", "cpu"]) == 1
    assert capsys.readouterr().err.startswith("ortpacks_runtime: [Errno 2] No such file")


def test_doctor_prints_a_name_that_stdout_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Größe.onnx").write_bytes(ONE_NODE)
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="ascii", write_through=True))
    argv = ["doctor", "--model", str(tmp_path / "Größe.onnx"), "--provider", "cpu", "--level", "low"]
    assert main(argv) == 0
    assert rb"there is no Gr\xf6\xdfe_int8.onnx" in out.getvalue()


@pytest.mark.parametrize(
    ("stdout", "code", "told"),
    [
        (">/dev/full", 1, "ortpacks_runtime: the report cannot be written: No space left on device\n"),
        ("| true", 141, ""),
        (">&-", 0, ""),
        ("--provider cuda --strict >&-", 1, "ortpacks_runtime: CUDA requested but not available: "),
    ],
)
def test_doctor_ends_with_a_sentence_where_stdout_takes_nothing(stdout: str, code: int, told: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "runtime")}
    doctor = f"{sys.executable} -m ortpacks_runtime doctor --provider cpu {stdout}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", doctor], env=env, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr[: len(told) or None]) == (code, told)
    assert "Traceback" not in done.stderr


def test_without_onnxruntime_doctor_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('No module named onnxruntime')")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'runtime'}"}
    done = ran([sys.executable, "-m", "ortpacks_runtime", "doctor"], env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ortpacks_runtime: No module named onnxruntime: pip install onnxruntime")


@pytest.mark.parametrize(
    ("why", "said"), [("CUDA failure 35: old driver", "35: old driver"), ("", "its log")]
)
def test_a_host_that_opens_a_model_without_cuda_has_the_reason_of_cuda(
    monkeypatch: pytest.MonkeyPatch, why: str, said: str
) -> None:
    """As 1.26.0 does, whose log alone has the reason."""
    asked = Mock(return_value=why)
    monkeypatch.setattr(session_module, "cuda_failure", asked)
    monkeypatch.setattr(
        session_module,
        "_Inner",
        lambda *_, **__: SimpleNamespace(get_providers=lambda: ["CPUExecutionProvider"]),
    )
    with pytest.raises(ProviderError, match=f"without CUDAExecutionProvider: .*{said}"):
        session_module._open_file(ONE_NODE, [("cuda", {"device_id": "1"})], None, None)
    asked.assert_called_once_with(1)
