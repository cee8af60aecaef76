"""Stand-ins for the ports, and calls of verbs in a process of their own."""
