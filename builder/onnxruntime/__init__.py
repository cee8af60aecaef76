"""Facts and rules by ONNX Runtime's version: architectures, compile units, profiles, official builds."""
