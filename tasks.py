"""The verbs as Invoke tasks. ``./run --list`` shows all verbs, and ``./run VERB --help`` explains one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit

from builder.build import all_variants, own_programs, pinning
from builder.build.check_tools import tools_of
from builder.build.own_programs import RUNTIME, SERVICE
from builder.build.runtime_image import ImageOptions
from builder.build.verbs import cleaning, maintenance
from builder.build.verbs.command_line import command_to_continue, restart_through_run
from builder.build.verbs.compile_caches import open_caches
from builder.build.verbs.flags import (
    JSON,
    ChosenVariants,
    document_console,
    make_wiring,
    parse_architectures,
    parse_jobs,
    plan_options,
    variant_verb,
    verb,
)
from builder.build.verbs.operators import model_report, operators_report, require_alone
from builder.build.verbs.releases import readiness, releasing
from builder.build.verbs.releases.rebuilding import project_trust, rebuild_release, require_same
from builder.build.verbs.verb_answers import (
    ChecksAnswer,
    ImagesAnswer,
    PackagesAnswer,
    checks_answer,
    dumps,
    packages_answer,
    problems_of,
    require_no_problems,
    status_answer,
)
from builder.compile.compile_cache import CompileCaches
from builder.config.load import pick_variants
from builder.errors import ValidationError
from builder.files.disk import resolved
from builder.inspect import command as inspection
from builder.inspect.answers import checked_options, require_all
from builder.inspect.atlas import add as add_to_atlas
from builder.inspect.atlas import make as make_atlas
from builder.prove.cards import card_request
from builder.prove.verify import check_package, verify_packages
from builder.publish.image import require_platforms, require_repository
from builder.publish.locations import archives_in
from builder.publish.preflight import Leniency
from builder.publish.prepare import PublishOptions, ReleaseState
from builder.publish.wheels.index import write_index
from builder.publish.wheels.package_wheels import make_missing_wheels, make_wheels, wheeled_packages

restart_through_run()


@variant_verb(json=JSON)
def plan(chosen: ChosenVariants, json: bool = False) -> None:
    """Show base, origin, version, profile and time of a build, and why; build nothing."""
    if json:
        document_console(chosen.wiring).show(all_variants.plans_json(chosen.builds()))
        return
    all_variants.show_plans(chosen.wiring, chosen.builds())


@variant_verb(
    service="with the service and its models, which it starts",
    push="also push it to REGISTRY/NAME, and show its tags and digest",
    platform="linux/amd64 (default), linux/arm64 for variant cpu, or both with a comma between",
    json=JSON,
)
def image(
    chosen: ChosenVariants,
    service: bool = False,
    push: str | None = None,
    platform: str | None = None,
    json: bool = False,
) -> None:
    """Make a runtime image with Python from each variant's package: ortpacks/VARIANT:VERSION."""
    console = document_console(chosen.wiring) if json else None
    options = ImageOptions(
        service=service,
        push=None if push is None else require_repository(push),
        platforms=() if platform is None else require_platforms(platform),
    )
    made = [one.image(options) for one in chosen.builds(open_caches(chosen.wiring)).values()]
    if console:
        console.show(dumps(ImagesAnswer(format=1, images=tuple(made))))


@variant_verb(
    force="build although nothing has changed",
    compiled="compile nothing: check, pack and verify again what the last build compiled",
    jobs="units that a machine compiles at once, of all variants together (default: one a core)",
    memory="memory that these units may take together: 20G (default: the machine's free memory)",
    compile_cache="cache that machines share: redis://HOST, s3://BUCKET or a folder",
    from_="take what ./run compile --into stored: a folder, or an address as for --compile-cache",
    json=JSON,
)
def build(
    chosen: ChosenVariants,
    jobs: str | None = None,
    memory: str | None = None,
    compile_cache: str | None = None,
    from_: str | None = None,
    force: bool = False,
    compiled: bool = False,
    json: bool = False,
) -> None:
    """Plan, render, compile, check, bundle and verify packages: the main job."""
    wiring = chosen.wiring
    console = document_console(wiring) if json else None
    if compiled and (force or from_ or compile_cache or jobs or memory):
        raise ValidationError(
            "--compiled compiles nothing: --force, --from, --compile-cache, --jobs and --memory say nothing.",
            advice="Leave them out.",
        )
    caches = CompileCaches() if compiled else open_caches(wiring, compile_cache, ahead=from_)
    found = chosen.builds(caches, jobs=jobs, memory=memory, force=force)
    if compiled:
        made = tuple(package for one in found.values() for package in one.bundle())
    else:
        made = all_variants.build_all(found, wiring.runner.interrupt, command_to_continue("build"))
    for package in made:
        wiring.reporter.say(str(package))
        wiring.console.summary(f"- `{package.name}`, verified")
    if wiring.project.bundle.wheels:
        make_missing_wheels(wiring, made)
    if console:
        console.show(dumps(packages_answer(dict.fromkeys(made, ()))))


