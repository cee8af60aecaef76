"""Factories of small official wheels of ONNX Runtime for several Pythons, and of packages that fit them.

Names, folders and metadata are those of real wheels; contents are a few bytes.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from builder.config.inputs import Input, Lock, Pin
from builder.config.variants import Preset
from builder.formats.json_values import json_text
from builder.formats.manifest import CoverageEntry, FileEntry, Manifest
from builder.io.wiring import Wiring
from tests.doubles.wheels import record_row
from tests.support.factories import releases
from tests.support.factories.archives import zipped
from tests.support.factories.archiving import accept, archive, content
from tests.support.factories.binaries import elf, sass
from tests.support.fakes.ports import FakeReporter, FakeStore
from tests.support.tables import data_text

PYTHONS = ("cp312-cp312", "cp313-cp313t")

PLATFORM = "manylinux_2_27_x86_64.manylinux_2_28_x86_64"

METADATA = data_text("formats/wheel-metadata.txt")

CAPI = "onnxruntime/capi/"

PROVIDER = "libonnxruntime_providers_cuda.so"

NVIDIA = (
    ("nvidia-cublas-cu12==12.9.1.4", "nvidia/cublas/lib/libcublas.so.12"),
    ("nvidia-cuda-nvrtc-cu12==12.9.86", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"),
)


def write_official(folder: Path, name: str, python: str) -> Path:
    """Write the wheel ``name`` of 1.23.2 for the tags ``python`` and return its path.

    The list of files is that of ``unzip -l`` for the real wheels.
    """
    stem = name.replace("-", "_")
    info = f"{stem}-1.23.2.dist-info"
    files = {
        f"{CAPI}{PROVIDER}": b"microsoft's provider",
        f"{CAPI}libonnxruntime_providers_shared.so": b"microsoft's bridge",
        f"{CAPI}onnxruntime_pybind11_state.so": python.encode() * 900,
        "onnxruntime/__init__.py": b"__version__ = '1.23.2'\n",
        "onnxruntime/LICENSE": b"MIT License\n",
        "onnxruntime/ThirdPartyNotices.txt": b"notices\n",
        f"{info}/METADATA": METADATA.format(name=name).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\n",
        f"{info}/entry_points.txt": b"[console_scripts]\n",
        f"{info}/top_level.txt": b"onnxruntime\n",
    }
    if name == "onnxruntime":
        del files[f"{CAPI}{PROVIDER}"]
    rows = [record_row(path, data) for path, data in files.items()]
    path = folder / f"{stem}-1.23.2-{python}-{PLATFORM}.whl"
    record = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    path.write_bytes(zipped({**files, f"{info}/RECORD": record.encode()}))
    return path


class Relocation:
    """Stand-in for patchelf, which appends the wanted RUNPATH and NEEDED entries to the library's bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def with_runpath(self, library: Path, runpath: str, needed: tuple[str, ...]) -> Path:
        copy = self.folder / library.name
        copy.write_bytes(library.read_bytes() + f"\0{runpath}\0{' '.join(needed)}".encode())
        return copy


class Shelf(FakeStore):
    """A store whose inputs are the official wheels in a folder."""

    def fetch(self, item: Input) -> Path:
        return self.folder / self.pins.pins[item.key].filename


def workshop(root: Path, folder: Path) -> Wiring:
    """Return a wiring with ``folder / "dist"`` whose store has official wheels of 1.23.2 for two Pythons."""
    shelf = folder / "shelf"
    shelf.mkdir()
    pins = {}
    for name in ("onnxruntime", "onnxruntime-gpu"):
        for python in PYTHONS:
            file = write_official(shelf, name, python)
            data = file.read_bytes()
            pin = Pin(filename=file.name, size=len(data), sha256=hashlib.sha256(data).hexdigest())
            pins[f"wheel:{name}==1.23.2@{python}"] = pin
    made = Wiring(root, dist=folder / "dist", reporter=FakeReporter())
    made.dist.mkdir()
    lock = Lock(pins=pins)
    store = Shelf(shelf, lock)
    made.__dict__ |= {"lock": lock, "store": lambda *_: store, "patchelf": Relocation(folder)}
    return made


def write_package(
    dist: Path,
    like: str = "modern",
    *,
    glibc: str = "2.27",
    claimed: Sequence[str] = ("75", "86"),
    swapped: bool = False,
    form: str = ".tar.zst",
    **changes: object,
) -> Path:
    """Write a package of 1.23.2 with a compiled provider; ``changes`` replace fields of its manifest.

    ``claimed``: the SASS that the manifest states for the provider. ``swapped``: the archive holds another
    provider than the manifest lists.
    """
    library = elf({".nv_fatbin": sass(75, 86)})
    licences = {f"licenses/onnxruntime{end}.txt": b"terms\n" for end in ("", "-third-party")}
    texts = {**releases.TEXTS, **licences, f"lib/{PROVIDER}": library}
    ours = [_entry(path, data) for path, data in texts.items()]
    theirs = [
        replace(
            releases.file_entry(f"lib/{member.rpartition('/')[2]}", 9),
            source=f"wheel:{wheel}",
            member=member,
            vendor="nvidia",
            packed=False,
        )
        for wheel, member in NVIDIA
    ]
    manifest = replace(
        releases.manifest(like),
        glibc=glibc,
        glibcxx="3.4.22" if glibc == "2.27" else "3.4.29",
        coverage=(CoverageEntry(f"lib/{PROVIDER}", 1, tuple(claimed), ()),),
        wheels=tuple(
            replace(releases.manifest(like).wheels[0], source=f"wheel:{wheel}") for wheel, _ in NVIDIA
        ),
        files=(*ours, *theirs),
        **changes,  # type: ignore[arg-type]
    )
    return pack(dist, manifest, texts | ({f"lib/{PROVIDER}": library[:-1] + b"!"} if swapped else {}), form)


def write_cpu_package(dist: Path) -> Path:
    """Write a package of 1.23.2 for the CPU and return its path."""
    manifest = replace(
        releases.manifest("modern"),
        name="ortpacks-cpu-1.23.2-linux-x64",
        variant="cpu",
        provider="cpu",
        sm=(),
        cuda=None,
        cudnn=None,
        driver=None,
        capabilities={},
        coverage=(),
        wheels=(),
        files=tuple(_entry(path, data) for path, data in releases.TEXTS.items()),
    )
    return pack(dist, manifest, releases.TEXTS)


def pack(dist: Path, manifest: Manifest, texts: Mapping[str, bytes], form: str = ".tar.zst") -> Path:
    made = content(dist.with_name("inputs"), texts, json_text(manifest).encode())
    package = archive().write(dist / f"{manifest.name}{form}", made, Preset.FAST, accept).path
    releases.append_sum(dist, package)
    return package


def _entry(path: str, data: bytes) -> FileEntry:
    entry = releases.file_entry(path, len(data))
    return replace(entry, sha256=hashlib.sha256(data).hexdigest(), vendor="onnxruntime")
