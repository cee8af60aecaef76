"""Tests of the stand-in for nvcc in the toolchain image.

Kernels and symbols must equal those of NVIDIA's nvcc, and ccache must hold each piece once.
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.binary.library import read_library
from tests.integration.toolchain import SOURCE, Toolchain, running
from tests.support import ROOT

WITH_CUB = f"""\
#include <cub/device/device_scan.cuh>
{SOURCE}
void sum(float* data, size_t bytes) {{ cub::DeviceScan::ExclusiveSum(data, bytes, data, data, 9); }}
"""
LARGER_BLOCKS = """\
__global__ void tuned(int* data) {
#if __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890
    data[threadIdx.x] = 256;
#else
    data[threadIdx.x] = 128;
#endif
}
void tune(int* data) { tuned<<<1, 32>>>(data); }
"""
"""A kernel like CUB's, which are tuned by architecture."""
TILED = """\
#if __CUDA_ARCH__ >= 1200
#define TILE 1024
#else
#define TILE 4096
#endif
__global__ void tiled(int* data) {
    __shared__ int tile[TILE];
    tile[data[threadIdx.x]] = data[0];
    __syncthreads();
    data[threadIdx.x] = tile[threadIdx.x];
}
void tile(int* data) { tiled<<<1, 32>>>(data); }
"""
PTX_90 = "--generate-code=arch=compute_90,code=[compute_90]"
LEGACY = ("50:50", "50:52", "70:70")
MODERN = ("75:75", "80:80", "80:86")
"""Architectures, each virtual and real, of sets like those of the variants."""
VOLTA = "-std=c++17 --generate-code=arch=compute_70,code=[sm_70] -x cu -c"
TWO_UNITS = f"""\
for name in one two; do
    mkdir $name
    sed s/launch/$name/ unit.cu >$name/unit.cu
    nvcc -I. -Xcompiler=-fPIC {VOLTA} $name/unit.cu -o $name/unit.o
done
g++ -shared -o both.so one/unit.o two/unit.o -L/usr/local/cuda/lib64 -lcudart_static
nm both.so
"""
FOR_LIBRARIES = "-Xcompiler=-fPIC"
LINK = "g++ -shared -o unit.so unit.o -L/usr/local/cuda/lib64 -lcudart_static"
RELOCATABLE = f"-rdc=true -std=c++17 {FOR_LIBRARIES}"
CALLED = "__device__ float factor(float value) { return value * 3; }\n"
CALLS = f"""\
{SOURCE}
extern __device__ float factor(float);
__global__ void calls(float* data) {{ data[1] = factor(data[0]); }}
void call(float* data) {{ calls<<<1, 1>>>(data); }}
"""
"""A kernel and a device function of another unit, which a device link brings together."""
MEETING = """\
#!/bin/sh
touch /unit/ptxas.$$
for try in $(seq 40); do [ $(ls /unit/ptxas.* | wc -l) -ge $MEET ] && break; sleep 0.05; done
ls /unit/ptxas.* | wc -l >>/unit/met
/tmp/ptxas "$@"
rm /unit/ptxas.$$
"""
"""Script of a ptxas that waits at most 2 s for other ones, and records how many run at the same time."""


def unregistered(library: Path) -> set[str]:
    deep = read_library(library.name, library.read_bytes(), deep=True).deep
    assert deep is not None
    assert len(deep.names) > 5
    return set(deep.unregistered)


def test_a_unit_of_cpp_is_found_under_other_defines_that_it_does_not_use(toolchain: Toolchain) -> None:
    """Variants and profiles differ in ``-D``; the launcher is the template's."""
    template = (ROOT / "templates/variant.Dockerfile.j2").read_text()
    cmakes = re.findall(r'C CXX\)\n.*_LAUNCHER "unit;([^"]+)"', template)[0]
    launcher = cmakes.replace(";", " ").replace("$ENV{", "${")
    (toolchain.folder / "plain.cc").write_text("int answer() { return ANSWER; }\n")

    def made(defines: str, nvccs_place: str = "one") -> tuple[str, bytes]:
        whole = f"export CCACHE_COMPILERCHECK=string:{nvccs_place} NVCC_COMPILERCHECK=string:nvidia"
        compiling = f"{launcher} g++-12 {defines} -MD -MF plain.d -c plain.cc -o plain.o"
        done = toolchain.sh(f"rm -f stats.log\nexport CCACHE_STATSLOG=/unit/stats.log\n{whole}\n{compiling}")
        assert done.returncode == 0, done.stderr
        return (toolchain.folder / "stats.log").read_text(), (toolchain.folder / "plain.o").read_bytes()

    first, alone = made("-DANSWER=1 -DUSE_FLASH_ATTENTION=1")
    again, shared = made("-DANSWER=1", "another program")
    other, _ = made("-DANSWER=2")
    assert ("cache_miss" in first, "preprocessed_cache_hit" in again, "cache_miss" in other) == (True,) * 3
    assert alone == shared


