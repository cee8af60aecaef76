"""inspect, as the verb and as ``ortpacks-inspect.pyz``, which needs nothing but Python."""
