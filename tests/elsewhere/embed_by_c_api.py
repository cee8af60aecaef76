"""Program that embeds texts with all-MiniLM-L6-v2 by a host library's C API, through the client's own calls.

Emulated Pythons run it. Arguments: the project's folder, the library, the model and a JSON file with the
model's inputs. Output: the version, and the dot products of the first embedding with each.
"""

import ctypes
import json
import struct
import sys
from pathlib import Path

WIDTH = 384

INT64 = 7
"""Number of int64 in the C API's enumeration ``ONNXTensorElementDataType``."""


def main(root: str, library: str, model: str, inputs: str) -> None:
    sys.path.insert(0, root)
    from builder.client.trials import ort_calls as ort  # noqa: PLC0415 - imported from ``root``
    from builder.formats.ort_api import OrtApi, ort_path  # noqa: PLC0415

    runtime = OrtApi(library)
    env = runtime.make("CreateEnv", ctypes.c_int(ort.LOG_ERRORS), ctypes.c_char_p(b"test"))
    options = runtime.make("CreateSessionOptions")
    session = runtime.make("CreateSession", env, ort_path(model), options)
    rows = json.loads(Path(inputs).read_text(encoding="utf-8"))
    numbers, tensors = [], {}
    for name, table in rows.items():
        flat = [number for row in table for number in row]
        numbers.append(struct.pack(f"<{len(flat)}q", *flat))
        tensors[name] = runtime.tensor(INT64, [len(table), len(table[0])], numbers[-1], len(numbers[-1]))
    (found,) = runtime.run(session, tensors, ["embedding"])
    start = runtime.make("GetTensorMutableData", found)
    values = ctypes.cast(start, ctypes.POINTER(ctypes.c_float))
    texts = len(next(iter(rows.values())))
    vectors = [values[WIDTH * text : WIDTH * (text + 1)] for text in range(texts)]
    products = [sum(a * b for a, b in zip(vectors[0], other, strict=True)) for other in vectors]
    print(json.dumps({"version": runtime.version, "products": products}))  # noqa: T201 - the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
