"""Factory of a wiring over the real project and templates, with a fake engine, store and root file systems.

Wheels unpack into trees of small valid ELF libraries, which the real code reads and packs.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from builder.binary.library_names import must_hold_code
from builder.build.variant_build import BuildOptions, VariantBuild
from builder.compile.plan import PlanOptions
from builder.config.inputs import Input, Lock, Pin
from builder.config.variants import Origin
from builder.console import Reporter
from builder.farm.storage import served
from builder.io.docker.engine import ImageBuild
from builder.io.process import Completed
from builder.io.wiring import Wiring
from builder.prove.selftest import SelftestBench
from tests.support.factories.binaries import elf, sass
from tests.support.factories.cubins import working
from tests.support.factories.packages import ORT, WHEELS, Trees, pinned
from tests.support.factories.selftests import bench, printed
from tests.support.fakes.ports import FakeEngine, FakeReporter, FakeRootfs, FakeStore

LEGACY = (50, 52, 60, 61, 70)

PROVIDER = "libonnxruntime_providers_cuda.so"

BRIDGE = "libonnxruntime_providers_shared.so"


def library(path: str, sm: Sequence[int] = (50, 60, 70)) -> bytes:
    name = path.rpartition("/")[2]
    code = {".nv_fatbin": sass(*sm)} if must_hold_code(name) else {".text": b"code"}
    return elf(code, soname=None if "onnxruntime" in path else name)


class Trove(FakeStore):
    """A store whose wheels unpack into ``Trees``; ``asked`` lists the specs of the requested inputs."""

    def __init__(self, folder: Path, pins: Lock) -> None:
        super().__init__(folder, pins)
        self.asked: list[str] = []

    def fetch(self, item: Input) -> Path:
        self.asked.append(item.spec)
        return super().fetch(item)

    def unpack(self, wheel: Input) -> Path:
        self.asked.append(wheel.spec)
        return Trees(self.folder)(wheel) if wheel.spec in WHEELS else super().unpack(wheel)


def wired(root: Path, dist: Path, env: Mapping[str, str] | None = None, **parts: object) -> Wiring:
    """Return a wiring with these parts in place of its own."""
    made = Wiring(root, dist=dist, reporter=FakeReporter())
    made.env = dict(env or {})
    made.__dict__.update(parts)
    return made


class Site:
    """A wiring in ``folder``, whose stand-ins record the calls that they get."""

    def __init__(self, root: Path, folder: Path, code: Sequence[int] = (50, 60, 70)) -> None:
        """Write the wheels; ``code`` lists the architectures in NVIDIA's libraries."""
        cache = folder / "cache"
        cache.mkdir()
        Trees(cache, content=lambda spec, path: _content(spec, path, code)).lay()
        self.dist = folder / "dist"
        self.reporter = FakeReporter()
        self.shop = Wiring(root, dist=self.dist, reporter=self.reporter)
        self.shop.env = {**self.shop.env, "ORTPACKS_CACHE": str(cache)}
        made = pinned(self.shop.project)
        pins = made.pins
        whole = {key: Pin(revision="f" * 40) if key.startswith("git:") else pin for key, pin in pins.items()}
        self.store = Trove(cache, Lock(whole, made.sources))
        self.rootfs = FakeRootfs(cache)
        self.compiles: tuple[int, ...] = LEGACY
        self.engine = FakeEngine(answer=Completed(code=0, stdout=printed(), stderr=""), on_build=self._export)
        self.shop.__dict__.update(lock=self.store.pins, store=self._store, rootfs=lambda _: self.rootfs)
        self.use(self.engine)

    def use(self, engine: FakeEngine) -> None:
        self.shop.__dict__["engine"] = engine

    def bench(self) -> SelftestBench:
        return bench(self.engine)

    def built(self) -> list[str]:
        """Return the stages that were built, in order."""
        return [request.target for request in self.engine.builds]

    def _store(self, lock: Lock, reporter: Reporter | None = None) -> Trove:
        assert lock.pins.items() <= self.store.pins.pins.items()
        return self.store

    def _export(self, request: ImageBuild, on_line: Callable[[str], None]) -> None:
        on_line(f"#1 {request.target}")
        if request.output is None:
            return
        request.output.mkdir()
        if request.target == "tools":
            (request.output / "ortpacks-smoke").write_text("smoke")
            (request.output / "libvirtualcard.so").write_bytes(library("libvirtualcard.so"))
            return
        if ahead := request.args.get("AHEAD"):
            compiled = {f"7c/compiled{arch}": f"of {arch}".encode() for arch in ahead.split("-")}
            with served(request.sockets["compile-cache"]) as variables:
                for key, value in compiled.items():
                    address = f"{variables['CCACHE_SECONDARY_STORAGE']}/{key}"
                    urlopen(Request(address, value, method="PUT")).close()
            return
        provider = elf({".nv_fatbin": working(*self.compiles)}, needed=["libcudart.so.12"], runpath="$ORIGIN")
        (request.output / PROVIDER).write_bytes(provider)
        (request.output / BRIDGE).write_bytes(library(BRIDGE))


def _content(spec: str, path: str, sm: Sequence[int]) -> bytes:
    text = f"{spec} {path}\n".encode()
    return library(path.replace(".1.21.0", ".1") if spec == ORT else path, sm) if ".so" in path else text


PACKAGE = "ortpacks-legacy-1.21.0-cuda12.9-linux-x64.tar.zst"

THIN = PACKAGE.replace("-linux-", "-thin-linux-")

GZIPPED = THIN.replace(".tar.zst", ".tar.gz")

WISHES = PlanOptions(base="assembled", origin=Origin.SOURCE)


class StubTools:
    """Check tools with the bench of a site and without cuobjdump."""

    site: Site

    def __init__(self, *_: object) -> None:
        self.folder = self.site.dist / "tools"

    def inspector(self) -> None:
        return None

    def selftest_bench(self) -> SelftestBench:
        return self.site.bench()


def with_tools(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(StubTools, "site", site, raising=False)
    monkeypatch.setattr("builder.build.variant_build.CheckTools", StubTools)
    return site


def variant_build(
    site: Site, variant: str = "legacy", /, plan: PlanOptions = WISHES, **flags: object
) -> VariantBuild:
    """Return a package's build, from source on the assembled base unless ``plan`` says otherwise."""
    options = BuildOptions(plan_options=plan, **flags)  # type: ignore[arg-type]
    return VariantBuild(site.shop, site.shop.project.packages[variant], options, site.reporter)
