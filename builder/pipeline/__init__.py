"""This package has the pipeline's steps, a module each: use cases over the ports of ``builder.ports``."""
