"""Values to findings: architectures, dependencies, symbols, dlopen, toolkits, wheel records."""
