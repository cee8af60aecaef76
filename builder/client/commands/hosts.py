"""The ONNX Runtime that an application has: what ``--host`` names, else what ``doctor`` finds too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterable, Mapping, Optional

from builder.client.commands.environment import DYLIB
from builder.client.commands.python_distributions import distributions
from builder.client.context import CommandContext
from builder.client.doctor.observations import Distribution
from builder.client.selection.forms import OF_A_PACKAGE, OWN_PROVIDER, ApplicationHost
from builder.client.trials.try_out import OrtTrials
from builder.errors import ConfigError
from builder.files.disk import absolute, is_file, is_folder
from builder.formats.package_names import MANIFEST, PROVIDER_LIBRARIES

NO_HOST = "none"

_VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9}){1,2}[A-Za-z0-9.+-]*")

_PYTHON = re.compile(r"python[\d.]*(?:\.exe)?")

_LIBRARIES = ("libonnxruntime.so*", "onnxruntime.dll", "libonnxruntime*.dylib")
"""Names of the host library in a wheel of ONNX Runtime."""


def stated_host(said: str, context: CommandContext) -> Optional[ApplicationHost]:
    """Return the host that ``--host`` names; ``None`` for ``none``.

    ``said`` is a version, the path of a library, of a Python interpreter, or of an environment. Raises
    ``ConfigError`` for anything else.
    """
    if said == NO_HOST:
        return None
    if _VERSION.fullmatch(said):
        return ApplicationHost(f"ONNX Runtime {said} (--host)", said)
    path = absolute(Path(said))
    python = _PYTHON.fullmatch(path.name) and is_file(path)
    if python or is_folder(path):
        host = found_in([path.parent.parent if python else path])
        if host is None:
            raise ConfigError(f"--host {said}: it has no onnxruntime.", advice="Install it first.")
        return host
    if not is_file(path):
        raise ConfigError(
            f"--host {said}: a version (1.32.0), the path of a host library, a Python or its environment, or "
            "none is wanted."
        )
    return _library(path, "--host", context)


def found_host(context: CommandContext, info: Mapping[str, object]) -> Optional[ApplicationHost]:
    """Return the host of ``ORT_DYLIB_PATH``, else of ``info``, else of the running Python; else ``None``.

    ``info`` is an installed plug-in's, with the path of the host that it was installed for.
    """
    plugin = info.get("plugin")
    noted = plugin.get("host") if isinstance(plugin, dict) else None
    for named, by in ((context.around.env.get(DYLIB), DYLIB), (noted, "install --host")):
        if isinstance(named, str) and is_file(Path(named)):
            return _library(Path(named), by, context)
    return found_in(context.environments)


def found_in(environments: Iterable[Path]) -> Optional[ApplicationHost]:
    """Return the first host in Python environments; ``None`` where none has one."""
    return next(map(host_in, distributions(environments)), None)


def host_in(distribution: Distribution) -> ApplicationHost:
    """Return the host that a distribution of ONNX Runtime brings."""
    folder = Path(distribution.folder) / "onnxruntime" / "capi"
    library = next((str(path) for name in _LIBRARIES for path in sorted(folder.glob(name))), None)
    where = f"{distribution.name} {distribution.version} in {distribution.folder}"
    own = "gpu" in distribution.name
    return ApplicationHost(where, distribution.version, library, OWN_PROVIDER if own else _obstacle(folder))


def _library(path: Path, said_by: str, context: CommandContext) -> ApplicationHost:
    version = OrtTrials(context.around.ask, context.around.python).version(path)
    where = f"ONNX Runtime {version}" if version else "a library"
    return ApplicationHost(
        f"{where} in {path} ({said_by})", version, str(path), _obstacle(path.resolve().parent)
    )


def _obstacle(folder: Path) -> Optional[str]:
    """Return why the host library in ``folder`` is not stock; ``None`` where it is."""
    if is_file(folder.parent / MANIFEST):
        return OF_A_PACKAGE
    own = any(is_file(folder / name) for name in set(PROVIDER_LIBRARIES.values()))
    return OWN_PROVIDER if own else None
