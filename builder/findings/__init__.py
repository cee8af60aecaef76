"""Coded findings: one type, the catalogue of codes, and the checks of ``doctor``, a module for each topic.

``observed`` is what a machine showed, each ``check_*`` says what some of it means, ``diagnose`` runs them
all. Ships in ``ortpacks.pyz``.
"""
