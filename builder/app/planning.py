"""The work of the verbs plan, render --explain, bake and variant, for which nothing is built."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from builder.builds.all_variants import joint_compile_work, joint_disk_needs
from builder.builds.disk_needs import by_step, disk_lines
from builder.builds.estimate import work_document, work_text
from builder.builds.variant_build import BuildOptions, VariantBuild
from builder.builds.wiring import Wiring
from builder.config.new_variant import with_variant
from builder.console import Console
from builder.errors import NothingToDoError, ValidationError
from builder.files.atomic_write import replace_folder, scratch_folder, write_file
from builder.files.disk import absolute, disk_errors, resolved
from builder.onnxruntime.explain import Explanation, explain
from builder.pipeline.bake import BAKE_FILE, is_bakes, write_bake
from builder.project.build_plan import BuildPlan

BAKE_FOLDER = "bake"
"""The folder in ``dist`` that ``bake`` writes by default."""


def plans_json(builds: Mapping[str, VariantBuild]) -> str:
    """Return the plans as one JSON document (``docs/schemas/plan.schema.json``)."""
    plans = [one.forecast() for one in builds.values()]
    together = [
        {"variant": need.step, "bytes": need.size, "folder": str(need.folder)}
        for need in by_step(joint_disk_needs(builds))
        if need.size
    ]
    compiled = work_document(*joint_compile_work(builds.values()))
    document = {"format": 1, "plans": plans, "together": together, "compile_together": compiled}
    return json.dumps(document, indent=2)


def show_plans(wiring: Wiring, builds: Mapping[str, VariantBuild]) -> None:
    """Report each plan and, if there are several, the time and disk space that their builds take together."""
    for one in builds.values():
        one.show_plan()
    if len(builds) > 1:
        work, jobs = joint_compile_work(builds.values())
        if work.total:
            wiring.reporter.say(f"time     {work_text(work, jobs)}: what variants share is compiled once")
        for line in disk_lines(joint_disk_needs(builds)):
            wiring.reporter.say(line)


def show_explanation(console: Console, plans: Iterable[BuildPlan]) -> None:
    """Print each plan's differences from the official build, a line each, then the version's notes."""
    for plan in plans:
        console.show("\n".join(_lines(explain(plan))))


def _lines(explained: Explanation) -> Iterator[str]:
    yield explained.title
    if not explained.differences:
        yield "  no option differs"
    yield from (f"  {line}" for line in explained.differences)
    yield from (f"  note: {note}" for note in explained.notes)


def add_variant(wiring: Wiring, name: str, sm: Sequence[str], options: BuildOptions) -> None:
    """Show the plan of a new variant, then add the variant to ``variants.yaml``.

    Nothing is written if the file or the plan refuses the variant. Raises what ``with_variant`` and
    ``VariantBuild.show_plan`` do.
    """
    path = wiring.project_file
    text, wiring.project = with_variant(wiring.project_text, path.name, name, sm)
    VariantBuild(wiring, wiring.project.variants[name], options, wiring.reporter).show_plan()
    write_file(resolved(path), text.encode())
    wiring.reporter.say(f"{path.name} has {name} now. Next run `./run docs` and `./run render --golden`")


def bake(wiring: Wiring, builds: Mapping[str, VariantBuild], out: str | None) -> None:
    """Write or replace the folder ``out``, from which ``docker buildx bake`` compiles variants.

    Raises ``NothingToDoError`` if none of the variants is compiled, and ``ValidationError`` if ``out`` holds
    something other than bake's files.
    """
    folder = resolved(absolute(Path(out)) if out else wiring.dist / BAKE_FOLDER)
    is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not is_free and not is_bakes(folder):
        raise ValidationError(
            f"--out {folder}", cause="bake did not make what is in it", advice="Name a new folder."
        )
    compiled = {name: build for name, build in builds.items() if build.is_compiled()}
    for name in (one for one in builds if one not in compiled):
        wiring.reporter.say(f"{name} is left out: nothing of it is compiled")
    if not compiled:
        raise NothingToDoError("There is nothing to bake: none of these variants is compiled.")
    with scratch_folder(folder, needed=0) as fresh:
        rendered = {name: build.lay_out(fresh / name) for name, build in compiled.items()}
        write_bake(fresh, rendered, wiring.store(wiring.lock))
        with disk_errors(folder, also="If it is a mount point, name a folder in it."):
            replace_folder(folder, fresh)
    wiring.reporter.say(
        f"{folder}: `docker buildx bake --file {BAKE_FILE}` there compiles {' '.join(rendered)}"
    )
