"""A package's way onto the machine: completed, verified, tried out, then switched to in one step."""
