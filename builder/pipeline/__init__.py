"""The steps of the pipeline, one module each: use cases over the ports of ``builder.ports``."""
