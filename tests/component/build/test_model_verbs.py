"""Tests of inspect --operators and --model: libraries in packages' layouts, with a stand-in for
the child process."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import onnxruntime
import pytest
from backports.zstd import compress

from builder.build.verbs.operators import model_report, operators_report
from builder.compile.plan import PlanOptions
from builder.errors import BuilderError, CheckFailedError, ToolMissingError, ValidationError
from builder.files.digest import Readable
from builder.formats.json_values import json_text
from builder.formats.manifest import PluginEntry
from builder.formats.missing_kernels import MissingKernels
from builder.formats.package_names import MANIFEST
from builder.inspect.archives import Scratch
from builder.io.process import Completed
from tests.support.factories.archives import files, zipped
from tests.support.factories.binaries import elf
from tests.support.factories.onnx_models import write_model
from tests.support.factories.releases import manifest
from tests.support.factories.workplace import Site
from tests.support.messages import Refused, Told
from tests.support.schemas import schema
from tests.support.tables import data_text

TOP = "ortpacks-modern-1.21.0-cuda12.9-linux-x64"

HOST = elf({".text": b"the host"}, defines=["VERS_1.21.0"])

PROVIDER = elf({".text": b"the provider"}, needed=["libcudart.so.12", "libcublas.so.12"])

BRIDGE = elf({".text": b"the bridge"})

OWN = {
    "lib/libonnxruntime.so.1": HOST,
    "lib/libonnxruntime_providers_cuda.so": PROVIDER,
    "lib/libonnxruntime_providers_shared.so": BRIDGE,
}


OF_A_WHEEL = {
    "onnxruntime/capi/libonnxruntime.so.1.21.0": HOST,
    "onnxruntime/capi/libonnxruntime_providers_cuda.so": PROVIDER,
    "onnxruntime/capi/libonnxruntime_providers_shared.so": BRIDGE,
    "onnxruntime/capi/onnxruntime_pybind11_state.so": elf({".text": b"python"}),
}

TABLE = json.loads(data_text("operators/kernels.json"))

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"

ANSWER = {
    **{name: [] for name in ("nodes", "no_kernel", "unsupported", "cheaper")},
    "report": "",
    "error": "",
}


@dataclass
class Child:
    """A stand-in for the process that opens models: it keeps the bytes it was shown and writes ``answer``."""

    answer: Mapping[str, object] = field(default_factory=lambda: ANSWER)
    shown: dict[str, bytes] = field(default_factory=dict)

    def run(self, argv: list[str], **_: object) -> Completed:
        host, folder = map(Path, argv[-2:])
        self.shown = {path.name: path.read_bytes() for path in host.parent.iterdir()}
        (folder / "answers.jsonl").write_text(json.dumps(self.answer) + "\n", encoding="utf-8")
        return Completed(code=0, stdout="", stderr="")


@dataclass
class Desk:
    """A site with a ``Child`` as its runner."""

    site: Site
    child: Child

    def operators(self, source: Path, *, as_json: bool = False) -> str:
        return operators_report(self.site.shop, str(source), PlanOptions(base="assembled"), as_json=as_json)

    def model(self, source: Path, model: Path, *, as_json: bool = False) -> str:
        options = PlanOptions(base="assembled")
        return model_report(self.site.shop, str(source), model, options, as_json=as_json)

    def knows(self, table: Mapping[str, object]) -> None:
        """Store an answer for these libraries in the cache, as an earlier run would."""
        asking = f"operators-1-{onnxruntime.__version__}"
        folder = self.site.shop.cache / asking / sha256(PROVIDER).hexdigest()
        folder.mkdir(parents=True)
        (folder / f"{sha256(HOST).hexdigest()}.json").write_text(json.dumps(table))


@pytest.fixture
def desk(root: Path, tmp_path: Path) -> Desk:
    site, child = Site(root, tmp_path), Child()
    site.shop.env = {**site.shop.env, "ORTPACKS_CACHE": str(tmp_path / "cache")}
    site.shop.__dict__["runner"] = child
    return Desk(site, child)


def thin(folder: Path) -> Path:
    return archive(folder / f"{TOP.replace('linux', 'thin-linux')}.tar.zst", OWN)


def archive(path: Path, content: Mapping[str, bytes]) -> Path:
    top = path.name.removesuffix(".tar.zst")
    path.write_bytes(compress(files({f"{top}/{name}": data for name, data in content.items()})))
    return path


def unpacked(folder: Path) -> Path:
    (folder / TOP / "lib").mkdir(parents=True)
    for name, data in OWN.items():
        (folder / TOP / name).write_bytes(data)
    return folder / TOP


def wheel(folder: Path) -> Path:
    path = folder / "onnxruntime_gpu-1.21.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    path.write_bytes(zipped(OF_A_WHEEL))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    graph = "g (float[2, 2] x) => (float y) { r = Relu (x) y = Det (r) }"
    return write_model(tmp_path / "my.onnx", graph, '"" : 17')


def fits(name: str, said: str) -> dict[str, object]:
    value: dict[str, object] = json.loads(said)
    schema(name).validate(value)
    return value


def test_the_libraries_of_a_source_are_those_that_are_asked(desk: Desk, tmp_path: Path, model: Path) -> None:
    desk.model(thin(tmp_path), model)
    assert desk.child.shown == {name.removeprefix("lib/"): data for name, data in OWN.items()}


def test_an_answer_is_kept_by_the_libraries_bytes(desk: Desk, tmp_path: Path) -> None:
    desk.knows(TABLE)
    path = wheel(tmp_path)
    assert fits("inspect-operators", desk.operators(path, as_json=True)) == TABLE
    assert desk.child.shown == {}, "nobody was asked"
    lines = desk.operators(path).splitlines()
    assert lines[0] == f"{path}, ONNX Runtime 1.21.0: operators with CUDA kernels"
    assert "  Relu  6+     T: float" in lines


DET = ("Det", "d\n\x1b[31m")

NODES = [(CUDA, "Relu", "", 1), (CPU, *DET, 1), (CPU, "Relu", "int", 2), (CPU, "Shape", "s", 1)]


@pytest.mark.parametrize(
    ("kernels", "answer", "counts"),
    [
        (
            TABLE["kernels"],
            {"nodes": NODES, "no_kernel": [DET, ("Relu", "int")], "cheaper": ["s"]},
            {CPU: 4, CUDA: 1},
        ),
        ([], {"nodes": [(CPU, "every node", "", 2)], "no_kernel": [("Relu", ""), ("Det", "d")]}, {CPU: 2}),
        (TABLE["kernels"], {"nodes": [(CUDA, "every node", "", 1)]}, {CUDA: 1}),
    ],
    ids=["both", "cpu", "gpu"],
)
def test_a_model_s_nodes_and_why_some_are_on_the_cpu(
    desk: Desk,
    tmp_path: Path,
    model: Path,
    told: Told,
    kernels: object,
    answer: Mapping[str, object],
    counts: Mapping[str, int],
) -> None:
    """For a model on the CPU alone, ONNX Runtime lists no nodes; it has logged operators without kernels."""
    desk.knows({**TABLE, "kernels": kernels})
    desk.child.answer = {**ANSWER, **answer}
    told(desk.model(thin(tmp_path), model))
    value = fits("inspect-model", desk.model(thin(tmp_path), model, as_json=True))
    assert (value["opsets"], value["nodes"]) == ({"ai.onnx": 17}, counts)


UNREGISTERED = "Fatal error: com.microsoft:BiasGelu(-1) is not a registered function/op"

NO_KERNEL = "Failed to find kernel for com.microsoft.BiasGelu(1) (node:'b' ep:'CUDAExecutionProvider')."

UNKNOWN = "ONNX Runtime 1.21.0 knows no operator com.microsoft:BiasGelu: it comes with a library"

LACKING = "has no kernel for com.microsoft.BiasGelu: it was compiled without that one."


@pytest.mark.parametrize(
    ("profile", "said", "told"),
    [
        (None, UNREGISTERED, UNKNOWN),
        ("full", NO_KERNEL, NO_KERNEL),
        ("lean", NO_KERNEL, LACKING),
    ],
)
def test_only_a_package_of_a_smaller_profile_is_told_to_lack_kernels(
    desk: Desk, tmp_path: Path, model: Path, profile: str | None, said: str, told: str
) -> None:
    """Defect: the official wheel, too, was called one that was compiled with less than the full profile."""
    entry = {MANIFEST: json_text(manifest("modern", profile=profile)).encode()} if profile else {}
    path = archive(tmp_path / f"{TOP}.tar.zst", {**OWN, **entry})
    desk.child.answer = {**ANSWER, "error": said}
    with pytest.raises(CheckFailedError) as error:
        desk.model(path, model)
    assert told in str(error.value)
    assert (LACKING in str(error.value)) == (profile == "lean")


@pytest.mark.parametrize(
    ("domain", "operators", "said"),
    [("", ("Det(11)", "Loop"), "Det(11)"), ("", (), "all of ai.onnx"), ("com.microsoft", (), "none")],
)
def test_a_plugin_has_no_host_and_is_told_what_it_lacks(
    desk: Desk, tmp_path: Path, model: Path, domain: str, operators: tuple[str, ...], said: str
) -> None:
    made = manifest("modern")
    library = made.files[0].path
    entry = PluginEntry(library, ("CUDAExecutionProvider",), "1.24.4", 30, None)
    ort = replace(made.onnxruntime, host="none", cannot_run=(MissingKernels(domain, operators),))
    content = {
        library: PROVIDER,
        MANIFEST: json_text(replace(made, plugin=entry, onnxruntime=ort)).encode(),
    }
    with pytest.raises(ValidationError, match=re.escape(f"has no CUDA kernels for: {said}. ")):
        desk.model(archive(tmp_path / "p.tar.zst", content), model)


def test_a_model_is_opened_on_the_newest_card_that_its_package_states(
    desk: Desk, tmp_path: Path, model: Path
) -> None:
    """Defect: ``legacy`` of ONNX Runtime 1.30, in which units differ, was asked on a card of 8.6."""
    entry = {MANIFEST: json_text(manifest("legacy")).encode()}
    path = archive(tmp_path / f"{TOP}.tar.zst", {**OWN, **entry})
    assert json.loads(desk.model(path, model, as_json=True))["card"] == "7.0"


def test_no_more_of_a_manifest_is_read_than_of_a_real_one(desk: Desk, tmp_path: Path, model: Path) -> None:
    """The file has a terabyte, of which the disk holds the beginning."""
    path = unpacked(tmp_path)
    (path / MANIFEST).write_text(json_text(manifest("modern", profile="lean")))
    with (path / MANIFEST).open("r+b") as file:
        file.truncate(1 << 40)
    desk.child.answer = {**ANSWER, "error": UNREGISTERED}
    with pytest.raises(CheckFailedError, match=UNKNOWN):
        desk.model(path, model)


@pytest.mark.parametrize(
    "said",
    [
        "Opset 99 is under development. Current official support for domain ai.onnx is till opset 22.",
        "Node input\n'\x1b[31m' is not",
    ],
    ids=["opset", "node"],
)
def test_a_model_that_is_refused_is_told_why_and_what_to_do(
    desk: Desk, tmp_path: Path, model: Path, refused: Refused, said: str
) -> None:
    desk.child.answer = {**ANSWER, "error": said}
    with refused(CheckFailedError):
        desk.model(thin(tmp_path), model)


def test_a_locale_that_this_machine_lacks_is_no_fault_of_the_model(
    desk: Desk, tmp_path: Path, model: Path, refused: Refused
) -> None:
    """The message of string_normalizer.cc, with the C++ library's in it."""
    what = "en_US.UTF-8:locale::facet::_S_create_c_locale name not valid:Please, install necessary"
    desk.child.answer = {**ANSWER, "error": f"Failed to construct locale with name:{what}"}
    with refused(ToolMissingError):
        desk.model(thin(tmp_path), model)


