"""Factory of the hosts that base ``redist`` is made from, with what Debian's archive and PyPI have instead.

A server's folder has NVIDIA's list and archives of a toolkit, and an archive for each line of
``cmake/deps.txt`` that a build reads; a git repository has ONNX Runtime's tree at a tag. The versions are
those of base ``assembled``.
"""

import hashlib
import json
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from builder.config.inputs import REDIST, Input, InputKind, Lock, Pin
from builder.config.variants import UnpackedToolkit
from builder.io.store import FileStore
from builder.io.wiring import Wiring
from tests.support.factories.sources import git
from tests.support.tables import data_text

RELEASE, NVCC = "12.4.1", "12.4.131"
"""The toolkit and its nvcc."""

_CPUINFO = Input(InputKind.DEBIAN, "pool/main/c/cpuinfo/libcpuinfo-dev_0.0~git20250327.39ea79a-1_amd64.deb")

_CPUINFO_PIN = Pin(
    filename="libcpuinfo-dev_0.0~git20250327.39ea79a-1_amd64.deb",
    size=20232,
    sha256="ea760e3b1593f6e143ec8fea175ea91698495d0b354d9138ee2c682c1aebcd1d",
)
"""Headers alone: the host library, which links the rest, is the official wheel's."""

DEPENDENCIES = (
    *("abseil_cpp", "cudnn_frontend", "cutlass", "date", "eigen", "flatbuffers", "json", "microsoft_gsl"),
    *("mp11", "onnx", "protobuf", "pytorch_cpuinfo", "re2", "safeint", "utf8_range"),
)
"""The lines of ``deps.txt`` whose archives can be made: what a build with an official host downloads."""

_PROFILE = data_text("redist/nvcc.profile")

_HEADERS = data_text("redist/headers.txt")


