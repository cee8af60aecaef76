"""Tests of the native reader on released libraries, static libraries and DLLs, and on stubs of all
architectures. Expected counts of images are those of cuobjdump 12.4.131.

The fixture ``packaged_library`` returns the path of a bundled library by its name.
"""

import mmap
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import process_time

import pytest

from builder.binary.coverage import Support, cover
from builder.binary.deep import read_payloads
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import SECTIONS, Container, Kind
from builder.binary.file_kinds import FileKind
from builder.config.inputs import Input, Lock, Pin
from builder.contents.cuobjdump import ImageCounts, Listing, count_images, disagreements, parse_listings
from builder.contents.reading import read_file
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.table import CAPABILITIES
from builder.formats.package_names import LINUX, WINDOWS
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.factories.nvidia import ARCHES, compiled, cudnn_928, listing, packed, unpack_cuobjdump
from tests.support.factories.payloads import unpacked

SASS = {
    "libcublas.so.12": "50:190 60:191 61:116 70:192 75:12 80:193 86:116 90:193 100:193 120:194",
    "libcublasLt.so.12": "50:90 60:91 61:82 70:144 75:116 80:477 86:100 89:247 90:1592 100:1399 103:64 "
    "120:1433 121:4",
    "libcudnn_adv.so.9": "50:33 60:33 61:33 70:33 75:33 80:33 86:33 90:33 100:33 120:33",
    "libcudnn_cnn.so.9": "50:10 60:10 61:10 70:12 75:12 80:10 86:10 90:10 100:10 120:10",
    "libcudnn_engines_precompiled.so.9": "50:370 60:370 61:371 70:438 75:338 80:632 86:343 90:554 100:960 "
    "103:6 120:680 121:6",
    "libcudnn_ops.so.9": "50:22 60:22 61:22 70:22 80:22 90:22 100:22 120:22",
    "libcufft.so.11": "52:1",
    "libcurand.so.10": "50:11 60:11 70:11 75:11 80:11 86:11 89:11 90:11 100:11 101:11 103:11 120:11 121:11",
    "libcudart.so.12": "",
}
"""Number of SASS images by architecture without suffix, in CUDA 12.9 and cuDNN 9.10.2.21."""

PROVIDER = "libonnxruntime_providers_cuda.so"


@pytest.mark.parametrize("name", SASS)
def test_images_of_nvidia_s_libraries(name: str, packaged_library: Callable[[str], Path]) -> None:
    assert _listed(packaged_library(name), Kind.SASS) == SASS[name]


CUDNN_9_28 = {
    "libcudnn_adv.so.9": ("75:33 80:33 86:33 90:33 100:33 120:33", "120:10"),
    "libcudnn_cnn.so.9": ("75:12 80:10 86:10 90:10 100:10 120:10", "120:10"),
    "libcudnn_engines_precompiled.so.9": (
        "50:336 60:336 61:337 70:349 75:512 80:722 86:404 90:653 100:1168 103:6 120:786 121:6",
        "120:97",
    ),
    "libcudnn_engines_runtime_compiled.so.9": ("75:25 80:38 86:34 90:46 100:45 120:45", "120:45"),
    "libcudnn_ext.so.9": ("75:28 80:28 90:28 100:28 120:28", "120:28"),
    "libcudnn_ops.so.9": ("75:22 80:22 90:22 100:22 120:22", "120:22"),
    "libcudnn.so.9": ("", ""),
    "libcudnn_engines_tensor_ir.so.9": ("", ""),
    "libcudnn_graph.so.9": ("", ""),
    "libcudnn_heuristic.so.9": ("", ""),
}
"""Numbers of SASS and PTX images of cuDNN 9.28.0.42, in the form of ``SASS``."""


@pytest.mark.parametrize("name", CUDNN_9_28)
def test_images_of_a_newer_cudnn(name: str) -> None:
    library = cudnn_928() / name
    assert (_listed(library, Kind.SASS), _listed(library, Kind.PTX)) == CUDNN_9_28[name]


