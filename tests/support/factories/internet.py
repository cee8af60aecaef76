"""Factory of a double of the internet whose hosts a build on base ``nvidia`` or ``redist`` asks.

Debian's archive and PyPI have what is served below the hosts' names:

- Docker Hub has ``ubuntu:22.04``, which is Debian bookworm, and NVIDIA's image: the same with nvcc 12.4 and
  ptxas 12.9 in the folders that NVIDIA's own image has;
- ``snapshot.ubuntu.com`` has an archive with bookworm's packages, signed here;
- NVIDIA's server, GitHub and GitLab have what ``factories.redist`` makes. GitHub's ONNX Runtime has no
  ``utf8_range`` among its dependencies, as from 1.22 on; a fork on GitLab has it, as 1.21.0.
"""

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from builder.config.variants import ImageSystem
from builder.files.file_lock import exclusive
from builder.io.wiring import Wiring
from tests.doubles.internet.apt_archive import AptArchive
from tests.doubles.internet.hub_images import push_image
from tests.doubles.internet.world import World
from tests.support.cache_servers import registry_server
from tests.support.debian import debian_program
from tests.support.factories.redist import RELEASE, Maker, tag, undated
from tests.support.factories.sources import git
from tests.support.tables import data_text, table

GITHUB, GITLAB = "github.com/microsoft/onnxruntime", "gitlab.com/ortpacks/onnxruntime"

ARCHIVE = "snapshot.ubuntu.com/ubuntu/20251101T000000Z"

HOSTS = (
    *("api.github.com", "github.com", "uploads.github.com", "gitlab.com"),
    *("developer.download.nvidia.com", "snapshot.ubuntu.com"),
)

_PROGRAMS = ("git", "gpg", "ip", "mmdebstrap", "openssl")
"""Programs that make the double or run it."""

_SUITES = ("jammy", "jammy-security", "jammy-updates")
_DATE = "Sat, 01 Nov 2025 00:00:00 UTC"

_COMPILES_SMOKE = ("gcc", "libc6-dev")
"""What ``templates/runtime.Dockerfile.j2`` installs."""

_UTF8_RANGE = re.compile(
    r"^#Protobuf depends on utf8_range\n.*?^include_directories\(\$\{utf8_range_SOURCE_DIR\}\)\n",
    re.MULTILINE | re.DOTALL,
)
"""The lines of ``onnxruntime_external_deps.cmake`` that 1.22.0 does not have any more."""

_CUDA = "usr/local/cuda-12.9"

_ENV = data_text("docker/cuda-environment.txt").split()
"""The environment of NVIDIA's image."""

_NVIDIAS_LIST = b"deb https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64 /\n"


def ubuntu(shop: Wiring, wanted: tuple[str, ...]) -> tuple[Path, Sequence[Path]]:
    """Make Debian bookworm with apt alone, and fetch the packages ``wanted`` and what they need beyond it.

    Returns the system's tar and the packages, which lie in the cache.
    """
    recipe = hashlib.sha256(" ".join(wanted).encode()).hexdigest()[:12]
    folder = shop.cache / f"test-ubuntu-{recipe}"
    system = folder / "system.tar"
    with exclusive(folder.with_suffix(".lock"), lambda: None):
        if not system.exists():
            shutil.rmtree(folder, ignore_errors=True)
            (folder / "packages").mkdir(parents=True)
            _bootstrap(shop, folder, wanted)
    return system, tuple((folder / "packages").glob("*.deb"))


def _bootstrap(shop: Wiring, folder: Path, wanted: tuple[str, ...]) -> None:
    fetch = (
        'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get --yes --no-install-recommends --download-only install'
    )
    part = folder / "part.tar"
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    done = subprocess.run(
        [
            *("mmdebstrap", "--mode=root", "--variant=minbase", "--skip=output/dev", "--format=tar"),
            *([f"--keyring={keyring}"] if keyring.is_file() else []),
            f"--customize-hook={fetch} {' '.join(wanted)}",
            f"--customize-hook=sync-out /var/cache/apt/archives {folder / 'packages'}",
            '--customize-hook=rm -f "$1"/etc/apt/sources.list "$1"/etc/hostname "$1"/etc/resolv.conf',
            *("bookworm", str(part), shop.mirrors.find()[0]),
        ],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # it signals its process group on failure
    )
    if done.returncode:
        pytest.skip(f"mmdebstrap makes no system here: {done.stderr.strip()[-300:]}")
    part.replace(folder / "system.tar")


