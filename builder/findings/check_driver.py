"""Why CUDA lists no GPU on a machine of its own: driver, device files, and what hides them."""

from __future__ import annotations

from typing import Iterator, Tuple

from builder.findings.advice import Advice, Check, Fixes, Rule
from builder.findings.finding import Finding, Severity
from builder.findings.observed import ABSENT, FORBIDDEN, Outcome, Seen

FIX = Fixes(
    {
        "D001": Advice(
            Severity.ERROR,
            "NVIDIA's kernel driver is not installed, or its module cannot be loaded: Secure Boot refuses a "
            "module that is not signed, and a new kernel needs it built again.",
            "Install the driver of your distribution and restart. If it is installed: `sudo modprobe nvidia` "
            "says what is in the way, `mokutil --sb-state` whether Secure Boot is on.",
        ),
        "D002": Advice(
            Severity.ERROR,
            "nouveau is the free driver. It has no CUDA, and NVIDIA's cannot have the card at the same time.",
            "Install NVIDIA's driver, which puts nouveau on its blacklist, and restart.",
        ),
        "D003": Advice(
            Severity.NOTE,
            "As far as can be seen from here there is none: models run on the CPU.",
            "Nothing, if that is so. In a virtual machine the card must be passed through, a container must "
            "be started with its GPUs (`docker run --gpus all`).",
        ),
        "D004": Advice(
            Severity.NOTE,
            "What was stated counts, and the machine was not asked for its GPUs: what is said here is about "
            "the stated machine.",
            "Unset the variable to have this machine examined.",
        ),
        "D005": Advice(
            Severity.WARNING,
            "The variable hides every GPU from CUDA: it takes numbers or UUIDs of GPUs that are there, and "
            "the first that fits none ends the list.",
            "Unset CUDA_VISIBLE_DEVICES, or name a GPU of `nvidia-smi -L`.",
        ),
        "D006": Advice(
            Severity.ERROR,
            "The driver is loaded and its device files have not been made, so that no program reaches it.",
            "`sudo nvidia-modprobe -c 0 -u` makes them, and so does one run of nvidia-smi as root.",
        ),
        "D007": Advice(
            Severity.ERROR,
            "This user may not use the GPU. Some distributions give the device files to a group.",
            "`ls -l /dev/nvidiactl` names the group, often video or render: `sudo usermod -aG GROUP USER`, "
            "and log in again.",
        ),
        "D008": Advice(
            Severity.ERROR,
            "The driver's part for CUDA is not installed, or lies where the loader does not look.",
            "Install the package that has libcuda.so.1: libcuda1 (Debian), libnvidia-compute-NNN (Ubuntu), "
            "nvidia-driver-cuda-libs (Fedora, RHEL), of the same version as the driver.",
        ),
        "D009": Advice(
            Severity.ERROR,
            "The driver is there and CUDA may use none of its GPUs: all are in MIG mode without an instance, "
            "in compute mode `Prohibited`, or kept from this process.",
            "`nvidia-smi -q -d COMPUTE` shows the mode, `nvidia-smi -L` the MIG instances; `sudo nvidia-smi "
            "-c DEFAULT` and `sudo nvidia-smi -mig 0` reset them.",
        ),
    }
)

_HIDES_ALL = ("", "-1")


def hidden(seen: Seen) -> Iterator[Finding]:
    """D005."""
    wanted = seen.around.cuda_visible
    if wanted is not None and not seen.devices and (seen.listed or wanted in _HIDES_ALL):
        total = f", and the driver lists {seen.listed}" if seen.listed else ""
        yield FIX.found("D005", f"CUDA_VISIBLE_DEVICES={wanted} leaves no GPU{total}.")


def nouveau(seen: Seen) -> Iterator[Finding]:
    """D002."""
    cards = [card.address for card in seen.kernel.cards if card.driver == "nouveau"]
    if cards:
        yield FIX.found("D002", f"The NVIDIA card {', '.join(cards)} is driven by nouveau.")


def not_loaded(seen: Seen) -> Iterator[Finding]:
    """D001. A card that is kept for a virtual machine needs no driver here."""
    cards = [card.address for card in seen.kernel.cards if card.driver != "vfio-pci"]
    if cards and not seen.kernel.loaded:
        yield FIX.found("D001", f"An NVIDIA card at {', '.join(cards)}, and the module nvidia is not loaded.")


def no_device_file(seen: Seen) -> Iterator[Finding]:
    """D006."""
    if seen.kernel.loaded and seen.kernel.control == ABSENT:
        yield FIX.found("D006", "The module nvidia is loaded, and there is no /dev/nvidiactl.")


def forbidden(seen: Seen) -> Iterator[Finding]:
    """D007."""
    if seen.kernel.control == FORBIDDEN:
        yield FIX.found("D007", "/dev/nvidiactl is there, and this user may not open it.")


def no_library(seen: Seen) -> Iterator[Finding]:
    """D008."""
    there = seen.kernel.loaded or seen.kernel.dxg or seen.listed
    if there and seen.reply("libcuda").outcome == Outcome.MISSING:
        yield FIX.found("D008", "The driver is there, and libcuda.so.1 is not.")


def none_for_cuda(seen: Seen) -> Iterator[Finding]:
    """D009: CUDA's number 100."""
    if seen.listed or seen.kernel.loaded:
        listed = f"The driver lists {seen.listed} GPU(s)" if seen.listed else "The driver is loaded"
        yield FIX.found("D009", f"{listed}, and CUDA none: CUDA_ERROR_NO_DEVICE (100).")


def nothing(seen: Seen) -> Iterator[Finding]:  # noqa: ARG001 every rule has this shape
    """D003: what is left where nothing before it was the cause."""
    yield FIX.found("D003", "No NVIDIA GPU was found, and no driver of one.")


def stated(seen: Seen) -> Iterator[Finding]:
    """D004."""
    if seen.around.stated:
        yield FIX.found("D004", f"{', '.join(seen.around.stated)} in the environment.")


CAUSES: Tuple[Rule, ...] = (
    nouveau,
    not_loaded,
    no_device_file,
    forbidden,
    no_library,
    none_for_cuda,
    nothing,
)
"""The first that finds something is the cause: what comes after it follows from it."""

CHECK = Check("driver", "D0", (stated, forbidden), FIX)
