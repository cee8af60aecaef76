"""The verbs besides ``build`` that need more than one stage: arguments in, results told.

diff: what sets two packages apart, by their manifests.

render --explain: what sets a plan apart from the official build of its ORT version.
"""

from __future__ import annotations

import difflib
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from builder.adapters.git import GitTags
from builder.builds.cards import CardBench, Cards, write_page
from builder.builds.kit import Kit
from builder.builds.proving import verifier
from builder.builds.workshop import Workshop
from builder.config.lock import parse_lock, render_lock
from builder.console import Console
from builder.errors import CheckFailedError, ToolMissingError
from builder.files.atomic_write import part_file
from builder.formats import index as index_format
from builder.formats import manifest as manifest_format
from builder.formats.index import build_index
from builder.formats.manifest import Manifest, loads
from builder.formats.package_names import ARCHIVE_SUFFIXES, Host, Profile
from builder.formats.providers import CUDA, LINUX, PLATFORMS
from builder.onnxruntime.explain import Explanation, explain
from builder.onnxruntime.widening import widened
from builder.package.build_record import SUFFIX
from builder.package.diff import difference, dumps, tell
from builder.pipeline.client_zipapp import ClientRequest, build_client
from builder.pipeline.lock import lock
from builder.pipeline.plan import Wishes, choose_base
from builder.pipeline.render import render
from builder.pipeline.selftest import Bench
from builder.pipeline.verify import verify
from builder.project.inputs import InputKind, Lock, Resolver, ort_wheel
from builder.project.plan import BuildPlan, package_name
from builder.project.variants import Origin, Project
from builder.release.assets import CHECKSUMS, INDEX, LocalFile
from builder.release.options import CLIENT, archives_in
from builder.release.pages import LICENCES_PAGE, SBOM_SUFFIX
from builder.release.prepare import stored
from builder.report.cards import SUFFIX as CARDS_SUFFIX
from builder.report.cards import Grid
from builder.virtualcard.opening import Runtime

_GOLDEN = "tests/golden"

_MADE_BY_US = ("Dockerfile", "built.json")
"""One of these lies in each of our workplaces; a package without CUDA needs no Dockerfile."""


def verify_packages(
    shop: Workshop, packages: Sequence[Path], wishes: Wishes, cards: Cards | None, grid: Path | None
) -> None:
    """Prove packages from their archives alone; run models on those for Linux in a bare container.

    With ``cards`` also on virtual cards; ``grid`` is the page that is made of all of them. Where one fails
    there, the others are still tried, for the page; then ``CheckFailedError`` with every finding is raised.
    """
    grids: list[Grid] = []
    failed: list[CheckFailedError] = []
    for package in packages:
        manifest = manifest_format.loads(shop.archive(shop.reporter).read_manifest(package), package.name)
        kit = _kit(shop, wishes) if manifest.platform == LINUX else None
        tried = _card_bench(shop, kit, cards, grids) if kit and cards and manifest.provider == CUDA else None
        if cards and tried is None:
            shop.reporter.say(f"{manifest.name}: on no card: it is for {manifest.provider}")
        if tried is not None:
            tried.require_machine(manifest)
        try:
            verify(package, verifier(shop, shop.reporter, _bench(shop, kit) if kit else None, tried))
        except CheckFailedError as error:
            if grid is None:
                raise
            failed.append(error)
    if grid is not None and grids:
        write_page(grid, grids)
        shop.reporter.say(f"{grid}: {len(grids)} packages")
    elif grid is not None:
        shop.reporter.warn(f"{grid} stays as it was: no package was opened on a card")
    if failed:
        raise CheckFailedError(
            f"{len(failed)} of {len(packages)} packages failed",
            [finding for error in failed for finding in error.findings],
        )


def _kit(shop: Workshop, wishes: Wishes) -> Kit:
    return Kit(shop, choose_base(shop.project, wishes, shop.engine).value, shop.reporter)


