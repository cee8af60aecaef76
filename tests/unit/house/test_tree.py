"""Tests of the source tree's rules: sizes of folders, unique names, shipped modules, directions
of imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from builder.client import __version__
from builder.io.archive.client_zipapp import SHIPPED
from tests.support import ROOT

MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "builder").rglob("*.py"))

SHIPPED_FILES = [name for name in MODULES if name.removeprefix("builder/").startswith(SHIPPED)]

NEWER = {"tomllib"}
"""Modules of this Python's standard library that 3.9's lacks: https://docs.python.org/3/whatsnew/."""


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def twice(places: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_public_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for name in MODULES:
        for node in parsed(ROOT / name).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert twice(places) == {}


def imports_of(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names of modules that are imported anywhere in the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield str(node.module)


def ships(module: str) -> bool:
    return module.startswith(
        tuple(f"builder.{name.removesuffix('.py').replace('/', '.')}" for name in SHIPPED)
    )


@pytest.mark.parametrize("name", SHIPPED_FILES)
def test_what_ships_imports_what_ships_or_the_standard_library(name: str) -> None:
    standard = sys.stdlib_module_names - NEWER
    strange = {
        module
        for module in imports_of(parsed(ROOT / name))
        if not (ships(module) or module.split(".")[0] in standard)
    }
    assert strange == set()


def test_layers_hold_every_room() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layered = [each for each in linter["contracts"] if each["type"] == "layers"]
    assert [
        each for each in layered if each.get("exhaustive") is not True or "exhaustive_ignores" in each
    ] == []
    assert ["builder"] in [each["containers"] for each in layered]


DOTTED = re.compile(r"\bbuilder(?:\.[A-Za-z_]\w*)+")

NO_MODULE = {"builder.id", "builder.py", "builder.rglob"}
"""Dotted names that are no modules: a field of SLSA's provenance, a file's name, and a call in a test."""


@cache
def code_of(file: Path) -> str:
    """Return a module's code without its own docstring, whose words are no names."""
    tree = parsed(file)
    own = tree.body[ast.get_docstring(tree) is not None :]
    return ast.unparse(ast.Module(own, []))


def leads_somewhere(dotted: str) -> bool:
    """Return whether ``dotted`` is a module or a name that occurs in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.is_file():
            rest = parts[length:]
            return not rest or re.search(rf"\b{rest[0]}\b", code_of(file)) is not None
    return False


@pytest.mark.parametrize("folder", ["builder", "tests", "templates", "benchmarks", ".github"])
def test_modules_are_named_as_they_are(folder: str) -> None:
    """The test also reads strings: programs that tests start, messages, workflows."""
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".j2", ".sh", ".yml")]
    named = {name for path in files for name in DOTTED.findall(path.read_text(encoding="utf-8"))}
    assert {name for name in named - NO_MODULE if not leads_somewhere(name)} == set()


PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]

OF_ONNX_RUNTIME = {"moe/ft_moe/moe_gemm_kernels_template.h", "docs/OperatorKernels.md"}


@pytest.mark.parametrize("project", [".", "runtime", "service"])
def test_the_tree_says_one_version(root: Path, project: str) -> None:
    text = (root / project / "pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["project"]["version"] == __version__


def test_every_file_that_a_page_names_is_there() -> None:
    """A path in code quotes is relative to the root, ``builder``, ``docs``, ``templates`` or ``tests``."""
    named = {
        (page.name, path)
        for page in PAGES
        for path in re.findall(r"`((?:[\w.]+/)+\w+\.(?:py|c|h|sh|j2|yml|yaml|md))`", page.read_text())
    }
    homes = [ROOT / folder for folder in ("", "builder", "docs", "templates", "tests")]
    gone = {
        (page, path)
        for page, path in named
        if path not in OF_ONNX_RUNTIME and not any((home / path).is_file() for home in homes)
    }
    assert len(named) > 30
    assert gone == set()


RUNTIME_FILES = sorted((ROOT / "runtime/ortpacks_runtime").glob("*.py"))


@pytest.mark.parametrize("path", RUNTIME_FILES, ids=lambda path: path.name)
def test_the_runtime_layer_needs_numpy_and_onnxruntime_alone(path: Path) -> None:
    """Applications install it with Python 3.10 or newer; ``tomli`` is 3.10's ``tomllib``."""
    found = {name.split(".")[0] for name in imports_of(parsed(path))}
    assert found - set(sys.stdlib_module_names) <= {"numpy", "onnxruntime", "ortpacks_runtime", "tomli"}


def test_no_tests_name_holds_the_time(request: pytest.FixtureRequest) -> None:
    """Processes that collect in different seconds would have different tests, and pytest-xdist ends."""
    times = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:")
    assert [item.nodeid for item in request.session.items if times.search(item.nodeid)] == []


TESTS = sorted(path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*.py"))

TIERS = {path.parts[0] for path in TESTS if path.name.startswith("test_")}


def room_of(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders whose tests may share a helper that lies in one of them."""
    return parts[: 2 if parts[0] in ("unit", "component") else 1]


def borrowed(file: Path, tree: ast.Module) -> list[str]:
    """Return what a test or helper imports from test modules and from helpers of other rooms."""
    imported = [
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    ways = {name: tuple(name.split(".")[1:]) for name in imported if name.startswith("tests.")}
    return [
        name
        for name, way in ways.items()
        if any(part.startswith("test_") for part in way)
        or (way[0] in TIERS and room_of(way) != room_of(file.parts))
    ]


def test_tests_share_code_by_the_shared_folders_alone() -> None:
    borrowers = {str(file): borrowed(file, parsed(ROOT / "tests" / file)) for file in TESTS}
    assert {file: names for file, names in borrowers.items() if names} == {}