@dataclass(frozen=True)
class Objects:
    """``WITH_CUB`` for ``LEGACY`` as the stand-in compiles it, and as NVIDIA's nvcc does."""

    ours: bytes
    nvccs: bytes


@pytest.fixture(scope="module")
def of_cub(container: Toolchain) -> Objects:
    container.new_unit(WITH_CUB)
    compiled = (container.compile(LEGACY, FOR_LIBRARIES, nvcc=nvcc) for nvcc in ("nvcc", "nvcc-toolkit"))
    return Objects(*(unit.read_bytes() for unit in compiled))


def test_kernels_and_symbols_are_those_that_nvcc_makes(toolchain: Toolchain, of_cub: Objects) -> None:
    found = []
    for made in (of_cub.ours, of_cub.nvccs):
        (toolchain.folder / "unit.o").write_bytes(made)
        found.append((toolchain.device_code(), toolchain.sh("nm --format=posix unit.o").stdout))
    (pieces, symbols), (nvccs, theirs) = found
    assert pieces.keys() == nvccs.keys() == {"50", "52", "70"}
    for arch, kernels_ in pieces.items():
        assert len(kernels_) > 5, "two of a template, a local one, a nameless one, and CUB's"
        assert Counter(kernels_.values()) == Counter(nvccs[arch].values())
        assert all(name.encode() in of_cub.ours for name in kernels_), "the host registers each by this name"
    kinds = [Counter(line.split()[1] for line in text.splitlines()) for text in (symbols, theirs)]
    assert kinds[0] == kinds[1]


@pytest.mark.thorough
def test_an_architecture_whose_kernels_have_other_names_than_the_host_s_is_found(
    toolchain: Toolchain, of_cub: Objects
) -> None:
    """nvcc puts the list of architectures into the names of CUB's kernels."""
    (toolchain.folder / "unit.cu").write_text(WITH_CUB)
    (toolchain.folder / "unit.o").write_bytes(of_cub.ours)
    assert toolchain.sh(LINK).returncode == 0
    assert unregistered(toolchain.folder / "unit.so") == set()
    flags = f"-std=c++17 {FOR_LIBRARIES} --generate-code=arch=compute_52,code=[sm_52]"
    other = f"nvcc-toolkit {flags} -c unit.cu -o other.o"
    swap = "objcopy --dump-section=.nv_fatbin=code other.o && objcopy --update-section=.nv_fatbin=code unit.o"
    assert toolchain.sh(f"{other} && {swap} && {LINK}").returncode == 0
    lost = unregistered(toolchain.folder / "unit.so")
    assert any("_520_NS" in name for name in lost), "others have a module id in their names"


@pytest.mark.thorough
def test_one_ptx_serves_the_architectures_with_the_same_text(toolchain: Toolchain) -> None:
    """nvcc, which makes PTX for each architecture, makes the same instructions of a text that is the same."""
    ampere = ("80:80", "86:86", "89:89", "90:90")
    for text, made_for in (
        (SOURCE, ["compute_80.ii", "compute_90.ii"]),  # CUDA's own headers ask for 9.0
        (f"{SOURCE}{LARGER_BLOCKS}", [f"compute_{arch}.ii" for arch in ("80", "86", "89", "90")]),
    ):
        toolchain.sh("rm -rf ccache")
        (toolchain.folder / "unit.cu").write_text(text)
        toolchain.compile(ampere, nvcc="nvcc-toolkit")
        nvccs = toolchain.device_code()
        toolchain.compile(ampere)
        pieces, made = toolchain.device_code(), toolchain.made()
        assert pieces.keys() == nvccs.keys() == {"80", "86", "89", "90"}
        for arch, found in pieces.items():
            assert len(found) >= 4
            assert Counter(found.values()) == Counter(nvccs[arch].values())
        assert [name for name in made if name.startswith("compute_") and name.endswith(".ii")] == made_for