def _bench(shop: Workshop, kit: Kit) -> Bench:
    with shop.reporter.step("make what it is tried out with"):
        return kit.bench()


def _card_bench(shop: Workshop, kit: Kit, cards: Cards, grids: list[Grid]) -> CardBench:
    with shop.reporter.step("make the virtual card"):
        runtime = Runtime(library=kit.virtual_card(), runner=shop.runner)
    trials = shop.trials(shop.store(shop.lock))
    return CardBench(shop=shop, runtime=runtime, trials=trials, cards=cards, grids=grids)


def write_client(shop: Workshop, index: str | None) -> Path:
    """``dist/ortpacks.pyz``; ``index`` is the one it reads unless told otherwise."""
    request = ClientRequest(source=shop.root, target=shop.dist / CLIENT, index_url=index)
    return build_client(request)


def make_client(shop: Workshop) -> Path:
    """The client, and ``dist/index.json`` over the packages that are there."""
    packages = archives_in(shop.dist)
    client = write_client(shop, None)
    archive = shop.archive(shop.reporter)
    listed = []
    for package in packages:
        digest = archive.digest(package)
        manifest = manifest_format.loads(archive.read_manifest(package), package.name)
        listed.append((manifest, stored(LocalFile(package, digest.size, digest.sha256))))
    with part_file(shop.dist / INDEX) as file:
        file.write(index_format.dumps(build_index("local", listed, shop.project.models)).encode())
    shop.reporter.say(f"{client.name} and {INDEX} in {shop.dist}")
    return client


def install(shop: Workshop, index: str | None, prefix: str | None, layout: str) -> int:
    """Run the client that users run, on this machine; its exit code."""
    program = ["-m", "builder.client"] if index else [str(make_client(shop))]
    where = ["--index", index or str(shop.dist), *(["--prefix", prefix] if prefix else [])]
    argv = [sys.executable, *program, "install", *where, "--layout", layout]
    return shop.runner.run(argv, cwd=shop.root, on_line=shop.console.show, check=False).code


def lock_inputs(shop: Workshop, *, refresh: bool) -> None:
    """Pin every input of the project in ``inputs.lock``."""
    path = shop.lock_file
    known = parse_lock(path.read_text(encoding="utf-8"), path.name) if path.exists() else Lock(pins={})
    resolvers: dict[InputKind, Resolver] = {
        InputKind.GIT: GitTags(shop.runner),
        InputKind.IMAGE: shop.engine.resolve,
    }
    with shop.reporter.step("lock"):
        pinned = lock(
            shop.project,
            known,
            intake=shop.store(known),
            resolvers=resolvers,
            reporter=shop.reporter,
            refresh=refresh,
        )
    with part_file(path) as file:
        file.write(render_lock(pinned).encode())


def check_golden(shop: Workshop, *, refresh: bool) -> None:
    """Compare every rendering with ``tests/golden``; ``refresh`` rewrites them.

    Raises ``CheckFailedError`` with the differences.
    """
    drift = []
    for name, text in goldens(shop):
        path = shop.root / _GOLDEN / name
        if refresh:
            path.write_text(text, encoding="utf-8")
        drift += _difference(path, text)
    if drift:
        raise CheckFailedError(
            "tests/golden is not what the templates render. If the change is meant: ./run render --golden",
            drift,
        )
    shop.reporter.say(f"{_GOLDEN} is what the templates render")


def goldens(shop: Workshop) -> Iterator[tuple[str, str]]:
    """File name and text of every variant on every base, compiled in full; and one repacked."""
    for variant in shop.project.variants.values():
        for base in ("nvidia", "assembled"):
            yield from _rendering(
                shop, f"{variant.name}.{base}", _golden_plan(shop.project, variant.name, base)
            )
    repacked = _golden_plan(shop.project, "modern", "assembled", Origin.WHEEL)
    yield from _rendering(shop, "modern.wheel", repacked)


