"""Values and rules: values in, values out. Standard library only, Python 3.9 and newer."""
