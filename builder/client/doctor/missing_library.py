"""The finding for a library of CUDA or cuDNN that the loader does not find: which package or wheel has it.

A wheel of ONNX Runtime is built for one major version of CUDA and of cuDNN; the names of the libraries tell
which. Which one fits depends on the driver and the GPU: CUDA 13 and cuDNN from 9.11 on serve Turing and
newer.
"""

from __future__ import annotations

import re
from typing import List, Optional

from builder.client.doctor.advice import MachineFinding, finding
from builder.client.doctor.messages import table
from builder.client.doctor.observations import Observations
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import below_floor
from builder.facts.gpu.drivers import FLOOR_13

_ABSENT = re.compile(
    r"(?i)\b(?:lib)?(?P<name>cudart|cublas(?:lt)?|cufft|curand|cusolver|cusparse|nvrtc|nvjitlink|cudnn\w*?)"
    r"(?:64_|\.so\.?)(?P<major>\d*)[\w.]*"
    r"(?:: cannot open shared object file: (?!Permission)|: cannot open shared object file(?!:)"
    r'|"? (?:which )?(?:is|was) (?:missing|not found)|\'?(?:: | =>)? not found)'
)
"""Messages of Linux' loader, of ONNX Runtime on Windows, and of ldd."""

_OF_CUDA = {"cufft": {"10": "11", "11": "12", "12": "13"}, "cusolver": {"11": "12", "12": "13"}}
"""CUDA's major version by that of a library which counts by itself."""

_TURING = Capability(7, 5)

_FOR_12 = "'onnxruntime-gpu[cuda,cudnn]>=1.19,<1.27'"
_FOR_OLD = "'onnxruntime-gpu[cuda]>=1.19,<1.27' nvidia-cudnn-cu12==9.10.2.21"
"""onnxruntime-gpu from PyPI is of CUDA 11 and cuDNN 8 up to 1.18, of CUDA 12 and cuDNN 9 up to 1.26, of CUDA
13 from 1.27 on (the wheels' NEEDED)."""


def missing_library(observed: Observations, failure: str, seen: str) -> Optional[MachineFinding]:
    """Return D405 or D407 for a message about an absent library; ``None`` for any other message."""
    match = _ABSENT.search(failure)
    if match is None:
        return None
    name, major = match["name"].lower(), match["major"]
    cudnn = name.startswith("cudnn")
    if not cudnn:
        major = _OF_CUDA.get(name, {}).get(major) or (major if len(major) < 3 else major[:2])  # noqa: PLR2004
    of = f"{'cuDNN' if cudnn else 'CUDA'} {major}".rstrip()
    library = match[0].partition(":")[0].partition('"')[0].split()[0].strip("'")
    package = observed.installed
    ours = package is not None and (cudnn or major == (package.cuda or "").partition(".")[0])
    other = of in ("CUDA 11", "cuDNN 8", "CUDA 13") and not (ours and of != "cuDNN 8")
    return finding("D407" if other else "D405", seen, library=library, of=of, do=_remedy(observed, of))


def wheel_that_fits(observed: Observations) -> str:
    """Return what pip installs for the GPUs: of a cuDNN that has code for all of them."""
    return _FOR_OLD if _before_turing(observed) else _FOR_12


def cudnn_that_fits(observed: Observations, version: str) -> str:
    """Return the version for pip of a cuDNN of which ``version`` is known; 9.11 and newer lack old GPUs."""
    return "9.10.2.21" if version == "9" and _before_turing(observed) else f"{version}.*"


def _before_turing(observed: Observations) -> List[Capability]:
    known = [device.capability for device in observed.devices if device.capability]
    return [capability for capability in known if capability < _TURING]


def _remedy(observed: Observations, of: str) -> str:
    """Return the wheel or package that fits the driver and the GPUs, of those that bring the library."""
    old, driver = _before_turing(observed), observed.driver
    own = (
        "The package in use has its own libraries of CUDA: start the program with what `env` prints."
        if observed.installed and observed.installed.cuda
        else "`python3 ortpacks.pyz install` brings a package with all libraries, for this GPU and driver."
    )
    with_old_driver = of == "CUDA 13" and driver is not None and below_floor(driver, FLOOR_13)
    case = "a GPU before Turing" if old else "CUDA 13, and an older driver" if with_old_driver else of
    pip = table()["libraries"].get(case) or table()["libraries"]["CUDA 12"]
    wheel = wheel_that_fits(observed)
    return f"{own} {pip.format(wheel=wheel, old=old[:1] and old[0], driver=driver, floor=FLOOR_13)}"
