"""Checks why CUDA lists no GPU, and whether the driver fits the cards and the package.

A driver may be absent, hidden, without its device files, or of a version that leaves a card out.
"""

from __future__ import annotations

from typing import Callable, Iterator, List, Optional

from builder.findings.finding import Advice, CheckAdvice, Finding, Severity
from builder.findings.observations import ABSENT, FORBIDDEN, Observations, Outcome, PciCard
from builder.formats.manifest import Driver
from builder.formats.package_names import CUDA, SERVED, WINDOWS
from builder.gpu.cuda_toolkits import FLOOR_12, windows_floor
from builder.gpu.devices import above_ceiling, below_floor
from builder.gpu.table import LAST_BRANCH_BELOW_TURING

ADVICE = CheckAdvice(
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
            "nouveau is the free driver. It has no CUDA, and NVIDIA's driver cannot use a card that nouveau "
            "has.",
            "Install NVIDIA's driver, which puts nouveau on its blacklist, and restart; in a container, "
            "do it on the host.",
        ),
        "D003": Advice(
            Severity.NOTE,
            "No sign of a GPU was found on this machine: models run on the CPU.",
            "Nothing, if the machine has no GPU. A virtual machine must have its card passed through, and a "
            "container must be started with its GPUs (`docker run --gpus all`).",
        ),
        "D004": Advice(
            Severity.NOTE,
            "The stated value is used instead of this machine's: ORTPACKS_FORCE_CC replaces its GPUs, which "
            "are not asked for, ORTPACKS_FORCE_DRIVER its driver's version, ORTPACKS_FORCE_MEMORY the memory "
            "of its GPUs.",
            "Unset the variable to have this machine examined.",
        ),
        "D005": Advice(
            Severity.WARNING,
            "The variable hides every GPU from CUDA: it takes numbers or UUIDs of GPUs or MIG instances that "
            "are there, the first that fits none ends the list, and one that comes twice empties it.",
            "Unset CUDA_VISIBLE_DEVICES, or name a GPU or an instance of `nvidia-smi -L` once.",
        ),
        "D006": Advice(
            Severity.ERROR,
            "The driver is loaded, but its device files do not exist, so no program reaches it.",
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
            "The driver is there, but CUDA may use none of its GPUs: all are in MIG mode without an "
            "instance, in compute mode `Prohibited`, or not accessible to this process.",
            "`nvidia-smi -q -d COMPUTE` shows the mode, `nvidia-smi -L` the MIG instances; `sudo nvidia-smi "
            "-c DEFAULT` and `sudo nvidia-smi -mig 0` reset them.",
        ),
        "D010": Advice(
            Severity.ERROR,
            "Branch 580 is the last driver for Maxwell, Pascal and Volta. A newer one ignores the card, and "
            "nvidia-smi does not list it.",
            "Install a driver of branch 580 (in some distributions its package is called legacy).",
        ),
        "D011": Advice(
            Severity.WARNING,
            "The driver did not take every card. It may not know a card, it may have failed to start it, or "
            "another driver may have it.",
            "`sudo dmesg | grep -i nvrm` has the driver's reason.",
        ),
        "D012": Advice(
            Severity.NOTE,
            "Its generation is older than Maxwell: neither CUDA 12 nor any package has code for it.",
            "Nothing: it cannot be used. Models run on the CPU, or on another card.",
        ),
        "D015": Advice(
            Severity.ERROR,
            "The driver's libraries are here, but its kernel module does not answer: the module is not "
            "loaded, or this container or virtual machine was started without the GPU.",
            "Nothing, if this machine has no GPU. Else `lspci -d 10de:` shows whether there is a "
            "card, `sudo modprobe nvidia` and `sudo dmesg | grep -i nvrm` what is in the way. In a "
            "container, start a new one with its GPUs (`docker run --gpus all`).",
        ),
        "D031": Advice(
            Severity.ERROR,
            "{what} needs driver {floor} or newer.",
            "Update the NVIDIA driver; in a container, the host's.",
        ),
        "D032": Advice(
            Severity.ERROR,
            "{what} runs with drivers up to branch {ceiling}: newer ones do not know its GPUs.",
            "Install a driver of branch {ceiling}, or run `install` again for another package.",
        ),
    }
)

_MAXWELL, _TURING = 0x1340, 0x1E00
"""PCI device ids: display devices from the first up to the second are Maxwell, Pascal or Volta. Source:
pci.ids."""

