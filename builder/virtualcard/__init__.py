"""A stand-in for CUDA's runtime: what a package's CUDA provider does on a card that is not there.

``runtime.c`` and ``libraries.c`` answer for cudart, cuBLAS and cuDNN, ``resolver.c`` has the driver's rules,
``driver.c`` is what is opened as libcuda.so.1; ``compile.sh`` makes one library of them. The Python puts it
before NVIDIA's libraries, opens models in a child process, and reads what was seen. ``binary.coverage`` and
``gpu.architectures`` are not known here: their answers are compared with this room's.
"""
