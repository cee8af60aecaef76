"""Tests of the changes that ./run makes: an engine, its apt sources, and .venv when two runs start together.

``run`` writes below ``/etc`` and ``/var/log``: the copy under test writes into a folder of the test.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.component.build.run_machine import PYTHON, Machine
from tests.support.messages import Told
from tests.support.tables import data_text

INDEXTARGETS = (
    "indextargets --format $(REPO_URI) Created-By: Packages Component: main Origin: Debian Codename: bookworm"
)

APT = data_text("programs/apt-get.txt")


@pytest.fixture
def machine(tmp_path: Path, root: Path) -> Machine:
    machine = Machine(tmp_path, root)
    for name in ("sed", "seq", "sleep", "touch"):
        (machine.bin / name).symlink_to(shutil.which(name) or pytest.fail(f"{name} is not on this machine"))
    return machine


class Installer:
    """A machine with the given system and without an engine, whose ``apt-get update`` can be made to fail."""

    def __init__(self, machine: Machine, system: str, *, update: int = 0) -> None:
        self.etc = machine.folder.parent / "etc"
        for folder in ("sources.list.d", "preferences.d"):
            (self.etc / "apt" / folder).mkdir(parents=True)
        name, version = system.split()
        (self.etc / "os-release").write_text(f"ID={name}\nVERSION_ID={version}\n")
        script = machine.folder / "run"
        script.write_text(
            script.read_text().replace("/etc/", f"{self.etc}/").replace("/var/log", str(self.etc))
        )
        (machine.bin / "dockerd").unlink()
        machine.stub(
            "docker", f'case "$1" in version) [ -e {self.etc}/installed ] ;; context) echo default ;; esac'
        )
        machine.stub("apt-get", APT.format(trixie=self.source, update=update, etc=self.etc))

    @property
    def source(self) -> Path:
        return self.etc / "apt/sources.list.d/ortpacks-trixie.sources"


def test_debian_12_takes_its_docker_from_the_next_release_and_nothing_else(machine: Machine) -> None:
    installer = Installer(machine, "debian 12")
    done = machine.run("build")
    assert done.returncode == 0, done.stderr
    calls = machine.called("apt-get")
    assert calls[:3] == ["update -qq", INDEXTARGETS, "update -qq"]
    assert "docker.io/trixie" in calls[3].split()
    assert "URIs: http://one.example/debian/\nSuites: trixie\n" in installer.source.read_text()
    pin = installer.etc / "apt/preferences.d/ortpacks-trixie"
    assert pin.read_text() == "Package: *\nPin: release n=trixie\nPin-Priority: 100\n"


FOREIGN = 'case "$*" in indextargets*Origin:\\ Debian*) ;; indextargets*) echo http://php.example ;; esac'


@pytest.mark.parametrize(
    ("system", "update", "apt"),
    [("debian 12", 100, None), ("debian 12", 0, FOREIGN), ("ubuntu 24.04", 0, "exit 100")],
    ids=["unreadable", "another vendor's", "broken"],
)
def test_an_installation_that_cannot_be_takes_back_what_it_wrote(
    machine: Machine, told: Told, system: str, update: int, apt: str | None
) -> None:
    """Another vendor's archive is never taken for Debian's."""
    installer = Installer(machine, system, update=update)
    if apt:
        machine.stub("apt-get", apt)
    done = machine.run("build")
    assert done.returncode == 4
    told(done.stderr)
    assert [*installer.etc.rglob("ortpacks-*")] == []
    assert not any(call.startswith("install") for call in machine.called("apt-get"))


@pytest.mark.parametrize(("system", "verb"), [("ubuntu 24.04", "build"), ("debian 13", "rebuild TAG")])
def test_debians_keys_and_mmdebstrap_come_with_the_engine(machine: Machine, system: str, verb: str) -> None:
    Installer(machine, system)
    assert machine.run(*verb.split()).returncode == 0
    (install,) = [call for call in machine.called("apt-get") if call.startswith("install")]
    assert {"mmdebstrap", "uidmap", "debian-archive-keyring"} <= set(install.split())
    assert ("docker-cli" in install) == system.startswith("debian")


def test_two_first_starts_make_one_environment(machine: Machine) -> None:
    slow = PYTHON.replace('"-m venv .venv")', '"-m venv .venv") sleep 1;')
    machine.stub("python3", slow)
    command = [str(machine.folder / "run"), "--list"]
    env = {"PATH": str(machine.bin), "CALLS": str(machine.calls)}
    started = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=30)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], told
    assert len([call for call in machine.called("python") if "venv" in call]) == 1
    assert sorted(told) == [
        "run: another start is making .venv: waiting\n",
        "run: making .venv with Python 3.12.0 and requirements.lock\n",
    ]


def test_an_environment_that_was_being_removed_is_not_taken_for_whole(machine: Machine) -> None:
    machine.run("--list")
    (machine.folder / "requirements.lock").write_text("invoke==2.2.1\n")
    (machine.bin / "rm").unlink()
    machine.stub("rm", f'case "$1" in -f) {shutil.which("rm")} "$@" ;; *) exit 1 ;; esac')
    assert machine.run("--list").returncode != 0
    assert not (machine.folder / ".venv" / ".lock").exists()
