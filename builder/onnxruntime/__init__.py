"""What depends on ONNX Runtime's version: profiles, compile units, official builds, operators."""
