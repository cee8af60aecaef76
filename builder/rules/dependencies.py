"""Rules for the dependencies of a package's libraries: each is in the package or on every host, and fits.

``check_closure`` judges the libraries' bytes (E002 to E013, E017). ``check_ldd`` judges the output of
``ldd`` in a bare container (B018): a line ``ldd PATH`` for each library, followed by ldd's own lines. Source
of their format: glibc's ``elf/rtld.c`` and ``elf/ldd.bash.in``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import AbstractSet

from builder.binary.library import HostNeeds, Library
from builder.binary.library_names import BRIDGE, HOST, NVIDIA, ONNXRUNTIME, PROVIDER
from builder.findings.finding import Code, Finding, Severity
from builder.formats.package_names import LIB
from builder.gpu.cuda_toolkits import version_of
from builder.package.archive import BUILT
from builder.package.contents import is_users
from builder.project.variants import Limits
from builder.rules.dlopen import dlopened_files

HOST_LIBRARIES = frozenset(
    {
        *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"),
        *("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"),
        *("libstdc++.so.6", "libgcc_s.so.1"),
        "libcuda.so.1",  # part of the driver, never bundled
    }
)
"""The libraries that every package may expect of a host."""

_HOST_OF_NVIDIA = frozenset({"libz.so.1"})
"""Further libraries of a host that only NVIDIA's files may need; every host has them for dpkg or rpm.

Seven of cuDNN 9.10's eight libraries need ``libz.so.1``, and their files must not be changed.
"""

_EVERYWHERE = ((HOST, "every program that uses the package loads it"), (BRIDGE, f"{HOST} opens it"))
"""Libraries that every package must hold although no NEEDED entry names them, and the reason.

The provider is such a library too; A002 reports a missing provider. Source: ORT's provider_bridge_ort.cc.
"""

_INNER = re.compile(
    r"lib(?:absl_\w+|protobuf(?:-lite)?|utf8_\w+|onnx|onnx_proto|re2|flatbuffers|nsync\w*|date(?:-tz)?"
    r"|cpuinfo|pthreadpool|XNNPACK)\.so(?:\..*)?"
)
"""Dependencies of ORT that its official release links statically, by their file names in Debian.

Source: ``readelf -d`` of the official wheels, and of Debian's own libonnxruntime.so.1.21, which needs seven.
"""

_ORIGIN = "$ORIGIN"

_CUDNN_BEGINNING = "libcudnn"


def needs(libraries: Iterable[Library]) -> HostNeeds:
    """Return the highest versions of glibc and libstdc++ that any of ``libraries`` needs."""
    elves = [library.elf for library in libraries]
    return HostNeeds(_highest(elf.glibc for elf in elves), _highest(elf.glibcxx for elf in elves))


def _highest(versions: Iterable[str | None]) -> str | None:
    return max((version for version in versions if version), key=version_of, default=None)


def check_closure(libraries: Sequence[Library], limits: Limits) -> list[Finding]:
    """Return the findings E002 to E013 and E017 on all libraries of a package."""
    names = {library.name for library in libraries}
    return [
        *_absent(names),
        *(finding for library in libraries for rule in _RULES for finding in rule(library, names)),
        *(finding for library in libraries for finding in _too_new(library, limits)),
        *check_one_version(Code.E008, "ONNX Runtime's libraries", _ort_versions(libraries)),
        *check_one_version(Code.E009, "cuDNN's libraries", _cudnn_versions(libraries)),
    ]


def check_one_version(code: Code, what: str, versions: Mapping[str, str | None]) -> Iterator[Finding]:
    """Yield a finding ``code`` if the libraries of ``what`` have different versions.

    Yields a warning ``code`` too if some versions are unknown. ``versions``: the version by member path,
    ``None`` if it is unknown. One library alone yields nothing. The finding's path is that of a library with
    the rarest version.
    """
    if len(versions) <= 1:
        return
    found_versions = sorted({version for version in versions.values() if version}, key=version_of)
    if len(found_versions) > 1:
        rarest = min(found_versions, key=lambda version: len(_paths(versions, version)))
        yield Finding(
            code=code,
            path=_paths(versions, rarest)[0],
            message=f"{what} of {len(found_versions)} versions are mixed in this package",
            wanted=f"all of {what} from one release",
            got="; ".join(f"{version}: {', '.join(_paths(versions, version))}" for version in found_versions),
        )
    silent = _paths(versions, None)
    if silent:
        yield Finding(
            code=code,
            path=silent[0],
            message=f"the version of {len(silent)} of {what} is unknown: it is not in their bytes, and no "
            "manifest names their wheel",
            wanted=f"a package with its manifest, to compare all of {what}",
            got=", ".join(silent),
            severity=Severity.WARNING,
        )


def _paths(versions: Mapping[str, str | None], wanted: str | None) -> list[str]:
    return [path for path, version in versions.items() if version == wanted]


def _absent(names: AbstractSet[str]) -> Iterator[Finding]:
    for name, why in _EVERYWHERE:
        if name not in names:
            yield Finding(
                code=Code.E012,
                path=f"{LIB}{name}",
                message=f"is not in the package, and {why}",
                wanted=f"{LIB}{name}",
            )


def missing(library: Library, names: AbstractSet[str]) -> list[str]:
    """Return the NEEDED entries of ``library`` that neither ``names``, its package, nor every host has."""
    host = HOST_LIBRARIES | _HOST_OF_NVIDIA if library.vendor == NVIDIA else HOST_LIBRARIES
    return [needed for needed in library.elf.needed if needed not in names and needed not in host]


def _needed(library: Library, names: AbstractSet[str]) -> Iterator[Finding]:
    """Yield E002 for each missing library, except those that E013 and E017 report."""
    inside = _belonging_inside(library)
    for needed in missing(library, names):
        if needed not in inside and not is_users(library.name, needed):
            yield Finding(
                code=Code.E002,
                path=library.path,
                message=f"needs {needed}, which nothing will provide",
                wanted=f"{needed} in the package's lib/, or a build without it",
            )


def _left_to_the_user(library: Library, names: AbstractSet[str]) -> Iterator[Finding]:
    """Yield the warning E017 for a provider that needs TensorRT, which the user has to install."""
    users = [needed for needed in missing(library, names) if is_users(library.name, needed)]
    if users:
        yield Finding(
            code=Code.E017,
            path=library.path,
            message=f"needs {', '.join(users)}, and no package holds TensorRT",
            wanted="TensorRT where the package runs, or onnxruntime.tensorrt: false in variants.yaml",
            severity=Severity.WARNING,
        )


def _dependencies_inside(library: Library, _names: AbstractSet[str]) -> Iterator[Finding]:
    """Yield E013 for dependencies that belong inside ORT's library, even if the package holds them."""
    inside = _belonging_inside(library)
    if inside:
        yield Finding(
            code=Code.E013,
            path=library.path,
            message=f"was linked with {', '.join(inside)} of the machine it was built on",
            wanted="these inside the library, compiled from source, static and position-independent",
        )


