"""NVIDIA's GPUs: architectures, what runs on what, generations, products, toolkits and drivers.

Each fact stands here once; every other room derives from it. Ships in ``ortpacks.pyz``.
"""
