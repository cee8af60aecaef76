"""Tests of the order in which GPUs are detected, and of what the user, the kernel and the system report."""

import os
import resource
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from builder.client.commands.show_gpus import device_line, profile_value
from builder.client.doctor.observations import Detection, Outcome, System
from builder.client.probe import driver_calls
from builder.client.probe.detect import Surroundings, detect
from builder.client.probe.driver_calls import absent
from builder.client.probe.native import cuda_places, nvml_places
from builder.client.probe.system import c_library, read_system
from builder.errors import ConfigError
from builder.formats.package_names import MUSL
from tests.doubles.captures import CAPTURES, Quoted, quoted
from tests.doubles.gpus import machine, probes, program
from tests.support import ROOT
from tests.support.messages import Told
from tests.support.tables import data_text, table

TWO_CARDS = data_text("programs/nvidia-smi-two-cards.sh")


def test_an_nvidia_smi_that_fails_does_not_hide_the_next(tmp_path: Path) -> None:
    smi = tuple(quoted(name).program(tmp_path / name) for name in ("not-loaded-wsl", "wsl"))
    assert [card.uuid[:12] for card in detect(machine(tmp_path, smi=smi)).devices] == ["GPU-b5e386b4"]


def test_an_nvidia_smi_that_writes_without_end_is_stopped(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = probes(detect(machine(tmp_path, smi=(program(tmp_path, "exec yes"),))))["nvidia-smi"]
    assert (said.outcome, said.detail) == (Outcome.TIMEOUT, "stopped, because it wrote more than 64 MiB")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024, "KiB"


def test_a_pipe_left_open_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.client.probe.smi.SECONDS", 0.3)
    found = detect(machine(tmp_path, smi=(program(tmp_path, "sleep 60 &"),)))
    assert probes(found)["nvidia-smi"].outcome is Outcome.TIMEOUT


@pytest.mark.parametrize(
    ("name", "value"),
    [("CC", "8.6,"), ("DRIVER", "new"), ("MEMORY", "8 GB"), ("MEMORY", "0"), ("MEMORY", "1,2,3")],
)
def test_a_malformed_word_is_refused_by_name(tmp_path: Path, name: str, value: str) -> None:
    env = {"ORTPACKS_FORCE_CC": "8.6,5.2", f"ORTPACKS_FORCE_{name}": value}
    with pytest.raises(ConfigError, match=f"ORTPACKS_FORCE_{name}"):
        detect(machine(tmp_path, env=env))


def described(found: Detection) -> str:
    cards = [
        f"{card.uuid or 'no UUID'}: {card}, free {card.free_mib}, driver {card.driver}, MIG {card.mig}"
        for card in found.devices
    ]
    replies = [
        f"{name} {reply.outcome.value}: {reply.detail}; {reply.code} {reply.error}; CUDA {reply.cuda}; "
        f"lists {[card.uuid for card in reply.devices]}"
        for name, reply in probes(found).items()
    ]
    return "\n".join([f"driver {found.driver}, CUDA {found.cuda}", *cards, *replies])


STATED = tomllib.loads(data_text("gpus/stated.toml"))


@pytest.mark.parametrize("name", STATED)
def test_what_a_machine_and_its_user_say(tmp_path: Path, told: Told, name: str) -> None:
    case = STATED[name]
    smi = (program(tmp_path / "bin", TWO_CARDS),) if "cards" in case else ()
    put(tmp_path, case.get("files", {}))
    told(described(detect(machine(tmp_path, smi=smi, env=case.get("env", {})))))


def test_a_mac_is_not_asked_for_a_driver(tmp_path: Path, told: Told) -> None:
    asked = program(tmp_path, f"echo asked > {tmp_path}/asked")
    told(described(detect(machine(tmp_path, smi=(asked,), system="darwin"))))
    assert not (tmp_path / "asked").exists()


def kepler() -> Quoted:
    """Return a driver that does not know the query of capabilities."""
    capture = quoted("kepler-440")
    capture.refusals = quoted("compute-cap-470").refusals
    return capture


def divided() -> Quoted:
    """Return a card in MIG mode with the whole card's memory, which no instance has."""
    capture = quoted("mig")
    capture.rows[0]["memory.total"] = "81920"
    return capture


MADE = {"kepler-440 without compute_cap": kepler, "mig with a memory": divided}


@pytest.mark.parametrize("name", [*MADE, *sorted(path.stem for path in CAPTURES.glob("*.txt"))])
def test_every_capture_gives_its_cards(tmp_path: Path, told: Told, name: str) -> None:
    assert name in MADE or (CAPTURES / f"{name}.txt").read_text().startswith("source: https://github.com/")
    capture = MADE[name]() if name in MADE else quoted(name)
    told(described(detect(machine(tmp_path, smi=(capture.program(tmp_path / "bin"),)))))


SYSTEMS = tomllib.loads(data_text("gpus/systems.toml"))


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_is_known_by_its_files_and_variables(tmp_path: Path, name: str) -> None:
    case = SYSTEMS[name]
    put(tmp_path, case.get("files", {}))
    wanted = System(os="linux", glibc="2.36", **case["seen"])
    assert read_system("linux", tmp_path, case.get("env", {}), "glibc 2.36") == wanted


def test_musl_is_another_answer_than_a_c_library_that_is_not_known(tmp_path: Path) -> None:
    assert read_system("linux", tmp_path, {}, "").glibc is None
    put(tmp_path, {"lib/ld-musl-x86_64.so.1": ""})
    assert read_system("linux", tmp_path, {}, "").glibc == MUSL


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_linux_files_are_not_looked_for_elsewhere(tmp_path: Path, system: str) -> None:
    put(tmp_path, {".dockerenv": "", "dev/dxg": ""})
    assert read_system(system, tmp_path, {}, "") == System(os=system)


def test_this_c_library_says_its_version_as_ldd_does() -> None:
    name, _, version = c_library().partition(" ")
    assert name in {"glibc", ""}
    assert version.replace(".", "").isdecimal() or not name


H200 = "GPU-11111111-1111-1111-1111-111111111111"

M2200 = "GPU-22222222-2222-2222-2222-222222222222"


class Driver:
    """A machine with stand-ins of both libraries, whose environment says how they behave."""

    def __init__(self, root: Path, libraries: dict[str, str]) -> None:
        self.root, self.libraries = root, libraries

    def around(self, *lacks: str, **env: str) -> Surroundings:
        """Return the machine, without the libraries that it lacks."""
        there = {name: path for name, path in self.libraries.items() if name not in lacks}
        return machine(self.root, env=env, **there)  # type: ignore[arg-type]

    def found(self, *lacks: str, **env: str) -> Detection:
        return detect(self.around(*lacks, **env))


@pytest.fixture
def driver(tmp_path: Path, driver: dict[str, str]) -> Driver:
    return Driver(tmp_path, driver)


ANSWERS = tomllib.loads(data_text("gpus/answers.toml"))


@pytest.mark.parametrize("name", ANSWERS)
def test_what_the_libraries_say(driver: Driver, told: Told, name: str) -> None:
    case = ANSWERS[name]
    told(described(driver.found(*case.get("lacks", ()), **case.get("env", {}))))


def test_without_nvml_nvidia_smi_is_asked_for_the_driver_alone(driver: Driver, tmp_path: Path) -> None:
    smi = quoted("kepler-440").program(tmp_path)
    found = detect(replace(driver.around("nvml"), smi_programs=(smi,)))
    assert (found.driver, found.cuda) == ("440.64.00", "12.9")
    assert [card.uuid for card in found.devices] == [H200, M2200]


@pytest.mark.parametrize("content", ["text", "code"])
def test_a_library_that_does_not_load(tmp_path: Path, told: Told, content: str) -> None:
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(b"\x7fELF and no more")
    if content == "code":
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", path], check=True)
    told(described(detect(machine(tmp_path, cuda=str(path), nvml=str(path)))))


def test_a_profile_follows_the_memory_that_is_free_and_without_nvml_all_of_it(driver: Driver) -> None:
    """The H200 has 9,000 MiB free of 139 GiB."""

    def seen(**env: str) -> tuple[object, ...]:
        first = driver.found(**env).devices[0]
        profile = profile_value(first)
        assert profile is not None
        assert (f", {first.free_mib} MiB free" in device_line(first)) == (first.free_mib is not None)
        return first.memory_mib, first.free_mib, profile["batch"], profile["memory_limit_mib"]

    assert seen() == (139 * 1024, 9000, 64, 8100)
    assert seen(FAKE_UNKNOWN="nvmlDeviceGetMemoryInfo") == (139 * 1024, None, 128, 128102)
    assert seen(ORTPACKS_FORCE_MEMORY="2048") == (2048, None, 16, 1843), "what the user states is free"
    assert seen(FAKE_MIG="1")[:2] == (9728, None), "nobody says it of an instance"


BOTH_LIBRARIES = pytest.mark.parametrize(("name", "who"), [("libcuda", "FAKE_CUDA"), ("NVML", "FAKE_NVML")])


def hurried(around: Surroundings, limit: float, *names: str) -> Surroundings:
    """Return the machine with a limit of ``limit`` seconds for the probes of these libraries."""
    return replace(
        around, ask=lambda argv, seconds: around.ask(argv, limit if {*names} & {*argv} else seconds)
    )


@BOTH_LIBRARIES
def test_a_library_that_hangs_is_killed(driver: Driver, tmp_path: Path, name: str, who: str) -> None:
    pid = tmp_path / "pid"
    around = driver.around(FAKE_PID=str(pid), **{who: "hang"})
    found = detect(hurried(around, 1, name))
    assert probes(found)[name].outcome is Outcome.TIMEOUT
    assert {card.uuid for card in found.devices} == {H200, M2200}
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@BOTH_LIBRARIES
def test_an_orphaned_probe_ends_itself(tmp_path: Path, driver: Driver, name: str, who: str) -> None:
    asked = driver.libraries[who.removeprefix("FAKE_").lower()]
    code = f"from {driver_calls.__name__} import main; main({name!r}, {asked!r}, longest=0.15)"
    argv = [sys.executable, "-c", code]
    env = {"PYTHONPATH": str(ROOT), who: "hang", "FAKE_PID": str(tmp_path / "pid")}
    ended = subprocess.run(argv, env=env, timeout=5, check=False)
    assert ended.returncode == -signal.SIGALRM


def test_the_loaders_own_search_path_counts(tmp_path: Path, driver: Driver) -> None:
    cuda, nvml = cuda_places("linux")[0], nvml_places("linux")[0]
    (tmp_path / cuda).symlink_to(driver.libraries["cuda"])
    (tmp_path / nvml).symlink_to(driver.libraries["nvml"])
    around = machine(tmp_path, cuda=cuda, nvml=nvml, env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert {probe.outcome for probe in detect(around).replies.values() if probe.devices} == {Outcome.FOUND}
    assert len(detect(around).devices) == 2


def test_windows_has_other_names_for_the_same_libraries() -> None:
    assert cuda_places("win32") == ("nvcuda.dll",)
    assert nvml_places("win32")[0] == "nvml.dll"


@pytest.mark.parametrize(("reason", "itself"), table("gpus/absent.txt"))
def test_a_missing_library_and_a_missing_dependency_are_told_apart(reason: str, itself: str) -> None:
    assert absent("libcuda.so.1", reason) is (itself == "yes")
