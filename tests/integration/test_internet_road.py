"""Tests of the road that users have, on a double of the internet: from an empty clone to a package.

README's commands are called as README has them. ``factories.internet`` says what the double has below the
hosts' names, and which variables replace ONNX Runtime's source by a newer one.
"""

import filecmp
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.config.inputs import Lock
from builder.config.load import parse_lock
from builder.errors import CheckFailedError, TransferError
from builder.formats.manifest import Manifest
from builder.io.archive.unpacking import manifest_of
from builder.io.docker.engine import OVERTIME, ContainerRun, DockerEngine
from builder.io.process import Completed, ProcessRunner
from builder.io.wiring import Wiring
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.doubles.internet.hub_images import push_image
from tests.doubles.internet.world import HUB, World
from tests.integration.faults_world import need_root, replace
from tests.integration.internet import Clone, cloned, engine_on
from tests.support import ROOT, ran
from tests.support.cache_servers import registry_server
from tests.support.factories.internet import ARCHIVE, GITHUB, GITLAB, InternetMaker, edit_project
from tests.support.factories.redist import RELEASE
from tests.support.factories.sources import git

pytestmark = pytest.mark.thorough

NVIDIA, UBUNTU = "nvidia/cuda:12.9.1-devel-ubuntu22.04", "ubuntu:22.04"
ARM, GONE = "nvidia/cuda:12.9.1-devel-arm64", "nvidia/cuda:1.0-gone"

BUILD = ("build", "--variant", "legacy", "--profile", "minimal")


@dataclass(frozen=True)
class Internet:
    """The double, an engine on it, the version of its ONNX Runtime, and the digest of NVIDIA's image."""

    world: World
    host: str
    version: str
    nvidia: str


@pytest.fixture(scope="module")
def internet(module_folder: Path) -> Iterator[Internet]:
    need_root("starts an engine of its own")
    maker = InternetMaker(Wiring(ROOT), module_folder / "internet")
    world = maker.make()
    with registry_server(world.folder) as server:
        push_image(f"http://127.0.0.1:{server.port}", ARM, [], architecture="arm64")
    with engine_on(world) as engine:
        yield Internet(world, engine.host, maker.version, maker.nvidia)


@pytest.fixture(scope="module")
def github(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitHubDouble]:
    with GitHubDouble(tmp_path_factory.mktemp("github")).running() as double:
        double.uploads = "https://uploads.github.com"
        yield double


@pytest.fixture(scope="module")
def user(internet: Internet, github: GitHubDouble, module_folder: Path) -> Iterator[Clone]:
    """Yield the clone of a user who builds the double's version for two architectures."""
    folder = module_folder / "user"
    folder.mkdir()
    with cloned(
        internet.world,
        internet.host,
        folder,
        {"api.github.com": github.url, "uploads.github.com": github.storage.url},
    ) as clone:
        edit_project(clone.folder, internet.version)
        yield clone