@pytest.mark.thorough
def test_the_ptx_for_8_0_is_made_once_for_sets_without_it(toolchain: Toolchain) -> None:
    toolchain.compile(MODERN)
    toolchain.made()
    toolchain.compile(("89:89",))
    assert toolchain.made() == ["compute_80/ptx", "unit.cu"], "SASS, and the text for 8.9"
    toolchain.compile(("89:89",), nvcc="NVCC_ONLY=89 CCACHE_DIR=/unit/machine nvcc")
    assert toolchain.made() == ["compute_80.ii", "compute_80/ptx", "unit.cu", "unit.cu"]


@pytest.mark.thorough
def test_text_that_8_0_cannot_have_is_compiled_for_8_9_alone(toolchain: Toolchain) -> None:
    needs = "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890\n#error needs 8.9\n#endif\n"
    (toolchain.folder / "unit.cu").write_text(f"{SOURCE}{needs}")
    done = toolchain.sh("nvcc --generate-code=arch=compute_89,code=[sm_89] -x cu -c unit.cu -o unit.o")
    assert (done.returncode, done.stderr) == (0, "")
    assert toolchain.device_code().keys() == {"89"}
    assert toolchain.sh("nvcc -arch=sm_80 -x cu -c unit.cu -o unit.o").returncode != 0


@pytest.mark.thorough
def test_ptx_that_goes_into_the_object_is_of_its_own_architecture(toolchain: Toolchain) -> None:
    ptx = "--generate-code=arch=compute_86,code=[compute_86]"
    toolchain.compile(("80:80", "86:86"), ptx)
    found = toolchain.sh("cuobjdump -ptx unit.o").stdout
    assert re.findall(r"^\.target (\w+)", found, re.MULTILINE) == ["sm_86"]
    assert toolchain.device_code().keys() == {"80", "86"}


@pytest.mark.thorough
def test_two_builds_that_come_to_a_piece_together_make_it_once(toolchain: Toolchain) -> None:
    """The builds have a tree each, and the unit the same name in both."""
    trees = "mkdir pool one two; for tree in one two; do ln -s ../unit.cu ../scale.h $tree; done"
    unit = f"nvcc {VOLTA} unit.cu -o unit.o"
    done = toolchain.sh(f"{trees}; export UNIT_POOL=/unit/pool; (cd one; {unit}) & (cd two; {unit}); wait $!")
    assert done.returncode == 0, done.stderr
    assert toolchain.made() == ["compute_70.ii", "compute_70/ptx", "host.ii", "unit.cu", "unit.cu"]


@pytest.mark.thorough
@pytest.mark.parametrize(("jobs", "blocks", "at_once"), [(4, 100, 3), (2, 100, 2), (1, 100, 1), (4, 15, 1)])
def test_pieces_of_a_unit_are_made_side_by_side_on_further_slots(
    toolchain: Toolchain, jobs: int, blocks: int, at_once: int
) -> None:
    """The pieces are those of sm_50, 52 and 70; a unit without a row of costs takes eight blocks."""
    alone = toolchain.compile(LEGACY).read_bytes()
    ptxas = "/usr/local/cuda/bin/ptxas"
    pool = f"UNIT_POOL=/unit/pool UNIT_JOBS={jobs} UNIT_MEMORY={blocks} MEET={at_once}"
    toolchain.sh(f"rm -rf ccache; mkdir pool; cp {ptxas} /tmp/ptxas; cat <<'EOF' >{ptxas}\n{MEETING}EOF\n")
    try:
        together = toolchain.compile(LEGACY, nvcc=f"{pool} unit nvcc").read_bytes()
    finally:
        toolchain.sh(f"cp /tmp/ptxas {ptxas}")
    assert max(map(int, (toolchain.folder / "met").read_text().split())) == at_once
    assert together == alone


