"""What is true whatever is built: NVIDIA's GPUs and toolkits, and what ONNX Runtime's sources do."""
