"""ortpacks: ONNX Runtime GPU packages, one per GPU generation."""