@pytest.mark.thorough
def test_relocatable_code_is_linked_to_the_kernels_of_nvcc_and_has_pieces_of_its_own(
    toolchain: Toolchain,
) -> None:
    """ORT 1.21 asks for relocatable code from nvcc 12.8 on; the option changes the instructions."""
    (toolchain.folder / "called.cu").write_text(CALLED)
    (toolchain.folder / "unit.cu").write_text(CALLS)
    codes = "--generate-code=arch=compute_80,code=[sm_80] --generate-code=arch=compute_86,code=[sm_86]"
    found = []
    for nvcc in ("nvcc", "nvcc-toolkit"):
        script = f"""\
            for unit in unit called; do {nvcc} {RELOCATABLE} {codes} -x cu -c $unit.cu -o $unit.o; done
            nvcc {codes} -Xcompiler=-fPIC -dlink unit.o called.o -o link.o
            g++ -shared -Wl,-z,defs -o all.so unit.o called.o link.o -L/usr/local/cuda/lib64 -lcudart_static
        """
        done = toolchain.sh(script)
        assert done.returncode == 0, done.stderr
        found.append(toolchain.device_code("link.o"))
    pieces, nvccs = found
    assert pieces.keys() == nvccs.keys() == {"80", "86"}, "both of one PTX"
    for arch, mine in pieces.items():
        assert len(mine) > 5
        assert Counter(mine.values()) == Counter(nvccs[arch].values())
    (toolchain.folder / "unit.cu").write_text(SOURCE)
    toolchain.compile(("52:52",), "-rdc=true")
    toolchain.made()
    toolchain.compile(("52:52",))
    assert toolchain.made() == ["compute_52.ii", "compute_52/ptx", "host.ii", "unit.cu", "unit.cu"]


@pytest.mark.thorough
def test_a_macro_is_part_of_the_keys_of_the_pieces_whose_text_it_changes(toolchain: Toolchain) -> None:
    """ORT's CMake defines EXCLUDE_SM_90 and the like from 1.23 on, depending on the set."""
    guarded = "#ifndef EXCLUDE_SM_90\n__global__ void hopper(int* data) { data[0] = 90; }\n#endif\n"
    (toolchain.folder / "unit.cu").write_text(SOURCE + guarded)
    with_it = toolchain.compile(("52:52",))
    assert any("hopper" in name for name in toolchain.device_code()["52"])
    toolchain.made()
    toolchain.compile(("52:52",), "-DEXCLUDE_SM_90")
    assert toolchain.made() == ["compute_52.ii", "compute_52/ptx", "host.ii", "unit.cu", "unit.cu"]
    assert not any("hopper" in name for name in toolchain.device_code()["52"])
    assert b"hopper" not in with_it.read_bytes()
    toolchain.compile(("52:52",), "-DEXCLUDE_SM_80", "-DEXCLUDE_SM_90")
    assert toolchain.made() == ["unit.cu", "unit.cu"], "the texts, which are the same as before"


@pytest.mark.thorough
def test_what_nvcc_warns_of_is_shown_and_is_no_step(toolchain: Toolchain) -> None:
    done = toolchain.sh(f"nvcc -std=c++14 {VOLTA} unit.cu -o unit.o")
    assert done.returncode == 0, done.stderr
    assert "incompatible redefinition for option 'std'" in done.stderr


@pytest.mark.thorough
def test_an_architecture_is_the_same_in_each_set(toolchain: Toolchain) -> None:
    toolchain.compile(LEGACY)
    in_legacy = toolchain.device_code()["52"]
    toolchain.sh("rm -rf ccache")
    toolchain.compile(("50:52", "80:86"))
    assert toolchain.device_code()["52"] == in_legacy


@pytest.mark.thorough
def test_the_hosts_piece_is_compiled_once_for_all_sets(toolchain: Toolchain) -> None:
    toolchain.compile(LEGACY)
    assert toolchain.made() == sorted(
        [
            *["unit.cu"] * 3,
            "compute_50.ii",
            "compute_70.ii",
            "host.ii",
            "compute_50/ptx",
            "compute_50/ptx",
            "compute_70/ptx",
        ]
    )
    toolchain.compile(MODERN, "-DNOBODY_ASKS")
    made = toolchain.made()
    assert "host.ii" not in made, "a macro that the text does not depend on is not part of the key"
    assert made.count("compute_80/ptx") == 2


