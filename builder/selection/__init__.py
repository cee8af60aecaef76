"""Rules for the choice of a package for a machine, with a reason against each other package.

The package ships in ``ortpacks.pyz``.
"""