@pytest.mark.parametrize(("name", "count"), [("libcublas.so.12", 128), ("libcudnn_ops.so.9", 16)])
def test_what_has_nothing_to_run_has_no_code(
    name: str, count: int, packaged_library: Callable[[str], Path]
) -> None:
    """A kernel ``f`` is the section ``.text.f`` of its cubin; all cubins of 9000 bytes or more have one."""
    data = packaged_library(name).read_bytes()
    small = [
        (image.runnable, b".text." in unpacked(data, image))
        for container in read_containers(data)
        for image in container.images
        if image.kind is Kind.SASS and image.unpacked_size < 9000
    ]
    assert all(runnable == code for runnable, code in small)
    assert sum(not runnable for runnable, _code in small) == count


def test_a_library_without_a_kernel_in_any_container_has_nothing_to_run() -> None:
    """libcudnn_ext 9.28 has 168 cubins, none of them with a section ``.text.f``."""
    data = (cudnn_928() / "libcudnn_ext.so.9").read_bytes()
    images = [image for one in read_containers(data) for image in one.images]
    assert (len(images), any(b".text." in unpacked(data, image) for image in images)) == (168, False)
    assert not any(image.runnable for image in images)


ELSEWHERE = {
    "libcufft.so.11": {".ldata": 24_453},
    "libcublasLt.so.12": {".cask_resource": 469},
    "libcudnn_engines_precompiled.so.9": {".cask_resource": 110},
    "libcublas.so.12": {},
    "libcudart.so.12": {},
}
"""Numbers of containers in sections that cuobjdump does not read, by a search for their first bytes."""


@pytest.mark.parametrize("name", ELSEWHERE)
def test_containers_that_cuobjdump_does_not_list(name: str, packaged_library: Callable[[str], Path]) -> None:
    library = packaged_library(name)
    containers = _containers(library)
    assert Counter(one.section for one in containers if one.section not in SECTIONS) == ELSEWHERE[name]
    assert len(containers) == library.read_bytes().count(b"\x50\xed\x55\xba\x01\x00\x10\x00")


def test_cufft_runs_on_every_card_although_cuobjdump_sees_one_image(
    packaged_library: Callable[[str], Path],
) -> None:
    """cuFFT has 11,651 containers of LTO IR. The CUDA 12.9 release notes list the GPUs that it runs on."""
    found = cover("lib/libcufft.so.11", _containers(packaged_library("libcufft.so.11")), specialised=True)
    assert found is not None
    assert found.nothing_to_run == 11_651 + 1, "the one image in .nv_fatbin has no kernel"
    assert {found.support[device] for device in CAPABILITIES} == {Support.NATIVE}


def test_the_official_provider(packaged_library: Callable[[str], Path]) -> None:
    """onnxruntime-gpu 1.26.0 has 230 containers with the same architectures; SASS for 9.0 is ``sm_90a``."""
    provider = packaged_library(PROVIDER)
    started = process_time()
    containers = _read(provider)
    assert process_time() - started < 1
    found = cover(f"lib/{PROVIDER}", containers, specialised=False)
    assert found is not None
    assert (found.containers, " ".join(map(str, found.sass)), " ".join(map(str, found.ptx))) == (
        230,
        "60 70 75 80 86 90a",
        "90",
    )
    assert found.support[Capability(9, 0)] is Support.NATIVE
    assert found.support[Capability(12, 0)] is Support.JIT
    assert found.support[Capability(5, 2)] is Support.NONE


def _listed(library: Path, kind: Kind) -> str:
    """Return the number of images of a kind by architecture, in the sections that cuobjdump reads."""
    found = Counter(
        image.arch.number
        for container in _containers(library)
        for image in container.images
        if container.section in SECTIONS and image.kind is kind
    )
    return " ".join(f"{number}:{found[number]}" for number in sorted(found))


