"""A reference service: embeddings, vector search, speech segments and other ONNX models over HTTP."""
