"""What depends on ONNX Runtime's version: compile units, dispatch, operators, its CMake files."""
