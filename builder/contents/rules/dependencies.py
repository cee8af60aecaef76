"""Rules for the dependencies of a package's libraries: each is in the package or on every host, and fits.

``check_closure`` judges the libraries' bytes (E002 to E013, E017), ``unneeded`` finds libraries that nothing
needs or opens (E016). No NEEDED entry names a library that is opened by ``dlopen``; its name is in the
opener's bytes, or follows from the version of ONNX Runtime. ``check_ldd`` judges the output of
``ldd`` in a bare container (B018): a line ``ldd PATH`` for each library, followed by ldd's own lines. Source
of their format: glibc's ``elf/rtld.c`` and ``elf/ldd.bash.in``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import AbstractSet

from builder.binary.library import HostNeeds, Library
from builder.binary.library_names import BRIDGE, HOST, NVIDIA, ONNXRUNTIME, PROVIDER, TENSORRT
from builder.config.variants import Limits
from builder.contents.package_manifest import BUILT
from builder.contents.required_files import is_users
from builder.facts.gpu.compatibility import version_of
from builder.facts.ort.known_rules import rules_for
from builder.finding import Code, Finding, Severity
from builder.formats.package_names import LIB, PackageForm

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


def check_closure(
    libraries: Sequence[Library], limits: Limits, form: PackageForm = PackageForm.PROVIDER
) -> list[Finding]:
    """Return the findings E002 to E013 and E017 on all libraries of a package."""
    names = {library.name for library in libraries}
    cudnn = {other.path: other.version for other in libraries if other.name.startswith(_CUDNN_BEGINNING)}
    findings = [*_absent(names)] if form is PackageForm.PROVIDER else []
    for library in libraries:
        findings += [*_needs(library, names), *_search(library, names), *_file(library)]
    for library in libraries:
        findings += _too_new(library, limits)
    findings += check_one_version(Code.E008, "ONNX Runtime's libraries", _ort_versions(libraries))
    findings += check_one_version(Code.E009, "cuDNN's libraries", cudnn)
    return findings


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
    """Return the NEEDED entries of ``library`` that neither its package (``names``) nor every host has."""
    host = HOST_LIBRARIES | _HOST_OF_NVIDIA if library.vendor == NVIDIA else HOST_LIBRARIES
    return [needed for needed in library.elf.needed if needed not in names and needed not in host]


def _needs(library: Library, names: AbstractSet[str]) -> Iterator[Finding]:
    """Yield E002, E013 and E017 on the libraries that a library needs, E003 on those that it opens.

    E013 is for dependencies that belong inside ORT's library, even if the package holds them. E017 is a
    warning for a provider that needs TensorRT, which the user has to install.
    """
    ours = library.vendor == ONNXRUNTIME
    inside = [needed for needed in library.elf.needed if ours and _INNER.fullmatch(needed)]
    lacking = missing(library, names)
    users = [needed for needed in lacking if is_users(library.name, needed)]
    for needed in lacking:
        if needed not in inside and needed not in users:
            yield Finding(
                code=Code.E002,
                path=library.path,
                message=f"needs {needed}, which nothing will provide",
                wanted=f"{needed} in the package's lib/, or a build without it",
            )
    if users:
        yield Finding(
            code=Code.E017,
            path=library.path,
            message=f"needs {', '.join(users)}, and no package holds TensorRT",
            wanted="TensorRT where the package runs, or onnxruntime.tensorrt: false in variants.yaml",
            severity=Severity.WARNING,
        )
    if inside:
        yield Finding(
            code=Code.E013,
            path=library.path,
            message=f"was linked with {', '.join(inside)} of the machine it was built on",
            wanted="these inside the library, compiled from source, static and position-independent",
        )
    for opened in dlopened_files(library, names):
        if not fnmatch.filter(names, opened):
            yield Finding(
                code=Code.E003,
                path=library.path,
                message=f"opens {opened} at run time, and the package does not hold it",
                wanted=f"{LIB}{opened}",
            )


def _search(library: Library, names: AbstractSet[str]) -> Iterator[Finding]:
    """Yield E004 to E006 where the loader does not find a library, or a library not its neighbours.

    One of ORT's that needs others of its package must have ``$ORIGIN``, another may have no RUNPATH. ORT's
    official provider has none, and the loader does not apply its opener's RUNPATH to it. E006, on absolute
    folders, is a warning for NVIDIA's files.
    """
    if library.elf.soname not in (None, library.name):
        yield Finding(
            code=Code.E004,
            path=library.path,
            message="stands under a name the loader does not ask for",
            wanted=f"{LIB}{library.elf.soname}",
            got=library.path,
        )
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
    if library.search is not None and any(path.startswith("/") for path in library.search.split(":")):
        yield Finding(
            code=Code.E006,
            path=library.path,
            message="looks for libraries in a folder of the machine it was built on",
            wanted=f"RUNPATH {_ORIGIN}",
            got=f"RUNPATH {library.search}",
            severity=library.severity,
        )


def _file(library: Library) -> Iterator[Finding]:
    """Yield E010 for a link: packages are unpacked, copied and mounted, perhaps without the link's target.

    Yield E011 for a library that glibc 2.41 and newer refuse to load; a warning for NVIDIA's files.
    """
    if library.link is not None:
        yield Finding(
            code=Code.E010,
            path=library.path,
            message="is a link, and a package holds files only",
            wanted=f"the library itself as {library.path}",
            got=f"a link to {library.link}",
        )
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


_CUDART = "libcudart.so."

_BUILTINS = "libnvrtc-builtins.so."

_UNFINISHED = (".", ".%d")

_SOMETIMES = (
    ("libcublasLt.so.", "libnvrtc.so.*"),
    ("libcudnn_adv.so.", "libcublasLt.so.*"),
    ("libcudnn_engines_precompiled.so.", "libcublasLt.so.*"),
)
"""The beginning of a library's name, and a file that it may open, as an ``fnmatch`` pattern.

