"""Tests of the client and of the package for CUDA on Windows, by Windows' Python under Wine.

Unlike a new Windows, Wine has the Visual C++ runtime; Wine makes no symbolic links.
"""

import json
import math
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.build.own_programs import make_client
from builder.build.variant_build import BuildOptions, VariantBuild
from builder.compile.plan import PlanOptions
from builder.config.inputs import SELFTEST_TRANSFORMER, ort_wheel
from builder.formats.package_names import Form, Layout
from builder.io.archive.client_zipapp import build_client
from builder.io.wiring import Wiring
from builder.prove.sample_models import minilm
from tests.doubles.release import archive, entry, manifest_of, write_index
from tests.elsewhere import embed_by_c_api, load_dlls
from tests.elsewhere.release_for_users import bundling
from tests.elsewhere.wine import Wine, there, windows
from tests.support import ROOT
from tests.support.factories.archives import member
from tests.support.sentences import SIMILARITIES

pytestmark = pytest.mark.thorough

VERSION = "1.26.0"
NVIDIA_CARD = {"ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_FORCE_DRIVER": "576.02"}
CANNOT_BE_FOUND, NO_ACCESS = 126, 998
"""Windows' error codes ERROR_MOD_NOT_FOUND and ERROR_NOACCESS."""
PROVIDER = "onnxruntime_providers_cuda.dll"
ALONE = {
    "cublasLt64_12.dll",
    "cudart64_12.dll",
    "cudnn64_9.dll",
    "cudnn_graph64_9.dll",
    "cufft64_11.dll",
    "nvrtc-builtins64_129.dll",
    "nvrtc64_120_0.dll",
    "onnxruntime.dll",
    "onnxruntime_providers_shared.dll",
}
"""Libraries of the package that import none of its other libraries."""
NO_CUDA: dict[str, object] = {
    "capabilities": {}, "cuda": None, "cudnn": None, "driver": None, "generations": [], "sm": []
}  # fmt: skip
NO_CODE: dict[str, object] = {"coverage": []}
LOCKS = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from builder.files.file_lock import if_free
lock = Path(sys.argv[2])
with if_free(lock) as first, if_free(lock) as second:
    print(first, second)
with if_free(lock) as third:
    print(third)
"""
IN_INDEX = {"capabilities", "driver", "generations"}


@pytest.fixture(scope="module")
def wine(module_folder: Path) -> Iterator[Wine]:
    with windows(module_folder / "prefix", Wiring(ROOT).cache) as made:
        yield made


@pytest.fixture(scope="module")
def official() -> Path:
    """Return the folder of the official wheel's libraries."""
    shop = Wiring(ROOT)
    return shop.store(shop.lock).unpack(ort_wheel(VERSION, "win-x64")) / "onnxruntime" / "capi"


@pytest.fixture(scope="module")
def release(wine: Wine, module_folder: Path) -> Path:
    """Build the real package, thin and as gzip, the form that every Python reads; return its folder.

    The folder has the index and the client too.
    """
    shop = bundling(module_folder / "windows", layouts=(Layout.THIN,), forms=(Form.GZ,))
    options = BuildOptions(plan_options=PlanOptions(base="assembled", mixed=True))
    VariantBuild(shop, shop.project.variants["windows"], options, shop.reporter).build()
    make_client(shop)
    return shop.dist


@pytest.fixture(scope="module")
def client(module_folder: Path) -> Path:
    return build_client(ROOT, module_folder / "ortpacks.pyz", None)


@pytest.fixture(scope="module")
def small(official: Path, module_folder: Path) -> Path:
    """Write packages with the official host library: two for the CPU, one for CUDA without a provider."""
    folder = module_folder / "small"
    folder.mkdir()
    bridge = "onnxruntime_providers_shared.dll"
    files = {f"lib/{name}": (official / name).read_bytes() for name in ("onnxruntime.dll", bridge)}
    entries = []
    for variant, provider in {"first": "cpu", "second": "cpu", "broken": "cuda"}.items():
        name = f"ortpacks-{variant}-{VERSION}{'-cuda12.9' if provider == 'cuda' else ''}-win-x64"
        ours = {"name": name, "variant": variant, "platform": "win-x64", "provider": provider, "glibc": None}
        lacks = NO_CUDA if provider == "cpu" else {}
        manifest = {**manifest_of("modern", files, VERSION), "glibcxx": None, **ours, **lacks, **NO_CODE}
        content = archive(
            [member(f"{name}/manifest.json", json.dumps(manifest).encode())]
            + [member(f"{name}/{path}", data) for path, data in files.items()],
            ".tar.gz",
        )
        (folder / f"{name}.tar.gz").write_bytes(content)
        own = {**ours, "file": f"{name}.tar.gz", **{key: lacks[key] for key in IN_INDEX & set(lacks)}}
        entries.append({**entry("modern", content, sum(map(len, files.values())), VERSION), **own})
    return write_index(folder, entries).parent


def prefix(wine: Wine) -> Path:
    """Return the folder into which the client installs by default."""
    (found,) = (wine.disk / "users").glob("*/.local/share/ortpacks")
    return found


def test_the_machine_is_seen_as_it_is(wine: Wine, client: Path, small: Path) -> None:
    seen = json.loads(wine.run(client, "detect", "--json").stdout)
    assert (seen["platform"], seen["devices"]) == ("win-x64", [])
    assert {probe["outcome"] for probe in seen["probes"]} == {"missing"}
    told = json.loads(wine.run(client, "recommend", "--index", small, "--json").stdout)
    assert "error" not in told, told
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert (told["cores"], told["ram_gib"]) == (os.cpu_count(), math.ceil(memory / 2**30))


