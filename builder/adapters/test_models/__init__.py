"""The models of the self-test and of ``inspect --operators``, made with the onnx library."""
