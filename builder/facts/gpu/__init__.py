"""Facts about NVIDIA's GPUs: ``table`` has a row for each capability; other modules compute from the rows.

All other packages take their facts about GPUs from here. Ships in ``ortpacks.pyz``.
"""
