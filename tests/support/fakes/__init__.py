"""Stand-ins for ports, and the verbs in a process."""