_NOT_THE_MACHINES = ("ORTPACKS_FORCE_CC=", "ORTPACKS_FORCE_DRIVER=")

_HIDES_ALL = ("", "-1")

_FAILED = (Outcome.FAILED, Outcome.TIMEOUT)


def hidden_gpus(observed: Observations) -> Iterator[Finding]:
    """Yield D005 where ``CUDA_VISIBLE_DEVICES`` leaves no GPU.

    Where the driver lists none and there is no libcuda, the variable is not the cause.
    """
    wanted = observed.cuda_visible
    hides_all = wanted in _HIDES_ALL and observed.reply("libcuda").outcome != Outcome.MISSING
    if wanted is not None and not observed.devices and (observed.listed or hides_all):
        total = f", and the driver lists {observed.listed}" if observed.listed else ""
        yield ADVICE.found("D005", f"CUDA_VISIBLE_DEVICES={wanted} leaves no GPU{total}.")


def nouveau(observed: Observations) -> Iterator[Finding]:
    """Yield D002 where the kernel driver of an NVIDIA card is nouveau."""
    cards = [card.address for card in observed.kernel.cards if card.driver == "nouveau"]
    if cards:
        yield ADVICE.found("D002", f"The NVIDIA card {', '.join(cards)} is driven by nouveau.")


def module_not_loaded(observed: Observations) -> Iterator[Finding]:
    """Yield D001 where an NVIDIA card is on the PCI bus, and the module nvidia is not loaded.

    A card that is reserved for a virtual machine needs no driver here.
    """
    cards = [card.address for card in _cards(observed)]
    if cards and not observed.kernel.loaded:
        yield ADVICE.found(
            "D001", f"An NVIDIA card at {', '.join(cards)}, and the module nvidia is not loaded."
        )


def no_device_file(observed: Observations) -> Iterator[Finding]:
    """Yield D006 where the module nvidia is loaded, and there is no ``/dev/nvidiactl``."""
    if observed.kernel.loaded and observed.kernel.control == ABSENT:
        yield ADVICE.found("D006", "The module nvidia is loaded, and there is no /dev/nvidiactl.")


def device_file_forbidden(observed: Observations) -> Iterator[Finding]:
    """Yield D007 where this user may not open ``/dev/nvidiactl``."""
    if observed.kernel.control == FORBIDDEN:
        yield ADVICE.found("D007", "/dev/nvidiactl is there, and this user may not open it.")


def no_libcuda(observed: Observations) -> Iterator[Finding]:
    """Yield D008 where the driver is there, and ``libcuda.so.1`` is not."""
    there = observed.kernel.loaded or observed.kernel.dxg or observed.listed
    if there and observed.reply("libcuda").outcome == Outcome.MISSING:
        yield ADVICE.found("D008", "The driver is there, and libcuda.so.1 is not.")


def no_gpu_for_cuda(observed: Observations) -> Iterator[Finding]:
    """Yield D009 where the driver lists GPUs or is loaded, and CUDA fails with 100, no device."""
    if observed.listed or observed.kernel.loaded or observed.reply("NVML").outcome == Outcome.NONE:
        listed = f"The driver lists {observed.listed} GPU(s)" if observed.listed else "The driver is loaded"
        yield ADVICE.found("D009", f"{listed}, and CUDA none: CUDA_ERROR_NO_DEVICE (100).")


def failing_driver(observed: Observations) -> Iterator[Finding]:
    """Yield D015 where NVML fails with a number, or nvidia-smi fails.

    Other failures of NVML are D013 and D014.
    """
    replies = {name: observed.reply(name) for name in ("NVML", "nvidia-smi")}
    failed = [f"{name}: {reply.detail}" for name, reply in replies.items() if reply.outcome in _FAILED]
    if failed and not (replies["NVML"].outcome in _FAILED and replies["NVML"].code is None):
        yield ADVICE.found("D015", f"No NVIDIA GPU was found. {'; '.join(failed)}.")


def no_gpu_found(observed: Observations) -> Iterator[Finding]:
    """Yield D003, unless NVML failed. The rules before this one found no cause."""
    if observed.reply("NVML").outcome in _FAILED:
        return
    nothing = observed.driver is None and observed.reply("libcuda").outcome == Outcome.MISSING
    yield ADVICE.found("D003", "No NVIDIA GPU was found" + (", and no driver of one." if nothing else "."))


