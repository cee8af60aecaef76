"""The type of coded findings, and the catalogue of codes.

Families: A architectures in device code, B packages, C compatibility of a plan, E libraries and what they
load, R release, V virtual card; those of D, the user's machine, are in ``client/doctor/advice.json``. A check
returns all of its findings and the caller decides what an error stops, so that one run shows them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Iterable, Sequence

from builder.errors import CheckFailedError, one_line


class Severity(Enum):
    """The severity of a finding, worst first.

    An error stops the pipeline, or keeps a GPU or a package from being used. A warning is shown and recorded.
    A note is information for the reader.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Code(Enum):
    """Every kind of finding. The value is its title."""

    A001 = "an architecture of the variant is missing from all of the CUDA provider"
    A002 = "the CUDA provider holds no device code"
    A003 = "a library does not run on a GPU the variant promises"
    A004 = "a library's device code cannot be read"
    A005 = "an architecture of the variant is missing from part of the CUDA provider"
    A006 = "the CUDA provider holds an architecture that nobody asked for"
    A007 = "an image is of an unknown kind"
    A008 = "a library that is of no use without device code holds none that runs"
    A009 = "a GPU that is asked for is not served"
    A010 = "an image cannot be unpacked"
    A011 = "an image is not what its header says"
    A012 = "an image holds no kernel where another of its container does"
    A013 = "kernels are stubs on an architecture"
    A014 = "an image's kernel has a name that the host does not register"
    A101 = "cuobjdump counts other images than the native reader"
    A102 = "cuobjdump could not read a library"
    B001 = "a wheel's file is not the one in its RECORD"
    B002 = "a package's name and its manifest disagree"
    B003 = "a file is in the package and not in its manifest"
    B004 = "a file is in the manifest and not in its package"
    B005 = "a file's bytes are not those the manifest names"
    B006 = "a licence text is missing"
    B007 = "the manifest claims something else than the binaries hold"
    B008 = "SHA256SUMS names other bytes"
    B009 = "a package is larger than its budget"
    B010 = "the smoke program fails in a bare container"
    B011 = "the host library is another ONNX Runtime version"
    B012 = "the CUDA provider does not load"
    B013 = "the model's numbers are not those of the stock build"
    B014 = "the SBOM is missing or not valid"
    B015 = "the SBOM and the manifest disagree"
    B016 = "the provenance beside a package is of other bytes, or cannot be read"
    B017 = "NOTICE does not name a file, or lacks the statement on NVIDIA's files"
    B018 = "the loader does not find everything in a bare container"
    C001 = "cuDNN has no kernels for an architecture of the set"
    C002 = "CUDA 13 dropped an architecture of the set"
    C003 = "an architecture of the set needs a newer CUDA"
    C004 = "the compiler cannot target an architecture of the set"
    C006 = "operators that do not run on an architecture of the set"
    C007 = "nothing is known of this ONNX Runtime version"
    C008 = "CMake refuses an architecture of the set"
    C009 = "this ONNX Runtime needs a newer CUDA, gcc or CMake"
    C011 = "the package will not run every model that the official build runs"
    C012 = "the package will run on fewer GPUs than its set is good for"
    C013 = "a pinned library of NVIDIA's holds no code for an architecture of the set"
    C014 = "nobody has read which GPUs a pinned library of NVIDIA's serves"
    C015 = "this ONNX Runtime leaves kernels out that it needs, for this set"
    C016 = "the compiler may lack what this ONNX Runtime asks of it for an architecture"
    C017 = "this ONNX Runtime needs an older CUDA"
    C018 = "the official host library was not built from the source that is compiled"
    E001 = "a library is not a whole ELF file, or DLL, of those that are read"
    E002 = "a needed library is neither in the package nor the host's"
    E003 = "a library that is opened at run time is missing"
    E004 = "a library does not stand under its SONAME"
    E005 = "an ONNX Runtime library does not look beside itself"
    E006 = "a library looks in an absolute folder"
    E007 = "a library needs a newer GLIBC or GLIBCXX than its hosts have"
    E008 = "the libraries of ONNX Runtime are of different versions"
    E009 = "the libraries of cuDNN are of different versions"
    E010 = "a link stands where a file must be"
    E011 = "a library asks for an executable stack"
    E012 = "a library that every package holds is missing"
    E013 = "an ONNX Runtime library needs a dependency that belongs inside it"
    E014 = "an ONNX Runtime library asks for a symbol that nothing it loads defines"
    E015 = "an ONNX Runtime library shows symbols that are not its API"
    E016 = "a library that nothing needs"
    E017 = "a library needs what the user has to bring"
    E018 = "a library is not of the platform its package is for"
    E019 = "the host library does not know the execution provider its package is for"
    R001 = "a file has no line in SHA256SUMS"
    R002 = "a file changed since it was bundled"
    R003 = "SHA256SUMS names a file that is not there"
    R004 = "GitHub would rename a file"
    R005 = "a file is empty, or too large for GitHub"
    R006 = "a release has more files than GitHub takes"
    R007 = "the release notes are longer than GitHub takes"
    R008 = "a package was compiled with less than the full profile"
    R009 = "an input has no pin, or a package was compiled on a base of unknown revision"
    R010 = "packages hold different versions of ONNX Runtime, CUDA or cuDNN"
    R011 = "two packages are for the same variant, platform, layout and kind of archive"
    R012 = "a package does not verify"
    R013 = "the index names what is not there"
    R014 = "the layouts of one package do not promise the same"
    R015 = "a package of variants.yaml is not there"
    R016 = "the release is not signed"
    R017 = "the repository's releases are not immutable"
    R018 = "the tag names another ONNX Runtime version than the packages hold"
    V001 = "the virtual card takes other code than the coverage says"
    V002 = "a model does not run on a virtual card that the package serves"
    V003 = "the selection and the coverage disagree on a card"


@dataclass(frozen=True)
class Finding:
    """One observation of a check."""

    code: Code
    path: str
    """The file, key or asset that the finding is about; empty for the machine."""
    message: str
    """The observation."""
    wanted: str = ""
    got: str = ""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        lines = [f"{self.severity.value} {self.code.name} {self.path}: {self.message}"]
        if self.wanted:
            lines.append(f"    wanted: {self.wanted}")
        if self.got:
            lines.append(f"    got:    {self.got}")
        return "\n".join(map(one_line, lines))


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are errors."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def require_no_errors(findings: Sequence[Finding], what: str) -> None:
    """Raise ``CheckFailedError`` with every finding where any of them is an error."""
    failed = errors(findings)
    if failed:
        noun = "error" if len(failed) == 1 else "errors"
        raise CheckFailedError(f"{what}: {len(failed)} {noun}", [str(finding) for finding in findings])
