"""Coded findings: the catalogue of codes, and the rules of ``doctor`` by topic.

``observed`` is what a machine showed, each ``check_*`` says what some of it means, ``diagnose`` runs them
all. Ships in ``ortpacks.pyz``.
"""
