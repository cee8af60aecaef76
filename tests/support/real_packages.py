"""Readers of real packages by the system's tar, and the smoke program's arguments and expected output."""

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from builder.config.inputs import SELFTEST_MODEL
from builder.formats.package_names import REDUCED
from builder.io.wiring import Wiring
from builder.prove.sample_models import silero_inputs
from builder.prove.selftest import stock_outputs
from tests.support import ROOT, ran
from tests.support.fakes.verbs import invoke
from tests.support.tables import data_text

FAILED_CHECK, DAMAGED = 6, 7
"""Exit codes."""

MINIMAL = {*data_text("libraries/minimal.txt").split()}
"""Libraries of a minimal package: its provider needs cudart alone of CUDA's libraries."""
LIBRARIES = {*data_text("libraries/full.txt").split()}
"""Libraries of a full package: three of ONNX Runtime, seven of CUDA, eight of cuDNN."""
_TAR = ("tar", "--use-compress-program=zstd --long=27")


def listing(package: Path) -> list[str]:
    """Return tar's line for each member of a package."""
    return ran([*_TAR, "-tvf", package], check=True).stdout.splitlines()


def manifest(package: Path) -> dict[str, object]:
    """Return the manifest of a package, its first member, without unpacking the others."""
    member = f"{package.name.removesuffix('.tar.zst')}/manifest.json"
    argv = (*_TAR, "--occurrence=1", "-xOf", package, member)
    done = subprocess.run(argv, capture_output=True, check=False)  # tar stops early, so zstd ends by SIGPIPE
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def unpack(package: Path, folder: Path) -> Path:
    """Unpack a package into a new ``folder``, without the package's top folder."""
    folder.mkdir()
    subprocess.run([*_TAR, "--strip-components=1", f"--directory={folder}", "-xf", package], check=True)
    return folder


def full_package(variant: str) -> Path:
    """Return the newest full package of a variant in ``dist/``; without one the test is skipped."""
    found = sorted((ROOT / "dist").glob(f"ortpacks-{variant}-[0-9]*-linux-x64.tar.zst"))
    names = ("-thin-", *(f"-{profile}-" for profile in REDUCED))
    full = [one for one in found if not any(name in one.name for name in names)]
    if not full:
        pytest.skip(f"no full package of {variant} in dist/: `./run build --variant {variant}` compiles it")
    return full[-1]


def sha256(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def silero_model() -> Path:
    """Return the path of the model Silero VAD in the input cache."""
    shop = Wiring(ROOT)
    return shop.store(shop.lock).unpack(SELFTEST_MODEL) / "silero_vad/data/silero_vad.onnx"


def write_silero_inputs(folder: Path) -> None:
    """Write the input tensors of Silero VAD into ``folder``."""
    for item in silero_inputs():
        (folder / item.name).write_bytes(item.data)


def silero_arguments(folder: Path | str) -> list[str]:
    """Return the smoke program's arguments for input tensors that lie in ``folder``."""
    return [f"{item.argument}{folder}/{item.name}" for item in silero_inputs()]


def require_stock_numbers(said: Mapping[str, object], *, tolerance: float = 1e-4) -> None:
    """Assert that the outputs in the smoke program's answer equal those of the stock CPU build."""
    outputs = said["outputs"]
    assert isinstance(outputs, dict)
    for name, wanted in stock_outputs(silero_model(), silero_inputs()).items():
        assert outputs[name] == pytest.approx(wanted, abs=tolerance), name


def readelf(option: str, library: Path) -> str:
    """Return what readelf says of a library."""
    return ran(["readelf", option, "-W", library], check=True).stdout


def check(package: Path, *arguments: str) -> tuple[int, set[str], str]:
    """Run `./run verify --read-only`; return the exit code, the codes of errors, and the output."""
    done = invoke("verify", "--read-only", "--base", "assembled", package, *arguments)
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    return done.returncode, set(re.findall(r"error ([A-Z]\d{3}) ", said)), said


def replace(file: Path, data: bytes) -> None:
    """Replace a file by a new one, as the old file is shared with other trees."""
    file.unlink()
    file.write_bytes(data)