@cache
def _containers(path: Path) -> tuple[Container, ...]:
    """Return a library's containers, which several tests ask about."""
    return _read(path)


def _read(path: Path) -> tuple[Container, ...]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
        return read_containers(buffer)


@pytest.fixture(scope="module")
def cuobjdump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_cuobjdump(tmp_path_factory.mktemp("cuobjdump"))


def listed(cuobjdump: Path, library: Path) -> ImageCounts:
    """Return cuobjdump's counts; the lines that name an archive's members are left out."""
    said = (listing(cuobjdump, flag, library) for flag in ("--list-elf", "--list-ptx"))
    lines = ((one, (line for line in one.stdout.splitlines() if line[:7] != "member ")) for one in said)
    return parse_listings(*(Listing(one.code, "\n".join(kept), one.stderr) for one, kept in lines))


NVJPEG = {
    LINUX: Pin(
        filename="nvidia_nvjpeg_cu12-12.4.0.76-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        sha256="3888f10b32fbd58e80166c48e01073732d752fa5f167b7cb5b9615f1c6375a20",
        size=5_313_609,
    ),
    WINDOWS: Pin(
        filename="nvidia_nvjpeg_cu12-12.4.0.76-py3-none-win_amd64.whl",
        sha256="21923726db667bd53050d0de88320983ff423322b7f376057dd943e487c40abc",
        size=4_741_398,
    ),
}


def test_a_dll_holds_what_the_library_for_linux_of_its_version_holds() -> None:
    wheels = {platform: Input.wheel("nvidia-nvjpeg-cu12==12.4.0.76", platform) for platform in NVJPEG}
    store = Wiring(ROOT).store(Lock(pins={wheels[platform].key: pin for platform, pin in NVJPEG.items()}))
    linux, windows = (store.unpack(wheels[platform]) / "nvidia/nvjpeg" for platform in (LINUX, WINDOWS))
    dll = read_file("nvjpeg64_12.dll", windows / "bin/nvjpeg64_12.dll")
    library = read_file("libnvjpeg.so.12", linux / "lib/libnvjpeg.so.12")
    assert (dll.kind, dll.problem) == (FileKind.DLL, None)
    assert dll.dll is not None
    assert (dll.dll.soname, dll.dll.needed) == ("nvjpeg64_12.dll", ("KERNEL32.dll",))
    assert dll.coverage is not None
    assert library.coverage is not None
    assert dll.coverage.images == library.coverage.images
    assert (dll.coverage.tally, dll.coverage.support) == (library.coverage.tally, library.coverage.support)


def test_cuobjdump_counts_the_same_in_a_static_library(cuobjdump: Path) -> None:
    shop = Wiring(ROOT)
    runtime = shop.store(shop.lock).unpack(shop.project.cuda.libraries["cudart"])
    library = runtime / "nvidia/cuda_runtime/lib/libcudadevrt.a"
    found = read_file(library.name, library)
    assert (found.kind, found.machine, len(found.containers)) == (FileKind.ARCHIVE, "x86-64", 1)
    assert disagreements(count_images(found.containers), listed(cuobjdump, library)) == []


BITSANDBYTES = Input.wheel("bitsandbytes==0.49.2")
"""A wheel with relocatable device code, in one library for each CUDA."""

BITSANDBYTES_PIN = Pin(
    filename="bitsandbytes-0.49.2-py3-none-manylinux_2_24_x86_64.whl",
    sha256="54b771f06e1a3c73af5c7f16ccf0fc23a846052813d4b008d10cb6e017dd1c8c",
    size=60_651_714,
)


