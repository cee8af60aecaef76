"""The smallest model that computes something, for the doctor and for questions to ONNX Runtime."""

import base64

ONE_NODE = base64.b64decode(
    "CAcSADpAChEKAXgKAXgSAXkiBk1hdE11bBIBZ1oTCgF4Eg4KDAgBEggKAggCCgIIAmITCgF5Eg4KDAgBEggKAggCCgIIAkIECgAQDQ=="
)
"""An ONNX model of opset 13: ``y = x @ x`` for a matrix of two rows and columns."""