@pytest.mark.thorough
def test_a_set_of_what_was_compiled_takes_nothing_but_packing(toolchain: Toolchain) -> None:
    toolchain.compile(LEGACY)
    toolchain.compile(MODERN)
    toolchain.made()
    toolchain.compile(("50:52", "70:70", "80:86"))
    assert toolchain.made() == []
    assert toolchain.device_code().keys() == {"52", "70", "86"}


@pytest.mark.thorough
def test_what_other_machines_made_is_found_in_a_folder(toolchain: Toolchain) -> None:
    """Each machine has its own ccache. The last one's object must equal that of a single machine."""
    codes = ("50:50", "50:52", "80:80", "86:86")
    toolchain.compile(codes)
    alone = (toolchain.folder / "unit.o").read_bytes()
    toolchain.sh("rm -rf ccache")
    for arch in ("50", "52", "80", "86"):
        made = f"NVCC_ONLY={arch} CCACHE_SECONDARY_STORAGE=file:/unit/store CCACHE_RESHARE=1"
        toolchain.compile(codes, nvcc=f"CCACHE_DIR=/unit/machine-{arch} {made} nvcc")
    toolchain.made()
    toolchain.compile(codes, nvcc="CCACHE_SECONDARY_STORAGE='file:/unit/store|read-only' nvcc")
    assert toolchain.made() == ["host.ii", "unit.cu"], "the host's text, and its object"
    assert (toolchain.folder / "unit.o").read_bytes() == alone


@pytest.mark.thorough
def test_an_architecture_with_a_suffix_is_made_ahead_under_its_name(toolchain: Toolchain) -> None:
    """ONNX Runtime compiles 90a where a variant has 90 (``VariantBuild.compile``)."""
    codes = "80:80", "90a:90a"
    toolchain.compile(codes, nvcc="NVCC_ONLY=90 nvcc")
    assert toolchain.made() == []
    toolchain.compile(codes, nvcc="NVCC_ONLY=90a nvcc")
    assert toolchain.made() == ["compute_90a.ii", "compute_90a/ptx", "unit.cu"]
    toolchain.compile(codes)
    assert toolchain.made().count("compute_90a/ptx") == 0
    assert toolchain.device_code().keys() == {"80", "90a"}


@pytest.mark.thorough
def test_a_newer_ptxas_makes_native_code_in_the_place_of_ptx(toolchain: Toolchain) -> None:
    options = "-Xfatbin=--raw -Xfatbin=--assemble=100:120 -Xfatbin=-compress-all"
    for text, ptx_of in ((SOURCE, ["90"]), (WITH_CUB, ["90"]), (f"{SOURCE}{TILED}", ["120", "90"])):
        toolchain.new_unit(text)
        toolchain.compile(("90:90",), options, PTX_90)
        found = toolchain.sh("cuobjdump -lelf unit.o; cuobjdump -lptx unit.o").stdout
        assert sorted(re.findall(r"sm_(\d+)\.\w+", found)) == ["100", "120", "90"], "and no PTX"
        made = re.findall(r"compute_(\d+)\.ii", " ".join(toolchain.made()))
        assert made == ptx_of, "PTX is made again only where more differs than lines of the toolkit's headers"
    assert toolchain.sh("nvcc -Xfatbin=--raw -Xfatbin=--assemble=100 --version").returncode == 0


@pytest.mark.thorough
def test_a_newer_architecture_has_what_the_source_says_of_it(toolchain: Toolchain) -> None:
    """ORT 1.25's XQA sizes its shared memory by architecture (xqa/utils.cuh line 54)."""
    toolchain.new_unit(TILED)
    toolchain.compile(("90:90",), "-Xfatbin=--raw -Xfatbin=--assemble=100:120", PTX_90)
    done = toolchain.sh("cuobjdump -xelf all unit.o; for cubin in *.cubin; do readelf -SW $cubin; done")
    sizes = re.findall(r"\.nv\.shared\.\S*tiled\S*\s+NOBITS\s+\S+\s+\S+\s+(\w+)", done.stdout)
    assert sorted(int(size, 16) & ~0x7FF for size in sizes) == [4 * 1024, 4 * 4096, 4 * 4096]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "more", ['asm("no_such_instruction;");', "no_such_function();", "\n#error too new\n"]
)
def test_what_a_newer_architecture_asks_for_in_vain_is_told_with_the_compiler(
    toolchain: Toolchain, more: str
) -> None:
    toolchain.new_unit(f"__global__ void f() {{\n#if __CUDA_ARCH__ >= 1200\n{more}\n#endif\n}}\n")
    nvcc = f"nvcc --generate-code=arch=compute_90,code=[sm_90] {PTX_90} -x cu -c unit.cu -o unit.o"
    done = toolchain.sh(f"{nvcc} -Xfatbin=--assemble=100:120")
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if line.startswith("ortpacks: ")]
    assert told == ["ortpacks: unit.cu: its code for sm_120 needs an nvcc that knows sm_120"]
    assert toolchain.sh(f"{nvcc} -Xfatbin=--assemble=100").returncode == 0


