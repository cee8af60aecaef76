"""Same answers: onnx's backend tests on a package's libraries, and on the official wheel's of its version."""
