"""Tests of an author's first hour on bare Debian systems: the tutorial, and the client by pip and npm.

A release's packages have the official build's libraries; stand-ins take the place of NVIDIA's.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from ortpacks_runtime.one_node import ONE_NODE

from builder.build.verbs.releases.releasing import add_programs
from builder.files.file_lock import exclusive
from builder.io.wiring import Wiring
from builder.prove.virtualcard.sessions import DRIVER, VirtualCard, environment_of
from tests.answers import pairs
from tests.answers.card import needs_compiler, runtime
from tests.doubles.release import HOST, name_of, write_release
from tests.elsewhere import users
from tests.elsewhere.systems import imported
from tests.elsewhere.users import Card, Computer, computer
from tests.support import ROOT
from tests.support.fakes.ports import FakeReporter
from tests.support.pypi_programs import npm_package

pytestmark = [needs_compiler, pytest.mark.thorough]

ORT = "1.30.0"
PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}
SYSTEM = ("python3-venv", "zstd", "nodejs")
NPM = "10.9.9"
"""A version of npm that runs on the Node.js of both, 18 and 20."""
A1000 = Card("NVIDIA RTX A1000", "8.6", 8192)
MODERN = name_of("modern", ORT)


def fetched(name: str, *argv: str, env: Mapping[str, str] | None = None) -> Path:
    """Return a folder of the cache that ``argv``, whose last word is completed by its path, has filled once.

    The test is skipped where it fails.
    """
    folder = Wiring(ROOT).cache / name
    with exclusive(folder.with_suffix(".lock"), lambda: None):
        if not folder.is_dir():
            part = folder.with_name(f"{name}.part")
            shutil.rmtree(part, ignore_errors=True)
            words = [*argv[:-1], f"{argv[-1]}{part}"]
            done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"{name} cannot be fetched: {done.stderr.strip()[-200:]}")
            part.rename(folder)
    return folder


def wheels(python: str) -> Path:
    """Return a folder with what the tutorial's application takes from PyPI."""
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:")
    wanted = (f"--python-version={python}", f"onnxruntime-gpu=={ORT}", "onnx")
    return fetched(f"wheels-{ORT}-python{python}", *pip, *wanted, "--dest=")


def npm_cache(scratch: Path) -> Path:
    """Return npm's cache with ``onnxruntime-node`` and what that needs."""
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", f"--prefix={scratch}")
    return fetched(f"npm-{ORT}", "npm", "install", *quiet, f"onnxruntime-node@{ORT}", "--cache=")


@pytest.fixture(scope="module")
def site(module_folder: Path) -> Mapping[str, Path]:
    """Return mounts: a release with its programs, what stands for NVIDIA's libraries, and for its driver."""
    release, links, card, driver = (module_folder / name for name in ("release", "links", "card", "driver"))
    library = pairs.official(ORT).library
    providers = {f"lib/{one.name}": one.read_bytes() for one in library.parent.glob("*_providers_[cs]*.so")}
    write_release(release, version=ORT, files={HOST: library.read_bytes(), **providers})
    shop = Wiring(ROOT, dist=release, reporter=FakeReporter())
    add_programs(shop, shop.project, f"gpu-libs-v{ORT}")
    (release / "one.onnx").write_bytes(ONE_NODE)
    for made in (links, driver):
        made.mkdir()
    environment_of(library, VirtualCard(capability=A1000.capability), runtime(), links)
    (links / "libcuda.so.1").unlink()  # that of the driver lists the card
    shutil.copytree(links, card)  # follows the links
    for place, path in users.driver([A1000], DRIVER, 13000, module_folder).items():
        shutil.copy(path, driver / Path(place).name)
    return {"/release": release, "/card": card, "/driver": driver}


WORLD = {
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "/wheels",
    "URL": "/release",
    "ORTPACKS_INDEX": "/release",
    "ONNXRUNTIME_NODE_INSTALL": "skip",
    "npm_config_prefer_offline": "true",
    "LD_PRELOAD": "libvirtualcard.so libvirtualstubs.so",
    "VIRTUALCARD_CUDA": "13",
    "VIRTUALCARD_CAPABILITY": A1000.capability,
}
NO_GPU = {"LD_LIBRARY_PATH": "/card", "VIRTUALCARD_DRIVER": "1.0"}
GPU = {"LD_LIBRARY_PATH": "/driver:/card", "VIRTUALCARD_DRIVER": DRIVER}

MARK = "== next =="

Start = Callable[[str], AbstractContextManager[Computer]]


