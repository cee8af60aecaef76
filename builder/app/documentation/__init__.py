"""This package holds the work of the verbs docs, builds and atlas, which write pages of ``docs``."""
