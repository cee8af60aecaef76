"""Coded findings: their type, the catalogue of codes, and the checks of ``doctor``, a module per topic.

``observations`` has the type of what was observed on a machine, each ``check_*`` derives findings from it,
``diagnose`` runs all checks. The package ships in ``ortpacks.pyz``.
"""
