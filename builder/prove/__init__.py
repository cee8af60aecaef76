"""What a package is held to: its bytes, a self-test in a container, virtual cards."""