@variant_verb(
    arch="architectures to compile, 90 or 90,100: without --variant for every variant that has one",
    into="store the objects here for ./run build --from: a folder, or an address as for --compile-cache",
    compile_cache="cache that machines share: redis://HOST, s3://BUCKET or a folder",
    jobs="units that a machine compiles at once (default: one a core)",
    memory="memory that these units may take together: 20G (default: the machine's free memory)",
)
def compile(  # noqa: A001 - the verb's name
    chosen: ChosenVariants,
    arch: str | None = None,
    into: str | None = None,
    compile_cache: str | None = None,
    jobs: str | None = None,
    memory: str | None = None,
) -> None:
    """Compile the device code of single architectures, so that several machines share a build."""
    if arch is None or into is None:
        raise ValidationError("compile needs --arch and --into.", advice="Like --arch 90 --into store.")
    wanted = tuple(map(str, parse_architectures("arch", arch)))
    caches = open_caches(chosen.wiring, compile_cache, into=into)
    for build, having in chosen.builds_for(wanted, caches, jobs=jobs, memory=memory):
        build.compile(having)


@variant_verb(
    without=("builder", "context"),
    explain="show how each plan differs from the official build; write nothing",
)
def render(chosen: ChosenVariants, explain: bool = False) -> None:
    """Write dist/VARIANT/Dockerfile and its build context."""
    found = chosen.builds().values()
    if explain:
        all_variants.show_explanation(chosen.wiring.console, [one.plan() for one in found])
        return
    for one in found:
        one.render()


@verb(
    site="also make the site of README and docs, with search, in dist/site",
)
def docs(_context: Context, site: bool = False) -> None:
    """Write the generated parts of README and docs, and the pictures, from the project and stored results."""
    # Imported late: it imports the benchmarks, which are no part of the builder.
    from builder.build.verbs.pages import write_pages  # noqa: PLC0415

    wiring = make_wiring()
    write_pages(wiring)
    if site:
        wiring.console.show(str(maintenance.make_site(wiring)))


@verb(
    iterable=["package", "variant", "card", "host"],
    package="a package, or a compiled plug-in alone; the flag may be left out (default: each in dist)",
    read_only="run nothing of it; PACKAGE may be an unpacked folder too",
    variant="with --read-only: compare it with this variant, not with its own",
    host="with --card: open a plug-in in this stock onnxruntime: 1.32.0 (default: in each that is pinned)",
    card="also on virtual cards of these compute capabilities: 8.6,12.0, or all",
    driver="version of the driver that the card has: 535.54.03",
    grid="with --card all: write a page of all cards to this file (docs/cards.md)",
    json=JSON,
)
def verify(
    _context: Context,
    package: list[str],
    variant: list[str],
    card: list[str],
    host: list[str],
    read_only: bool = False,
    driver: str | None = None,
    grid: str | None = None,
    json: bool = False,
    base: str = "auto",
    dist: str | None = None,
) -> None:
    """Check finished packages from their archives alone, and run models on each."""
    wiring = make_wiring(dist)
    cards = card_request(card, driver, grid, host)
    packages = [Path(name) for name in package] or archives_in(wiring.dist)
    tools = partial(tools_of, wiring, plan_options(base))
    console = document_console(wiring) if json else None
    answer: ChecksAnswer | PackagesAnswer
    if read_only:
        if cards:
            raise ValidationError("--read-only runs nothing, and --card runs models.", advice="Give one.")
        held_to = pick_variants(wiring.project, variant, all_=False) if variant else (None,)
        works = {
            (str(path), chosen.name if chosen else None): partial(
                check_package, wiring, path, [chosen] if chosen else (), tools
            )
            for path in packages
            for chosen in held_to
        }
        if console is None:
            for read in works.values():
                read()
            return
        answer = checks_answer(works)
    elif variant:
        raise ValidationError(
            "--variant compares a package with a variant, which reads it only.", advice="Add --read-only."
        )
    elif console is None:
        verify_packages(wiring, packages, tools, cards, Path(grid) if grid else None)
        return
    elif grid:
        raise ValidationError("--json and --grid ask for different things.", advice="Give one of them.")
    else:
        verified = partial(verify_packages, wiring, tools_of=tools, cards=cards, grid=None)
        answer = packages_answer({one: problems_of(partial(verified, [one])) for one in packages})
    console.show(dumps(answer))
    require_no_problems(answer)


