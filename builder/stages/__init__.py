"""One module a stage, named by the verb: use cases over the ports of ``core.ports``."""
