"""Coded findings: their type, the catalogue of codes, and the checks of ``doctor``, a module per topic.

``observed`` has the observations of a machine, each ``check_*`` derives findings from them, ``diagnose`` runs
all checks. The package ships in ``ortpacks.pyz``.
"""