@verb(
    positional=["path"],
    iterable=["also"],
    path="a library, fatbin, folder, wheel, package, zip or tar, or the URL of one",
    also="one more of them; the flag may be left out",
    json="as JSON",
    html="write a page to this file",
    svg="write a picture to this file",
    require="compute capabilities that each must run on, 5.2,8.6,12.0: exit code 6 where one does not",
    jit_ok="with --require: running by JIT is enough",
    sarif="write all findings to this file as SARIF 2.1.0, for code scanning",
    diff="how the second of two sources differs: GPUs lost and won, bytes, and manifests of packages",
    sizes="how many bytes the code for each architecture takes",
    deep="unpack every image: is it what its header says, which kernels are in it, which are stubs",
    operators="which operators have CUDA kernels: asks the package's own provider, on a virtual card",
    model="which nodes of this ONNX model would run on the CPU, and why: opened on a virtual card",
)
def inspect(
    _context: Context,
    path: str,
    also: list[str],
    json: bool = False,
    html: str | None = None,
    svg: str | None = None,
    require: str | None = None,
    jit_ok: bool = False,
    sarif: str | None = None,
    diff: bool = False,
    sizes: bool = False,
    deep: bool = False,
    operators: bool = False,
    model: str | None = None,
    base: str = "auto",
) -> None:
    """Show which GPUs the device code in libraries, packages or wheels runs on: ./run inspect PATH|URL..."""
    wiring = make_wiring()
    if operators or model:
        require_alone(
            also, html, svg, sarif, require, jit_ok, diff, sizes, deep, model if operators else None
        )
        console = document_console(wiring)
        if model:
            report = model_report(wiring, path, Path(model), plan_options(base), as_json=json)
        else:
            report = operators_report(wiring, path, plan_options(base), as_json=json)
        console.show(report)
        return
    named = {"--html": html, "--svg": svg, "--sarif": sarif}
    places = {flag: Path(name) if name else None for flag, name in named.items()}
    paths = [path, *also]
    asked = checked_options(paths, places, require=require, jit=jit_ok, as_json=json, diff=diff, sizes=sizes)
    sources = inspection.inspect_sources(wiring, paths, deep=deep)
    inspection.show(wiring, sources, asked, places["--html"], places["--svg"])
    require_all(sources, asked)


@verb(
    iterable=["add"],
    add="a file that the client's prove wrote on a real card; may be given more than once",
    index="index.json that has its package, its folder or URL (default: dist)",
)
def cards(_context: Context, add: list[str], index: str | None = None, dist: str | None = None) -> None:
    """Check proofs from real cards, keep them in docs/proofs, and show them in docs/cards.md."""
    # Imported late, as in docs.
    from builder.build.verbs.pages import write_pages  # noqa: PLC0415
    from builder.build.verbs.proofs import add_proofs  # noqa: PLC0415

    wiring = make_wiring(dist)
    add_proofs(wiring, [Path(name) for name in add], index)
    write_pages(wiring)


@verb(
    iterable=["arch"],
    arch="architecture of a card, 61; may be given more than once (default: no package, only models)",
    limit="most MB of the whole folder",
)
def kit(_context: Context, arch: list[str], limit: int = 60, dist: str | None = None) -> None:
    """Make dist/kit: one folder that proves a card on a machine without a network, by its prove.sh."""
    from builder.build.verbs.kit import make_kit  # noqa: PLC0415 - onnx is slow to import

    wanted = parse_architectures("arch", ",".join(arch)) if arch else ()
    make_kit(make_wiring(dist), wanted, limit)


