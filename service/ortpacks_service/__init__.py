"""A reference service: embeddings, vector search, speech segments and other ONNX models over HTTP."""

import os

VERSION = "1.0.0"

# Official builds of ONNX Runtime 1.31.1 send usage data to Microsoft otherwise; 1.23.2 has no telemetry.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
