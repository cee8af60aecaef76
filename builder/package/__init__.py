"""From compiled libraries to archives: the files are gathered where the plan says, and bundled."""
