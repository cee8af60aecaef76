"""Tests of pip's options from a wheel's name.

Names are those of the index; tags follow PEP 425 and PEP 600.
"""

from __future__ import annotations

import pytest

from builder.errors import ConfigError
from builder.io.wheel import tag_arguments


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        (
            "onnxruntime_gpu-1.23.2-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
            [
                "--platform=manylinux_2_27_x86_64",
                "--platform=manylinux_2_28_x86_64",
                "--python-version=3.11",
                "--implementation=cp",
                "--abi=cp311",
            ],
        ),
        (
            "nvidia_cublas_cu12-12.9.1.4-py3-none-manylinux_2_27_x86_64.whl",
            [
                "--platform=manylinux_2_27_x86_64",
                "--python-version=3.11",
                "--implementation=py",
                "--abi=none",
            ],
        ),
        (
            "thing-1.0-py2.py3-none-any.whl",
            ["--platform=any", "--python-version=3.11", "--implementation=py", "--abi=none"],
        ),
        (
            "thing-1.0-cp39-abi3-win_amd64.whl",
            ["--platform=win_amd64", "--python-version=3.11", "--implementation=cp", "--abi=abi3"],
        ),
        (
            "thing-1.0-cp312-abi3-win_amd64.whl",
            ["--platform=win_amd64", "--python-version=3.12", "--implementation=cp", "--abi=abi3"],
        ),
    ],
)
def test_exactly_the_locked_file(filename: str, expected: list[str]) -> None:
    assert tag_arguments(filename) == expected


def test_a_name_that_is_no_wheel() -> None:
    with pytest.raises(ConfigError, match=r"'cudnn\.zip' is not the name of a wheel"):
        tag_arguments("cudnn.zip")