@pytest.mark.thorough
def test_cuda_13_from_wheels_compiles_turing_and_blackwell(dist: Path, tmp_path: Path) -> None:
    """Kernels are those that its own nvcc makes, each registered by the host."""
    kernels_ = []
    with running(dist, tmp_path, "13") as toolchain:
        toolchain.new_unit(WITH_CUB)
        for nvcc in ("nvcc", "nvcc-toolkit"):
            toolchain.compile(("75:75", "100:100", "120:120"), FOR_LIBRARIES, nvcc=nvcc)
            assert toolchain.sh(LINK).returncode == 0
            found = read_library("unit.so", (tmp_path / "unit.so").read_bytes(), deep=True).deep
            assert found is not None
            assert found.unregistered == set()
            kernels_.append(sorted(" ".join(sorted(map(str, targets))) for targets in found.names.values()))
    assert kernels_[0] == kernels_[1]
    assert {*kernels_[0]} == {"sm_100 sm_120 sm_75"}


@pytest.mark.thorough
def test_a_header_that_changes_compiles_what_reads_it(toolchain: Toolchain) -> None:
    toolchain.compile(LEGACY)
    before = toolchain.device_code()["70"]
    assert "scale.h" in (toolchain.folder / "unit.o.d").read_text().split()
    (toolchain.folder / "scale.h").write_text("#define SCALE 3\n")
    toolchain.compile(LEGACY)
    after = toolchain.device_code()["70"]
    assert before.keys() == after.keys()
    assert sum(before[name] != after[name] for name in before) == 2, "the template's two"


@pytest.mark.thorough
def test_units_of_one_name_are_linked_together(toolchain: Toolchain) -> None:
    """Kernels in anonymous namespaces get different mangled names, from the object's path."""
    done = toolchain.sh(TWO_UNITS)
    assert done.returncode == 0, done.stderr
    assert len(set(re.findall(r"_GLOBAL__N__(\w{8})_7_unit_cu", done.stdout))) == 2


@pytest.mark.parametrize(
    ("broken", "status", "said"),
    [
        ("__global__ void f(int* a) { *a = ; }", 1, "unit.cu(1): error: expected an expression"),
        ("#error by hand", 1, "by hand"),
        ('__global__ void f() { asm("no_such_instruction;"); }', 255, "no_such_instruction"),
    ],
)
def test_a_unit_that_does_not_compile_tells_why(
    toolchain: Toolchain, broken: str, status: int, said: str
) -> None:
    (toolchain.folder / "unit.cu").write_text(broken)
    done = toolchain.sh(f"nvcc {VOLTA} unit.cu -o unit.o")
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(toolchain.folder.glob("unit.o*")), "nothing is left"


def test_a_program_that_is_killed_is_named(toolchain: Toolchain) -> None:
    ptxas = "/usr/local/cuda/bin/ptxas"
    toolchain.sh(f"cp {ptxas} /tmp/ptxas; printf '#!/bin/sh\\nkill -9 $$\\n' >{ptxas}")
    done = toolchain.sh(f"nvcc {VOLTA} unit.cu -o unit.o")
    toolchain.sh(f"cp /tmp/ptxas {ptxas}")
    assert done.returncode == 137
    assert "ptxas died due to signal 9 (Killed)" in done.stderr


def test_unknown_options_are_nvccs_to_refuse(toolchain: Toolchain) -> None:
    done = toolchain.sh(f"nvcc --no-such-option {VOLTA} unit.cu -o unit.o")
    assert done.returncode == 1
    assert "Unknown option '--no-such-option'" in done.stderr
