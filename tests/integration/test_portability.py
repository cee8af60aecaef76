"""Tests of a compiled package on other systems, and of the symbols that its libraries need there."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.binary.elf import read_elf
from builder.binary.elf_headers import MappedFile
from builder.build.check_tools import CheckTools
from builder.config.inputs import ort_wheel
from builder.io.wiring import Wiring
from builder.prove.selftest import SelftestBench
from tests.elsewhere.compiled import Compiler
from tests.elsewhere.systems import DEBIAN_11, DEBIAN_12, DEBIAN_13, System, imported, run, tar
from tests.support import ROOT
from tests.support.real_packages import (
    FAILED_CHECK,
    LIBRARIES,
    MINIMAL,
    check,
    readelf,
    replace,
    require_stock_numbers,
    silero_arguments,
    silero_model,
    unpack,
    write_silero_inputs,
)

pytestmark = pytest.mark.thorough

HOST = "libonnxruntime.so.1"
BRIDGE = "libonnxruntime_providers_shared.so"
PROVIDER = "libonnxruntime_providers_cuda.so"
OWN = (HOST, BRIDGE, PROVIDER)


@pytest.fixture(scope="module")
def package(legacy_package: Path, module_folder: Path) -> Path:
    return unpack(legacy_package, module_folder / "package")


@pytest.fixture(scope="module")
def tools(legacy_package: Path, dist: Path) -> CheckTools:
    shop = Wiring(ROOT, dist=dist)
    return CheckTools(shop, "assembled", shop.reporter)


@pytest.fixture(scope="module")
def bench(tools: CheckTools) -> SelftestBench:
    return tools.selftest_bench()


@pytest.fixture(scope="module")
def compiler(tools: CheckTools, module_folder: Path) -> Compiler:
    return Compiler(tools.toolchain(), module_folder)


@pytest.fixture(scope="module")
def image() -> Iterator[Callable[[System], str]]:
    """Yield a function from a system to its image, which the first call makes."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap, which makes the other systems: apt-get install mmdebstrap")
    made: dict[System, str] = {}
    with contextlib.ExitStack() as stack:
        yield (
            lambda system: (
                made.get(system)
                or made.setdefault(system, stack.enter_context(imported(tar(system), system.name)))
            )
        )


@dataclass(frozen=True)
class Ran:
    """A run of the smoke program on Silero VAD: exit code, its JSON answer and stderr."""

    code: int
    said: Mapping[str, object]
    stderr: str

    @property
    def cuda(self) -> str:
        cuda = self.said["cuda"]
        assert isinstance(cuda, dict)
        assert cuda["ok"] is False
        return str(cuda["message"])


def smoke(image: str, program: Path, package: Path, folder: Path) -> Ran:
    write_silero_inputs(folder)
    done = run(
        image,
        ["/smoke", f"/opt/package/lib/{HOST}", "/model.onnx", *silero_arguments("/inputs")],
        mounts={
            "/smoke": program,
            "/opt/package": package,
            "/model.onnx": silero_model(),
            "/inputs": folder,
        },
    )
    return Ran(done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr)


@pytest.mark.parametrize("system", [DEBIAN_12, DEBIAN_13], ids=lambda system: system.name)
def test_a_model_runs_on(
    system: System, image: Callable[[System], str], package: Path, bench: SelftestBench, tmp_path: Path
) -> None:
    """The provider loads: its failure is CUDA's, which finds no device, not the loader's."""
    ran = smoke(image(system), bench.smoke, package, tmp_path)
    assert ran.code == 0, ran.stderr
    assert "CUDA failure" in ran.cuda
    require_stock_numbers(ran.said)


def test_on_debian_11_a_program_of_its_own_is_told_why_and_stays_on_the_cpu(
    image: Callable[[System], str], package: Path, compiler: Compiler, tmp_path: Path
) -> None:
    """The official host library loads on Debian 11, the provider compiled on Debian 12 does not."""
    ran = smoke(image(DEBIAN_11), compiler.smoke_for_debian_11(), package, tmp_path)
    assert (ran.code, ran.said["provider"]) == (0, "cpu"), ran.stderr
    assert f"Failed to load library {PROVIDER}" in ran.cuda
    assert re.search(rf"version `GLIBC(XX)?_[\d.]+' not found \(required by .*{PROVIDER}\)", ran.cuda)
    require_stock_numbers(ran.said)


def versions(library: Path, family: str) -> list[tuple[int, ...]]:
    found = re.findall(rf"Name: {family}_([\d.]+)", readelf("-V", library))
    return [tuple(map(int, number.split("."))) for number in found]


@pytest.mark.parametrize("name", OWN)
def test_its_libraries_ask_for_nothing_newer_than_ubuntu_22_04(name: str, package: Path) -> None:
    """Ubuntu 22.04 has glibc 2.35 and GLIBCXX_3.4.30. ``GLIBC_ABI_DT_RELR`` came with glibc 2.36."""
    library = package / "lib" / name
    assert max(versions(library, "GLIBC"), default=(0,)) <= (2, 35)
    assert max(versions(library, "GLIBCXX"), default=(0,)) <= (3, 4, 30)
    assert max(versions(library, "CXXABI"), default=(0,)) <= (1, 3, 13)
    assert "GLIBC_ABI_" not in readelf("-V", library)


def exported(library: Path) -> set[str]:
    """Return the names of the symbols that a library exports, by readelf."""
    rows = [row.split() for row in readelf("--dyn-syms", library).splitlines()]
    seen = [row for row in rows if len(row) == 8 and row[4] in {"GLOBAL", "WEAK", "UNIQUE"}]
    return {row[7].partition("@")[0] for row in seen if row[6] != "UND"}


