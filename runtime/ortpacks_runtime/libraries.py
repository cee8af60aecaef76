"""The CUDA provider's libraries: those of an installed package, or those of the onnxruntime wheel.

The wheel's Python module opens its providers itself. ``load`` leads it to the package's in the running
process (``alias.py``).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import onnxruntime

from ortpacks_runtime.alias import let_lie_in, load_as
from ortpacks_runtime.client import ClientError, ask, loaded_libraries
from ortpacks_runtime.providers import CUDA, DIRECTML, ORT_NAMES, TENSORRT, ProviderError

_SHARED, _PROVIDER = "libonnxruntime_providers_shared.so", "libonnxruntime_providers_{}.so"

_HOST = "onnxruntime.capi.onnxruntime_pybind11_state"
"""Module that is ONNX Runtime itself."""

DYLIB = "ORT_DYLIB_PATH"

_NEEDS = {CUDA: "libcuda.so.1", TENSORRT: "libnvinfer.so.10"}
"""Library whose loading shows fast whether a provider can work: the driver's, TensorRT's own."""

_WHEELS = {CUDA: "onnxruntime-gpu", TENSORRT: "onnxruntime-gpu", DIRECTML: "onnxruntime-directml"}
"""Distribution of ONNX Runtime that has a provider; ``onnxruntime`` has COREML on macOS."""

_OURS = "ortpacks-onnxruntime-gpu"
"""Distribution of the wheels that ``./run wheel`` makes; its import is ``onnxruntime`` too."""

_BY_GPU = f"uv pip install --reinstall --preview-features wheel-variants {_OURS}"

_LINUX = "linux"


@dataclass(frozen=True)
class Libraries:
    """The folder of provider libraries, and what is known of them."""

    name: str
    """The package's name, or ``onnxruntime 1.21.0 (wheel)``."""
    folder: Path
    capabilities: dict[str, str] | None
    """Support by compute capability: ``native``, ``jit``, ``partial``, ``none``; ``None`` if not known."""
    note: str = ""
    """Reason why an installed package is not used."""
    cannot_run: tuple[Mapping[str, Any], ...] = ()
    """Operators without CUDA kernels, by domain, as the package's manifest lists them."""


def find(provider: str) -> Libraries:
    """Return the libraries of ``ORT_DYLIB_PATH``, else of the client's package, else of the wheel.

    A package without a library of ``provider`` is not used: no package has TensorRT's, and the package for
    the CPU has none.
    """
    named = os.environ.get(DYLIB)
    try:
        host = named or ask("env")["variables"][DYLIB]
        found = _of_package(Path(host).parent)
    except ClientError as error:
        return _of_wheel(f"no package: {error}")
    except KeyError:  # the client names no host library
        return _of_wheel("the package in use is a plug-in: the wheel's provider is used")
    except ProviderError as error:
        return _of_wheel(str(error))
    if sys.platform == _LINUX and not (found.folder / _PROVIDER.format(provider)).exists():
        return _of_wheel(f"{found.name} has no {ORT_NAMES[provider]}: the wheel's is used")
    return found


_VERSIONS = {"cudnn": "cudnnGetVersion", "cublasLt": "cublasLtGetVersion"}
"""Functions that tell a library's version as a number: 91002 is cuDNN 9.10.2, 120901 cuBLAS 12.9.1."""


def in_use() -> dict[str, str]:
    """Return the version of each library of ONNX Runtime and CUDA in this process, by path."""
    return {path: _version_of(Path(path)) for path in loaded_libraries()}


def cuda_failure(ordinal: int) -> str:
    """Return what CUDA itself says of a GPU that it cannot use, as ONNX Runtime words it; empty if it can.

    Hosts from 1.26 on write it to their log alone, and open the model without CUDA.
    """
    path = next((one for one in loaded_libraries() if "cudart" in Path(one).name), None)
    if path is None:
        return ""
    cuda = ctypes.CDLL(path)
    cuda.cudaGetErrorString.restype = ctypes.c_char_p
    code = cuda.cudaSetDevice(ordinal) or cuda.cudaFree(None)
    return f"CUDA failure {code}: {cuda.cudaGetErrorString(code).decode()}" if code else ""


def _version_of(path: Path) -> str:
    name = path.name.removeprefix("lib").partition(".")[0].partition("64_")[0]
    if name not in _VERSIONS:
        return ""
    try:
        ask_version = getattr(ctypes.CDLL(str(path)), _VERSIONS[name])
    except (OSError, AttributeError):
        return ""
    ask_version.restype = ctypes.c_size_t
    number = int(ask_version())
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def require(provider: str) -> None:
    """Raise ``ProviderError`` unless onnxruntime has ``provider`` and the library that it needs loads."""
    if ORT_NAMES[provider] not in onnxruntime.get_available_providers():
        version, wheel = onnxruntime.__version__, _WHEELS.get(provider, "onnxruntime")
        if _description() and provider == CUDA:
            raise ProviderError(f"{_OURS} {version} here is its wheel for the CPU", _BY_GPU)
        what = f"onnxruntime {version} here was built without {ORT_NAMES[provider]}"
        of = f"=={package}" if (package := _installed()) else ""
        do = f"pip install {wheel}{of} in place of the installed one"
        if provider in _NEEDS and (driver := without_driver()):
            # a session on the GPU says which plug-in fits
            do = driver if takes_plugins() else f"{driver}, and {do}"
        elif provider == TENSORRT:
            do = f"nothing, unless you need TensorRT itself: then {do}"
        raise ProviderError(what, do)
    if provider in _NEEDS and sys.platform == _LINUX:
        _load(_NEEDS[provider])


