"""Program for the container: it opens a session of the Python wheel for CUDA and prints a line of JSON.

Arguments: the model's path and, optionally, a folder whose libraries are loaded before. ONNX Runtime itself
prints why a session falls back to the CPU.
"""

import json
import sys
from pathlib import Path

import onnxruntime

if len(sys.argv) > 2:
    onnxruntime.preload_dlls(directory=sys.argv[2])
asked = ["CUDAExecutionProvider", "CPUExecutionProvider"]
session = onnxruntime.InferenceSession(sys.argv[1], providers=asked)
maps = Path("/proc/self/maps").read_text().splitlines()
said = {
    "version": onnxruntime.__version__,
    "providers": session.get_providers(),
    "loaded": sorted({line.split()[-1] for line in maps if ".so" in line}),
}
sys.stdout.write(f"{json.dumps(said)}\n")
