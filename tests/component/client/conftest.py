"""Fixtures with a machine on which nothing is installed, and a release."""

import os
from pathlib import Path

import pytest

from builder.client import cli
from tests.doubles.gpus import library
from tests.doubles.machine import Machine
from tests.doubles.release import write_release
from tests.support.factories.signed_release import Signed
from tests.support.factories.signing import FIRST


@pytest.fixture(autouse=True)
def _unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a call takes milliseconds, and no test here needs it


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "home")


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Return a folder with a release of full packages."""
    return write_release(tmp_path / "release").parent


@pytest.fixture(scope="package")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return stand-ins for the libraries of driver 570.133.07 with an H200 and a Quadro M2200."""
    folder = tmp_path_factory.mktemp("driver")
    return {"cuda": library(folder, "libcuda"), "nvml": library(folder, "nvml")}


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signed:
    monkeypatch.setattr(cli, "shipped", lambda name: FIRST)
    return Signed(tmp_path)
