"""Run in the container: a session of the Python wheel, which asks for CUDA and prints a line of JSON.

Arguments: the model's path, and the folder whose libraries are loaded before, or nothing.
"""

import json
import sys

import onnxruntime

if len(sys.argv) > 2:
    onnxruntime.preload_dlls(directory=sys.argv[2])
session = onnxruntime.InferenceSession(
    sys.argv[1], providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
)
with open("/proc/self/maps") as maps:
    loaded = sorted({line.split()[-1] for line in maps if ".so" in line})
print(  # the error that it fell back for was printed above, by itself
    json.dumps({"version": onnxruntime.__version__, "providers": session.get_providers(), "loaded": loaded})
)
