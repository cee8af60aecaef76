"""Tests of the benchmark of relocatable device code: its arguments for nvcc, and its toolkit."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from benchmarks.relocatable import arguments, differing, main, unpack

COMMAND = (
    "/usr/local/bin/unit /usr/bin/ccache /usr/local/cuda/bin/nvcc -forward-unknown-to-host-compiler "
    '-ccbin=/usr/bin/g++-12 -DNAME=\\"a\\" -I/src/nothing -Xfatbin=--raw -std=c++17 '
    '"--generate-code=arch=compute_75,code=[sm_75]" "--generate-code=arch=compute_80,code=[sm_80]" '
    "-Xcompiler -fPIC -MD -MT one.cu.o -MF one.cu.o.d -x cu -c /src/one.cu -o one.cu.o"
)


def test_a_unit_s_arguments_are_without_its_set_and_its_object() -> None:
    expected = '-forward-unknown-to-host-compiler -ccbin=/usr/bin/g++-12 -DNAME="a" -I/src/nothing -std=c++17'
    assert arguments(COMMAND) == [*expected.split(), "-Xcompiler", "-fPIC", "-x", "cu", "-c", "/src/one.cu"]


def test_the_toolkit_is_that_of_all_wheels(tmp_path: Path) -> None:
    for name, file in (("nvcc", "nvidia/cu13/bin/nvcc"), ("nvvm", "nvidia/cu13/nvvm/bin/cicc")):
        with ZipFile(tmp_path / f"{name}.whl", "w") as wheel:
            wheel.writestr(file, name)
            wheel.writestr(f"{name}.dist-info/METADATA", "")
    unpack(tmp_path, tmp_path / "toolkit")
    files = {str(file.relative_to(tmp_path)) for file in tmp_path.glob("toolkit/**/*") if file.is_file()}
    assert files == {"toolkit/nvidia/cu13/bin/nvcc", "toolkit/nvidia/cu13/nvvm/bin/cicc"}


def test_a_kernel_differs_by_its_bytes_or_if_one_object_lacks_it() -> None:
    kernels = {"one": "a", "two": "b"}
    assert differing(kernels, dict(kernels)) == 0
    assert [differing(kernels, other) for other in ({**kernels, "two": "c"}, {"one": "a"})] == [1, 1]
    assert differing({"one": "a"}, kernels) == 1


def test_the_help_has_the_command_that_fetches_the_toolkit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["relocatable", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert "    pip download --no-deps --dest WHEELS nvidia-cuda-nvcc==13" in capsys.readouterr().out


def test_a_folder_without_whole_wheels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["relocatable", f"--wheels={tmp_path}"])
    with pytest.raises(SystemExit, match="no wheel"):
        main()
    (tmp_path / "half.whl").write_bytes(b"PK")
    with pytest.raises(SystemExit, match=r"half\.whl: File is not a zip file\. Fetch"):
        main()
