"""A variant's build from plan to verified package; ``workshop`` wires the adapters."""