The names are between zero bytes in ``.rodata`` of cuBLAS 12.9 and cuDNN 9.10, each before the names of the
file's functions. It is not known what fails without these files, so a package may lack them, but ``unneeded``
does not name them.
"""


def dlopened_files(library: Library, names: AbstractSet[str]) -> tuple[str, ...]:
    """Return the files that a library must find at run time, as ``fnmatch`` patterns.

    ``names`` are the file names of its package's libraries.
    """
    named = (_file_of(name, library, names) for name in library.dlopens)
    return tuple(dict.fromkeys((*named, *_by_table(library))))


OPENED = {
    "12": ("libcudnn.so.9", "libcufft.so.11", "libnvrtc.so.12"),
    "13": ("libcudnn.so.9", "libcufft.so.12", "libnvrtc.so.13"),
}
"""The libraries that a provider opens at run time instead of by NEEDED, by CUDA's major version."""


def dlopens_are_known(library: Library) -> bool:
    """Return whether all files that a library opens at run time are known.

    They are unknown for a file that cannot be read, for a CUDA provider without a version, and for a CUDA
    provider whose release opens libraries that neither its bytes nor the table for its CUDA version name.
    """
    if not library.elf.sections:
        return False
    if library.name != PROVIDER:
        return True
    return library.embedded_version is not None and (
        not rules_for(library.embedded_version).opens_libraries or bool(_by_table(library))
    )


def _by_table(library: Library) -> Sequence[str]:
    """Return the files that a CUDA provider opens without their names in its bytes; known for CUDA 12, 13."""
    linked = [name for name in library.elf.needed if name.startswith(_CUDART)]
    if library.name != PROVIDER or library.embedded_version is None or len(linked) != 1:
        return ()
    opens = rules_for(library.embedded_version).opens_libraries
    return OPENED.get(linked[0].removeprefix(_CUDART), ()) if opens else ()


def _file_of(name: str, library: Library, names: AbstractSet[str]) -> str:
    """Return the file that a name in a library's bytes leads to, as a pattern: ``*`` for an unknown number.

    A name that ends in ``.so`` gets the library's own number, as cuDNN's parts do. A name that ends in a dot
    or ``.%d`` gets the major version of the package's CUDA, and that of NVRTC's built-ins any minor version.
    """
    if name.endswith(".so"):
        return f"{name}.{library.name.partition('.so.')[2]}"
    if not name.endswith(_UNFINISHED):
        return name
    cudart = [one[len(_CUDART) :] for one in names if one.startswith(_CUDART)]
    beginning = name.removesuffix("%d") + (cudart[0] if len(cudart) == 1 else "*")
    return f"{beginning}.*" if name == _BUILTINS else beginning


_ROOTS = (HOST, BRIDGE, PROVIDER, TENSORRT)
"""Libraries that programs or the host library open, without a NEEDED entry."""


def unneeded(libraries: Sequence[Library]) -> tuple[str, ...]:
    """Return the sorted paths of libraries that ONNX Runtime's own neither need nor open, even indirectly.

    Empty where this is not known: without a CUDA provider, or where the files that a reachable library opens
    are not all known.
    """
    by_name = {library.name: library for library in libraries}
    if PROVIDER not in by_name:
        return ()
    roots = [name for name in _ROOTS if name in by_name]
    reached = reachable(roots, lambda name: _loaded(by_name[name], by_name.keys()))
    if not all(dlopens_are_known(by_name[name]) for name in reached):
        return ()
    return tuple(sorted(library.path for library in libraries if library.name not in reached))


def report_unneeded(paths: Iterable[str]) -> list[Finding]:
    """Return the warning E016 for each path."""
    return [
        Finding(
            code=Code.E016,
            path=path,
            message="no library of the package names it in NEEDED or opens it",
            wanted="a package without it",
            severity=Severity.WARNING,
        )
        for path in paths
    ]


def reachable(beginning: Iterable[str], after: Callable[[str], Iterable[str]]) -> list[str]:
    """Return the names reached from ``beginning``, breadth first; ``after`` returns those of one step."""
    names = [*beginning]
    for name in names:
        names += [other for other in dict.fromkeys(after(name)) if other not in names]
    return names


def _loaded(library: Library, names: AbstractSet[str]) -> list[str]:
    """Return the libraries of its package that a library needs, opens or may open."""
    sometimes = (pattern for beginning, pattern in _SOMETIMES if library.name.startswith(beginning))
    wanted = (*library.elf.needed, *dlopened_files(library, names), *sometimes)
    return [name for pattern in wanted for name in fnmatch.filter(names, pattern)]
