"""A stand-in for CUDA's runtime, which shows what a package's CUDA provider does on a card that is not there.

``runtime.c`` and ``libraries.c`` implement functions of cudart, cuBLAS and cuDNN, ``driver.c`` those of
libcuda.so.1, and ``resolver.c`` the driver's rules; ``compile.sh`` compiles them to one library. The Python
modules load this library in place of NVIDIA's, open models in a child process, and read its report. They do
not use ``binary.coverage`` and ``gpu.compatibility``, because their results are compared with the report.
"""
