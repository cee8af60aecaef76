"""Factory of a project without ``inputs.lock`` whose hosts answer every request with made up bytes."""

import io
import shutil
import tarfile
from pathlib import Path

from builder.config.inputs import Input, InputKind, Pin
from builder.config.toolkits import DATA
from builder.errors import TransferError
from builder.facts.ort.source import Dependency, SourceFacts
from builder.io.process import Completed
from builder.io.wiring import Wiring
from tests.support.factories.binaries import elf, sass
from tests.support.factories.redist import DEPENDENCIES
from tests.support.fakes.ports import FakeEngine, FakeReporter, FakeRunner

COMMIT = "c" * 40

DIGEST = f"sha256:{'d' * 64}"

IMAGE = "image:nvidia/cuda:12.9.1-devel-ubuntu22.04"

GIT = "git:https://github.com/microsoft/onnxruntime@v1.30.0"

CUDNN = "wheel:nvidia-cudnn-cu12==9.10.2.21"


DEPS = "".join(
    f"{name};https://github.com/some/{name}/archive/v1.zip;{'0123' * 10}\n"
    for name in (*DEPENDENCIES, "googletest", "dawn")
)

CMAKE = "".join(
    f"if({'onnxruntime_USE_CUDA' if name in DEPENDENCIES else 'onnxruntime_BUILD_UNIT_TESTS'})\n"
    f"  FetchContent_Declare({name} URL ${{DEP_URL_{name}}})\nendif()\n"
    for name in (*DEPENDENCIES, "googletest")
)


FILES = tuple(f"https://github.com/some/{name}/archive/v1.zip" for name in sorted(DEPENDENCIES))

READ = SourceFacts(
    "1.30.0",
    tuple(
        Dependency(name, name, url, "0123" * 10, DEPENDENCIES.index(name) + 1)
        for name, url in zip(sorted(DEPENDENCIES), FILES, strict=True)
    ),
)
"""What is read of the source of ``GIT``."""


class Intake:
    """A store that gives a size for its first ``reachable`` inputs and fails for all later ones."""

    folder: Path
    listed = DEPS
    """The text of ``deps.txt`` of the source in git."""

    def __init__(self, reachable: int = 1000, sha256: str = "0" * 64) -> None:
        self.reachable, self.sha256 = reachable, sha256
        self.taken: list[str] = []
        self.sha1: dict[str, str] = {}

    def fetch(self, item: Input) -> Path:
        """Return a tar of ONNX Runtime's tree with the files that ``lock`` reads."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "tree.tar"
        is_git = item.kind is InputKind.GIT
        version, above = ("1.30.0", "") if is_git else ("1.21.0", "onnxruntime-1.21.0/")
        listed = self.listed if is_git else DEPS
        texts = {"cmake/deps.txt": listed, "cmake/CMakeLists.txt": CMAKE, "VERSION_NUMBER": version}
        with tarfile.open(path, "w") as tar:
            for name, text in texts.items():
                info = tarfile.TarInfo(f"{above}{name}")
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
        return path

    def pin(self, item: Input, sha1: str = "") -> Pin:
        self.sha1[item.key] = sha1
        if len(self.taken) == self.reachable:
            raise TransferError(f"{item.key} cannot be fetched: no route to host. Check the network.")
        self.taken.append(item.key)
        return Pin(filename="file", size=1, sha256=self.sha256)

    def unpack(self, item: Input) -> Path:
        """Return a folder with one library, which serves 7.5 alone."""
        folder = self.folder / item.spec
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "libx.so.12").write_bytes(elf({".nv_fatbin": sass(75)}))
        return folder


PYTHONS = ("cp312-cp312", "cp313-cp313t")


class Listing:
    """A package index that lists wheels of every project for two Pythons."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def python_wheels(self, requirement: str) -> dict[Input, Pin]:
        self.asked.append(requirement)
        pin = Pin(filename="x.whl", size=1, sha256="4" * 64)
        return {Input(InputKind.WHEEL, f"{requirement}@{python}"): pin for python in PYTHONS}


def unlocked(folder: Path, root: Path) -> Wiring:
    """Return the wiring of the project in ``root``, copied without its lock, with hosts that answer."""
    shutil.copy(root / "variants.yaml", folder)
    (folder / DATA).parent.mkdir(parents=True)
    made = Wiring(folder, reporter=FakeReporter())
    images = ("nvidia/cuda:12.9.1-devel-ubuntu22.04", "ubuntu:22.04")
    git = Completed(code=0, stdout=f"{COMMIT}\trefs/tags/v1.30.0\n", stderr="")
    use(
        made,
        engine=FakeEngine(digests=dict.fromkeys(images, DIGEST)),
        runner=FakeRunner(answers={"git": git}),
        package_index=Listing(),
    )
    take(made, Intake())
    made.env = {**made.env, "ORTPACKS_CACHE": str(folder / "cache")}
    return made


def use(shop: Wiring, **parts: object) -> None:
    """Let the wiring have these parts in place of its own."""
    shop.__dict__.update(parts)


def take(shop: Wiring, intake: Intake) -> Intake:
    """Let the wiring have this store."""
    use(shop, store=lambda *_: intake)
    intake.folder = shop.root.parent / "unpacked"
    return intake
