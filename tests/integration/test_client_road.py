"""Tests of the client on users' computers with Python alone, from a release to a model's outputs."""

import functools
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest

from builder.config.inputs import ort_wheel
from builder.io.wiring import Wiring
from tests.doubles.github import GitHubDouble
from tests.elsewhere import users
from tests.elsewhere.release_for_users import address, cpu_packages, released
from tests.elsewhere.users import Bought, Card, User, compile_c, computer, driver
from tests.support import ROOT
from tests.support.fakes.verbs import build
from tests.support.real_packages import (
    require_stock_numbers,
    silero_arguments,
    silero_model,
    write_silero_inputs,
)

pytestmark = pytest.mark.thorough

DOWNLOAD = "import sys, urllib.request as web; web.urlretrieve(sys.argv[1], '/root/ortpacks.pyz')"
PREFIX = "/root/.local/share/ortpacks"
NOTHING_IS_INSTALLED = 3
LAST_WITH_MAXWELL = "580.82.07"
"""A driver of branch 580, the last one with Maxwell, Pascal and Volta; 570 was the first with Blackwell."""


QUADRO = Card("Quadro M2200", "5.2", 4096)
RTX_PRO = Card("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0", 97887)
COMPUTERS = {
    "quadro": Bought([QUADRO], "535.183.01", 12020, "legacy"),  # a Maxwell GPU
    "rtx-a1000": Bought([Card("NVIDIA RTX A1000", "8.6", 8192)], "570.133.07", 12080, "modern"),
    # modern by JIT: the compiled packages are minimal, and one that runs every model is preferred.
    "two-cards": Bought([Card("Tesla M60", "5.2", 8192), RTX_PRO], LAST_WITH_MAXWELL, 13000, "modern", "jit"),
    "kepler": Bought([Card("Tesla K40m", "3.5", 11441)], "470.256.02", 11040, "cpu"),
    "no-gpu": Bought([], "", 0, "cpu"),
}


Owner = tuple[User, dict[str, object]]


@pytest.fixture(scope="module")
def release(
    legacy_package: Path, modern_package: Path, dist: Path, module_folder: Path
) -> Iterator[GitHubDouble]:
    """Publish three packages for CUDA and one for the CPU, this one as gzip too, to the GitHub double."""
    ours = module_folder / "shelf"
    ours.mkdir()
    (ours / ".check-tools-assembled").symlink_to(dist / ".check-tools-assembled")
    latest = build(ours, "--variant", "latest", "--profile", "minimal")
    packages = [legacy_package, modern_package, latest, *cpu_packages(ours)]
    with released(packages, ours / "released") as double:
        yield double


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap, which makes the user's system: apt-get install mmdebstrap")
    with users.image() as name:
        yield name


@pytest.fixture(scope="module")
def brought(release: GitHubDouble, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return mounts of users' own files: applications, a model, its inputs, the official Python wheels."""
    folder = tmp_path_factory.mktemp("brought")
    compile_c(ROOT / "tests/elsewhere/application.c", folder / "application", "-DAPI=21", "-ldl")
    write_silero_inputs(folder)
    store = Wiring(ROOT).store(Wiring(ROOT).lock)
    wheels = {has.version: store.unpack(ort_wheel(has.version)) for has in COMPUTERS.values()}
    packages = Path(np.__file__).parent.parent
    return {
        "/application": folder / "application",
        "/inputs": folder,
        "/smoke": dist / ".check-tools-assembled" / "tools" / "ortpacks-smoke",
        "/model.onnx": silero_model(),
        "/session.py": ROOT / "tests/elsewhere/session.py",
        **{f"/wheels/{version}": wheel for version, wheel in wheels.items()},
        **{f"/numpy/{name}": packages / name for name in ("numpy", "numpy.libs")},
    }


@pytest.fixture(scope="module")
def users_of(
    release: GitHubDouble, image: str, brought: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], AbstractContextManager[User]]:
    """Return a function that starts a named computer inside a block, with the client downloaded."""

    @contextmanager
    def make(name: str) -> Iterator[User]:
        has = COMPUTERS[name]
        mounts = driver(has.cards, has.driver, has.cuda, tmp_path_factory.mktemp(name)) if has.cards else {}
        with computer(image, {**brought, **mounts}) as made:
            made.sh(f'python3 -c "{DOWNLOAD}" {address(release, "ortpacks.pyz")}')
            yield User(made, has)

    return make


@pytest.fixture
def user(users_of: Callable[[str], AbstractContextManager[User]]) -> Iterator[User]:
    """Yield the user of a new computer without a GPU."""
    with users_of("no-gpu") as user:
        yield user


@pytest.fixture(scope="module")
def owner(
    request: pytest.FixtureRequest, users_of: Callable[[str], AbstractContextManager[User]]
) -> Iterator[Owner]:
    """Yield a user and the answer of ``install``. All tests of a computer share it, one after another."""
    with users_of(request.param) as user:
        yield user, user.ask("install")


computers = functools.partial(pytest.mark.parametrize, "owner", indirect=True)


