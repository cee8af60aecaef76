"""Checks why CUDA lists no GPU, whether the driver fits cards and package, and what the system lacks.

A driver may be absent, hidden, without its device files, or of a version that leaves a card out. A container,
WSL or a virtual machine may not have been given the GPU.
"""

from __future__ import annotations

from typing import Callable, Iterator, List, Optional

from builder.client.doctor.advice import MachineFinding, finding
from builder.client.doctor.observations import (
    ABSENT,
    FORBIDDEN,
    REFUSED,
    Observations,
    Outcome,
    PciCard,
)
from builder.facts.gpu.devices import above_ceiling, below_floor
from builder.facts.gpu.drivers import FLOOR_12, windows_floor
from builder.facts.gpu.table import LAST_BRANCH_BELOW_TURING
from builder.formats.manifest import Driver
from builder.formats.package_names import CUDA, MUSL, SERVED, WINDOWS

_MAXWELL, _TURING, _BLACKWELL = 0x1340, 0x1E00, 0x2900
"""PCI device ids: display devices from the first up to the second are Maxwell, Pascal or Volta, from the
third on Blackwell and newer. Source: pci.ids."""

_FIRST_BRANCHES = (
    (_TURING, "410"),
    (0x2080, "450"),
    (0x2180, "418"),
    (0x2200, "455"),
    (0x2300, "520"),
    (0x2400, "455"),
    (0x2600, "520"),
    (_BLACKWELL, "570"),
)
"""The first branch of the driver for cards from a PCI device id on: Turing, A100, the small Turing, Ampere,
Hopper, Ampere, Ada, Blackwell. Source: the lists of supported GPUs in the drivers' README."""

_NOT_THE_MACHINES = ("ORTPACKS_FORCE_CC=", "ORTPACKS_FORCE_DRIVER=")

_FAILED = (Outcome.FAILED, Outcome.TIMEOUT)


