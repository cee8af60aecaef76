"""Tests of the causes of messages: each is a public report's text, or of the shape of a public source."""

import json
import re
from dataclasses import replace

import pytest
from cuda.bindings import driver, runtime

from builder.client.commands.doctor import diagnose
from builder.client.doctor.advice import advice_at, catalogue, finding, places
from builder.client.doctor.messages import code_of_number, number_of
from builder.client.doctor.observations import SessionTrial
from builder.client.trials.try_out import reason
from tests.support import ROOT
from tests.support.messages import Told
from tests.unit.client.doctor.doctor_cases import BARE, WELL
from tests.unit.client.selection.select_cases import gpu

SAID = json.loads((ROOT / "tests/data/doctor/messages.json").read_text())

TABLE = json.loads((ROOT / "builder/client/doctor/messages.json").read_text())


@pytest.mark.parametrize("row", SAID, ids=lambda row: f"{row['code']} {row['said'][-60:]}")
def test_a_message_gets_its_cause(row: dict[str, str], told: Told) -> None:
    failure, number = reason(row["said"], row["said"])
    here = BARE
    if "gpu" in row:
        old = row["gpu"] < "7"
        here = replace(WELL, devices=(gpu(row["gpu"]),), driver="570.133.07" if old else "575.57.08")
    observed = replace(here, installed=None, trial=SessionTrial("cuda", failure, number))
    (cause,) = [one for one in diagnose(observed) if one.code not in ("D003", "D201", "D207")]
    assert cause.code == row["code"]
    assert row.get("do", "") in cause.do
    assert "{" not in cause.means + cause.do
    told(f"{cause.code} {cause.severity.value}: {cause.seen}\n{cause.means}\n{cause.do}")


def test_numbers_and_names_are_those_of_cudas_own_enumerations() -> None:
    """cuda-bindings has the enumerations of driver_types.h and cuda.h."""
    known = {int(one): {one.name} for one in runtime.cudaError_t}
    for one in driver.CUresult:
        known.setdefault(int(one), set()).add(one.name)
    for row in TABLE["cuda"]:
        assert set(row["names"]) <= known[row["number"]], row
        assert code_of_number(row["number"]) == row["code"]
        assert all(number_of(f"it says {name} here") == row["number"] for name in row["names"])
        assert not row.get("text") or number_of(f"RuntimeError: {row['text']}.") == row["number"]


def test_every_message_has_its_source_and_a_finding_that_exists() -> None:
    for row in TABLE["messages"]:
        assert row["source"]
        assert row["of"]
        assert row["code"] in catalogue()


HOSTS = ("On the host", "on the host", "On the node", "host's", "node's")

NOT_IN = {
    "docker": r"modprobe|dmesg|lspci|rmmod|mokutil|systemctl|usermod|nvidia-smi -mig|apt|restart the machine",
    "kubernetes": r"modprobe|dmesg|lspci|rmmod|mokutil|systemctl|usermod|docker run|nvidia-smi -mig|apt",
    "lxc": r"modprobe|dmesg|lspci|rmmod|mokutil|systemctl|usermod|docker run|nvidia-smi -mig|apt",
    "wsl": r"modprobe|dmesg|lspci|rmmod|mokutil|systemctl|usermod|nvidia-fabric|Restart the machine",
    "windows": r"modprobe|dmesg|lspci|rmmod|mokutil|systemctl|usermod|apt-get|sudo|\.so\b",
}
"""Words of steps that cannot help in a place, unless the sentence says to follow them on its host."""

NEVER = {
    **{name: {"D112"} for name in ("docker", "kubernetes", "lxc")},
    "wsl": {"D007"},
    "windows": {"D001", "D002", "D003", "D006", "D007", "D008", "D009", "D034", "D040", "D101", "D112"},
}
"""Findings that a place cannot have, as their files are Linux', WSL's, or a container's."""


@pytest.mark.parametrize("place", NOT_IN)
def test_no_remedy_of_a_place_is_one_that_cannot_help_there(place: str) -> None:
    filled = dict.fromkeys(("ceiling", "branch", "floor", "why", "do", "cuda"), "x")
    texts = {code: advice_at(replace(row, values=filled), place) for code, row in catalogue().items()}
    about = {code: text for code, text in texts.items() if catalogue()[code].machine or catalogue()[code].at}
    bad = {
        code: text
        for code, text in about.items()
        if re.search(NOT_IN[place], text) and not any(word in text for word in HOSTS)
    }
    assert {code: text for code, text in bad.items() if code not in NEVER[place]} == {}


def test_a_place_has_the_advice_of_the_wider_one() -> None:
    assert "Task Manager" in advice_at(finding("D033", "x"), "wsl-container")


def test_apptainer_is_started_by_no_option_of_dockers() -> None:
    theirs = {code: row.at for code, row in catalogue().items() if "docker" in row.at}
    texts = {code: at.get("apptainer", at["docker"]) for code, at in theirs.items()}
    assert {
        code for code, text in texts.items() if re.search(r"docker run|--gpus|CAPABILITIES", text)
    } == set()


def test_every_place_of_the_advice_is_known() -> None:
    assert {place for general in catalogue().values() for place in general.at} <= set(places())


def test_a_value_fills_the_advice_of_every_place() -> None:
    ceiling = finding("D032", "x", what="y", ceiling="580")
    assert all("580" in advice_at(ceiling, place) for place in ("bare", "docker", "lxc", "wsl", "windows"))