@pytest.mark.parametrize("name", OWN)
def test_its_libraries_show_what_the_official_ones_do(name: str, package: Path) -> None:
    shop = Wiring(ROOT)
    version = json.loads((package / "manifest.json").read_text())["onnxruntime"]["version"]
    official = shop.store(shop.lock).unpack(ort_wheel(version)) / "onnxruntime" / "capi"
    theirs = official / (f"libonnxruntime.so.{version}" if name == HOST else name)
    assert exported(package / "lib" / name) == exported(theirs)


def test_symbols_are_read_as_readelf_reads_them(
    package: Path, packaged_library: Callable[[str], Path]
) -> None:
    """All 18 libraries of a full package, as NVIDIA's have unversioned, weak and unique symbols too."""
    theirs = [packaged_library(name) for name in sorted(LIBRARIES - MINIMAL)]
    libraries = [*sorted((package / "lib").iterdir()), *theirs]
    assert len(libraries) == 18
    for library in libraries:
        rows = [row.split() for row in readelf("--dyn-syms", library).splitlines()]
        rows = [[*row, ""][:8] for row in rows if row and re.fullmatch(r"\d+:", row[0])]
        asks = [row[7] for row in rows if row[6] == "UND" and row[4] == "GLOBAL"]
        shown = {
            row[7].replace("@@", "@")
            for row in rows
            if row[6] not in {"UND", "ABS"} and row[4] != "LOCAL" and row[5] in {"DEFAULT", "PROTECTED"}
        }  # rows with ABS are the names of the library's own versions
        with library.open("rb") as file, MappedFile(file) as buffer:
            symbols = read_elf(buffer).symbols
        assert sorted(text(one) for one in symbols.asks) == sorted(asks), library.name
        assert {text(one) for one in symbols.exports} == shown, library.name


def text(symbol: tuple[str, str, str]) -> str:
    name, version, _library = symbol
    return f"{name}@{version}" if version else name


def undefined(image: str, folder: Path, name: str, *, preload: str = "") -> set[str]:
    """Return the undefined symbols that ``ldd -r`` prints for a library of the folder."""
    env = {"LD_PRELOAD": f"/lib-of-package/{preload}"} if preload else None
    argv = ["/bin/bash", "/usr/bin/ldd", "-r", f"/lib-of-package/{name}"]
    done = run(image, argv, mounts={"/lib-of-package": folder}, env=env)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "not defined in file" not in said
    return set(re.findall(rf"undefined symbol: (\w+)\s+\(/lib-of-package/{re.escape(name)}\)", said))


def test_ldd_misses_nothing(image: Callable[[System], str], package: Path) -> None:
    """The bridge, which the host library opens first and globally, defines the provider's missing symbol."""
    debian, folder = image(DEBIAN_12), package / "lib"
    assert {name: undefined(debian, folder, name) for name in (HOST, BRIDGE)} == {HOST: set(), BRIDGE: set()}
    assert undefined(debian, folder, PROVIDER) == {"Provider_GetHost"}
    assert undefined(debian, folder, PROVIDER, preload=BRIDGE) == set()


FAULTY = """
extern int nobody_has_this(int), cublasCreate_v2(void **), cudaGetDeviceCount(int *), cuInit(unsigned);
extern int may_be_missing(void) __attribute__((weak));
int google_protobuf_leaked(int n) { return nobody_has_this(n) + cublasCreate_v2(0) + cuInit(0); }
void Provider_SetHost(void *host) { cudaGetDeviceCount(host); if (may_be_missing) may_be_missing(); }
void *Provider_GetHost(void) { return 0; }
"""
"""Source of a bridge that is linked with cudart and the driver, but not with cuBLAS."""


def test_a_library_linked_with_symbols_missing_is_caught_before_anyone_opens_it(
    image: Callable[[System], str], package: Path, compiler: Compiler, tmp_path: Path
) -> None:
    faulty = planted(package, compiler, tmp_path)
    missed = undefined(image(DEBIAN_12), faulty / "lib", BRIDGE)
    assert missed == {"nobody_has_this", "cublasCreate_v2", "cuInit"}
    code, errors, said = check(faulty, "--variant", "legacy")
    assert (code, errors) == (FAILED_CHECK, {"E014", "E015"}), said
    wanted = missed - {"cuInit"}  # a symbol of the driver, which no package contains
    assert re.search(rf"E014 lib/{BRIDGE}: .*\n.*\n\s*got: +(.*)", said)[1].split(", ") == sorted(wanted)  # type: ignore[index]
    assert re.search(rf"E015 lib/{BRIDGE}: .*\n.*\n\s*got: +(.*)", said)[1] == "google_protobuf_leaked"  # type: ignore[index]


def planted(package: Path, compiler: Compiler, folder: Path) -> Path:
    driver = "-shared -Wl,-soname,libcuda.so.1"
    compiler.make("libcuda.so", "int cuInit(unsigned flags) { return (int)flags; }\n", driver)
    shutil.copy2(package / "lib" / "libcudart.so.12", compiler.folder / "libcudart.so")
    options = "-shared -fPIC -O1 -Wl,-z,lazy,-rpath,'$ORIGIN' -Wl,-soname," + BRIDGE
    bridge = compiler.make(BRIDGE, FAULTY, options, "-L/out -lcudart -lcuda")
    faulty = shutil.copytree(package, folder / "faulty", copy_function=os.link)
    (faulty / "manifest.json").unlink()
    replace(faulty / "lib" / BRIDGE, bridge.read_bytes())
    return faulty