@computers(COMPUTERS)
def test_install_takes_the_package_for_the_gpu_that_the_driver_lists(owner: Owner) -> None:
    """A computer without a GPU that a package runs on gets the package for the CPU, with the reason."""
    user, said = owner
    package, device = said["package"], said["device"]
    assert isinstance(package, dict)
    assert package["variant"] == user.has.variant
    if user.has.variant == "cpu":
        assert (device, said["support"]) == (None, None)
        assert str(said["summary"]).startswith("CPU: ")
    else:
        best = max(user.has.cards, key=lambda card: card.mib)
        assert isinstance(device, dict)
        assert (device["name"], device["capability"]) == (best.name, best.capability)
        assert (device["driver"], said["support"]) == (user.has.driver, user.has.support)


@computers(COMPUTERS)
def test_what_was_installed_is_whole_and_any_program_runs_on_it(owner: Owner) -> None:
    """A C program computes the stock build's outputs; another one loads the library like Rust's ``ort``."""
    user, _ = owner
    assert "files are as the manifest says" in user.client("verify")
    environment = 'eval "$(python3 /root/ortpacks.pyz env)"'
    assert user.computer.sh(f"{environment}; /application").strip() == user.has.version
    inputs = " ".join(silero_arguments("/inputs"))
    said = json.loads(user.computer.sh(f'{environment}; /smoke "$ORT_DYLIB_PATH" /model.onnx {inputs}'))
    assert (said["version"], said["provider"]) == (user.has.version, "cpu"), "no card here can compute"
    assert ("CUDAExecutionProvider" in said["providers"]) == (user.has.variant != "cpu")
    require_stock_numbers(said)


def test_whoever_changes_the_card_gets_another_package_and_can_go_back(user: User) -> None:
    """After ``uninstall`` no file is left."""
    assert user.variant("install", env={"ORTPACKS_FORCE_CC": "5.2"}) == "legacy"
    assert user.variant("install", env={"ORTPACKS_FORCE_CC": "3.5"}) == "cpu"
    current = f"readlink {PREFIX}/current"
    assert "ortpacks-cpu" in user.computer.sh(current)
    user.client("rollback", "--yes")
    assert "ortpacks-legacy" in user.computer.sh(current)
    user.client("verify")
    user.client("uninstall", "--yes")
    assert user.computer.sh("find /root/.local/share") == "/root/.local/share\n"
    user.client("env", code=NOTHING_IS_INSTALLED)


def session(
    user: User, *, with_env: bool, version: str, preloaded: str = ""
) -> tuple[dict[str, object], str]:
    """Open a session by the official Python wheel; return its JSON line and ONNX Runtime's messages."""
    environment = 'eval "$(python3 /root/ortpacks.pyz env)";' if with_env else ""
    script = f"{environment} python3 /session.py /model.onnx {preloaded}"
    done = user.computer.run("sh", "-euc", script, env={"PYTHONPATH": f"/wheels/{version}:/numpy"})
    assert done.returncode == 0, done.stdout + done.stderr
    *log, last = done.stdout.splitlines()
    return json.loads(last), "\n".join([*log, done.stderr])


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="Debian 12's Python is 3.11 and runs this one's numpy"
)
class TestPython:
    @computers(["quadro", "rtx-a1000"])
    def test_the_wheel_of_the_same_version_runs_on_the_installed_provider(self, owner: Owner) -> None:
        """All libraries load: the refusal is CUDA's, as the stand-in for the driver cannot compute.

        The wheel of 1.26.0 opens the provider that lies beside itself, whatever ``LD_LIBRARY_PATH`` says.
        """
        user, _ = owner
        said, log = session(user, with_env=True, version=user.has.version)
        assert "CUDA failure" in log
        assert said["version"] == user.has.version
        loaded = {Path(path).name: path for path in said["loaded"]}  # type: ignore[attr-defined]
        ours = f"{PREFIX}/versions/ortpacks-{user.has.variant}"
        place = {"1.21.0": ours, "1.26.0": "/wheels"}[user.has.version]
        assert loaded["libonnxruntime_providers_cuda.so"].startswith(place)
        if user.has is COMPUTERS["rtx-a1000"]:
            assert loaded["libcudnn.so.9"].startswith(PREFIX)

    @computers(["rtx-a1000"])
    def test_without_the_variables_it_finds_no_cuda(self, owner: Owner) -> None:
        _, log = session(owner[0], with_env=False, version="1.26.0")
        assert "libcublasLt.so.12: cannot open shared object file" in log

    @computers(["rtx-a1000"])
    def test_the_wheels_own_provider_takes_cuda_and_cudnn_from_the_package(self, owner: Owner) -> None:
        user, _ = owner
        lib = f"{PREFIX}/current/lib"
        said, log = session(user, with_env=False, version=user.has.version, preloaded=lib)
        assert "CUDA failure" in log
        loaded = {Path(path).name: path for path in said["loaded"]}  # type: ignore[attr-defined]
        assert loaded["libonnxruntime_providers_cuda.so"].startswith("/wheels")
        assert loaded["libcudnn.so.9"].startswith(PREFIX)