@verb(
    add="first read this wheel and keep what was read: NAME==VERSION, NAME==VERSION@PLATFORM, a path or URL",
)
def atlas(_context: Context, add: str | None = None, dist: str | None = None) -> None:
    """Make dist/atlas.html: the GPUs that wheels run on, from the records in docs/atlas."""
    wiring = make_wiring(dist)
    if add:
        add_to_atlas(wiring, add)
    make_atlas(wiring)


@verb(
    index="index.json, its folder or URL (default: dist)",
    prefix="where to install",
    layout="auto, full or thin: NVIDIA's libraries come with the package, or from their wheels",
)
def install(
    _context: Context,
    index: str | None = None,
    prefix: str | None = None,
    layout: str = "auto",
    dist: str | None = None,
) -> None:
    """Install on this machine the package that fits, with the program that client makes."""
    wiring = make_wiring(dist)
    code = own_programs.install_package(wiring, index, prefix, layout)
    if code:
        raise Exit(f"the client exited with {code}", code=code)


@verb()
def client(_context: Context, dist: str | None = None) -> None:
    """Make ortpacks.pyz, which users and install run, alone and for pip and npm; inspector and index.json."""
    own_programs.make_client(make_wiring(dist))


@verb()
def runtime(_context: Context, dist: str | None = None) -> None:
    """Make the wheel of ortpacks-runtime, which opens sessions on the GPU or on the CPU, in dist/."""
    own_programs.make_wheel(make_wiring(dist), RUNTIME)


@verb(
    iterable=["package", "variant"],
    package="a package to make wheels of; the flag may be left out",
    index="also write a package index of all wheels in dist into this folder; alone: only that",
)
def wheel(
    _context: Context,
    package: list[str],
    variant: list[str],
    index: str | None = None,
    dist: str | None = None,
) -> None:
    """Make wheels of a package for pip and uv, one a Python, in dist/wheels/VARIANT, and an index of them."""
    wiring = make_wiring(dist)
    if package or variant or index is None:
        for one in wheeled_packages(wiring, variant, package):
            make_wheels(wiring, one)
    if index is not None:
        write_index(wiring, Path(index))


@verb()
def service(_context: Context, dist: str | None = None) -> None:
    """Make, not start, the service: its wheel, the runtime layer's, and the models in dist/models."""
    wiring = make_wiring(dist)
    for project in (RUNTIME, SERVICE):
        own_programs.make_wheel(wiring, project)
    own_programs.make_models(wiring)


@verb(
    iterable=["provider"],
    provider="a provider; may be given more than once (default: cpu, and cuda with --package)",
    package="a package that CUDA comes from",
    model="a folder with model.onnx and tokenizer.json (default: MiniLM)",
    threads="threads that compute on the CPU (default: one for each core)",
    figures="write the figures as JSON to this file",
    svg="write a picture to this file",
    page="write a page to this file",
)
def bench(
    _context: Context,
    provider: list[str],
    package: str | None = None,
    model: str | None = None,
    threads: str | None = None,
    figures: str | None = None,
    svg: str | None = None,
    page: str | None = None,
    dist: str | None = None,
) -> None:
    """Measure embedding with the runtime layer, the service, the stock wheel and fastembed."""
    # Imported late: onnx and onnxruntime are slow to import.
    from benchmarks.bench import bench as measure  # noqa: PLC0415

    files = {"figures": figures, "svg": svg, "page": page}
    measure(make_wiring(dist), provider, package, model, files, threads)


@verb(
    release="show instead what is still to set for a release, in order: exit code 6 if a point is open",
    tag="with --release: the tag that it shall have (default: publish.tag of variants.yaml)",
    base="with --release: the base that compiles (auto: that of dist's packages, else the first)",
    json="as JSON",
)
def doctor(
    _context: Context,
    release: bool = False,
    tag: str | None = None,
    base: str = "auto",
    json: bool = False,
    dist: str | None = None,
) -> None:
    """Show what a build needs and whether this machine has it; with --release what a release still needs."""
    wiring = make_wiring(dist)
    if release:
        console = document_console(wiring) if json else wiring.console
        answer = readiness.release_readiness(wiring, base, tag)
        console.show(dumps(answer) if json else "\n".join(readiness.lines_of(answer)))
        readiness.require_ready(answer)
        return
    if tag or base != "auto":
        raise ValidationError("--tag and --base ask about a release.", advice="Add --release.")
    if not maintenance.doctor(wiring, as_json=json):
        raise Exit("something is missing; see above", code=1)