@pytest.mark.parametrize(
    ("cuda", "native", "jit"),
    [
        ("118", "6.0 7.0 7.5 8.9 9.0", "10.0 12.0 12.1"),
        ("126", "6.0 9.0", "10.0 12.1"),
        ("128", "7.0 12.1", ""),
    ],
)
def test_bitsandbytes_runs_by_jit_on_cards_newer_than_its_cuda(
    cuobjdump: Path, cuda: str, native: str, jit: str
) -> None:
    """bitsandbytes-foundation/bitsandbytes#1510: builds before CUDA 12.8 run on Blackwell by PTX for 9.0.

    cuobjdump counts what is linked, and not its inputs.
    """
    wheel = Wiring(ROOT).store(Lock(pins={BITSANDBYTES.key: BITSANDBYTES_PIN})).unpack(BITSANDBYTES)
    library = wheel / f"bitsandbytes/libbitsandbytes_cuda{cuda}.so"
    read = read_file(library.name, library)
    found = read.coverage
    assert found is not None
    assert (found.containers, found.link_inputs) == (3, 2)
    assert {found.support[Capability.parse(device)] for device in native.split()} == {Support.NATIVE}
    assert {found.support[Capability.parse(device)] for device in jit.split()} <= {Support.JIT}
    assert found.support[Capability(5, 2)] is Support.NONE
    if cuda == "126":
        assert disagreements(count_images(read.containers), listed(cuobjdump, library)) == []


KERNELS = """
extern "C" __global__ void guarded(float *a, float b) { %s }
extern "C" __global__ void idle() {}
extern "C" __global__ void scale(float *a, float b) { a[threadIdx.x] *= b; }
"""

WORK, GUARDS = "a[threadIdx.x] += b;", ("", "__trap();", "__trap(); a[0] = b;")


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("arch", ARCHES)
def test_a_guarded_body_is_a_stub_on_every_architecture(arch: str, guard: str) -> None:
    other = "80" if arch != "80" else "90"
    whole, guarded = KERNELS % WORK, KERNELS % guard
    fatbin = packed([compiled(guarded, arch)[0], compiled(whole, other)[0]], "-compress-all")
    _containers, found = read_payloads(fatbin, read_containers(fatbin))
    assert found.damages == []
    assert [(one.kernel, str(one.on[0])) for one in found.stubs] == [("guarded", f"sm_{arch}")]
    assert found.idle == 1


def test_ptx_of_a_guarded_body_is_a_stub() -> None:
    for guard in GUARDS[:2]:
        fatbin = packed([compiled(KERNELS % guard, "80")[1], compiled(KERNELS % WORK, "80")[0]])
        _containers, found = read_payloads(fatbin, read_containers(fatbin))
        assert [str(target) for one in found.stubs for target in one.on] == ["compute_80"]


@pytest.mark.parametrize("name", [PROVIDER, "libcudnn_cnn.so.9", "libcurand.so.10"])
def test_cuobjdump_names_the_same_kernels(
    name: str, packaged_library: Callable[[str], Path], cuobjdump: Path
) -> None:
    """SASS is compared by name and architecture; all of it lies in ``.nv_fatbin``, which cuobjdump reads."""
    file = packaged_library(name)
    found = read_file(file.name, file, symbols=False, deep=True).deep
    assert found is not None
    assert found.damages == []
    said = _symbols(cuobjdump, file)
    assert sum(said.values()) > 600
    ours = {(arch, kernel) for kernel, targets in found.names.items() for arch in map(str, targets)}
    assert {one for one in ours if one[0].startswith("sm_")} == set(said)
    counts = {str(one): count for one, count in found.kernels.items() if str(one).startswith("sm_")}
    assert counts == Counter(arch for arch, _name in said.elements())


def _symbols(program: Path, library: Path) -> Counter[tuple[str, str]]:
    """Return architecture and name of each kernel in the symbol tables that cuobjdump prints."""
    argv = [str(program), "--dump-elf-symbols", str(library)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: Counter[tuple[str, str]] = Counter()
    arch = ""
    for line in done.stdout.splitlines():
        if line.startswith("arch = "):
            arch = line.removeprefix("arch = ")
        elif "STO_ENTRY" in line:
            found[arch, line.split()[-1]] += 1
    return found
