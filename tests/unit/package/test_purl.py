"""Package URLs, spelled as in the purl specification's examples and type definitions."""

from __future__ import annotations

import pytest
from packageurl import PackageURL

from builder.package import purl


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (purl.pypi("nvidia-cublas-cu12==12.9.1.4"), "pkg:pypi/nvidia-cublas-cu12@12.9.1.4"),
        (purl.pypi("onnxruntime==1.23.2@macos-arm64"), "pkg:pypi/onnxruntime@1.23.2"),
        (purl.pypi("Torch_Fork==2.1+cu12.post1"), "pkg:pypi/torch-fork@2.1%2Bcu12.post1"),
        (purl.github("Microsoft/onnxruntime", "v1.21.0"), "pkg:github/microsoft/onnxruntime@v1.21.0"),
        (
            purl.docker("nvidia/cuda:12.9.1-devel-ubuntu22.04"),
            "pkg:docker/nvidia/cuda@12.9.1-devel-ubuntu22.04",
        ),
        (purl.docker("ubuntu:22.04"), "pkg:docker/ubuntu@22.04"),
        (
            purl.debian("pool/non-free/n/x/nvidia-cuda-toolkit_12.4.131~12.4.1-2_amd64.deb"),
            "pkg:deb/debian/nvidia-cuda-toolkit@12.4.131~12.4.1-2?arch=amd64",
        ),
        (purl.deb("g++", "4:12.2.0-3", "amd64"), "pkg:deb/debian/g%2B%2B@4:12.2.0-3?arch=amd64"),
        (
            purl.debian("pool/main/o/onnxruntime/onnxruntime_1.21.0+dfsg.orig.tar.xz"),
            "pkg:deb/debian/onnxruntime@1.21.0%2Bdfsg?arch=source",
        ),
        (purl.debian("pool/main/x/odd name.zip"), "pkg:generic/odd%20name.zip"),
    ],
)
def test_a_purl_is_spelled_as_specified_and_reads_back(made: str, wanted: str) -> None:
    assert made == wanted
    assert PackageURL.from_string(made).to_string() == wanted


def test_the_forms_of_debians_names_are_read() -> None:
    """Names of inputs.lock, and the packages they are files of."""
    names = {
        "pool/main/b/boost1.83/libboost1.83-dev_1.83.0-4.2_amd64.deb": "libboost1.83-dev",
        "pool/main/h/howardhinnant-date/howardhinnant-date_3.0.3+ds.orig.tar.xz": "howardhinnant-date",
        "pool/main/s/safeint/libsafeint-dev_3.0.28a+dfsg-4_all.deb": "libsafeint-dev",
    }
    assert {path: PackageURL.from_string(purl.debian(path)).name for path in names} == names