def _belonging_inside(library: Library) -> list[str]:
    if library.vendor != ONNXRUNTIME:
        return []
    return [needed for needed in library.elf.needed if _INNER.fullmatch(needed)]


def _opened(library: Library, names: AbstractSet[str]) -> Iterator[Finding]:
    for opened in dlopened_files(library, names):
        if not fnmatch.filter(names, opened):
            yield Finding(
                code=Code.E003,
                path=library.path,
                message=f"opens {opened} at run time, and the package does not hold it",
                wanted=f"{LIB}{opened}",
            )


def _soname(library: Library, _names: AbstractSet[str]) -> Iterator[Finding]:
    if library.elf.soname not in (None, library.name):
        yield Finding(
            code=Code.E004,
            path=library.path,
            message="stands under a name the loader does not ask for",
            wanted=f"{LIB}{library.elf.soname}",
            got=library.path,
        )


def _runpath(library: Library, names: AbstractSet[str]) -> Iterator[Finding]:
    """Yield E005 for a library of ORT's whose search folders are wrong.

    A library that needs others of its package must have ``$ORIGIN``, another one may have no RUNPATH. ORT's
    official provider has none, and the loader does not apply its opener's RUNPATH to it.
    """
    uses_neighbours = any(needed in names for needed in library.elf.needed)
    wrong = library.search != _ORIGIN if uses_neighbours else library.search not in (None, _ORIGIN)
    if library.vendor == ONNXRUNTIME and wrong:
        yield Finding(
            code=Code.E005,
            path=library.path,
            message="will not find the libraries that lie beside it",
            wanted=f"RUNPATH {_ORIGIN}",
            got=f"RUNPATH {library.search}" if library.search else "no RUNPATH",
        )


def _absolute(library: Library, _names: AbstractSet[str]) -> Iterator[Finding]:
    """Yield E006 for a library that searches an absolute folder; a warning for NVIDIA's files."""
    if library.search is not None and any(path.startswith("/") for path in library.search.split(":")):
        yield Finding(
            code=Code.E006,
            path=library.path,
            message="looks for libraries in a folder of the machine it was built on",
            wanted=f"RUNPATH {_ORIGIN}",
            got=f"RUNPATH {library.search}",
            severity=library.severity,
        )


def _link(library: Library, _names: AbstractSet[str]) -> Iterator[Finding]:
    """Yield E010 for a link: packages are unpacked, copied and mounted, perhaps without the link's target."""
    if library.link is not None:
        yield Finding(
            code=Code.E010,
            path=library.path,
            message="is a link, and a package holds files only",
            wanted=f"the library itself as {library.path}",
            got=f"a link to {library.link}",
        )