def without_driver() -> str:
    """Return what to do where NVIDIA's driver is absent; empty where its library loads."""
    try:
        if sys.platform == _LINUX:
            _load(_NEEDS[CUDA])
    except ProviderError:
        return (
            f"nothing, unless there is an NVIDIA GPU: then install its driver ({_NEEDS[CUDA]} is absent; a "
            "container gets it with --gpus all)"
        )
    return ""


def takes_plugins() -> bool:
    """Return whether the onnxruntime of this Python can register a plug-in for CUDA."""
    return hasattr(onnxruntime, "register_execution_provider_library") and not has_own_cuda()


def has_own_cuda() -> bool:
    """Return whether the onnxruntime of this Python was built with a CUDA provider, which it opens itself.

    The provider may lie elsewhere, as in our images. A newer host lists a registered plug-in among its
    providers too.
    """
    if any(_capi().glob("*onnxruntime_providers_cuda*")):
        return True
    registered: list[Any] = getattr(onnxruntime, "get_ep_devices", list)()
    is_listed = ORT_NAMES[CUDA] in onnxruntime.get_available_providers()
    return is_listed and not any(one.ep_name == ORT_NAMES[CUDA] for one in registered)


def load(libraries: Libraries, provider: str) -> None:
    """Load the library of ``provider`` and all that it needs.

    Raises ``ProviderError`` with the loader's message. On systems other than Linux, ONNX Runtime loads its
    wheel's library itself.
    """
    if sys.platform != _LINUX:
        return
    try:
        if libraries.capabilities is None and hasattr(onnxruntime, "preload_dlls"):
            with redirect_stdout(sys.stderr):  # it prints what it does not find
                onnxruntime.preload_dlls()
        name = _PROVIDER.format(provider)
        _load(str(libraries.folder / _SHARED))
        load_as(name, libraries.folder / name)
        if host := sys.modules.get(_HOST):
            let_lie_in(libraries.folder, Path(str(host.__file__)))
    except OSError as error:
        raise ProviderError(str(error)) from error


def _load(name: str) -> None:
    try:
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ProviderError(str(error)) from error


def _installed() -> str | None:
    """Return ONNX Runtime's version in the package in use; ``None`` without a package."""
    try:
        host = os.environ.get(DYLIB) or ask("env")["variables"][DYLIB]
        manifest = json.loads((Path(host).parents[1] / "manifest.json").read_text(encoding="utf-8"))
        return str(manifest["onnxruntime"]["version"])
    except (ClientError, OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _of_package(folder: Path) -> Libraries:
    """Return the libraries of a package.

    Raises ``ProviderError`` if this Python's onnxruntime cannot use them.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder.parent / "manifest.json").read_text(encoding="utf-8"))
        name, ort = manifest["name"], manifest["onnxruntime"]
        version, capabilities = ort["version"], dict(manifest["capabilities"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProviderError(f"{folder.parent} is no package that can be read: {error}") from error
    if manifest.get("plugin"):
        raise ProviderError(f"{name} is a plug-in, for an onnxruntime without CUDA: the wheel's is used")
    if version != onnxruntime.__version__:
        raise ProviderError(
            f"{name} has ONNX Runtime {version}, this Python {onnxruntime.__version__}, "
            "and a provider of another version crashes",
            f"pip install onnxruntime-gpu=={version}",
        )
    return Libraries(name, folder, capabilities, cannot_run=tuple(ort.get("cannot_run") or ()))


def _of_wheel(note: str) -> Libraries:
    package = _description()
    if package is None or not package.get("capabilities"):
        return Libraries(f"onnxruntime {onnxruntime.__version__} (wheel)", _capi(), None, note)
    name = f"{_OURS} {onnxruntime.__version__} ({package.get('variant')})"
    cannot_run = tuple(package.get("onnxruntime", {}).get("cannot_run") or ())
    return Libraries(name, _capi(), dict(package["capabilities"]), note, cannot_run)


def _description() -> dict[str, Any] | None:
    """Return the entry of our wheel on its package; ``None`` if onnxruntime is not from one of our wheels."""
    try:
        ours = metadata.distribution(_OURS)
        package = json.loads(ours.read_text("ortpacks.json") or "")["package"]
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        return None
    here = Path(str(ours.locate_file("onnxruntime"))) == Path(onnxruntime.__file__).parent
    return package if here and isinstance(package, dict) else None


def _capi() -> Path:
    return Path(onnxruntime.__file__).parent / "capi"
