"""Tests of the completion of ``./run`` in zsh, in a container that has it."""

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.io.wiring import Wiring
from tests.elsewhere.systems import imported
from tests.elsewhere.users import Computer, computer
from tests.support import ROOT

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        sys.version_info[:2] != (3, 11), reason="Debian 12's Python is 3.11 and runs this one's packages"
    ),
]

PYTHON = Path(sys.base_prefix, "bin", "python3")

PACKAGES = Path(sysconfig.get_path("purelib")).resolve()

RUN = f"""\
#!/bin/sh
cd {ROOT}
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={PACKAGES} exec {PYTHON} -m builder.build.verbs.command_line "$@"
"""
"""A ``./run`` that makes no .venv."""

TYPED = """
zmodload zsh/zpty
zpty shell zsh -f
zpty -w shell "autoload -Uz compinit; compinit -u"
zpty -w shell 'eval "$(./run --print-completion-script zsh)"; echo rea""dy'
zpty -r shell out "*ready*"
zpty -w -n shell $'{words}\\t'
zpty -r shell out "*{wanted}*"
"""
"""A program for zsh that types words and a tab into another zsh until that one shows what is wanted."""

COMPLETED = [("inst", "install"), ("build --vari", "--variant"), ("inspect some-wh", "some-wheel.whl")]


@pytest.fixture(scope="module")
def shells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Computer]:
    """Yield a computer with the project's verbs behind ``./run`` in its folder ``/home/somebody``."""
    wiring = Wiring(ROOT)
    folder = tmp_path_factory.mktemp("work")
    (folder / "run").write_text(RUN)
    (folder / "run").chmod(0o755)
    (folder / "some-wheel.whl").touch()
    here = [ROOT, PACKAGES, *([Path(sys.base_prefix)] if sys.base_prefix != "/usr" else [])]
    mounts = {"/home/somebody": folder, **{str(path): path for path in here}}
    tar = wiring.rootfs(wiring.reporter).tar("bookworm", ["python3", "zsh"])
    with imported(tar, "shells") as image, computer(image, mounts) as found:
        yield found


@pytest.mark.parametrize(("words", "wanted"), COMPLETED)
def test_zsh_completes_verbs_flags_and_files(shells: Computer, words: str, wanted: str) -> None:
    program = TYPED.format(words=f"./run {words}", wanted=wanted)
    shells.sh(f"cd /home/somebody; timeout 30 zsh -f <<'END'\n{program}\nEND")
