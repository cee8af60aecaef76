"""Rules that return findings: device code, dependencies, symbols, dlopen, toolkits, wheel records."""
