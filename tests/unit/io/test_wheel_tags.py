"""Tests of pip's options from a wheel's name.

Names are those of the index; tags follow PEP 425 and PEP 600.
"""

from __future__ import annotations

import pytest

from builder.errors import ConfigError
from builder.io.wheel import tag_arguments
from tests.support.messages import Refused, Told


@pytest.mark.parametrize(
    "filename",
    [
        "onnxruntime_gpu-1.23.2-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
        "nvidia_cublas_cu12-12.9.1.4-py3-none-manylinux_2_27_x86_64.whl",
        "thing-1.0-py2.py3-none-any.whl",
        "thing-1.0-cp39-abi3-win_amd64.whl",
        "thing-1.0-cp312-abi3-win_amd64.whl",
    ],
)
def test_exactly_the_locked_file(told: Told, filename: str) -> None:
    told("\n".join(tag_arguments(filename)))


def test_a_name_that_is_no_wheel(refused: Refused) -> None:
    with refused(ConfigError):
        tag_arguments("cudnn.zip")
