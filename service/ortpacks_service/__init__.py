"""A reference service: embeddings, vector search, speech segments and other ONNX models over HTTP."""

import os

VERSION = "1.0.0"

# Official builds of ONNX Runtime from 1.30.0 on would send usage data to Microsoft; 1.26.0 has no telemetry.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