def test_of_a_package_the_libraries_that_are_asked_alone_are_unpacked(
    desk: Desk, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []
    keep = Scratch.keep

    def noted(scratch: Scratch, stream: Readable, size: int, what: str) -> Path:
        kept.append(what.rpartition("/")[2])
        return keep(scratch, stream, size, what)

    monkeypatch.setattr(Scratch, "keep", noted)
    desk.model(archive(tmp_path / "full.tar.zst", {"lib/libcublas.so.12": HOST, **OWN}), model)
    assert kept == [path.rpartition("/")[2] for path in OWN]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"lib/libonnxruntime.so.1": HOST}, ValidationError),
        ({**OWN, "lib/libonnxruntime.so.1": elf({".text": b"some other"})}, ValidationError),
        ({"README": b"text"}, ValidationError),
    ],
    ids=["host", "other", "readme"],
)
def test_what_is_no_package_for_cuda(
    desk: Desk,
    tmp_path: Path,
    refused: Refused,
    content: Mapping[str, bytes],
    kind: type[BuilderError],
) -> None:
    with refused(kind):
        desk.operators(archive(tmp_path / "other.tar.zst", content))


def test_a_model_is_read_before_a_package_is_opened(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("text")
    with pytest.raises(ValidationError, match=r"text\.onnx is not an ONNX model"):
        desk.model(tmp_path / "no such package", tmp_path / "text.onnx")
