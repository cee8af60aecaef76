"""This package has the values of ``variants.yaml`` and ``inputs.lock``, and the plan of one package."""