@verb(
    refresh="pin everything anew, not only what has no pin yet",
    missing="pin what has no pin and is in reach, leave the rest, list what another machine must pin",
    check="refuse inputs of this base that have no pin (nvidia, assembled or redist); write nothing",
)
def lock(_context: Context, refresh: bool = False, missing: bool = False, check: str | None = None) -> None:
    """Write inputs.lock, size and sha256 of every input, and the GPUs that NVIDIA's wheels do not serve."""
    if refresh + missing + (check is not None) > 1:
        raise ValidationError(
            "--refresh, --missing and --check ask for different things.", advice="Give one of them."
        )
    wiring = make_wiring()
    if check:
        pinning.check_lock(wiring, check)
    elif missing:
        pinning.lock_missing(wiring)
    else:
        pinning.lock_inputs(wiring, refresh=refresh)


@verb(
    cache="also our compile caches on the engine",
    inputs="also the inputs that were downloaded and unpacked (ORTPACKS_CACHE)",
    dry_run="show what would be removed, with sizes; remove nothing",
    json=JSON,
)
def clean(
    _context: Context,
    cache: bool = False,
    inputs: bool = False,
    dry_run: bool = False,
    json: bool = False,
    dist: str | None = None,
) -> None:
    """Show the size of our results and of what has our label on the engine, then remove exactly these."""
    wiring = make_wiring(dist)
    console = document_console(wiring) if json else None
    answer = cleaning.clean(wiring, caches=cache, inputs=inputs, dry=dry_run)
    if console:
        console.show(dumps(answer))


@verb(
    iterable=["variant"],
    json="as JSON: GitHub's strategy.matrix",
    by="arch: one job for each architecture, for ./run compile",
    base="base that compiles the architectures (auto: the variants' own architectures)",
)
def matrix(
    _context: Context, variant: list[str], json: bool = False, by: str | None = None, base: str = "auto"
) -> None:
    """Show the jobs of a release, one for each package, as release.yml builds them."""
    all_variants.show_matrix(make_wiring(), variant, as_json=json, by=by, base=base)


@verb(
    fast="the gates, and only the tests of tests/unit, tests/golden and the use cases",
    all_="also faults in real builds, other systems, emulation, and walks through the workflows",
    only="pytest -k expression, of all tests, without gates",
)
def test(_context: Context, fast: bool = False, all_: bool = False, only: str | None = None) -> None:
    """Test ortpacks itself, no package: lint, types, contracts, then the tiers that this machine can run."""
    if fast and all_:
        raise ValidationError("--fast and --all ask for different tests.", advice="Give one of them.")
    maintenance.test(make_wiring(), fast=fast, everything=all_, only=only)


_WHERE = {
    "tag": "tag of the release (default: publish.tag of variants.yaml)",
    "api": "API root other than publish.api of variants.yaml",
    "repository": "owner/name other than publish.repository (or GITHUB_REPOSITORY)",
}

_ALLOW = {
    "draft": "stop before the release becomes public",
    "allow_lean": "allow packages that hold less than the full profile",
    "allow_unresolved": "allow packages whose base has a part without a pin",
    "allow_mixed": "allow packages of different ONNX Runtime, CUDA or cuDNN versions",
    "sign": "file of a private key that signs; for a public key the SSH agent signs",
    "allow_partial": "allow a release that lacks packages of variants.yaml",
}


@verb(
    iterable=["sign"],
    **_WHERE,
    **_ALLOW,
    dry_run="show what would be done, write nothing to the host",
    replace="take a public release that differs back to a draft, and publish it anew",
    allow_mutable="publish where GitHub's setting does not make releases immutable",
    json=JSON,
)
def publish(
    _context: Context,
    sign: list[str],
    tag: str | None = None,
    dry_run: bool = False,
    draft: bool = False,
    replace: bool = False,
    api: str | None = None,
    repository: str | None = None,
    allow_lean: bool = False,
    allow_unresolved: bool = False,
    allow_mixed: bool = False,
    allow_partial: bool = False,
    allow_mutable: bool = False,
    json: bool = False,
    dist: str | None = None,
) -> None:
    """Complete the release of dist/ on GitHub, then make it public. Token: GITHUB_TOKEN, or gh's own."""
    allow = Leniency(allow_lean, allow_unresolved, allow_mixed, allow_partial, allow_mutable)
    keys = tuple(map(Path, sign))
    options = PublishOptions(tag=tag, dry_run=dry_run, draft=draft, replace=replace, allow=allow, keys=keys)
    wiring = make_wiring(dist)
    console = document_console(wiring) if json else None
    done = releasing.publish_dist(wiring, options, releasing.with_target(wiring, api, repository))
    if console:
        console.show(dumps(status_answer(done)))


