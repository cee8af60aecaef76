"""Tests of rendered Dockerfiles against reviewed text: a template's change shows as a diff of its output.

``.venv/bin/python -m pytest tests/golden --golden`` writes the files anew.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.compile.plan import PlanOptions, decide
from builder.compile.render import render
from builder.config.build_plan import widened
from builder.config.variants import Origin
from builder.formats.package_names import Host, Profile
from builder.io.wiring import Wiring
from tests.support.fakes.ports import FakeReporter


def renderings(root: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of the renderings of compiled variants on each base, and of a repacked wheel."""
    wiring = Wiring(root, reporter=FakeReporter())
    project, lock = wiring.project, wiring.lock
    compiled = [one.name for one in project.variants.values() if not one.is_official]
    cases = [(variant, base, Origin.SOURCE, base) for variant in compiled for base in project.bases]
    for variant, base, origin, end in (*cases, ("modern", "assembled", Origin.WHEEL, "wheel")):
        options = PlanOptions(profile=Profile.FULL, host=Host.WHEEL)
        plan = widened(decide(project, project.variants[variant], options, base, origin))
        rendered = render(plan, lock, wiring.loader)
        yield f"{variant}.{end}.Dockerfile", rendered.dockerfile
        yield f"{variant}.{end}.runtime.Dockerfile", rendered.runtime_dockerfile


def test_templates_render_what_was_reviewed(root: Path, request: pytest.FixtureRequest) -> None:
    folder, rendered = root / "tests/golden", dict(renderings(root))
    if request.config.getoption("--golden"):
        for name, text in rendered.items():
            (folder / name).write_text(text, encoding="utf-8")
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*Dockerfile")} == rendered