def hidden_gpus(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D005 where ``CUDA_VISIBLE_DEVICES`` leaves no GPU.

    Where the driver lists none and there is no libcuda, the variable is not the cause.
    """
    wanted = observed.cuda_visible
    hides_all = wanted in ("", "-1") and observed.reply("libcuda").outcome != Outcome.MISSING
    if wanted is not None and not observed.devices and (observed.listed or hides_all):
        total = f", and the driver lists {observed.listed}" if observed.listed else ""
        yield finding("D005", f"CUDA_VISIBLE_DEVICES={wanted} leaves no GPU{total}.")


def nouveau(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D002 where the kernel driver of an NVIDIA card is nouveau."""
    cards = [card.address for card in observed.kernel.cards if card.driver == "nouveau"]
    if cards:
        yield finding("D002", f"The NVIDIA card {', '.join(cards)} is driven by nouveau.")


def module_not_loaded(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D001 where an NVIDIA card is on the PCI bus, and the module nvidia is not loaded.

    A card that is reserved for a virtual machine needs no driver here.
    """
    cards = [card.address for card in _cards(observed)]
    if cards and not observed.kernel.loaded:
        yield finding("D001", f"An NVIDIA card at {', '.join(cards)}, and the module nvidia is not loaded.")


def no_device_file(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D006 where the module nvidia is loaded, and there is no ``/dev/nvidiactl``."""
    if observed.kernel.loaded and observed.kernel.control == ABSENT:
        yield finding("D006", "The module nvidia is loaded, and there is no /dev/nvidiactl.")


def device_file_forbidden(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D007 where this user may not open ``/dev/nvidiactl``."""
    if observed.kernel.control == FORBIDDEN:
        yield finding("D007", "/dev/nvidiactl is there, and this user may not open it.")


def no_libcuda(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D008 where the driver is there, and ``libcuda.so.1`` is not."""
    there = observed.kernel.loaded or observed.kernel.dxg or observed.listed
    if there and observed.reply("libcuda").outcome == Outcome.MISSING:
        yield finding("D008", "The driver is there, and libcuda.so.1 is not.")


def no_gpu_for_cuda(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D009 where the driver lists GPUs or is loaded, and CUDA fails with 100, no device."""
    if observed.listed or observed.kernel.loaded or observed.reply("NVML").outcome == Outcome.NONE:
        listed = f"The driver lists {observed.listed} GPU(s)" if observed.listed else "The driver is loaded"
        yield finding("D009", f"{listed}, and CUDA none: CUDA_ERROR_NO_DEVICE (100).")


def failing_driver(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D015 where NVML fails with a number, or nvidia-smi fails.

    Other failures of NVML are D013 and D014.
    """
    replies = {name: observed.reply(name) for name in ("NVML", "nvidia-smi")}
    failed = [f"{name}: {reply.detail}" for name, reply in replies.items() if reply.outcome in _FAILED]
    if failed and not (replies["NVML"].outcome in _FAILED and replies["NVML"].code is None):
        yield finding("D015", f"No NVIDIA GPU was found. {'; '.join(failed)}.")


def no_gpu_found(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D003, unless NVML failed. The rules before this one found no cause."""
    if observed.reply("NVML").outcome in _FAILED:
        return
    nothing = observed.driver is None and observed.reply("libcuda").outcome == Outcome.MISSING
    kept = [card for card in observed.kernel.cards if card not in _cards(observed)]
    reserved = f" {_named(kept)} is kept for virtual machines, and works in them alone." if kept else ""
    yield finding("D003", f"No NVIDIA GPU was found{', and no driver of one' * nothing}.{reserved}")


def forced_by_environment(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D004 where an ``ORTPACKS_FORCE_…`` variable is set."""
    if observed.stated:
        yield finding("D004", f"{', '.join(observed.stated)} in the environment.")


def dropped_by_driver(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D010 where a driver newer than 580 leaves out a card from before Turing.

    Stated GPUs and a stated driver say nothing about this machine's cards.
    """
    if any(stated.startswith(_NOT_THE_MACHINES) for stated in observed.stated):
        return
    old = [card for card in _cards(observed) if _MAXWELL <= card.device < _TURING]
    newer = observed.driver and above_ceiling(observed.driver, LAST_BRANCH_BELOW_TURING)
    if old and newer and _lacking(observed):
        comparison = (
            f"The driver is {observed.driver}, it lists {observed.listed} of {len(_cards(observed))} cards"
        )
        yield finding("D010", f"{comparison}, and {_named(old)} is from before Turing.")


def wrong_flavour(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D016 or D017 where the kernel module's flavour does not drive a card that is not listed.

    The open one serves Turing and newer, the proprietary one no Blackwell. Source: NVIDIA's driver README,
    "Open Linux Kernel Modules".
    """
    opened, driver = observed.kernel.open_module, observed.driver
    branch = f"branch {driver.partition('.')[0]}" if driver else "of the same branch"
    old = [card for card in _cards(observed) if _MAXWELL <= card.device < _TURING]
    new = [card for card in _cards(observed) if card.device >= _BLACKWELL]
    explained = [*dropped_by_driver(observed), *card_newer_than_driver(observed)]
    if opened is None or explained or not _lacking(observed):
        return
    flavour = "open" if opened else "proprietary"
    for code, cards in (("D016", old if opened else []), ("D017", [] if opened else new)):
        if cards:
            seen = (
                f"The kernel module of driver {driver or 'unknown'} is the {flavour} one, and {_named(cards)}"
            )
            yield finding(code, f"{seen} is not listed.", branch=branch)


def card_newer_than_driver(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D018 where the driver is of an older branch than the first for a card that it does not list."""
    if observed.driver is None or not _lacking(observed) or observed.stated:
        return
    for card in _cards(observed):
        first = [branch for device, branch in _FIRST_BRANCHES if device <= card.device]
        if first and _holds(below_floor, observed.driver, first[-1]):
            yield finding("D018", f"The driver is {observed.driver}, and {_named([card])}.", branch=first[-1])
            return


def no_mig_instance(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D019 where CUDA has no device, and a GPU in MIG mode has no instance for this process."""
    without = [device.name for device in observed.reply("NVML").devices if device.mig == ()]
    hidden = observed.kernel.instances and not observed.kernel.instance_files
    if without or hidden:
        named = f"{', '.join(without)} is in MIG mode without an instance" if without else ""
        files = f"{observed.kernel.instances} MIG instance(s), and no device file of one" if hidden else ""
        yield finding("D019", f"{named or files}, and CUDA lists no GPU.")


def cards_not_listed(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D011 where fewer GPUs are listed than cards, without D010, D012 or D016 to D018."""
    causes = (dropped_by_driver, before_maxwell, wrong_flavour, card_newer_than_driver)
    if observed.listed and _lacking(observed) and not any(any(rule(observed)) for rule in causes):
        cards = _cards(observed)
        comparison = f"The driver lists {observed.listed} GPU(s), and the bus has {len(cards)} NVIDIA cards"
        yield finding("D011", f"{comparison}: {_named(cards)}.")


def before_maxwell(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D012 where a card is from before Maxwell, by its PCI id."""
    old = [card for card in _cards(observed) if card.device < _MAXWELL]
    if old:
        yield finding("D012", f"An NVIDIA card from before Maxwell: {_named(old)}.")


def outside_driver_range(observed: Observations) -> Iterator[MachineFinding]:
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
        yield finding("D031", f"The driver is {driver}.", what=what, floor=limits.floor)
    if (
        limits.ceiling
        and _holds(above_ceiling, driver, limits.ceiling)
        and not [*dropped_by_driver(observed)]
    ):
        yield finding("D032", f"The driver is {driver}.", what=what, ceiling=limits.ceiling)


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
    return [card for card in observed.kernel.cards if card.driver != "vfio-pci"]


def _lacking(observed: Observations) -> bool:
    """Return whether the driver lists fewer GPUs than there are cards.

    In a container, which may have been given only some of the GPUs, return whether it lists none.
    """
    return not observed.listed if observed.system.container else observed.listed < len(_cards(observed))


def _named(cards: List[PciCard]) -> str:
    return ", ".join(f"{card.address} (10de:{card.device:04x})" for card in cards)


KEPT = ("nouveau", "vfio-pci")
"""Kernel drivers whose cards cannot be given to a container."""

_NO_GPU = ("void", "none", "")

DXGDMAL_SINCE = 555
"""The first branch of the Windows driver with libnvdxgdmal (NVIDIA/nvidia-container-toolkit#520)."""


def container_without_gpus(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D102 where the container was started with no GPU on purpose."""
    system = observed.system
    if system.container and system.nvidia_visible in _NO_GPU and observed.kernel.control == ABSENT:
        yield finding(
            "D102", f"NVIDIA_VISIBLE_DEVICES={system.nvidia_visible} in a container ({system.container})."
        )


def no_wsl_gpu(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D106 where WSL has no ``/dev/dxg``."""
    if observed.system.wsl and not observed.kernel.dxg:
        where = f", in a container ({observed.system.container})" if observed.system.container else ""
        yield finding("D106", f"This is WSL{where}, and there is no /dev/dxg.")


def gpu_not_passed(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D101 where a container shows its host's PCI bus or modules, and no device files."""
    cards = [card for card in observed.kernel.cards if card.driver not in KEPT]
    host = cards or observed.kernel.loaded
    if observed.system.container and host and observed.kernel.control == ABSENT:
        where = f"In a container ({observed.system.container}) with the host's NVIDIA card in sight"
        yield finding("D101", f"{where}, and there is no /dev/nvidiactl.")


def access_lost(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D110 or D113 where device files are there and may not be opened, whatever the user's rights are.

    A unit with a ``/dev`` of its own does not even see them. NVML's 999 in a container is the same loss.
    """
    system, control = observed.system, observed.kernel.control
    unknown = any(observed.reply(name).error == "Unknown Error" for name in ("NVML", "nvidia-smi"))
    if system.container and (control == REFUSED or (unknown and control != ABSENT)):
        why = "opening /dev/nvidiactl is refused (EPERM)" if control == REFUSED else "NVML says Unknown Error"
        yield finding("D110", f"In a container ({system.container}) with device files, {why}.")
    elif system.sandbox and control in (REFUSED, ABSENT) and (_cards(observed) or observed.kernel.loaded):
        why = "refused" if control == REFUSED else "not in its /dev"
        yield finding("D113", f"In the unit {system.sandbox}, and /dev/nvidiactl is {why}.")


def linux_driver_in_wsl(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D112 where WSL has a Linux driver's libcuda in a system folder, and CUDA lists no GPU."""
    path = observed.kernel.linux_libcuda
    if observed.system.wsl and path and not observed.reply("libcuda").devices:
        yield finding("D112", f"This is WSL, with a Linux driver's {path}.")


def vgpu_without_cuda(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D114 where the vGPU is of a series without CUDA. Source: NVIDIA's vGPU user guide."""
    model = observed.system.vgpu
    if model and model[-1] in "AB" and not observed.reply("libcuda").devices:
        yield finding("D114", f"The GPU is a vGPU of the {model[-1]} series, {model}.")


def container_without_libcuda(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D103 where a container with a GPU has no ``libcuda.so.1``."""
    given = observed.kernel.control != ABSENT or observed.kernel.dxg or observed.listed
    if observed.system.container and given and observed.reply("libcuda").outcome == Outcome.MISSING:
        parts = observed.system.nvidia_capabilities
        why = f": NVIDIA_DRIVER_CAPABILITIES={parts}" if parts is not None else ""
        yield finding("D103", "In a container with a GPU, and libcuda.so.1 is not there.", why=why)


def jetson(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D107 where the machine is a Jetson or another Tegra."""
    if observed.system.jetson:
        yield finding("D107", f"This is a {observed.system.jetson}.")


def container_without_smi(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D104 where a container with CUDA has no nvidia-smi.

    Where CUDA lists GPUs, nvidia-smi is not run. NVML is looked for instead: both belong to the same part of
    the driver.
    """
    system = observed.system
    if (
        system.container
        and observed.reply("libcuda").devices
        and observed.reply("NVML").outcome == Outcome.MISSING
    ):
        yield finding("D104", f"In a container ({system.container}) with CUDA and without nvidia-smi.")


def musl(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D108 where the C library of the system is musl."""
    if observed.system.glibc == MUSL:
        yield finding("D108", "This system's C library is musl.")


def unserved_platform(observed: Observations) -> Iterator[MachineFinding]:
    """Yield D109 where no packages for NVIDIA GPUs are made for the system."""
    system = observed.system
    if not system.jetson and observed.platform not in SERVED[CUDA]:
        yield finding("D109", f"This system is {observed.platform}.")


def wsl_500(observed: Observations) -> bool:
    """Return whether a failure with CUDA's number 500 has the cause that D105 describes."""
    if not (observed.kernel.dxg and observed.system.container) or observed.kernel.dxgdmal:
        return False
    return observed.driver is None or int(observed.driver.split(".")[0]) >= DXGDMAL_SINCE


CAUSES = (
    hidden_gpus,
    dropped_by_driver,
    wrong_flavour,
    card_newer_than_driver,
    vgpu_without_cuda,
    jetson,
    container_without_gpus,
    no_wsl_gpu,
    linux_driver_in_wsl,
    access_lost,
    gpu_not_passed,
    container_without_libcuda,
    nouveau,
    module_not_loaded,
    no_device_file,
    device_file_forbidden,
    no_libcuda,
    no_mig_instance,
    no_gpu_for_cuda,
    failing_driver,
    no_gpu_found,
)
"""Reasons for which CUDA has no GPU, in order. The first rule with a finding names the cause, and later ones
would name consequences."""

RULES = (
    forced_by_environment,
    device_file_forbidden,
    access_lost,
    linux_driver_in_wsl,
    dropped_by_driver,
    wrong_flavour,
    card_newer_than_driver,
    cards_not_listed,
    before_maxwell,
    outside_driver_range,
    jetson,
    container_without_smi,
    musl,
    unserved_platform,
)