@verb(name="release-status", **_WHERE, json=JSON)
def release_status(
    _context: Context,
    tag: str | None = None,
    api: str | None = None,
    repository: str | None = None,
    json: bool = False,
    dist: str | None = None,
) -> None:
    """Compare the release on GitHub with dist/; exit with 1 unless it is public and equal."""
    wiring = make_wiring(dist)
    console = document_console(wiring) if json else None
    found = releasing.show_status(wiring, tag, releasing.with_target(wiring, api, repository))
    if console:
        console.show(dumps(status_answer(found)))
    if found.state is not ReleaseState.PUBLISHED:
        raise Exit("the release is not public and equal to dist; see the table above", code=1)


@verb(
    iterable=["sign"],
    to="the mirror's folder",
    tag=_WHERE["tag"],
    **_ALLOW,
    dry_run="show what would be done, write nothing to the mirror",
    replace="make a public release that differs, or was damaged, equal to dist",
    json=JSON,
)
def mirror(
    _context: Context,
    to: str,
    sign: list[str],
    tag: str | None = None,
    dry_run: bool = False,
    draft: bool = False,
    replace: bool = False,
    allow_lean: bool = False,
    allow_unresolved: bool = False,
    allow_mixed: bool = False,
    allow_partial: bool = False,
    json: bool = False,
    dist: str | None = None,
) -> None:
    """Make the release of dist/ in a folder for a static web server."""
    allow = Leniency(allow_lean, allow_unresolved, allow_mixed, allow_partial)
    keys = tuple(map(Path, sign))
    options = PublishOptions(tag=tag, dry_run=dry_run, draft=draft, replace=replace, allow=allow, keys=keys)
    wiring = make_wiring(dist)
    console = document_console(wiring) if json else None
    done = releasing.mirror_dist(wiring, options, to)
    if console:
        console.show(dumps(status_answer(done)))


@verb(
    iterable=["root_key", "release_key", "sign"],
    root_key="file of a key that signs roots; the named keys replace all earlier ones",
    release_key="file of a key that signs releases; the named keys replace all earlier ones",
    threshold="how many of the root keys must sign a root",
    release_threshold="how many of the release keys must sign a release",
    sign=_ALLOW["sign"],
)
def root(
    _context: Context,
    root_key: list[str],
    release_key: list[str],
    sign: list[str],
    threshold: str | None = None,
    release_threshold: str | None = None,
) -> None:
    """Set who may sign releases: write the next trust/N.root.json, or sign the newest one."""
    change = releasing.root_change(root_key, release_key, threshold, release_threshold)
    releasing.write_root(make_wiring(), change, tuple(map(Path, sign)))


@verb(
    positional=["release"],
    release="a tag on GitHub, a release's folder or URL/ on a mirror, a package's file",
    variant="rebuild only the packages of this variant",
    into="folder of what is built and fetched (default: dist/rebuild)",
    jobs="units compiled at once",
    trust_unsigned="take a release that the keys in trust/ have not signed, such as a build of your own",
    json=JSON,
)
def rebuild(
    _context: Context,
    release: str,
    variant: str | None = None,
    into: str | None = None,
    jobs: str | None = None,
    trust_unsigned: bool = False,
    json: bool = False,
    dist: str | None = None,
) -> None:
    """Build a release's packages again from the same pins; exit with 6 and the differences if they differ."""
    wiring = make_wiring(dist)
    console = document_console(wiring) if json else None
    workers = None if jobs is None else parse_jobs(jobs)
    folder = Path(into) if into else wiring.dist / "rebuild"
    trust = None if trust_unsigned else project_trust(wiring)
    answer = rebuild_release(wiring, release, variant, resolved(folder), workers, trust)
    if console:
        console.show(dumps(answer))
    require_same(wiring, release, answer)
