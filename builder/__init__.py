"""ortpacks: ONNX Runtime for every NVIDIA card from Maxwell to Blackwell."""