def _executable_stack(library: Library, _names: AbstractSet[str]) -> Iterator[Finding]:
    """Yield E011 for a library that glibc 2.41 and newer refuse to load; a warning for NVIDIA's files."""
    if library.elf.executable_stack:
        yield Finding(
            code=Code.E011,
            path=library.path,
            message="asks for an executable stack, which glibc refuses from 2.41 on",
            wanted="PT_GNU_STACK without the flag X (linker option -z noexecstack)",
            severity=library.severity,
        )


def _too_new(library: Library, limits: Limits) -> Iterator[Finding]:
    for family, key, need, most in (
        ("GLIBC", "glibc", library.elf.glibc, limits.glibc),
        ("GLIBCXX", "glibcxx", library.elf.glibcxx, limits.glibcxx),
    ):
        if need is not None and version_of(need) > version_of(most):
            yield Finding(
                code=Code.E007,
                path=library.path,
                message=f"does not load on a system with {family}_{most}",
                wanted=f"{family}_{most} at most (variants.yaml: check.{key})",
                got=f"{family}_{need}",
            )


def _ort_versions(libraries: Sequence[Library]) -> dict[str, str | None]:
    """Return the versions of ORT's libraries by path; ``None`` for an unknown one.

    All compiled libraries come from one source tree, so those without a version in their bytes (the bridge)
    have the version of the others. Empty where no library has a version and all were compiled.
    """
    ours = [library for library in libraries if library.vendor == ONNXRUNTIME]
    if all(library.source == BUILT and library.embedded_version is None for library in ours):
        return {}
    built = {
        library.embedded_version for library in ours if library.source == BUILT and library.embedded_version
    }
    compiled = next(iter(built)) if len(built) == 1 else None
    return {
        library.path: library.version or (compiled if library.source == BUILT else None) for library in ours
    }


def _cudnn_versions(libraries: Sequence[Library]) -> dict[str, str | None]:
    return {
        library.path: library.version for library in libraries if library.name.startswith(_CUDNN_BEGINNING)
    }


_RULES: tuple[Callable[[Library, AbstractSet[str]], Iterator[Finding]], ...] = (
    _needed,
    _left_to_the_user,
    _dependencies_inside,
    _opened,
    _soname,
    _runpath,
    _absolute,
    _link,
    _executable_stack,
)

_HEAD = "ldd "

_DRIVER = "libcuda.so.1"

_FOUND = re.compile(r"\t(?:\S+ => )?\S+ \(0x[0-9a-f]+\)|\tstatically linked")

_NOT_FOUND = re.compile(r"\t(?P<name>\S+) => not found")


def check_ldd(listing: str, package: str) -> tuple[Finding, ...]:
    """Return B018 for each dependency that ldd did not find, and each library that ldd could not list.

    Only the driver, which the host provides, and TensorRT, which the user installs, may be missing.
    """
    by_library = _by_library(listing)
    if not by_library:
        return (Finding(Code.B018, package, "ldd was asked about no library", got=listing[:200]),)
    return tuple(finding for path, lines in by_library.items() for finding in _judge(path, lines))


def waits_for_driver(listing: str) -> bool:
    """Return whether the CUDA provider cannot load because the container lacks the driver's library.

    Official builds link that library since 1.31; older ones open it by ``dlopen``. ``check_ldd`` reports
    the provider's other dependencies.
    """
    lines = (lines for path, lines in _by_library(listing).items() if path.endswith(f"/{PROVIDER}"))
    return any(line == f"\t{_DRIVER} => not found" for found in lines for line in found)


def _by_library(listing: str) -> Mapping[str, list[str]]:
    by_library: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in listing.splitlines():
        if line.startswith(_HEAD):
            lines = by_library.setdefault(line[len(_HEAD) :], [])
        else:
            lines.append(line)
    return by_library


def _judge(path: str, lines: list[str]) -> Iterator[Finding]:
    name = path.rpartition("/")[2]
    if not lines:
        yield Finding(Code.B018, f"{LIB}{name}", "ldd said nothing of it")
    for line in dict.fromkeys(lines):
        not_found = _NOT_FOUND.fullmatch(line)
        if not_found and not (not_found["name"] == _DRIVER or is_users(name, not_found["name"])):
            what = f"needs {not_found['name']}, which the loader does not find in a bare container"
            yield Finding(Code.B018, f"{LIB}{name}", what, wanted=f"{LIB}{not_found['name']}")
        elif not not_found and not _FOUND.fullmatch(line):
            yield Finding(Code.B018, f"{LIB}{name}", "ldd could not list its needs", got=line.strip()[:300])