@pytest.fixture(scope="module")
def start(site: Mapping[str, Path], module_folder: Path) -> Start:
    """Return a function that starts a computer with a Debian suite inside a block."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap, which makes the user's system: apt-get install mmdebstrap")

    npms = npm_cache(module_folder)

    @contextmanager
    def started(suite: str) -> Iterator[Computer]:
        shop = Wiring(ROOT)
        tar = shop.rootfs(shop.reporter).tar(suite, SYSTEM)
        brought = {"/wheels": wheels(PYTHONS[suite]), "/npm": npm_package("npm", NPM), "/npm-cache": npms}
        with imported(tar, suite) as image, computer(image, {**site, **brought}) as made:
            # The client's advice in a container differs, and npm writes into its cache.
            made.sh("rm /.dockerenv; cp -r /npm-cache /root/.npm")
            yield made

    return started


BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def steps(page: str) -> list[tuple[str, str]]:
    """Return a page's commands in order, each with the output that the page shows, or none."""
    blocks = [*BLOCK.findall(page), ("", "")]
    return [
        (text, then if kind == "text" else "") for (of, text), (kind, then) in pairwise(blocks) if of == "sh"
    ]


def shows(sample: str) -> str:
    """Return the pattern of a sample, in which a page may break lines; … stands for anything."""
    return r"\s+".join(".*".join(map(re.escape, word.split("…"))) for word in sample.split())


def ran(computer: Computer, commands: str, world: Mapping[str, str]) -> str:
    """Run commands, which must succeed, in the home of the computer's user, and return their stdout."""
    done = computer.run("bash", "-euc", f"cd; {commands}", env={**WORLD, **world})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tutorial_does_and_prints_what_it_says(start: Start) -> None:
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    here, there = map(steps, page.split("## 5. On the user's machine"))
    given_a_card = "".join(f"export {name}={value}\n" for name, value in GPU.items())
    script = [*here, (given_a_card, ""), *there]
    marked = "".join(f"{commands}echo '{MARK}'\n" for commands, _ in script)
    with start("bookworm") as computer:
        *said, rest = ran(computer, f"exec 2>&1\n{marked}", NO_GPU).split(f"{MARK}\n")
    assert rest == ""
    for printed, (_, sample) in zip(said, script, strict=True):
        assert re.fullmatch(shows(sample) if sample else ".*", printed.strip(), re.DOTALL), printed


AUTHORS = (ROOT / "docs/app-authors.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module", params=PYTHONS)
def debian(request: pytest.FixtureRequest, start: Start) -> Iterator[Computer]:
    with start(request.param) as computer:
        yield computer


WITHOUT_AND_WITH = pytest.mark.parametrize("world", [NO_GPU, GPU], ids=["no-gpu", "gpu"])


@WITHOUT_AND_WITH
def test_python_has_a_session_with_its_report_after_three_commands(
    debian: Computer, world: Mapping[str, str]
) -> None:
    """They are those of the page, in a new environment."""
    (block,) = (text for text, _ in steps(AUTHORS) if "import open_session" in text)
    url, venv, *commands = (line for line in block.splitlines() if not line.startswith("#"))
    assert (url.split("=")[0], venv.startswith("python3 -m venv "), len(commands)) == ("URL", True, 3)
    script = [*alone(f"python{world['LD_LIBRARY_PATH']}"), "cp /release/one.onnx model.onnx", venv, *commands]
    report = ran(debian, "\n".join(script), world)
    on_card = f"cuda: {MODERN}\n  on GPU 0: {A1000.name}\n"
    assert (on_card if world is GPU else f"cpu: onnxruntime {ORT}\n") in report, report
    assert ("cuda: taken: 1 nodes" in report) == (world is GPU)


@WITHOUT_AND_WITH
def test_node_has_postinstalls_answer_after_one_command(debian: Computer, world: Mapping[str, str]) -> None:
    """It is that of the page."""
    (install,) = re.findall(r"`(npm install onnxruntime-node@[^`]+)`", AUTHORS)
    npm = 'npm() { node /npm/bin/npm-cli.js "$@" >&2; }'
    script = [*alone(f"node{world['LD_LIBRARY_PATH']}"), npm, install, "node_modules/.bin/ortpacks info"]
    info = json.loads(ran(debian, "\n".join(script), world))
    said = (info["host"], info["fallbackToCpu"], info.get("package"), info["gpuName"])
    assert said == ((ORT, False, MODERN, A1000.name) if world is GPU else (ORT, True, None, None))
    assert ("no NVIDIA GPU was found" in info["reason"]) == (world is NO_GPU)


def alone(name: str) -> list[str]:
    """Return commands that make a new folder."""
    folder = name.replace("/", "-").replace(":", "")
    return [f"mkdir {folder}", f"cd {folder}"]