def _golden_plan(project: Project, variant: str, base: str, origin: Origin = Origin.SOURCE) -> BuildPlan:
    version = project.bases.ort_version(base)
    return widened(
        BuildPlan(
            project=project,
            variant=project.variants[variant],
            base=base,
            base_reason="golden",
            origin=origin,
            origin_reason="golden",
            profile=Profile.FULL if origin is Origin.SOURCE else None,
            host=Host.WHEEL,
            ort_version=version,
            ort_wheel=ort_wheel(version),
        )
    )


def _rendering(shop: Workshop, name: str, plan: BuildPlan) -> Iterator[tuple[str, str]]:
    rendered = render(plan, shop.lock, shop.loader, package_name=str(package_name(plan)))
    yield f"{name}.Dockerfile", rendered.dockerfile
    yield f"{name}.runtime.Dockerfile", rendered.runtime_dockerfile


def _difference(path: Path, text: str) -> list[str]:
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    return list(
        difflib.unified_diff(
            old.splitlines(), text.splitlines(), str(path), f"{path} as rendered", lineterm="", n=1
        )
    )


def clean(shop: Workshop) -> None:
    """Remove our results from ``dist`` and, on the engine, what carries our label; nothing else."""
    for path in _results(shop):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shop.reporter.say(f"removed {path}")
    try:
        for thing in shop.engine.clean():
            shop.reporter.say(f"removed {thing}")
    except ToolMissingError as error:
        shop.reporter.warn(f"nothing was removed from an engine: {error}")


def drop_caches(shop: Workshop) -> None:
    """Drop the compile caches that we keep on the engine."""
    for name in shop.engine.drop_caches():
        shop.reporter.say(f"dropped {name}")


def _results(shop: Workshop) -> list[Path]:
    """What our verbs leave in ``dist``, by name: a folder that was there before us keeps everything else."""
    dist = shop.dist
    ends = (*ARCHIVE_SUFFIXES, SUFFIX, CARDS_SUFFIX, SBOM_SUFFIX)
    names = (f"ortpacks-*-{platform}{end}*" for platform in PLATFORMS for end in ends)
    packed = (path for name in names for path in dist.glob(name))
    files = [dist / name for name in (CLIENT, INDEX, CHECKSUMS, LICENCES_PAGE)]
    workplaces = [dist / name for name in (*shop.project.packages, ".kit-nvidia", ".kit-assembled")]
    ours = [path for path in workplaces if any((path / name).is_file() for name in _MADE_BY_US)]
    return [path for path in (*sorted(packed), *files, *ours) if path.exists()]


def show_difference(shop: Workshop, old: Path, new: Path, *, as_json: bool) -> None:
    """Print it. Nothing is unpacked: a manifest is the head of its archive.

    Raises ``ValidationError`` (no package) or ``IntegrityError`` (a damaged one).
    """
    (one, size), (two, other) = _read(shop, old), _read(shop, new)
    found = difference(one, two, size, other)
    shop.console.show(dumps(found) if as_json else "\n".join(tell(found)))


def _read(shop: Workshop, package: Path) -> tuple[Manifest, int]:
    """A package's manifest, and the size of its archive in bytes."""
    archive = shop.archive(shop.reporter)
    manifest = loads(archive.read_manifest(package), package.name)
    return manifest, archive.whole(package).size


def tell_explanation(console: Console, plans: Iterable[BuildPlan]) -> None:
    """Show each plan beside the official build: a line a difference, then what the version makes of it."""
    for plan in plans:
        console.show("\n".join(_lines(explain(plan))))


def _lines(explained: Explanation) -> Iterator[str]:
    yield explained.title
    if not explained.differences:
        yield "  no option differs"
    yield from (f"  {difference}" for difference in explained.differences)
    yield from (f"  note: {note}" for note in explained.notes)