def forced_by_environment(observed: Observations) -> Iterator[Finding]:
    """Yield D004 where an ``ORTPACKS_FORCE_…`` variable is set."""
    if observed.stated:
        yield ADVICE.found("D004", f"{', '.join(observed.stated)} in the environment.")


def dropped_by_driver(observed: Observations) -> Iterator[Finding]:
    """Yield D010 where a driver newer than 580 leaves out a card from before Turing.

    Stated GPUs and a stated driver say nothing about this machine's cards.
    """
    if any(one.startswith(_NOT_THE_MACHINES) for one in observed.stated):
        return
    old = [card for card in _cards(observed) if _MAXWELL <= card.device < _TURING]
    newer = observed.driver and above_ceiling(observed.driver, LAST_BRANCH_BELOW_TURING)
    if old and newer and _lacking(observed):
        comparison = (
            f"The driver is {observed.driver}, it lists {observed.listed} of {len(_cards(observed))} cards"
        )
        yield ADVICE.found("D010", f"{comparison}, and {_named(old)} is from before Turing.")


def cards_not_listed(observed: Observations) -> Iterator[Finding]:
    """Yield D011 where the driver lists fewer GPUs than there are cards, without D010 or D012."""
    if (
        not observed.listed
        or not _lacking(observed)
        or [*dropped_by_driver(observed), *before_maxwell(observed)]
    ):
        return
    comparison = (
        f"The driver lists {observed.listed} GPU(s), and the bus has {len(_cards(observed))} NVIDIA cards"
    )
    yield ADVICE.found("D011", f"{comparison}: {_named(_cards(observed))}.")


def before_maxwell(observed: Observations) -> Iterator[Finding]:
    """Yield D012 where a card is from before Maxwell, by its PCI id."""
    old = [card for card in _cards(observed) if card.device < _MAXWELL]
    if old:
        yield ADVICE.found("D012", f"An NVIDIA card from before Maxwell: {_named(old)}.")


def outside_driver_range(observed: Observations) -> Iterator[Finding]:
    """Yield D031 or D032 where the driver is below the floor or above the ceiling of the package in use.

    Without a package in use, the floor of CUDA 12 is compared. D032 is left out where D010 already reports
    the card.
    """
    package = observed.installed.package if observed.installed else None
    limits = package.driver if package else _any_package(observed)
    driver = observed.driver
    if limits is None or driver is None:
        return
    what = f"The package {package.name}" if package else "CUDA 12"
    if _holds(below_floor, driver, limits.floor):
        yield ADVICE.found("D031", f"The driver is {driver}.", what=what, floor=limits.floor)
    if (
        limits.ceiling
        and _holds(above_ceiling, driver, limits.ceiling)
        and not [*dropped_by_driver(observed)]
    ):
        yield ADVICE.found("D032", f"The driver is {driver}.", what=what, ceiling=limits.ceiling)


def _any_package(observed: Observations) -> Optional[Driver]:
    if observed.platform == WINDOWS:
        return Driver(windows_floor(FLOOR_12), None)
    return Driver(FLOOR_12, None) if observed.platform in SERVED[CUDA] else None


def _holds(compare: Callable[[str, str], bool], driver: str, limit: str) -> bool:
    """Return the result of ``compare``; false where ``limit`` is no version.

    A manifest may contain any text there.
    """
    try:
        return compare(driver, limit)
    except ValueError:
        return False


def _cards(observed: Observations) -> List[PciCard]:
    """Return the cards that are not reserved for a virtual machine."""
    return [card for card in observed.kernel.cards if card.driver != "vfio-pci"]


def _lacking(observed: Observations) -> bool:
    """Return whether the driver lists fewer GPUs than there are cards.

    In a container, which may have been given only some of the GPUs, return whether it lists none.
    """
    return not observed.listed if observed.system.container else observed.listed < len(_cards(observed))


def _named(cards: List[PciCard]) -> str:
    return ", ".join(f"{card.address} (10de:{card.device:04x})" for card in cards)


CAUSES = (
    nouveau,
    module_not_loaded,
    no_device_file,
    device_file_forbidden,
    no_libcuda,
    no_gpu_for_cuda,
    failing_driver,
    no_gpu_found,
)
"""Rules in order: the first one with a finding names the cause, and later ones would name consequences."""

RULES = (
    forced_by_environment,
    device_file_forbidden,
    dropped_by_driver,
    cards_not_listed,
    before_maxwell,
    outside_driver_range,
)
