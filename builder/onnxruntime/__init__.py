"""What depends on ONNX Runtime's version: rules, architectures, compile units, profiles, official builds."""
