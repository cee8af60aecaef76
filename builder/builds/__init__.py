"""This package runs a variant's build, from plan to verified packages. ``wiring`` creates the adapters."""
