"""A rendered Dockerfile of a few bytes with an input of each kind."""

from builder.config.build_plan import Rendered
from builder.config.inputs import Input, InputKind

NVCC = Input(InputKind.DEBIAN, "pool/non-free/n/nvidia-cuda-toolkit/nvcc.deb")

RE2 = Input(InputKind.DEBIAN, "pool/main/r/re2/re2.orig.tar.gz")

CUDNN = Input.wheel("nvidia-cudnn-cu12==9.10.2.21")

RENDERED = Rendered(
    dockerfile="FROM scratch AS artifact\n",
    runtime_dockerfile="FROM scratch AS runtime\n",
    contexts={"cudnn": CUDNN},
    debs=(NVCC,),
    sources=(RE2,),
    network=False,
    toolchain_key="01234567",
)
