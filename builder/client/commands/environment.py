"""The answers of ``verify`` (the files of the package in use) and ``env`` (how an application finds them)."""

from __future__ import annotations

from typing import Dict, List, Mapping

from builder.client.flags import SHELLS, SYSTEMD
from builder.client.install.current import installed, lasting
from builder.client.install.prefix import Prefix, read_info
from builder.client.install.unpack import verify
from builder.client.world import ClientOptions, CommandAnswer, World, head
from builder.errors import IntegrityError
from builder.formats.package_names import HOSTS, LINUX


def answer_verify(world: World, options: ClientOptions) -> CommandAnswer:  # noqa: ARG001 every command has this shape
    """Hash what is installed again; exit code 7 when it is not as its manifest says."""
    verdict = verify(installed(options.prefix))
    good = f"{verdict.manifest.name}: {len(verdict.manifest.files)} files are as the manifest says"
    value = {
        **head("verify"),
        "name": verdict.manifest.name,
        "folder": str(verdict.folder),
        "files": len(verdict.manifest.files),
        "problems": list(verdict.problems),
    }
    if verdict.problems:
        return CommandAnswer(value, (*verdict.problems, "Run install again."), IntegrityError.exit_code)
    return CommandAnswer(value, (good,))


def answer_env(world: World, options: ClientOptions) -> CommandAnswer:
    """The variables an application needs."""
    values = variables(options.prefix, world.platform)
    said = lines(values, options.dialect, world.platform)
    return CommandAnswer({**head("env"), "variables": values}, tuple(said))


JIT_CACHE_BYTES = 4 * 2**30
"""What NVIDIA's driver keeps of compiled kernels at most. Its default may hold a fraction of ONNX Runtime's,
which would be compiled again at each start."""

LIBRARY_PATHS = {"win": "PATH", "macos": "DYLD_LIBRARY_PATH"}
"""Where the loader looks first, by what a platform's name begins with; else ``LD_LIBRARY_PATH``."""


def variables(prefix: Prefix, platform: str) -> Dict[str, str]:
    """Names and values. Where there is a link ``current`` they name it, and stay true after an install.

    Raises ``NothingToDoError`` when nothing is installed.
    """
    info = read_info(installed(prefix))
    lib = lasting(prefix) / "lib"
    host = HOSTS.get(platform, HOSTS[LINUX])
    values = {"ORT_DYLIB_PATH": str(lib / host), library_path(platform): str(lib)}
    visible = info.get("cudaVisibleDevices")
    if isinstance(visible, str):
        values["CUDA_VISIBLE_DEVICES"] = visible
    if info.get("support") == "jit":
        values["CUDA_CACHE_MAXSIZE"] = str(JIT_CACHE_BYTES)
    return values


def library_path(platform: str) -> str:
    """The variable that the loader reads."""
    return LIBRARY_PATHS.get(platform.partition("-")[0], "LD_LIBRARY_PATH")


def lines(values: Mapping[str, str], shell: str, platform: str) -> List[str]:
    """One statement per variable, for a shell of ``SHELLS``; library paths go before what is set."""
    separator = ";" if platform.startswith("win") else ":"
    paths = library_path(platform)
    said = [SHELLS[shell](name, value, separator if name == paths else "") for name, value in values.items()]
    return ["[Service]", *said] if shell == SYSTEMD else said
