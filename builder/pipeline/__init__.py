"""One module a step of the pipeline: use cases over the ports of ``builder.ports``."""
