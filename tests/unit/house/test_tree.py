"""Tests of the source tree's rules: sizes of folders, unique names, shipped modules, directions
of imports."""

import ast
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

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


def test_no_two_public_classes_have_one_name() -> None:
    names = [
        node.name
        for name in MODULES
        for node in parsed(ROOT / name).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert [name for name, number in Counter(names).items() if number > 1] == []


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


DOTTED = re.compile(r"\bbuilder(?:\.(?!id\b|py\b|rglob\b)[A-Za-z_]\w*)+")
"""Without SLSA's field ``builder.id``, a file ``builder.py`` and a call ``builder.rglob`` in a test."""


def test_modules_are_named_as_they_are() -> None:
    """The test also reads strings: programs that tests start, messages, workflows."""
    folders = ("builder", "tests", "templates", "benchmarks", ".github")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text() for path in files if path.suffix in (".py", ".j2", ".sh", ".yml")]
    named = {name for text in texts for name in DOTTED.findall(text)}
    assert len([resolve_name(name) for name in named]) > 100


PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]

OF_ONNX_RUNTIME = {"moe/ft_moe/moe_gemm_kernels_template.h", "docs/OperatorKernels.md"}


@pytest.mark.parametrize("project", [".", "pypi", "runtime", "service"])
def test_the_tree_says_one_version(root: Path, project: str) -> None:
    text = (root / project / "pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["project"]["version"] == __version__
    assert json.loads((root / "npm/package.json").read_text(encoding="utf-8"))["version"] == __version__


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


ROOM = re.compile(
    r"^ *(?:from|import) tests\.((?:component|unit)\.\w+|gpu|images|integration|referees)\b", re.MULTILINE
)
"""The rest of ``tests`` has modules that any test may use."""


def test_tests_share_code_by_the_shared_folders_alone() -> None:
    """Beside those a test may use helpers of its own room, and no other test."""
    borrowed = []
    for file in (ROOT / "tests").rglob("*.py"):
        home, text = file.relative_to(ROOT / "tests").as_posix().replace("/", "."), file.read_text()
        borrowed += [(home, room) for room in ROOM.findall(text) if not home.startswith(f"{room}.")]
        borrowed += [(home, name) for name in re.findall(r"^ *from tests\S*\.(test_\w+)", text, re.MULTILINE)]
    assert borrowed == []


def test_pytest_enters_every_folder_of_tests(pytestconfig: pytest.Config) -> None:
    """Defect: pytest's own list of folders that hold no tests has ``build``, a room of tests here."""
    folders = {part for path in (ROOT / "tests").rglob("test_*.py") for part in path.relative_to(ROOT).parts}
    patterns = pytestconfig.getini("norecursedirs")
    assert [folder for folder in folders if any(fnmatch(folder, pattern) for pattern in patterns)] == []