class InternetMaker:
    """The maker of a double in ``folder`` for the project of ``shop``."""

    def __init__(self, shop: Wiring, folder: Path) -> None:
        if missing := [name for name in _PROGRAMS if shutil.which(name) is None]:
            pytest.skip(f"needs {', '.join(missing)}: makes a double of the internet")
        registry = debian_program("docker-registry", "usr/bin/docker-registry")
        self.shop, self.folder = shop, folder
        self.world = World.make(folder / "world", HOSTS, registry)
        self.maker = Maker(shop, folder / "made", self.world.folder / "sites", self.world.site(GITHUB))
        self.version = self.maker.version
        self.nvidia = ""
        """Digest of NVIDIA's image, once it is made."""

    def make(self) -> World:
        system = self.shop.project.bases["nvidia"].system
        assert isinstance(system, ImageSystem)
        trees = self.maker.trees()
        self.maker.lay_toolkit(trees)
        self.lay_sources()
        tar, packages = ubuntu(self.shop, (*system.packages, *_COMPILES_SMOKE))
        archive = AptArchive(
            self.world.site(ARCHIVE), self.folder / "gnupg", self.shop.cache / "test-archive-key.gpg"
        )
        key = archive.lay(_SUITES, packages, _DATE)
        self.push_images(system, tar, key, trees)
        for tree in trees.values():
            shutil.rmtree(tree)
        return self.world

    def lay_sources(self) -> None:
        """Lay both repositories, and the archives of their dependencies."""
        repository, fork = self.maker.repository, self.world.site(GITLAB)
        self.maker.lay_source()
        fork.parent.mkdir(parents=True)
        git(repository, "clone", "--quiet", str(repository), str(fork))
        dependencies = repository / "cmake/deps.txt"
        lines = dependencies.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith("utf8_range;")]
        assert len(kept) == len(lines) - 1
        dependencies.write_text("".join(kept), encoding="utf-8")
        external = repository / "cmake/external/onnxruntime_external_deps.cmake"
        text, count = _UTF8_RANGE.subn("", external.read_text(encoding="utf-8"))
        assert count == 1
        external.write_text(text, encoding="utf-8")
        tag(repository, f"v{self.version}")

    def push_images(self, system: ImageSystem, tar: Path, key: bytes, trees: dict[str, Path]) -> None:
        """Push the images ``ubuntu`` and ``nvidia/cuda``, by the names that the base has."""
        keys = {
            "etc/apt/trusted.gpg.d/ubuntu.gpg": key,
            "etc/apt/sources.list": b"deb http://archive.ubuntu.com/ubuntu jammy main\n",
        }
        apt = _layer(self.folder / "apt", keys)
        self._lay_toolkit(trees)
        cuda = _layer(
            self.folder / "cuda", {"etc/apt/sources.list.d/cuda-ubuntu2204-x86_64.list": _NVIDIAS_LIST}
        )
        with registry_server(self.world.folder) as server:
            url = f"http://127.0.0.1:{server.port}"
            push_image(url, f"library/{system.runtime.spec}", [tar, apt])
            self.nvidia = push_image(url, system.image.spec, [tar, apt, cuda], _ENV)
        apt.unlink()
        cuda.unlink()

    def _lay_toolkit(self, trees: dict[str, Path]) -> None:
        """Lay the toolkit's files. ptxas is that of 12.9, which assembles for every architecture."""
        root = self.folder / "cuda"
        target = root / _CUDA / "targets/x86_64-linux"
        places = {"include": target / "include", "lib": target / "lib"}
        for tree in trees.values():
            for part in (path for path in tree.iterdir() if path.is_dir()):
                shutil.copytree(part, places.get(part.name, root / _CUDA / part.name), dirs_exist_ok=True)
        wheels = {**self.shop.project.cuda.libraries, "cusparse": self.maker.toolkit.wheels["cusparse"]}
        for name in ("cublas", "cufft", "curand", "cusparse"):
            shutil.copytree(
                self.maker.store.unpack(wheels[name]) / f"nvidia/{name}/include",
                places["include"],
                dirs_exist_ok=True,
            )
        ptxas = self.maker.store.unpack(self.maker.toolkit.wheels["ptxas"]) / "nvidia/cuda_nvcc/bin/ptxas"
        shutil.copy(ptxas, root / _CUDA / "bin/ptxas")
        profile = root / _CUDA / "bin/nvcc.profile"
        text = profile.read_text(encoding="utf-8")
        for name in ("include", "lib"):  # as NVIDIA's own, which has the target's folder
            assert f"$(TOP)/{name}" in text
            text = text.replace(f'"-I$(TOP)/{name}', f'"-I$(TOP)/$(_TARGET_DIR_)/{name}')
            text = text.replace(f'"-L$(TOP)/{name}', f'"-L$(TOP)/$(_TARGET_DIR_)/{name}')
        profile.write_text(text, encoding="utf-8")
        for name, end in table("docker/cuda-links.txt"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(end)


def _layer(root: Path, files: Mapping[str, bytes]) -> Path:
    """Return a tar file of ``root`` with ``files``; ``root`` is removed."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    tar = root.with_suffix(".tar")
    with tarfile.open(tar, "w") as layer:
        for part in sorted(root.iterdir()):
            layer.add(part, part.name, filter=undated)
    shutil.rmtree(root)
    return tar


def edit_project(folder: Path, version: str) -> None:
    """Let the project in ``folder`` have the double's versions, and variant ``legacy`` two architectures.

    Base ``redist`` takes the fork. Pins of the new inputs are open, as those of the old ones were.
    """
    text = (folder / "variants.yaml").read_text(encoding="utf-8")
    patch = "\n    patches: [patches/ort-1.21-open-the-driver-late.patch]" if version == "1.21.0" else ""
    tagged = "source: {{git: https://{}@v{}}}\n    cmake: cmake==3.31.6"
    ours, theirs = tagged.format(GITHUB, version) + patch, tagged.format(GITLAB, version) + patch
    upstream = tagged.format(GITHUB, "1.30.0")
    for old, new in (
        *((f"onnxruntime: 1.30.0\n    rootfs:\n      {one}",) * 2 for one in ("image", "suite")),
        (upstream, ours),
        (upstream, theirs),
        ("redist: 12.9.1", f"redist: {RELEASE}"),
        ("sm: [50, 52, 60, 61, 70]", "sm: [52, 60]"),
        ("generations: [Maxwell, Pascal, Volta]", "generations: [Maxwell, Pascal]"),
    ):
        assert old in text, old
        text = text.replace(old, new.replace("onnxruntime: 1.30.0", f"onnxruntime: {version}"), 1)
    (folder / "variants.yaml").write_text(text, encoding="utf-8")
    lock = json.loads((folder / "inputs.lock").read_text(encoding="utf-8"))
    is_old = re.compile(r"git:|redist:").match
    kept = {key: pin for key, pin in lock["inputs"].items() if not is_old(key)}
    fresh = {f"git:https://{source}@v{version}": {"revision": None} for source in (GITHUB, GITLAB)}
    fresh |= {
        f"redist:{RELEASE}/{name}": {"sha256": None} for name in ("cuda_cccl", "cuda_cudart", "cuda_nvcc")
    }
    lock["inputs"] = dict(sorted({**kept, **fresh}.items()))
    (folder / "inputs.lock").write_text(json.dumps(lock, indent=2) + "\n", encoding="utf-8")
