"""Which package, layout and fallback fit a machine, and why."""