def test_a_lock_that_another_holds_is_not_free(wine: Wine, tmp_path: Path) -> None:
    """A lock on Windows belongs to a handle, so one process can hold it and be refused."""
    script = tmp_path / "locks.py"
    script.write_text(LOCKS)
    done = wine.run(script, ROOT, tmp_path / "lock")
    assert done.stdout.split() == ["True", "False", "True"], done.stderr


def test_from_the_first_install_to_the_last_file(wine: Wine, client: Path, small: Path) -> None:
    for variant in ("first", "second"):
        done = wine.run(client, "install", "--index", small, "--variant", variant)
        assert done.returncode == 0, done.stderr
        assert f"Its libraries load here: ONNX Runtime {VERSION}." in done.stdout
        assert "as asked with --variant" in done.stdout + done.stderr
    root = prefix(wine)
    assert "ortpacks-second" in (root / "current.txt").read_text()
    assert "2 files are as the manifest says" in wine.run(client, "verify").stdout
    host = next((root / "versions").glob("ortpacks-second*/lib/onnxruntime.dll"))
    variables = json.loads(wine.run(client, "env", "--json").stdout)["variables"]
    assert variables["ORT_DYLIB_PATH"] == "C:\\" + str(host.relative_to(wine.disk)).replace("/", "\\")
    set_path = wine.run(client, "env", "--shell", "cmd").stdout
    assert f'set "PATH={variables["PATH"]};%PATH%"' in set_path
    doctor = wine.run(client, "doctor")
    assert "a session of one node ran on cpu" in doctor.stdout
    assert wine.run(client, "rollback").returncode == 0
    assert "ortpacks-first" in (root / "current.txt").read_text()
    refused = wine.run(client, "install", "--index", small, "--variant", "broken", env=NVIDIA_CARD)
    assert refused.returncode == 12, refused.stderr
    why = rf'Error loading "C:.*\\{PROVIDER}" which is missing\. \(Error 126: .*Visual C\+\+ Redistributable'
    assert re.search(why, refused.stderr, re.DOTALL)
    assert wine.run(client, "uninstall", "--old").returncode == 0
    assert [path.name.partition("-1.")[0] for path in (root / "versions").iterdir()] == ["ortpacks-first"]
    assert wine.run(client, "uninstall").returncode == 0
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["lock"], "it was held"


@pytest.fixture(scope="module")
def installed(wine: Wine, release: Path, module_folder: Path) -> Path:
    """Install the thin package and NVIDIA's wheels by the client under Wine; return its library folder."""
    (thin,) = release.glob("ortpacks-windows-*-thin-win-x64.tar.gz")
    with tarfile.open(thin) as package:
        manifest = package.extractfile(f"{thin.name.removesuffix('.tar.gz')}/manifest.json")
        assert manifest is not None
        theirs = [wheel for wheel in json.load(manifest)["wheels"] if wheel["file"].startswith("nvidia")]
    wheels, store = module_folder / "wheels", Wiring(ROOT).cache / "store"
    wheels.mkdir()
    for wheel in theirs:
        sha256 = wheel["sha256"]
        (wheels / wheel["file"]).symlink_to(store / sha256[:2] / sha256 / wheel["file"])
    argv: list[str | Path] = ["install", "--index", release, "--wheels", wheels]
    lacking = wine.run(release / "ortpacks.pyz", *argv[:3], env=NVIDIA_CARD)
    assert lacking.returncode == 4
    assert "python3, python, py has pip" in lacking.stderr
    done = wine.run(release / "ortpacks.pyz", *argv, env=NVIDIA_CARD)
    assert done.returncode == 0, done.stderr
    assert f"Its libraries load here: ONNX Runtime {VERSION}." in done.stdout
    return next((prefix(wine) / "versions").glob("ortpacks-windows-*/lib"))


def test_every_dll_finds_what_it_imports_in_the_package(wine: Wine, installed: Path) -> None:
    """The provider's initialisation fails (998) without a host library that loads it; its imports are found.

    Control experiment: without the package's folder eight DLLs fail with error 126.
    """
    done = wine.run(Path(load_dlls.__file__), installed)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert len(answers) == 17, done.stderr
    together = {name: beside for name, (beside, _) in answers.items()}
    assert together == {name: NO_ACCESS if name == PROVIDER else 0 for name in answers}
    apart = {name: alone for name, (_, alone) in answers.items()}
    assert apart == {name: 0 if name in ALONE else CANNOT_BE_FOUND for name in answers}


def test_the_cuda_provider_is_refused_by_cuda_and_not_by_the_loader(wine: Wine, installed: Path) -> None:
    """Error 35 comes from cudart, so all libraries were loaded; the driver, nvcuda.dll, is missing."""
    ask = "import sys; sys.path.insert(0, sys.argv[1]); from builder.client.trials.ort_calls import main; "
    words = [there(path) for path in (ROOT, installed / "onnxruntime.dll")]
    done = wine.start(there(wine.python), "-c", f"{ask} main('compute', sys.argv[2], 'cuda')", *words)
    assert "CUDA failure 35: CUDA driver version is insufficient" in json.loads(done.stdout)["failed"]


def test_minilm_gives_the_numbers_of_its_documentation(wine: Wine, installed: Path, tmp_path: Path) -> None:
    shop = Wiring(ROOT)
    model, rows = minilm(shop.store(shop.lock).unpack(SELFTEST_TRANSFORMER), shop.cache / "made")
    inputs = tmp_path / "inputs.json"
    inputs.write_text(json.dumps({name: table.tolist() for name, table in rows.items()}))
    done = wine.run(Path(embed_by_c_api.__file__), ROOT, installed / "onnxruntime.dll", model, inputs)
    answer = json.loads(done.stdout)
    assert answer["version"] == VERSION
    assert answer["products"] == pytest.approx(SIMILARITIES[0], abs=5e-4)