class Maker:
    """A maker of the trees of a toolkit's parts below ``folder``, and of what hosts have.

    ``mirror`` is the folder of a server, by host and path, and ``repository`` the git repository.
    """

    def __init__(self, shop: Wiring, folder: Path, mirror: Path, repository: Path) -> None:
        base = shop.project.bases["assembled"]
        assert isinstance(base.toolkit, UnpackedToolkit)
        self.toolkit, self.source, self.version = base.toolkit, base.source.item, base.ort_version
        self.others = base.dependencies
        self.cudart = shop.project.cuda.libraries["cudart"]
        pins = {**shop.lock.pins, _CPUINFO.key: _CPUINFO_PIN}
        self.store: FileStore = shop.store(Lock(pins=pins))
        self.folder, self.mirror, self.repository = folder, mirror, repository

    def trees(self) -> dict[str, Path]:
        """Make and return the trees of the toolkit's parts, by component."""
        return {"cuda_nvcc": self._nvcc(), "cuda_cudart": self._cudart(), "cuda_cccl": self._cccl()}

    def lay_toolkit(self, trees: Mapping[str, Path]) -> None:
        """Lay NVIDIA's list and the archives of three components below its host."""
        root = self.mirror / REDIST.removeprefix("https://")
        listed: dict[str, object] = {"release_date": "2024-03-28", "release_label": RELEASE}
        for name, tree in trees.items():
            path = f"{name}/linux-x86_64/{tree.name}.tar.xz"
            file = root / path
            file.parent.mkdir(parents=True)
            with tarfile.open(file, "w:xz", preset=0) as archive:
                archive.add(tree, tree.name, filter=undated)
            content = file.read_bytes()
            named = {"relative_path": path, "sha256": hashlib.sha256(content).hexdigest()}
            listed[name] = {"version": NVCC, "linux-x86_64": {**named, "size": str(len(content))}}
        (root / f"redistrib_{RELEASE}.json").write_text(json.dumps(listed))

    def _tree(self, component: str) -> Path:
        tree = self.folder / f"{component}-linux-x86_64-{NVCC}-archive"
        tree.mkdir(parents=True)
        (tree / "LICENSE").write_text("NVIDIA's.\n")
        return tree

    def _nvcc(self) -> Path:
        tree, unpacked = self._tree("cuda_nvcc"), self.folder / "unpacked"
        subprocess.run(["dpkg-deb", "--extract", self.store.fetch(self.toolkit.deb), unpacked], check=True)
        programs, wrapped = unpacked / "usr/bin", unpacked / "usr/lib/nvidia-cuda-toolkit/bin"
        (tree / "bin").mkdir()
        (tree / "nvvm/bin").mkdir(parents=True)
        for name in ("bin2c", "cudafe++", "fatbinary", "nvlink", "ptxas"):
            (programs / name).rename(tree / "bin" / name)
        for name in ("crt", "nvcc"):
            (wrapped / name).rename(tree / "bin" / name)
        (wrapped / "cicc").rename(tree / "nvvm/bin/cicc")
        (tree / "bin/nvcc.profile").write_text(_PROFILE)
        shutil.rmtree(unpacked)
        wheel = self.store.unpack(self.toolkit.wheels["nvcc"]) / "nvidia/cuda_nvcc"
        shutil.copytree(wheel / "include", tree / "include")
        shutil.copytree(wheel / "nvvm/libdevice", tree / "nvvm/libdevice")
        return tree

    def _cudart(self) -> Path:
        tree = self._tree("cuda_cudart")
        headers = self.store.unpack(self.toolkit.wheels["cudart"]) / "nvidia/cuda_runtime/include"
        shutil.copytree(headers, tree / "include")
        (tree / "lib").mkdir()
        libraries = self.store.unpack(self.cudart) / "nvidia/cuda_runtime/lib"
        for name in ("libcudart_static.a", "libculibos.a"):
            shutil.copy(libraries / name, tree / "lib")
        # The newer wheel's is refused by nvlink 12.4; nothing of the device run time is linked.
        subprocess.run(["ar", "cr", tree / "lib/libcudadevrt.a"], check=True)
        return tree

    def _cccl(self) -> Path:
        tree = self._tree("cuda_cccl")
        wheel = self.store.unpack(self.toolkit.wheels["cccl"])
        shutil.copytree(wheel / "nvidia/cuda_cccl/include", tree / "include")
        return tree

    def lay_source(self) -> None:
        """Make the repository, whose ``deps.txt`` has the SHA-1 of the archives that are laid beside.

        It lacks half the source's bytes, cubins of fused attention, which a compile of the provider needs.
        """
        repository = self.repository
        repository.mkdir(parents=True)
        tarball = self.store.fetch(self.source)
        more = ("--strip-components=1", "--exclude=*cubin*")
        subprocess.run(["tar", "-xf", tarball, "-C", repository, *more], check=True)
        listed = repository / "cmake/deps.txt"
        text = listed.read_text(encoding="utf-8")
        rows = (line.split(";") for line in text.splitlines() if line.count(";") == 2)
        for name, url, sha1 in (row for row in rows if row[0] in DEPENDENCIES):
            file = self.mirror / url.removeprefix("https://")
            file.parent.mkdir(parents=True, exist_ok=True)
            self._archive(name, file)
            text = text.replace(sha1, hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest())
        listed.write_text(text, encoding="utf-8")
        git(repository, "init", "--quiet")
        for name in ("core.compression", "pack.window"):  # fetched once
            git(repository, "config", name, "0")
        tag(repository, f"v{self.version}")

    def _archive(self, name: str, file: Path) -> None:
        """Write the archive of a line of ``deps.txt``. CMake goes by an archive's bytes, not by its name."""
        packed = self.others[name].tree
        if packed is not None:
            shutil.copy(self.store.fetch(packed), file)
            return
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in sorted(self._files(name).items()):
                archive.writestr(zipfile.ZipInfo(f"{name}/{path}"), content)

    def _files(self, name: str) -> dict[str, bytes]:
        """Return the files of a dependency that consists of headers."""
        if name == "utf8_range":
            return {"CMakeLists.txt": b""}
        if name == "cutlass":
            return _below(self.store.unpack(_given(self.others[name].item)) / "cutlass_library/source")
        if name == "cudnn_frontend":
            wheel = self.store.unpack(_given(self.others[name].item))
            return {**_below(wheel / "include", "include/"), **_lists(name)}
        include = self.folder / f"headers-{name}" / "usr/include"
        deb = self.store.fetch(_CPUINFO if name == "pytorch_cpuinfo" else _given(self.others[name].item))
        subprocess.run(["dpkg-deb", "--extract", deb, include.parents[1]], check=True)
        if name == "safeint":
            return _below(include / "safeint")
        if name == "mp11":
            headers = [*include.glob("boost/mp11/**/*.hpp"), include / "boost/mp11.hpp"]
            found = {f"include/{file.relative_to(include)}": file.read_bytes() for file in headers}
            return {**found, **_lists("boost_mp11", "Boost::mp11")}
        target = {"microsoft_gsl": ("GSL", "Microsoft.GSL::GSL")}.get(name, ("cpuinfo", "cpuinfo::cpuinfo"))
        return {**_below(include, "include/"), **_lists(*target)}


def undated(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the member without what differs from run to run, so that the engine keeps its layers."""
    return member.replace(mtime=0, uid=0, gid=0, uname="", gname="", deep=False)


def _given(item: Input | None) -> Input:
    assert item is not None
    return item


def _below(folder: Path, prefix: str = "") -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {f"{prefix}{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files}


def _lists(name: str, alias: str = "") -> dict[str, bytes]:
    second = f"add_library({alias} ALIAS {name})\n" if alias else ""
    return {"CMakeLists.txt": _HEADERS.format(name=name, alias=second).encode()}


def tag(repository: Path, name: str) -> str:
    """Commit all files of a repository, let the tag ``name`` lead there, and return the commit."""
    git(repository, "add", "--all", "--force")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", name)
    git(repository, "tag", "--force", name)
    return git(repository, "rev-parse", "HEAD")
