"""Facts that hold for every build: NVIDIA's GPUs and toolkits, and what ONNX Runtime's sources do."""
