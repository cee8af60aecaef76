"""Tests of the benchmark of the heaviest units: its units, and what it takes from the compile step."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.heaviest import heaviest, main, of_step
from builder.inside import costs
from tests.integration.faults_world import configured_tree
from tests.support import ROOT


def test_no_other_cuda_unit_of_the_sample_takes_more_memory() -> None:
    known = costs.read(ROOT / "builder/inside/costs.tsv")
    peaks = [known[unit].peak for unit in heaviest(40)]
    assert peaks == sorted(peaks, reverse=True)
    assert [known[unit].peak for unit in heaviest(12)] == peaks[:12]


def test_targets_are_compiled_with_the_variables_and_flags_of_the_compile_step(tmp_path: Path) -> None:
    dockerfile = configured_tree((ROOT / "tests/golden/modern.assembled.Dockerfile").read_text())
    (tmp_path / "python3").write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"\n')
    (tmp_path / "nvcc").write_text("#!/bin/sh\necho compute_50; echo compute_90\n")
    for program in tmp_path.iterdir():
        program.chmod(0o755)
    script = f"JOBS=0 MEMORY_MIB=8192 AHEAD=\n{of_step(dockerfile)}drive one two; echo $NVCC_ARCH_LIST"
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=True)
    called, architectures = done.stdout.splitlines()
    assert called.startswith("/ortpacks -m builder.inside.drive --tree /build --pool /pool ")
    assert " --jobs 0 --memory 8192 --architectures 3 " in called
    assert called.endswith(" --record /build/record.json one two")
    assert architectures == "500,900"


@pytest.mark.parametrize(
    "argument",
    [
        "--memory=much",
        "--memory=0G",
        "--runs=0",
        "--jobs=-1",
        "--units=many",
        "--json=/no/folder/file",
        "--json=/",
    ],
)
def test_a_wrong_argument_is_refused(
    argument: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["heaviest", argument])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert argument.partition("=")[2] in capsys.readouterr().err
