"""What is built: ``variants.yaml`` and ``inputs.lock`` as values, and the plan of one package."""