def docker(internet: Internet, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    argv = ["docker", "--host", internet.host, *words]
    return ran(argv, given=given)


def test_a_container_that_does_not_end_is_ended(internet: Internet) -> None:
    """The real engine and its SDK: what a limit of time makes of them is no fault of the engine."""
    assert docker(internet, "pull", "--quiet", UBUNTU).returncode == 0
    env = {**os.environ, "DOCKER_HOST": internet.host}
    asked = ContainerRun(image=UBUNTU, argv=("sh", "-c", "echo here; sleep 999"), seconds=5)
    assert DockerEngine(ProcessRunner(env), env).run(asked) == Completed(OVERTIME, "here\n", "")
    assert docker(internet, "ps", "--all", "--quiet").stdout == ""


def lock_of(clone: Clone) -> Lock:
    return parse_lock((clone.folder / "inputs.lock").read_text(encoding="utf-8"), "inputs.lock")


def commit_of(world: World, source: str, version: str) -> str:
    return git(world.site(source), "rev-parse", f"v{version}^{{commit}}")


def built(clone: Clone, *more: str) -> Manifest:
    """Build ``legacy`` as README has it, and return the manifest of the full package."""
    done = clone.run(*BUILD, *more)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    full, *_ = (file for file in (clone.folder / "dist").glob("*.tar.zst") if "-thin-" not in file.name)
    return manifest_of(full)


def require_compiled_here(made: Manifest, base: str, version: str) -> None:
    assert (made.base.name, made.variant, made.sm) == (base, "legacy", ("52", "60"))
    assert (made.onnxruntime.version, made.onnxruntime.origin) == (version, "source")
    assert made.onnxruntime.profile == "minimal"
    (provider,) = (file for file in made.files if file.path.endswith("libonnxruntime_providers_cuda.so"))
    assert (provider.source, provider.packed) == ("built", True)
    (code,) = (one for one in made.coverage if one.path == provider.path)
    assert code.sass == ("52", "60")


def test_a_release_takes_no_open_pin(user: Clone) -> None:
    """Before the first build, whose pins would be there."""
    done = user.run("build", "--variant", "legacy", "--base", "nvidia", "--release")
    assert (done.returncode, f"R009 image:{NVIDIA}: " in done.stderr) == (CheckFailedError.exit_code, True)


def test_a_build_takes_base_nvidia_pins_what_is_open_and_makes_its_package(
    user: Clone, internet: Internet
) -> None:
    """Defect: ``./run build --variant legacy`` took base nvidia and refused, as parts of it had no pin."""
    assert lock_of(user).pins[f"image:{NVIDIA}"].is_open
    made = built(user)
    require_compiled_here(made, "nvidia", internet.version)
    pins = lock_of(user).pins
    assert pins[f"image:{NVIDIA}"].revision == internet.nvidia
    (written,) = (user.folder / "dist").glob("*minimal-linux-x64.tar.zst.provenance.json")
    assert f'"sha256": "{internet.nvidia.removeprefix("sha256:")}"' in written.read_text(encoding="utf-8")
    assert made.base.revision  # the digest of all its parts: each has a pin
    key = f"git:https://{GITHUB}@v{internet.version}"
    assert pins[key].revision == commit_of(internet.world, GITHUB, internet.version)
    assert not [one for one in lock_of(user).sources[key].dependencies if one.name == "utf8_range"]
    assert pins[f"git:https://{GITLAB}@v{internet.version}"].is_open  # another base's
    assert f"GET {ARCHIVE}/dists/jammy/InRelease" in internet.world.sites().requests()


def test_another_state_of_the_archive_ends_the_build_step(user: Clone, internet: Internet) -> None:
    """The lists that are pinned are those of one day, whatever its server signs later."""
    listed = internet.world.site(f"{ARCHIVE}/dists/jammy-updates/InRelease")
    real = listed.read_bytes()
    listed.write_bytes(internet.world.site(f"{ARCHIVE}/dists/jammy-security/InRelease").read_bytes())
    try:
        dockerfile = user.folder / "dist/legacy/Dockerfile"
        assert dockerfile.is_file()
        text = dockerfile.read_text(encoding="utf-8").partition("COPY --from=cudnn")[0]
        ended = docker(internet, "build", "--progress=plain", "--no-cache", "-", given=text)
    finally:
        listed.write_bytes(real)
    assert ended.returncode != 0
    assert "jammy-updates" in ended.stderr


def test_base_redist_is_compiled_from_nvidias_archives_and_the_fork(user: Clone, internet: Internet) -> None:
    made = built(user, "--base", "redist")
    require_compiled_here(made, "redist", internet.version)
    assert made.toolkit == RELEASE.rpartition(".")[0]
    pins = lock_of(user).pins
    key = f"git:https://{GITLAB}@v{internet.version}"
    assert pins[key].revision == commit_of(internet.world, GITLAB, internet.version)
    assert [one for one in lock_of(user).sources[key].dependencies if one.name == "utf8_range"]
    assert not pins[f"redist:{RELEASE}/cuda_nvcc"].is_open


def test_the_release_is_public_the_same_in_a_mirror_and_made_again_bit_for_bit(
    user: Clone, internet: Internet, github: GitHubDouble, tmp_path: Path
) -> None:
    """README's ``publish``, ``mirror`` and ``rebuild``, with the flags that the dry run had."""
    tag, allow = f"gpu-libs-v{internet.version}", ("--allow-lean", "--allow-partial")
    done = user.run("publish", "--tag", tag, *allow, "--allow-mutable", GITHUB_TOKEN=TOKEN)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    public = github.published(tag)
    assert public
    done = user.run("mirror", "--to", str(tmp_path), "--tag", tag, *allow)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    names = sorted(file.name for file in (tmp_path / tag).iterdir())
    assert names == sorted(asset.name for asset in public.assets.values())
    place = internet.world.site(f"github.com/{REPOSITORY}/releases/download/{tag}")
    place.mkdir(parents=True)
    for asset in public.assets.values():
        assert filecmp.cmp(asset.file, tmp_path / tag / asset.name, shallow=False), asset.name
        (place / asset.name).symlink_to(asset.file)
    again = user.run("rebuild", tag)
    assert again.returncode == 0, f"{again.stdout[-3000:]}\n{again.stderr[-3000:]}"
    assert f"{tag}: 3 packages are bit for bit what this tree makes" in again.stdout


def test_lock_missing_pins_the_rest_and_ends_well(user: Clone) -> None:
    done = user.run("lock", "--missing")
    assert done.returncode == 0, done.stderr
    assert not [key for key, pin in lock_of(user).pins.items() if pin.is_open]
    for base in ("nvidia", "redist"):
        assert user.run("lock", "--check", base).returncode == 0


@pytest.fixture
def stranger(internet: Internet, tmp_path: Path) -> Iterator[Clone]:
    """Yield a clone without any pin of the double."""
    with cloned(internet.world, internet.host, tmp_path, {}) as clone:
        edit_project(clone.folder, internet.version)
        yield clone
    for file in internet.world.folder.rglob("*.status"):
        file.unlink()


@pytest.mark.parametrize(
    ("image", "limited", "told"),
    [
        (GONE, "", (GONE, "manifest unknown")),
        (GONE, f"{HUB}/v2/{GONE.replace(':', '/manifests/')}", (GONE, "pull rate limit")),
        (ARM, "", (ARM, "amd64")),
        (NVIDIA, f"{GITHUB}/info/refs", (GITHUB,)),
    ],
)
def test_a_base_of_which_a_part_cannot_be_had_is_skipped_with_the_reason(
    stranger: Clone, internet: Internet, image: str, limited: str, told: tuple[str, ...]
) -> None:
    """An image that vanished, rate limits of Docker Hub and of GitHub, and an image for ARM alone."""
    for name in ("variants.yaml", "inputs.lock"):
        replace(stranger.folder / name, NVIDIA, image)
    if limited:
        internet.world.sites().fail(limited, *[429] * 9)
    taken = stranger.run("plan", "--variant", "legacy", "--profile", "minimal")
    assert taken.returncode == 0, taken.stderr
    (reason,) = (line for line in taken.stdout.splitlines() if line.split()[:1] == ["base"])
    asked = stranger.run(*BUILD, "--base", "nvidia")
    assert asked.returncode == TransferError.exit_code, asked.stdout + asked.stderr
    for words in ("assembled: ", *told):
        assert words in reason
    for words in told:
        assert words in asked.stderr
