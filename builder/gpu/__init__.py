"""NVIDIA's GPUs. ``table`` has a row for each of them; the other modules say what follows from the rows.

Each fact stands here once; every other room derives from it. Ships in ``ortpacks.pyz``.
"""
